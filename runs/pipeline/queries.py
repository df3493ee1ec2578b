"""From topics to queries: by rules, by the model, or with the whole narrative alone (paper, section 2.1)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import compose_queries, make_narrative_query
from keystone.generation.queries.enrich import translate_queries, write_passages
from keystone.generation.queries.understand import keep_held_terms, understand_by_contract, understand_by_model
from keystone.generation.rules.queries import UnderstandingRules, understand_by_rules
from keystone.generation.types import Fallback, Understanding
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES, find_code
from keystone.retrieval.backends import BACKENDS, open_sparse
from keystone.retrieval.types import Query, Topic
from keystone.runs.pipeline.job import Job

SearchLock = AbstractAsyncContextManager[Any]
"""A lock that is held during a search."""
NO_LOCK: SearchLock = nullcontext()
"""For a caller that searches alone."""


@dataclass(frozen=True, slots=True)
class UnderstoodTopic:
    """A topic's understanding, its queries, and each step in which the model gave no usable reply."""

    understanding: Understanding
    queries: tuple[Query, ...]
    fallbacks: tuple[Fallback, ...] = ()


def list_queries(topics: Iterable[UnderstoodTopic]) -> list[Query]:
    """List the queries of all topics, in order."""
    return [query for one in topics for query in one.queries]


async def understand_topics(job: Job, model: Model | None, search_lock: SearchLock = NO_LOCK) -> list[UnderstoodTopic]:
    """Find the understanding and the queries of each topic, by the configuration's method.

    If passages are searched, each query has one. `search_lock` is held while a method searches.
    """
    found = await QUERY_METHODS[job.config.queries.method].understand(job, model, search_lock)
    found = await _translate(job, model, found)
    if not job.config.list_passage_systems():
        return found
    assert model is not None  # the configuration has been checked
    queries, missed = await write_passages(
        model, list_queries(found), {topic.id: topic.narrative for topic in job.topics}
    )
    return _share_out(found, queries, missed)


def _share_out(
    found: Sequence[UnderstoodTopic], queries: Sequence[Query], missed: Sequence[Fallback]
) -> list[UnderstoodTopic]:
    """Share out rewritten queries, and the steps without a usable reply, to their topics."""
    return [
        replace(
            one,
            queries=tuple(query for query in queries if query.topic_id == topic_id),
            fallbacks=(*one.fallbacks, *(fallback for fallback in missed if fallback.topic_id == topic_id)),
        )
        for one in found
        for topic_id in [one.understanding.topic_id]
    ]


async def _translate(job: Job, model: Model | None, found: list[UnderstoodTopic]) -> list[UnderstoodTopic]:
    """Give the queries their translations: those of the topics to the narratives, and those of the model to all."""
    given = {topic.id: list_translations(topic) for topic in job.topics}
    if any(given.values()):
        found = [
            replace(one, queries=tuple(replace(q, translations=given.get(q.id, ())) for q in one.queries))
            for one in found
        ]
    if not job.config.queries.translate:
        return found
    assert model is not None  # the configuration has been checked
    queries, missed = await translate_queries(model, list_queries(found), list_query_languages(job.index))
    return _share_out(found, queries, missed)


def list_translations(topic: Topic) -> tuple[tuple[str, str], ...]:
    """List the translations that a topic comes with, by codes of languages. `UserError` for a wrong one."""
    found = topic.record.get("translations")
    if not isinstance(found, Mapping):
        return ()
    for name, text in found.items():
        if find_code(name) is None or not isinstance(text, str):
            raise UserError(f"{topic.place}: translations: expected texts by codes of languages, found {name!r}")
    return tuple((find_code(name) or "", text) for name, text in found.items())


def list_query_languages(index: Index) -> list[str]:
    """List the languages into which queries are translated: those of the index, but English."""
    return [one.language for one in index.list_languages() if one.language in LANGUAGES.keys() - {DEFAULT_LANGUAGE}]


async def _take_narratives(job: Job, _model: Model | None, _lock: SearchLock) -> list[UnderstoodTopic]:
    return [UnderstoodTopic(Understanding(topic.id, ()), (make_narrative_query(topic),)) for topic in job.topics]


async def _understand_by_rules(job: Job, _model: Model | None, lock: SearchLock) -> list[UnderstoodTopic]:
    settings = job.config.queries
    rules = UnderstandingRules(settings.facets, settings.topic, settings.variants, settings.questions)
    async with lock:
        return _compose_topics(job, understand_by_rules(job.topics, job.sources, rules), [])


async def _understand_by_contract(job: Job, model: Model | None, lock: SearchLock) -> list[UnderstoodTopic]:
    assert model is not None  # the configuration has been checked
    found, fallbacks = await understand_by_contract(model, job.topics, job.config.queries.questions)
    async with lock:
        return _compose_topics(job, keep_held_terms(found, partial(_find_held, job)), fallbacks)


def _find_held(job: Job, terms: Sequence[str]) -> list[bool]:
    """Find out whether some document holds each word of a term. All do if the engine counts no words."""
    if not BACKENDS[job.index.backend].counts_words:
        return [True] * len(terms)
    searcher = open_sparse(job.index, job.store)
    stems = [searcher.stems(term) for term in terms]
    distinct = sorted({stem for own in stems for stem in own})
    counts = dict(zip(distinct, searcher.stem_frequencies(distinct), strict=True))
    return [bool(own) and all(counts[stem] for stem in own) for own in stems]


async def _understand_by_model(job: Job, model: Model | None, _lock: SearchLock) -> list[UnderstoodTopic]:
    assert model is not None  # the configuration has been checked
    settings = job.config.queries
    in_context = settings.expand == "narrative"
    found = await understand_by_model(model, job.topics, settings.variants, in_context, settings.questions)
    return _compose_topics(job, *found)


def _compose_topics(job: Job, found: Sequence[Understanding], fallbacks: Sequence[Fallback]) -> list[UnderstoodTopic]:
    """Compose the queries of each topic. If the narrative has a weight, it is the first query."""
    settings = job.config.queries
    return [
        UnderstoodTopic(
            understanding,
            (
                *([make_narrative_query(topic)] if settings.narrative_weight > 0 else []),
                *compose_queries(understanding, settings.question_weight, settings.dense_topic),
            ),
            tuple(fallback for fallback in fallbacks if fallback.topic_id == topic.id),
        )
        for topic, understanding in zip(job.topics, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class QueryMethod:
    """A way from narratives to queries."""

    understand: Callable[[Job, Model | None, SearchLock], Awaitable[list[UnderstoodTopic]]]
    """The lock is held while the method searches the index, since only one thread at a time may do that."""
    searches: bool = False
    """Whether the method searches the index."""
    tuned: tuple[str, ...] | None = ()
    """The method's settings that `tune` tries, each `key=[value, ...]`. None: there is nothing to tune."""


QUERY_METHODS: Mapping[Literal["rules", "model", "contract", "narrative"], QueryMethod] = {
    "rules": QueryMethod(
        _understand_by_rules, searches=True, tuned=("queries.facets=[sentences, clauses]", "queries.topic=[lead, none]")
    ),
    "model": QueryMethod(_understand_by_model),
    "contract": QueryMethod(_understand_by_contract, searches=True),
    "narrative": QueryMethod(_take_narratives, tuned=None),
}
"""The ways from narratives to queries by their names in a configuration."""
