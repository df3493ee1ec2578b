"""Judgments of the sentences of answers by a model: how far one text supports them, and of what use they are.

The text is a passage that a sentence cites, or a document. The use is judged question by question, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from keystone.generation.context.texts import clip, delimit, neutralise, share_window
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import evaluation as prompts
from keystone.generation.prompts.evaluation import RATE_CITATION, Rating
from keystone.generation.prompts.grading import GROUND, Judged, Verdict
from keystone.generation.replies import Part, check, read_json, read_part
from keystone.generation.types import Failure, Reply, Request, Support
from keystone.indexing.errors import Unusable


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


P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class AskedAnswer:
    """A narrative, its questions, the sentences of an answer, and references by experts, if there are any."""

    narrative: str
    questions: Sequence[str]
    sentences: Sequence[str]
    references: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class QuestionUse:
    """Whether an answer settles a question.

    `open` tells that the answer says openly what its sources do not tell. `agrees` is None without references.
    """

    answered: prompts.Answered
    open: bool = False
    agrees: prompts.Agreement | None = None


@dataclass(frozen=True, slots=True)
class SentenceUse:
    """Whether a sentence is of use, and the number of the question that it serves, from 1; 0: none."""

    use: bool
    question: int


@dataclass(frozen=True, slots=True)
class Use:
    """The use of an answer: of each question and sentence in order, of its opening, and a mark from 1 to 5."""

    questions: tuple[QuestionUse, ...]
    sentences: tuple[SentenceUse, ...]
    lead: bool
    """Whether the answer opens with what was asked for."""
    mark: int


async def judge_use(model: Model, asked: Sequence[AskedAnswer]) -> list[Use | Failure]:
    """Judge the use of answers, each by one request. An answer without a sentence answers nothing: no request."""
    written = [one for one in asked if one.sentences]
    requests = [(request_use(one), partial(read_use, asked=one)) for one in written]
    found = iter(await ask_all(model, requests))
    return [next(found) if one.sentences else _judge_nothing(one) for one in asked]


def _judge_nothing(asked: AskedAnswer) -> Use:
    agrees: prompts.Agreement | None = "no" if asked.references else None
    return Use((QuestionUse("no", False, agrees),) * len(asked.questions), (), False, prompts.LEAST_MARK)


def request_use(asked: AskedAnswer) -> Request:
    """Make the request for the judgment of an answer, which shows no citation and no name of a system."""
    shown = [delimit(f"reference {number}", text) for number, text in enumerate(asked.references, 1)]
    counts = len(asked.questions), len(asked.sentences)
    schema = prompts.make_use_schema(*counts, with_references=bool(asked.references))
    prompt = (prompts.USE_WITH_REFERENCES if asked.references else prompts.USE)._replace(schema=schema)
    return prompt.request(
        256 + 48 * counts[0] + 40 * counts[1],  # as JSON, with spaces and some prose around
        narrative=neutralise(asked.narrative),
        questions=neutralise(_number(asked.questions)),
        shown="\n\n".join([*shown, delimit("answer", _number(asked.sentences))]),
        question_count=counts[0],
        sentence_count=counts[1],
    )


def _number(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(texts, 1))


def read_use(reply: Reply, asked: AskedAnswer) -> Use:
    """Read a judgment. `Unusable` if it leaves out a question or a sentence, judges one twice, or lacks a part."""
    value = read_json(reply, lambda one: isinstance(one, dict) and {"questions", "sentences"} <= one.keys())
    found = value if isinstance(value, dict) else {}
    counts = {"questions": len(asked.questions), "sentences": len(asked.sentences)}
    question = prompts.ComparedQuestion if asked.references else prompts.JudgedQuestion
    questions = _read_numbered(found, "questions", question, **counts)
    sentences = _read_numbered(found, "sentences", prompts.JudgedSentence, **counts)
    if not all(0 <= one.question <= len(questions) for one in sentences):
        raise Unusable(f'it holds no "question" from 0 to {len(questions)}')
    whole = check(found, prompts.JudgedWhole)
    return Use(
        tuple(QuestionUse(one.answered, one.open, getattr(one, "agrees", None)) for one in questions),
        tuple(SentenceUse(one.use, one.question) for one in sentences),
        whole.lead,
        whole.mark,
    )


def _read_numbered(found: Mapping[str, Any], key: str, of: type[P], **counts: int) -> list[P]:
    """Read the items of a list in the order of their numbers, which have to be 1 to the number of `key` in `counts`."""
    items, number = found.get(key), counts[key]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Unusable(f'it holds no list of objects under "{key}"')
    by_number = {item.get("number"): item for item in items if type(item.get("number")) is int}
    if len(items) != number or by_number.keys() != set(range(1, number + 1)):
        raise Unusable(f'its "{key}" do not have the numbers 1 to {number}, each once')
    return [check(by_number[place], of, **counts) for place in range(1, number + 1)]
