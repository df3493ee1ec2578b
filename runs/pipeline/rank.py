"""From queries to rankings, one way for `run`, `answer` and `tune`: search, fuse each query, fuse each narrative.

After each step the scores are rounded as a run file holds them, so that a ranking is the same whether the next step
takes it from memory or from a file.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusion.parasol import Floats
from fusion.rrf import fuse_systems
from fusion.topics import TopicFusion, fuse_topics
from generation.llm.model import Model
from generation.queries.compose import find_places, weigh_queries
from generation.summarise import summarise
from generation.types import Fallback
from indexing.types import Document
from indexing.vectors.of_documents import Texts, contents
from retrieval.hybrid import search_all
from retrieval.types import Query, Rankings, SearchSettings, offsets_of
from runs.pipeline.job import Job
from runs.trec.render import decrease_strictly


def round_scores(rankings: Rankings) -> Rankings:
    """The rankings as they are read from a run file to which they were written: scores decrease in float32.

    `ValueError` for a score that float32 cannot hold.
    """
    return replace(rankings, scores=decrease_strictly(rankings.scores, rankings.offsets))


def search_systems(job: Job, queries: Sequence[Query], texts_of: Texts = contents) -> dict[str, Rankings]:
    """The rankings of the queries by each system; `texts_of` says which text of a candidate is embedded."""
    settings = job.config.retrieval
    search = SearchSettings(
        tuple(settings.systems), settings.depth, settings.feedback, settings.faiss, settings.statistics, job.threads
    )
    found = search_all(job.index, job.store, queries, search, job.progress, texts_of)
    return {system: round_scores(rankings) for system, rankings in found.items()}


def fuse_each_query(job: Job, systems: Sequence[Rankings]) -> Rankings:
    """The hybrid ranking of each query: RRF over its systems (paper, section 2.4)."""
    return round_scores(fuse_systems(list(systems), job.config.fusion.k, job.config.retrieval.depth))


def fuse_each_narrative(job: Job, queries: Sequence[Query], hybrid: Rankings) -> Rankings:
    """One ranking a topic from the hybrid rankings of its queries, `fusion.depth` deep."""
    return round_scores(_fuse_topics(job, [topic.id for topic in job.topics], queries, hybrid, job.config.fusion.depth))


def choose_pool(job: Job, topic_id: str, queries: Sequence[Query], hybrid: Rankings) -> list[int]:
    """The candidates for grades: the first of each query (R_i; paper, section 3.1), in the order of their fusion."""
    places = find_places(topic_id, queries)
    first = select_rankings(hybrid, places).top(job.config.grading.pool)
    if not len(first.docs):
        return []
    own = [queries[place] for place in places]
    found: list[int] = _fuse_topics(job, [topic_id], own, first, len(first.docs)).docs.tolist()
    return found


def _fuse_topics(job: Job, topics: Sequence[str], queries: Sequence[Query], hybrid: Rankings, depth: int) -> Rankings:
    settings = job.config.fusion
    fusion = TopicFusion(settings.method, settings.k_narrative, settings.norm, settings.parameters, depth)
    weights = weigh_queries(queries, job.config.queries.narrative_weight)
    return fuse_topics(hybrid, [query.topic_id for query in queries], topics, weights, fusion)


async def summarise_documents(
    job: Job, model: Model | None, documents: Sequence[Document]
) -> tuple[dict[str, str], list[Fallback]]:
    """The summaries of the documents that are too long to be embedded (paper, section 2.2)."""
    assert model is not None  # the configuration has been checked
    assert job.config.model is not None
    return await summarise(model, documents, job.config.model.window)


def select_rankings(rankings: Rankings, places: Sequence[int]) -> Rankings:
    """The rankings of some of the queries."""
    return Rankings(
        tuple(rankings.query_ids[place] for place in places),
        offsets_of([len(rankings.of(place)) for place in places]),
        np.concatenate([rankings.docs[:0], *(rankings.of(place) for place in places)]),
        np.concatenate([rankings.scores[:0], *(rankings.scores_of(place) for place in places)]),
    )


def get_hybrid_scores(hybrid: Rankings, places: Sequence[int], rows: Sequence[int]) -> Floats:
    """The hybrid score of each row for each query, float64[queries, rows]; NaN where a query did not find it."""
    known = [dict(zip(hybrid.of(n).tolist(), hybrid.scores_of(n).tolist(), strict=True)) for n in places]
    return np.array([[scores.get(row, np.nan) for row in rows] for scores in known])
