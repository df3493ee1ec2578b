"""The reader RDR2: the router walks through each document, and the paragraphs that it answers with are the evidence.

The router is a model that reads a view, or, without a model, the similarity of its lines to the question. It sees the
first views of a document side by side, then opens one heading after another (RDR2, section 3.1 and Figure 3).
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import get_args

import numpy as np

from keystone.fusion.fuse import interleave
from keystone.generation.context.texts import delimit
from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model, keep_languages
from keystone.generation.prompts.readers import write_route
from keystone.generation.readers.loop import Allowance, Asked, ask_within
from keystone.generation.readers.rdr2.view import (
    Choice,
    View,
    find_hit_nodes,
    flatten,
    light,
    list_section,
    order_by_nearness,
    read_choice,
    show,
)
from keystone.generation.readers.reader import Tools
from keystone.generation.readers.settings import Rdr2Settings
from keystone.generation.readers.structure_reader import Question, StructureReader, is_citable
from keystone.generation.types import Evidence, EvidenceSet, Failure, Step, Stop
from keystone.indexing.structures.cached import read_section_trees
from keystone.indexing.structures.tree import Tree, ancestors
from keystone.indexing.types import Document, Span, merge_spans
from keystone.indexing.vectors.of_segments import sentence_vectors


@dataclass(frozen=True, slots=True)
class Site:
    """A document to walk through for a question, with its rank, its tree, and the stretches that the walk begins at."""

    question: Question
    settings: Rdr2Settings
    rank: int
    document: Document
    tree: Tree
    hits: tuple[Span, ...]

    @property
    def may_expand(self) -> bool:
        """Whether the router may expand headings. Without structure there are no headings."""
        return self.settings.expand and self.settings.structure

    def get_span(self, id: int) -> Span:
        """The stretch of a node."""
        return Span(self.document.id, self.tree[id].start, self.tree[id].end)

    def list_headings(self, id: int) -> list[str]:
        """List the headings above a node, outermost first, without the title."""
        above = reversed(ancestors(self.tree, id))
        return [node.label for node in above if node.kind == "heading" and node.parent is not None]


Router = Callable[[Site, View, Allowance], Awaitable[Asked[Choice]]]
"""Chooses nodes of a view, within an allowance."""


@dataclass(slots=True)
class Walk:
    """A walk so far: the number of the step that answered each node, the headings to expand, and why it stopped."""

    site: Site
    answers: dict[int, int] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    steps: list[Step] = field(default_factory=list)
    stop: Stop = "done"

    def record(self, at: str, view: View, routed: Asked[Choice]) -> None:
        """Take over a router's choice, and write the step down. `at` names the view: `hits` or `section 40`.

        If a reply cannot be used even after a repair, that counts as a refusal. Without a reply, the walk ends.
        """
        site, number = self.site, len(self.steps)
        choice = Choice() if isinstance(routed.found, Failure) else routed.found
        if self.stop == "done" and not (routed.reply and routed.stop == "llm_error"):
            self.stop = routed.stop or "done"
        added = [id for id in choice.answers if id not in self.answers]
        self.answers |= dict.fromkeys(added, number)
        self.waiting += [id for id in choice.expands if id not in self.waiting]
        place = site.question.query_id, site.document.id, site.rank, number
        action, observed = f"{at}: {_describe(choice)}", "; ".join(filter(None, (*choice.expelled, routed.reason)))
        spans, cost = tuple(map(site.get_span, added)), (routed.prompt_tokens, routed.reply_tokens)
        self.steps.append(Step(*place, "route", view.text, routed.reply, action, observed, spans, *cost))


async def walk(router: Router, site: Site, allowance: Allowance) -> Walk:
    """Walk through a document: route its first views, then the headings that the router expands, first in, first out.

    A heading is shown with its content that no view has shown yet. If there is no such content, the heading costs
    nothing. At most `max_expand` headings are shown.
    """
    found, views = Walk(site), list_first_views(site)
    seen = {id for view in views for id in view.content}
    shares = allowance.split(len(views))
    routed = await run_together([partial(router, site, *each) for each in zip(views, shares, strict=True)])
    for view, each in zip(views, routed, strict=True):
        found.record("hits", view, each)
    left = Allowance(sum(share.calls for share in shares), sum(share.tokens for share in shares))
    expansions = 0
    while found.waiting and found.stop == "done":
        heading = found.waiting.popleft()
        unseen = [id for id in list_section(site.tree, heading) if id not in seen]
        if unseen and expansions == site.settings.max_expand:
            found.stop = "max_steps"
        elif unseen:
            expansions += 1
            view = show(site.tree, site.document.text, unseen, site.settings.tree_tokens)
            seen |= view.content.keys()
            found.record(f"section {heading}", view, await router(site, view, left))
    found.steps[-1:] = [replace(step, stop=found.stop) for step in found.steps[-1:]]
    return found


def list_first_views(site: Site) -> list[View]:
    """List the views that a walk begins with: one for each hit; hits with the same content share one.

    A view without content is left out if the router could expand nothing in it.
    """
    tree, text, settings = site.tree, site.document.text, site.settings
    if not settings.content:
        wanted: list[list[int]] = [[]]
    elif not settings.similarity:
        wanted = [_draw_section(site)]
    else:
        hits: dict[frozenset[int], list[int]] = {}
        for span in site.hits:
            nodes = find_hit_nodes(tree, span)
            hits.setdefault(frozenset(light(tree, nodes) if settings.structure else nodes), []).extend(nodes)
        wanted = [order_by_nearness(visible, nodes) for visible, nodes in hits.items() if visible] or [[]]
    opens = site.may_expand and any(node.kind == "content" for node in tree.nodes)
    return [show(tree, text, ids, settings.tree_tokens) for ids in wanted if ids or opens]


def _draw_section(site: Site) -> list[int]:
    """Draw a heading with content at random, always the same for a text; returns its content."""
    sections = [list_section(site.tree, node.id) for node in site.tree.nodes if node.kind == "heading"]
    sections = [section for section in sections if section]
    drawn = int.from_bytes(sha256(site.document.text.encode(errors="surrogatepass")).digest())
    return sections[drawn % len(sections)] if sections else []


def _describe(choice: Choice) -> str:
    named = {"answer": choice.answers, "expand": choice.expands}
    return "; ".join(f"{name} {', '.join(map(str, ids))}" for name, ids in named.items() if ids) or "refuse"


LEAST_COSINE = 0.2
"""Without a model, the lines that have at least this cosine with the question are chosen.

