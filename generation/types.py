"""What is understood of a narrative, the evidence gathered for it, and the cited answer."""

from dataclasses import dataclass

from indexing.types import Span


@dataclass(frozen=True, slots=True)
class Understanding:
    """A narrative's questions (decomposition), its topic, and the topic's variants (expansion)."""

    topic_id: str
    questions: tuple[str, ...]
    topic: str = ""
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A stretch of a document that may be used in an answer, with its worth for the query that asked for it."""

    span: Span
    text: str
    score: float
    query_id: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer with the ids of the segments that support it, best support first."""

    text: str
    citations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The cited answer to a topic."""

    topic_id: str
    sentences: tuple[Sentence, ...]
