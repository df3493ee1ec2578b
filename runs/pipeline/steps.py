"""From topics to rankings: the steps before grades and answers, as functions from values to values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.fuse import FusionSettings, fuse
from fusion.lists import group_queries_by_topic
from fusion.methods import METHODS
from generation.llm.model import Model
from generation.queries.compose import compose, is_whole, whole
from generation.queries.understand import understand
from generation.rules.understand import understand as understand_by_rules
from generation.summarise import summarise
from generation.types import Fallback, Understanding
from indexing.types import Document
from indexing.vectors.of_documents import TextsOf, join_title_and_text
from retrieval.hybrid import search_all
from retrieval.types import Query, Rankings, SearchSettings, offsets_of
from runs.pipeline.job import Job


@dataclass(frozen=True, slots=True)
class Understood:
    """What is understood of a topic, the queries that this makes, and where the model gave nothing."""

    understanding: Understanding
    queries: list[Query]
    fallbacks: list[Fallback]


async def understood(job: Job, model: Model | None) -> list[Understood]:
    """For each topic what is understood of it, by rules or by the model, and its queries (paper, section 2.1)."""
    settings = job.config.queries
    if settings.method == "narrative":
        return [Understood(Understanding(topic.id, ()), [whole(topic)], []) for topic in job.topics]
    fallbacks: list[Fallback] = []
    if settings.method == "rules":
        found = understand_by_rules(
            job.topics, job.index, job.store, settings.facets, settings.topic, settings.variants, job.threads
        )
    else:
        assert model is not None  # the configuration has been checked
        found, fallbacks = await understand(model, job.topics, settings.variants)
    return [
        Understood(
            understanding,
            [
                *([whole(topic)] if settings.narrative_weight > 0 else []),
                *compose(understanding, settings.question_weight, settings.dense_topic),
            ],
            [fallback for fallback in fallbacks if fallback.topic_id == topic.id],
        )
        for topic, understanding in zip(job.topics, found, strict=True)
    ]


def rankings_of(job: Job, queries: Sequence[Query], texts_of: TextsOf = join_title_and_text) -> dict[str, Rankings]:
    """The rankings of the queries by each system; `texts_of` says what is embedded of candidates."""
    chosen = job.config.retrieval
    settings = SearchSettings(
        systems=chosen.systems,
        depth=chosen.depth,
        feedback=None if chosen.feedback == "none" else chosen.feedback,
        faiss=chosen.faiss,
        statistics=chosen.statistics,
        threads=job.threads,
    )
    return search_all(job.index, job.store, queries, settings, job.progress, texts_of)


async def summaries_of(
    job: Job, model: Model | None, documents: Sequence[Document]
) -> tuple[dict[str, str], list[Fallback]]:
    """The summaries of the documents that are too long to be embedded (paper, section 2.2)."""
    assert model is not None  # the configuration has been checked
    assert job.config.model is not None
    return await summarise(model, documents, job.config.model.window)


def narrative_rankings(job: Job, queries: Sequence[Query], hybrid: Rankings, depth: int | None = None) -> Rankings:
    """One ranking a topic from the hybrid rankings of its queries, `fusion.depth` deep where nothing else is said."""
    settings, topics = job.config.fusion, [topic.id for topic in job.topics]
    weight = 1 if job.config.queries.method == "narrative" else job.config.queries.narrative_weight
    heavy = [weight if is_whole(query) else 1 for query in queries]
    groups = group_queries_by_topic([query.topic_id for query in queries], topics, heavy)
    parameters = dict(settings.parameters)
    if "k" in METHODS[settings.method].parameters:
        parameters["k"] = settings.k_narrative
    return fuse([hybrid], groups, FusionSettings(settings.method, depth or settings.depth, settings.norm, parameters))


def asked_of(topic_id: str, queries: Sequence[Query]) -> list[int]:
    """The places of a topic's decomposed queries; that of its whole narrative where there is no other."""
    own = [place for place, query in enumerate(queries) if query.topic_id == topic_id]
    return [place for place in own if not is_whole(queries[place])] or own


def part(rankings: Rankings, places: Sequence[int]) -> Rankings:
    """The rankings of some of the queries."""
    return Rankings(
        tuple(rankings.query_ids[place] for place in places),
        offsets_of([len(rankings.of(place)) for place in places]),
        np.concatenate([rankings.docs[:0], *(rankings.of(place) for place in places)]),
        np.concatenate([rankings.scores[:0], *(rankings.scores_of(place) for place in places)]),
    )