Measured with the local embedding on 30 questions about 6 stories of SQuALITY, with 1,000 tokens of evidence: from 0.2
on, the evidence held 25 % of the references' words. From 0.3 on it held 18 %, and half of the tokens were left.
"""


async def ask_model(model: Model, site: Site, view: View, allowance: Allowance) -> Asked[Choice]:
    """Ask a model for its choice."""
    expand, refuse = site.may_expand, site.settings.refuse
    outline = delimit(site.document.id, view.text)
    request = write_route(expand, refuse).request(asked=site.question.text, document=outline)
    read = partial(read_choice, view=view, expand=expand, refuse=refuse)
    return await ask_within(keep_languages(model), request, read, allowance)


async def compare(sources: Sources, site: Site, view: View, _allowance: Allowance) -> Asked[Choice]:
    """Choose the lines that are similar to the question, the most similar first. A heading counts with those above it.

    If the router may not refuse, and no line is similar enough, the most similar one is chosen.
    """
    return Asked(await asyncio.to_thread(_choose_similar, sources, site, view))


def _choose_similar(sources: Sources, site: Site, view: View) -> Choice:
    question, content = site.question, list(view.content)
    headings = list(view.headings) if site.may_expand else []
    paths = [" > ".join([site.tree.nodes[0].label, *site.list_headings(id), site.tree[id].label]) for id in headings]
    vectors = np.concatenate(
        [
            embed_spans(sources, question.context, [site.get_span(id) for id in content]),
            sentence_vectors(sources.index, paths, sources.threads),
        ]
    )
    cosines = (vectors @ question.vector).tolist()
    ranked = sorted(zip(cosines, content + headings, strict=True), key=lambda each: (-each[0], each[1]))
    similar = [id for cosine, id in ranked if cosine >= LEAST_COSINE]
    if not similar and not site.settings.refuse:
        similar = [id for _, id in ranked[:1]]
    return Choice(tuple(id for id in similar if id in view.content), tuple(id for id in similar if id in view.headings))


async def read_routed(tools: Tools, question: Question) -> EvidenceSet:
    """Read the documents of a question by routing (RDR2, section 3.1). The closest evidence comes first."""
    sites = await asyncio.to_thread(_list_sites, tools, question)
    if not sites:
        return EvidenceSet((), stop="empty")
    settings = sites[0].settings
    walks: list[Walk] = []
    if settings.router:
        router = partial(ask_model, tools.asks) if tools.asks else partial(compare, tools.sources)
        shares = Allowance(settings.calls, settings.tokens).split(len(sites))
        walks = await run_together([partial(walk, router, *each) for each in zip(sites, shares, strict=True)])
    found = [own for one in walks for own in _list_answers(one)]
    if not found and (settings.all_refused == "hits" or not settings.router):
        found = [[item for site in sites for item in _list_hits(site)]]
    items = await asyncio.to_thread(_rank, tools, question, found)
    return EvidenceSet(items, stop=_join_stops(walks, items), steps=tuple(step for one in walks for step in one.steps))


Chosen = tuple[Span, str, str]
"""A stretch, the headings above it, and the reason why it was chosen."""

Rdr2 = partial(StructureReader, read_routed)
"""The reader RDR2 with `Tools`."""


def _list_sites(tools: Tools, question: Question) -> list[Site]:
    settings = tools.reader
    assert isinstance(settings, Rdr2Settings)
    rows = question.rows[: settings.documents]
    documents = [question.context.documents[row] for row in rows]
    trees = read_section_trees(tools.sources.index, documents)
    return [
        Site(
            question,
            settings,
            rank,
            document,
            tree if settings.structure else flatten(tree),
            tuple(question.find_closest_segments(row, settings.hits)),
        )
        for rank, (row, document, tree) in enumerate(zip(rows, documents, trees, strict=True))
    ]


def _list_answers(found: Walk) -> list[list[Chosen]]:
    """List the answered nodes of each step of a walk, as far as an answer can cite them."""
    site, by_step = found.site, defaultdict[int, list[Chosen]](list)
    for id, step in found.answers.items():
        span = site.get_span(id)
        if is_citable(site.document, span):
            by_step[step].append((span, " > ".join(site.list_headings(id)), f"answered node {id} in step {step}"))
    return list(by_step.values())


def _list_hits(site: Site) -> list[Chosen]:
    spans = merge_spans([(span.start, span.end) for span in site.hits])
    return [(Span(site.document.id, *span), "", "is close to the question") for span in spans]


def _rank(tools: Tools, question: Question, found: Sequence[Sequence[Chosen]]) -> tuple[Evidence, ...]:
    """Rank the choices of all steps: each step gives its best in turn, so that no step is cut off by the others.

    In a step, the order is that of the cosine with the question. Ties go to the earlier place.
    """
    spans = [span for own in found for span, _, _ in own]
    cosines = dict(
        zip(spans, (embed_spans(tools.sources, question.context, spans) @ question.vector).tolist(), strict=True)
    )
    items = ([question.quote(span, cosines[span], heading, why) for span, heading, why in own] for own in found)
    return tuple(interleave([sorted(own, key=lambda item: (-item.score, item.span.start)) for own in items]))


def _join_stops(walks: Sequence[Walk], items: Sequence[Evidence]) -> Stop:
    """Join the stops of all walks: any limit or error that one met, or else `done`, which needs evidence."""
    stops = [stop for one in walks if (stop := one.stop) != "done"]
    return min(stops, key=get_args(Stop).index) if stops else "done" if items else "empty"
