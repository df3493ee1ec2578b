"""From topics to queries: by rules, by the model, or the whole narrative alone (paper, section 2.1)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from generation.llm.model import Model
from generation.queries.compose import compose, whole
from generation.queries.understand import understand
from generation.rules.understand import UnderstandingRules
from generation.rules.understand import understand as understand_by_rules
from generation.types import Fallback, Understanding
from retrieval.types import Query
from runs.pipeline.job import Job


@dataclass(frozen=True, slots=True)
class Understood:
    """What is understood of a topic, the queries that this makes, and where the model gave nothing."""

    understanding: Understanding
    queries: tuple[Query, ...]
    fallbacks: tuple[Fallback, ...] = ()


def queries_of(topics: Iterable[Understood]) -> list[Query]:
    """The queries of all topics, in order."""
    return [query for one in topics for query in one.queries]


async def understood(job: Job, model: Model | None) -> list[Understood]:
    """For each topic what is understood of it, and its queries."""
    return await METHODS[job.config.queries.method].understand(job, model)


async def _whole_narratives(job: Job, _model: Model | None) -> list[Understood]:
    return [Understood(Understanding(topic.id, ()), (whole(topic),)) for topic in job.topics]


async def _by_rules(job: Job, _model: Model | None) -> list[Understood]:
    settings = job.config.queries
    rules = UnderstandingRules(settings.facets, settings.topic, settings.variants)
    return _composed(job, understand_by_rules(job.topics, job.sources, rules), [])


async def _by_model(job: Job, model: Model | None) -> list[Understood]:
    assert model is not None  # the configuration has been checked
    return _composed(job, *await understand(model, job.topics, job.config.queries.variants))


def _composed(job: Job, found: Sequence[Understanding], fallbacks: Sequence[Fallback]) -> list[Understood]:
    """The queries that understandings make, after the narrative itself if it has a weight."""
    settings = job.config.queries
    return [
        Understood(
            understanding,
            (
                *([whole(topic)] if settings.narrative_weight > 0 else []),
                *compose(understanding, settings.question_weight, settings.dense_topic),
            ),
            tuple(fallback for fallback in fallbacks if fallback.topic_id == topic.id),
        )
        for topic, understanding in zip(job.topics, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class QueryMethod:
    """A way from narratives to queries."""

    understand: Callable[[Job, Model | None], Awaitable[list[Understood]]]
    searches: bool = False
    """Whether it searches the index, which one thread at a time may do."""
    tuned: tuple[str, ...] | None = ()
    """The settings of its own that `tune` tries, each `key=[value, ...]`; None: there is nothing to tune."""


METHODS: Mapping[Literal["rules", "model", "narrative"], QueryMethod] = {
    "rules": QueryMethod(
        _by_rules, searches=True, tuned=("queries.facets=[sentences, clauses]", "queries.topic=[lead, none]")
    ),
    "model": QueryMethod(_by_model),
    "narrative": QueryMethod(_whole_narratives, tuned=None),
}
