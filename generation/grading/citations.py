"""Judgments by a model how far one text supports a sentence: a passage that it cites, or a document."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.context.passages import share_window
from keystone.generation.context.texts import clip, delimit, neutralise
from keystone.generation.llm.model import Model, ask_all
from keystone.generation.prompts.evaluation import RATE_CITATION, Rating
from keystone.generation.prompts.grading import GROUND, Judged, Verdict
from keystone.generation.replies import read_part
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
    passage, sentence = _show("passage", one.passage, window), _show_sentence(one.sentence)
    return RATE_CITATION.request(passage=passage, sentence=sentence)


def read_rating(reply: Reply) -> Support:
    """Read the support of a reply. `Unusable` if it is not full, partial or none."""
    return read_part(reply, Rating, lambda one: isinstance(one.get("support"), str)).support


async def judge_documents(model: Model, sentence: str, texts: Sequence[str], window: int) -> list[Verdict | Failure]:
    """Judge whether each text supports a sentence, by a request each. A text is cut to half of `window` tokens."""
    return await ask_all(model, [(request_verdict(sentence, text, window), read_verdict) for text in texts])


def request_verdict(sentence: str, text: str, window: int) -> Request:
    """Make the request for the verdict on one document."""
    return GROUND.request(document=_show("document", text, window), sentence=_show_sentence(sentence))


def read_verdict(reply: Reply) -> Verdict:
    """Read the verdict of a reply. `Unusable` if it is not supports, contradicts or neither."""
    return read_part(reply, Judged, lambda one: isinstance(one.get("verdict"), str)).verdict


def _show(name: str, text: str, window: int) -> str:
    return delimit(name, clip(text, share_window(window, 1)))


def _show_sentence(sentence: str) -> str:
    return neutralise(" ".join(sentence.split()))
