"""The routers: a model that reads a view, or, without a model, the similarity of its lines to the question."""

import asyncio
from functools import partial

import numpy as np

from keystone.generation.answers.sentences import make_messages
from keystone.generation.context.delimit import delimit
from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import route as prompt
from keystone.generation.readers.allowance import Allowance, Spent, ask_within
from keystone.generation.readers.rdr2.reply import Choice, read_choice
from keystone.generation.readers.rdr2.view import View
from keystone.generation.readers.rdr2.walk import Routed, Site
from keystone.generation.types import Request, Stop
from keystone.indexing.vectors.of_segments import sentence_vectors

LEAST_COSINE = 0.2
"""Without a model, the lines that have at least this cosine with the question are chosen.

Measured with the local embedding on 30 questions about 6 stories of SQuALITY, with 1,000 tokens of evidence: from 0.2
on, the evidence held 25 % of the references' words. From 0.3 on it held 18 %, and half of the tokens were left.
"""


async def ask_model(model: Model, site: Site, view: View, allowance: Allowance) -> Routed:
    """Ask a model for its choice. If its reply cannot be used, also after a repair, that is a refusal."""
    expand, refuse = site.may_expand, site.settings.refuse
    outline = delimit(site.document.id, view.text)
    user = prompt.USER.format(asked=site.question.text, document=outline)
    request = Request("route", make_messages(prompt.write_system(expand, refuse), user), prompt.MAX_TOKENS)
    asked = await ask_within(model, request, partial(read_choice, view=view, expand=expand, refuse=refuse), allowance)
    cost = asked.prompt_tokens, asked.reply_tokens
    if isinstance(asked.found, Choice):
        return Routed(asked.found, asked.reply, "", *cost)
    stop: Stop = "budget" if isinstance(asked.found, Spent) else "done" if asked.reply else "llm_error"
    return Routed(Choice(), asked.reply, asked.found.reason, *cost, stop)


async def compare(sources: Sources, site: Site, view: View, _allowance: Allowance) -> Routed:
    """Choose the lines that are similar to the question, the most similar first. A heading counts with those above it.

    If the router may not refuse, and no line is similar enough, the most similar one is chosen.
    """
    return Routed(await asyncio.to_thread(_choose_similar, sources, site, view))


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
