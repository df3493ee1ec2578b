"""The requests that a run may send, and the most that they can cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN, convert_weight
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import find_most_usage
from keystone.generation.types import Request, Usage
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.job import Job

REPAIR_TOKENS = 1000
"""An upper bound on the tokens of a repair besides the reply that it repeats."""

UNKNOWN_DOCUMENTS = 10**12
"""The number of documents that is assumed if an index's engine does not tell it."""


@dataclass(frozen=True, slots=True)
class AskedTopic:
    """A topic with the number of its decomposed queries, and the characters of their questions, both at most."""

    topic: Topic
    queries: int
    characters: int
    words: int
    """The most words of the answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The topics of a run before they are asked, with the run's model and the number of documents in its index."""

    job: Job
    topics: Sequence[AskedTopic]

    @property
    def model(self) -> ModelSettings:
        """The settings of the model, which the configuration must have."""
        return self.job.config.require_model()

    @property
    def documents(self) -> int:
        """The number of documents in the index."""
        return UNKNOWN_DOCUMENTS if self.job.index.documents is None else self.job.index.documents


@dataclass(frozen=True, slots=True)
class Ask:
    """At most `number` requests like `request`, which is made without the documents and texts that it will show.

    `shown` is the number of characters of these texts in all requests together. `replied` is the number of tokens that
    all replies together may have beyond `max_tokens`. `likely` has the requests if sentences have the usual length;
    None: the same.
    """

    stage: str
    number: int
    request: Request
    shown: int = 0
    replied: int = 0
    likely: "Ask | None" = None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The calls for one purpose: `most` can be spent at most, `likely` if nothing is asked twice."""

    stage: str
    purpose: str
    most: Usage
    likely: Usage


def foresee(ask: Ask, model: ModelSettings) -> Foreseen:
    """Foresee the cost of requests.

    `most` assumes that each request is followed by a repair (`keystone.generation.llm.ask.request_repair`). It counts
    each character as a token, up to the model's window. `likely` assumes four characters per token.
    """
    room, thinking = ask.number * model.window, ask.number * model.thinking
    prompt, reply = _count_tokens(ask, model)
    first = min(prompt, room), min(reply + thinking, room)
    repair = min(first[0] + first[1] + ask.number * REPAIR_TOKENS, room), min(2 * (reply + thinking), room)
    most = Usage(2 * ask.number, first[0] + repair[0], 0, first[1] + repair[1])
    return Foreseen(ask.stage, ask.request.purpose, most, _foresee_likely(ask.likely or ask, model))


def _foresee_likely(ask: Ask, model: ModelSettings) -> Usage:
    room = ask.number * model.window
    prompt, reply = _count_tokens(ask, model)
    replied = min(reply + ask.number * model.thinking, room)
    return Usage(ask.number, min(convert_weight(prompt), room), 0, replied)


def _count_tokens(ask: Ask, model: ModelSettings) -> tuple[int, int]:
    """Count the tokens of all prompts, one for each character, and of all replies, without the model's thoughts."""
    most = find_most_usage(ask.request, model.extra)
    return ask.number * most.prompt_tokens + ask.shown, ask.number * most.completion_tokens + ask.replied


def foresee_reader(name: str, questions: int, calls: int, tokens: int, model: ModelSettings) -> Foreseen:
    """Foresee the cost of a structure-aware reader, which has an allowance of calls and tokens for each question."""
    calls, tokens = questions * calls, questions * tokens
    thoughts = 3 * calls * model.thinking // 2  # a repair may have twice as many
    most = Usage(calls, min(CHARACTERS_PER_TOKEN * tokens, calls * model.window), 0, tokens + thoughts)
    return Foreseen("gather", f"reader {name}", most, Usage(calls, tokens, 0, 0))
