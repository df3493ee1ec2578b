"""Ratings by a model of how far passages support the sentences that cite them."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.fit_window import share_window
from keystone.generation.context.tokens import clip
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import rate_citation as prompt
from keystone.generation.reply_types import read_part
from keystone.generation.types import Failure, Reply, Request, Support


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence, and the text of one passage that it cites."""

    sentence: str
    passage: str


async def rate_citations(model: Model, citations: Sequence[Citation], window: int) -> list[Support | Failure]:
    """Rate how far each passage supports its sentence. A passage is cut to half of `window` tokens.

    Source: the support evaluation of TREC RAG (Thakur et al., SIGIR 2025): each citation is judged on its own.
    """
    return await ask_all(model, [(request_rating(one, window), read_rating) for one in citations])


def request_rating(one: Citation, window: int) -> Request:
    """Make the request for the rating of one citation."""
    passage = delimit("passage", clip(one.passage, share_window(window, 1)))
    user = prompt.USER.format(passage=passage, sentence=neutralise(" ".join(one.sentence.split())))
    return Request("citations", (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS, prompt.SCHEMA)


def read_rating(reply: Reply) -> Support:
    """Read the support of a reply. `Unusable` if it is not full, partial or none."""
    return read_part(reply, prompt.Rating, lambda one: isinstance(one.get("support"), str)).support
