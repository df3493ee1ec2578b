"""The walk of a router through one document: its first views side by side, then one heading after another.

RDR2, section 3.1 and Figure 3.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from keystone.generation.ask import run_together
from keystone.generation.readers.allowance import Allowance
from keystone.generation.readers.rdr2.reply import Choice
from keystone.generation.readers.rdr2.view import View, find_hit_nodes, light, list_section, order_by_nearness, show
from keystone.generation.readers.settings import Rdr2Settings
from keystone.generation.readers.structure_reader import Question
from keystone.generation.types import Step, Stop
from keystone.indexing.structures.tree import Tree, ancestors
from keystone.indexing.types import Document, Span


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
        """Whether the router may expand headings. Without structure there are none."""
        return self.settings.expand and self.settings.structure

    def get_span(self, id: int) -> Span:
        """The stretch of a node."""
        return Span(self.document.id, self.tree[id].start, self.tree[id].end)

    def list_headings(self, id: int) -> list[str]:
        """List the headings above a node, outermost first, without the title."""
        above = reversed(ancestors(self.tree, id))
        return [node.label for node in above if node.kind == "heading" and node.parent is not None]


@dataclass(frozen=True, slots=True)
class Routed:
    """The choice of a router that has seen a view, with its reply and its tokens. `stop` ends the walk if not `done`.

    `note` says why there is no choice.
    """

    choice: Choice
    reply: str = ""
    note: str = ""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    stop: Stop = "done"


Router = Callable[[Site, View, Allowance], Awaitable[Routed]]
"""Chooses nodes of a view, within an allowance."""


@dataclass(slots=True)
class Walk:
    """A walk so far: the number of the step that answered each node, the headings to expand, and why it stopped."""

    site: Site
    answers: dict[int, int] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    steps: list[Step] = field(default_factory=list)
    stop: Stop = "done"

    def record(self, at: str, view: View, routed: Routed) -> None:
        """Take over a router's choice, and write the step down. `at` names the view: `hits` or `section 40`."""
        site, choice, number = self.site, routed.choice, len(self.steps)
        added = [id for id in choice.answers if id not in self.answers]
        self.answers |= dict.fromkeys(added, number)
        self.waiting += [id for id in choice.expands if id not in self.waiting]
        self.stop = routed.stop if self.stop == "done" else self.stop
        self.steps.append(
            Step(
                site.question.query_id,
                site.document.id,
                site.rank,
                number,
                "route",
                view.text,
                routed.reply,
                f"{at}: {_describe(choice)}",
                "; ".join(filter(None, (*choice.expelled, routed.note))),
                tuple(map(site.get_span, added)),
                routed.prompt_tokens,
                routed.reply_tokens,
            )
        )


async def walk(router: Router, site: Site, allowance: Allowance) -> Walk:
    """Walk through a document: route its first views, then the headings that the router expands, first in, first out.

    A heading is shown with its content that no view has shown yet. If there is none, the heading costs nothing. At
    most `max_expand` headings are shown.
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
    """List the views that a walk begins with: one for each hit, those with the same content as one.

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
