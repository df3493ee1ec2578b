"""The one interface of all readers, and the table of readers by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, Protocol

from generation.answers.sub_answers import PromptWith
from generation.context.topic import Sources, TopicContext
from generation.llm.model import Model
from generation.types import Answer, EvidenceSet, Sentence
from retrieval.types import Topic

AnswerMethod = Literal["rules", "retrieval", "answers"]
"""`rules`: sentences of the documents; by the model: `retrieval`-level fusion, one answer from all documents, or
answer-level fusion of `answers`, one for each query."""

Synthesis = Literal["select_edit", "edit", "resynthesise"]
"""How answers to queries become one."""

Hits = tuple[tuple[int, ...], ...]
"""Lists of rows of the document store, best first: one list for a topic, or one for each of its queries."""


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How a topic is answered: a method, and at most so many documents a topic, or with `answers` a query.

    `window` counts the tokens that the model takes; without a model it is 0.
    """

    method: AnswerMethod = "rules"
    documents: int = 20
    window: int = 0
    prompt_with: PromptWith = "query"
    synthesis: Synthesis = "select_edit"


@dataclass(frozen=True, slots=True)
class Tools:
    """All means by which a reader reaches the outside: documents and vectors, the model, and its settings."""

    sources: Sources
    model: Model | None
    settings: AnswerSettings


@dataclass(frozen=True, slots=True)
class Task:
    """A topic to answer, its documents and queries, and the limits of its answer.

    An answer has at most `words` words. `cut_to_limits` gives the sentences that the track accepts, from the first on.
    """

    topic: Topic
    context: TopicContext
    words: int
    cut_to_limits: Callable[[Sequence[Sentence]], Sequence[Sentence]]


class Reader(Protocol):
    """Gathers evidence for a task, and answers the task from evidence; the two may run in different processes."""

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """The evidence that the documents of `hits` hold for the task."""
        ...

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """The answer, which cites segments; where the model gave nothing usable, `fallbacks` say so."""
        ...


READERS = {"plain": "generation.readers.plain:Plain"}
"""The readers by name, each with its module and its class, which is made from `Tools`."""


def open_reader(name: str, tools: Tools) -> Reader:
    """The reader of this name, with its tools."""
    module, _, member = READERS[name].partition(":")
    reader: Reader = getattr(import_module(module), member)(tools)
    return reader


HITS_BY_METHOD: Mapping[AnswerMethod, Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[Sequence[int]]]] = {
    "rules": lambda selected, _of_queries: [selected],
    "retrieval": lambda selected, _of_queries: [selected],
    "answers": lambda _selected, of_queries: of_queries,
}


def choose_hits(settings: AnswerSettings, selected: Sequence[int], of_queries: Sequence[Sequence[int]]) -> Hits:
    """The lists that an answer is made from: the rows selected for the topic, or those of each of its queries."""
    return tuple(tuple(rows[: settings.documents]) for rows in HITS_BY_METHOD[settings.method](selected, of_queries))


def list_rows(hits: Hits) -> list[int]:
    """The rows of all lists, each once, in the order of the lists."""
    return list(dict.fromkeys(row for rows in hits for row in rows))
