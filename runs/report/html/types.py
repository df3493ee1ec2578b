"""A run as the report shows it: its settings and costs, and each narrative from its queries to its answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.use import UseRecord


@dataclass(frozen=True, slots=True)
class Place:
    """The grade of a document for a query, and its rank in each system and in their fusion, from 1.

    A grade is None if nobody gave one. A rank is 0 if the list lacks the document.
    """

    grade: float | None
    systems: tuple[int, ...]
    hybrid: int


@dataclass(frozen=True, slots=True)
class PlacedDocument:
    """A document with its ranks in the fusion over queries, in the last ranking and among the chosen ones.

    A rank of 0 says that the document is not among them. `places` has one for each query.
    """

    id: str
    title: str
    fused: int
    last: int
    chosen: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class CitedText:
    """A segment or document that an answer cites. The text is empty if the index has none."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """The sentences of an answer with their citations, as places in `cited`."""

    sentences: tuple[tuple[str, tuple[int, ...]], ...]
    cited: tuple[CitedText, ...]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a reader: its query and document, the action, the result, the tokens, and the end of the walk."""

    query_id: str
    doc_id: str
    purpose: str
    action: str
    result: str
    tokens: int
    stop: str


@dataclass(frozen=True, slots=True)
class QueryView:
    """A query and its question."""

    id: str
    question: str


@dataclass(frozen=True, slots=True)
class TopicView:
    """A narrative in a run, from its queries to its answer. `theme` is the topic that the decomposition found."""

    id: str
    narrative: str
    theme: str
    queries: tuple[QueryView, ...]
    documents: tuple[PlacedDocument, ...]
    answer: AnswerView | None
    steps: tuple[StepView, ...]
    use: UseRecord | None = None
    """The judgment of what use the answer is, if there is one."""
    path: tuple[str, ...] = ()
    """The path of a research agent, a line for each walk."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: its settings, its manifest, its usage by purpose, remarks on it, and its narratives by id.

    An answer file has no settings, an empty manifest and no usage. `made_from` holds the versions of packages, and
    digests of the index and the topics.
    """

    label: str
    config: RunConfig | None
    manifest: Mapping[str, Any]
    made_from: Mapping[str, str]
    usage: Mapping[str, Mapping[str, float]]
    remarks: tuple[str, ...]
    topics: Mapping[str, TopicView]
