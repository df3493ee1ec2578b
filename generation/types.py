"""What is asked of a language model and what it answers, what is understood of a narrative, and the cited answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexing.types import Span

Message = tuple[str, str]
"""A role (`system`, `user` or `assistant`) and what it says."""


@dataclass(frozen=True, slots=True)
class Request:
    """One chat request. `purpose` names the step that asks, under which its usage is accounted."""

    purpose: str
    messages: tuple[Message, ...]
    max_tokens: int
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the reply must follow; None: prose."""
    temperature: float = 0.0
    top_logprobs: int = 0
    """How many alternatives to ask for each token of the reply."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls have cost: numbers of calls and of tries after failures, tokens, and seconds waited for replies.

    A reply that was known already is a hit of the cache, not a call.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    retries: int = 0
    cache_hits: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `finish` is `stop`, or `length` where it was cut at `max_tokens`."""

    text: str
    finish: str = "stop"
    logprobs: tuple[Mapping[str, float], ...] = ()
    """For each token the log-probabilities of its alternatives, where they were asked for."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no usable reply after every try. What was asked for stays absent: no value stands in."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A step that went on without what it had asked a model for."""

    topic_id: str
    step: str
    reason: str


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
class Note:
    """A text that a reader wrote while it gathered evidence, with the stretches of documents that it was drawn from.

    `kind` names its use, such as a plan or a notebook entry; `step` counts the reader's steps from 0.
    """

    text: str
    sources: tuple[Span, ...]
    kind: str
    step: int = 0


Stop = Literal["done", "budget", "max_steps", "invalid", "stalled", "empty", "llm_error"]
"""Why a reader stopped gathering. Whatever the reason, its evidence so far can be used."""


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """All that a reader gathered for one topic; the answer is made from it."""

    items: tuple[Evidence, ...]
    notes: tuple[Note, ...] = ()
    stop: Stop = "done"


Citation = str
"""The id of a segment; the id of a document until one of its segments is chosen, or where a track cites documents."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer with its citations, best support first."""

    text: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The cited answer to a topic, and each step in which the model gave nothing usable for it."""

    topic_id: str
    sentences: tuple[Sentence, ...]
    fallbacks: tuple[Fallback, ...] = ()

    def __str__(self) -> str:
        """Show the sentences with the numbers of their citations, then the cited ids by number."""
        ids = list(dict.fromkeys(citation for sentence in self.sentences for citation in sentence.citations))
        number = {citation: place for place, citation in enumerate(ids, 1)}
        sentences = (f"{s.text}{''.join(f' [{number[citation]}]' for citation in s.citations)}" for s in self.sentences)
        return "\n".join([" ".join(sentences), *(f"[{place}] {citation}" for place, citation in enumerate(ids, 1))])
