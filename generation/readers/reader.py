"""The one interface of all readers."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Literal, Protocol

from keystone.generation.answers.answer import PromptWith
from keystone.generation.answers.cite import SegmentChoice
from keystone.generation.answers.support import SupportMethod
from keystone.generation.context.topic import Sources, TopicContext
from keystone.generation.llm.model import Model
from keystone.generation.readers.loop import tell_nobody
from keystone.generation.readers.settings import (
    BY_QUERY,
    BY_RANKING,
    READERS,
    AnswerMethod,
    PlainSettings,
    ReaderSettings,
)
from keystone.generation.types import Answer, EvidenceSet, Sentence, Step
from keystone.retrieval.types import Query, Topic

Synthesis = Literal["select_edit", "edit", "resynthesise"]
"""How the answers to queries become one answer. See `keystone.generation.answers.synthesise`."""

Hits = tuple[tuple[int, ...], ...]
"""Lists of rows of the document store, best first: one list for a topic, or one for each of its queries."""

Search = Callable[[Sequence[Query]], Awaitable[Sequence[Sequence[int]]]]
"""A search for queries. It returns the rows of the documents that each finds, best first."""

PLAIN = PlainSettings()
"""The settings of the plain reader, if a caller gives none."""


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How a topic is answered: by a method, from at most `documents` documents.

    With the methods `answers` and `claims`, that number applies to each query. `window` is the model's window in
    tokens; without a model it is 0.
    """

    method: AnswerMethod = "rules"
    documents: int = 20
    window: int = 0
    prompt_with: PromptWith = "query"
    synthesis: Synthesis = "select_edit"
    segments: SegmentChoice = "words"
    support: SupportMethod = "none"
    rounds: int = 0
    """How many times `whole` searches again for questions that the documents leave open."""
    mend: bool = False
    """Whether the model mends the faults of wording that a program finds in an answer."""
    gaps: bool = False
    """Whether an answer ends with a sentence about what the documents leave open."""
    language: str = ""
    """The language of documents whose sentences rules may copy. Empty: any."""

    @property
    def reads_ranking(self) -> bool:
        """Whether the last ranking chooses the documents of an answer, and not the grades."""
        return self.method in BY_RANKING

    @property
    def tells_gaps(self) -> bool:
        """Whether sentences of an answer may tell what the documents leave open."""
        return self.gaps and self.method == "whole"

    @property
    def is_by_query(self) -> bool:
        """Whether the model is asked about each query with its own documents, and not about the narrative."""
        return self.method in BY_QUERY


@dataclass(frozen=True, slots=True)
class Tools:
    """The resources of a reader: documents and vectors, the model (None: there is none), and the settings."""

    sources: Sources
    model: Model | None
    settings: AnswerSettings
    reader: ReaderSettings = PLAIN
    search: Search | None = None
    """The search of the job, for readers that search again. None: there is nothing to search."""
    tell: Callable[[Step], None] = tell_nobody
    """A function that is told each step of the research agent as it is made."""

    @property
    def asks(self) -> Model | None:
        """The model that a structure-aware reader asks; None if it reads by rules."""
        return None if self.settings.method == "rules" else self.model

    @property
    def evidence_tokens(self) -> int:
        """The most tokens of evidence: the reader's setting, or half of the model's window. 0 means no limit."""
        return self.reader.evidence_tokens or self.settings.window // 2


@dataclass(frozen=True, slots=True)
class Task:
    """A topic to answer, its documents and queries, and the limits of its answer.

    An answer has at most `words` words and cites at most `references` ids (None: any number). `cut_to_limits` returns
    the first sentences, as many as the track accepts.
    """

    topic: Topic
    context: TopicContext
    words: int
    cut_to_limits: Callable[[Sequence[Sentence]], Sequence[Sentence]]
    references: int | None = None
    narrow: Callable[[TopicContext], TopicContext] | None = None
    """Leaves the segments of further documents that an answer may cite. None: it may cite all."""


class Reader(Protocol):
    """A reader gathers evidence for a task, and answers from it. The two steps may run in different processes."""

    async def gather(self, task: Task, hits: Hits) -> EvidenceSet:
        """Gather the evidence for the task from the documents of `hits`."""

    async def answer(self, task: Task, evidence: EvidenceSet) -> Answer:
        """Answer the task from its evidence. The answer cites segments. Its `fallbacks` record the model's failures."""


def open_reader(tools: Tools) -> Reader:
    """Open the reader that the settings of `tools` name."""
    opener = READERS[tools.reader.name].open
    reader: Reader = (resolve_name(opener) if isinstance(opener, str) else opener)(tools)
    return reader


def choose_hits(settings: AnswerSettings, selected: Sequence[int], of_queries: Sequence[Sequence[int]]) -> Hits:
    """Choose the documents of an answer: the rows selected for the topic, or the rows of each query."""
    return tuple(tuple(rows[: settings.documents]) for rows in (of_queries if settings.is_by_query else [selected]))


def list_rows(hits: Hits) -> list[int]:
    """List the rows of all lists, each once, in the order of the lists."""
    return list(dict.fromkeys(row for rows in hits for row in rows))
