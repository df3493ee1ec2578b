"""Judgments by a model of what use an answer is to whoever asked: question by question, and sentence by sentence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import rate_use as prompt
from keystone.generation.structured import read_json
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable

T = TypeVar("T")

Answered = Literal["yes", "partly", "no"]
Agreement = Literal["yes", "partly", "no", "unknown"]


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

    answered: Answered
    open: bool = False
    agrees: Agreement | None = None


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
    agrees: Agreement | None = "no" if asked.references else None
    return Use((QuestionUse("no", False, agrees),) * len(asked.questions), (), False, prompt.LEAST_MARK)


def request_use(asked: AskedAnswer) -> Request:
    """Make the request for the judgment of an answer, which shows no citation and no name of a system."""
    shown = [delimit(f"reference {number}", text) for number, text in enumerate(asked.references, 1)]
    user = prompt.USER.format(
        narrative=neutralise(asked.narrative),
        questions=neutralise(_number(asked.questions)),
        shown="\n\n".join([*shown, delimit("answer", _number(asked.sentences))]),
        question_count=len(asked.questions),
        sentence_count=len(asked.sentences),
    )
    counts = len(asked.questions), len(asked.sentences)
    system = prompt.WITH_REFERENCES if asked.references else prompt.SYSTEM
    schema = prompt.make_schema(*counts, with_references=bool(asked.references))
    return Request("use", (("system", system), ("user", user)), prompt.allow_tokens(*counts), schema)


def _number(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(texts, 1))


def read_use(reply: Reply, asked: AskedAnswer) -> Use:
    """Read a judgment. `Unusable` if it leaves out a question or a sentence, judges one twice, or lacks a part."""
    value = read_json(reply, lambda one: isinstance(one, dict) and {"questions", "sentences"} <= one.keys())
    found = value if isinstance(value, dict) else {}
    read_question = partial(_read_question, with_references=bool(asked.references))
    questions = _read_numbered(found, "questions", len(asked.questions), read_question)
    read_sentence = partial(_read_sentence, questions=len(asked.questions))
    sentences = _read_numbered(found, "sentences", len(asked.sentences), read_sentence)
    mark = _read_integer(found, "mark", prompt.LEAST_MARK, prompt.MOST_MARK)
    return Use(tuple(questions), tuple(sentences), _read_boolean(found, "lead"), mark)


def _read_numbered(found: Mapping[str, Any], key: str, number: int, read: Callable[[dict[str, Any]], T]) -> list[T]:
    """Read the items of a list in the order of their numbers, which have to be 1 to `number`, each once."""
    items = found.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Unusable(f'it holds no list of objects under "{key}"')
    by_number = {item.get("number"): item for item in items if type(item.get("number")) is int}
    if len(items) != number or by_number.keys() != set(range(1, number + 1)):
        raise Unusable(f'its "{key}" do not have the numbers 1 to {number}, each once')
    return [read(by_number[place]) for place in range(1, number + 1)]


def _read_question(item: dict[str, Any], with_references: bool) -> QuestionUse:
    agrees: Any = _read_word(item, "agrees", prompt.AGREEMENT) if with_references else None
    answered: Any = _read_word(item, "answered", prompt.ANSWERED)
    return QuestionUse(answered, _read_boolean(item, "open"), agrees)


def _read_sentence(item: dict[str, Any], questions: int) -> SentenceUse:
    return SentenceUse(_read_boolean(item, "use"), _read_integer(item, "question", 0, questions))


def _read_word(item: Mapping[str, Any], key: str, words: Sequence[str]) -> str:
    said = item.get(key)
    word = said.strip().lower() if isinstance(said, str) else ""
    if word not in words:
        raise Unusable(f'it holds no "{key}" that is {", ".join(words[:-1])} or {words[-1]}')
    return word


def _read_boolean(item: Mapping[str, Any], key: str) -> bool:
    said = item.get(key)
    if not isinstance(said, bool):
        raise Unusable(f'it holds no "{key}" that is true or false')
    return said


def _read_integer(item: Mapping[str, Any], key: str, low: int, high: int) -> int:
    said = item.get(key)
    if type(said) is not int or not low <= said <= high:
        raise Unusable(f'it holds no "{key}" from {low} to {high}')
    return said
