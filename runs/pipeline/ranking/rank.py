"""The steps of a run around the fusion, for `run`, `answer` and `tune` alike: the pool, and the unit of the track.

The last step ranks what the track judges: documents or segments.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keystone.fusion.closest import find_closest_segments, rank_segments
from keystone.fusion.parasol import Floats
from keystone.generation.queries.compose import find_places
from keystone.indexing.embedder import Vectors
from keystone.indexing.types import Store
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.retrieval.bm25 import weigh_segments
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Query, Rankings, Topic, ranked
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_topics_of
from keystone.runs.trec.types import Run

Hits = list[tuple[str, float]]
"""The ids and scores of a topic, best first."""

Compare = Callable[[list[str], Sequence[int]], tuple[Vectors, list[Vectors]]]
"""Returns vectors of texts, and of the segments of each document by row, whose inner products compare them."""


def number_documents(runs: Sequence[Run], queries: Sequence[Query]) -> tuple[list[str], list[Rankings]]:
    """List the documents of all runs in the order of ids, and turn the runs of these queries into rankings of them."""
    own = [run.select([query.id for query in queries]) for run in runs]
    found = [run.docs.find_distinct() for run in own]
    docs = sorted({doc_id for doc_ids, _ in found for doc_id in doc_ids}, key=str.encode)
    place = {doc_id: number for number, doc_id in enumerate(docs)}
    rankings = [
        rank_rows(run, np.array([place[doc_id] for doc_id in doc_ids], dtype=np.int32)[number_of_row])
        for run, (doc_ids, number_of_row) in zip(own, found, strict=True)
    ]
    return docs, rankings


def rank_rows(run: Run, rows: Any) -> Rankings:
    """Rank a run whose rows have these documents (int32[rows]), with scores as run files hold them."""
    parts = [slice(a, b) for a, b in zip(run.offsets, run.offsets[1:], strict=False)]
    scores = run.scores.astype(np.float32)
    return ranked(run.query_ids, [rows[p] for p in parts], [scores[p] for p in parts], max(1, len(rows)))


def choose_pool(
    job: Job, topic_id: str, queries: Sequence[Query], hybrid: Rankings, ranking: Sequence[int]
) -> list[int]:
    """Choose the candidates for grades: the first documents of each query (R_i; paper, section 3.1).

    They are in the order of their fusion. With runs of other systems, the narrative counts as a query here. After a
    reranker, as many candidates come from the top of its `ranking`, best first.
    """
    places = find_graded_places(job.config, topic_id, queries)
    if job.config.retrieval.runs:
        places = [place for place, query in enumerate(queries) if query.topic_id == topic_id]
    first = hybrid.select(places).top(job.config.grading.pool)
    if not len(first.docs):
        return []
    own = [queries[place] for place in places]
    found: list[int] = fuse_topics_of(job.config, [topic_id], own, first, len(first.docs)).docs.tolist()
    return list(dict.fromkeys([*ranking, *found]))[: len(found)] if job.config.reranks_after("fusion") else found


def find_graded_places(config: RunConfig, topic_id: str, queries: Sequence[Query]) -> list[int]:
    """Find the places of the queries that a topic's documents are graded for: decomposed ones, or all of the topic."""
    if config.grading.narrative:
        return [place for place, query in enumerate(queries) if query.topic_id == topic_id]
    return find_places(topic_id, queries)


def list_hits(store: Store, rankings: Rankings, place: int) -> Hits:
    """List the hits of the query at a place."""
    return list(zip(store.ids(rankings.of(place)), rankings.scores_of(place).tolist(), strict=True))


def get_hybrid_scores(hybrid: Rankings, places: Sequence[int], rows: Sequence[int]) -> Floats:
    """Get the hybrid score of each row for each query: float64[queries, rows]. NaN if a query did not find the row."""
    known = [dict(zip(hybrid.of(n).tolist(), hybrid.scores_of(n).tolist(), strict=True)) for n in places]
    return np.array([[scores.get(row, np.nan) for row in rows] for scores in known])


def rank_for_track(
    job: Job, queries: Sequence[Query], ranking: Rankings, chosen: Sequence[int] | None = None
) -> dict[str, Hits]:
    """Rank, for each topic, what the track judges, from at most as many documents as it takes rows.

    A topic gets no more rows than `fusion.depths` or `chosen` gives it. `ranking` has the documents of each topic.
    """
    own, rows = job.config.fusion.depths, job.track.rows or sys.maxsize
    limits = [min(own.get(topic.id, rows), rows) for topic in job.topics]
    if chosen is not None:
        limits = [min(limit, rows) for limit, rows in zip(limits, chosen, strict=True)]
    ranking = ranking.top(limits)
    if job.config.ranks_segments:
        found = _rank_segments(job, queries, ranking, limits)
    else:
        ids = _find_closest_ids(job, ranking) if job.track.segments else map(job.store.ids, _list_rows(ranking))
        found = [list(zip(own, ranking.scores_of(i).tolist(), strict=True)) for i, own in enumerate(ids)]
    return {topic.id: hits for topic, hits in zip(job.topics, found, strict=True)}


def embed_topic(job: Job, topic: Topic, queries: Sequence[Query]) -> Vectors:
    """Embed the narrative and the decomposed queries of a topic: float32[texts, dimension]."""
    return embed_queries(job.sources.embedding, _list_texts(topic, queries), job.threads)


def _list_texts(topic: Topic, queries: Sequence[Query]) -> list[str]:
    own = [queries[place].dense_text for place in find_places(topic.id, queries)]
    return list(dict.fromkeys([topic.narrative, *own]))


def _open_comparison(job: Job, ranking: Rankings) -> Compare:
    """Open the comparison of texts with documents of `ranking`: by the index's embeddings, or else by BM25."""
    if job.index.embedding is None:

        def weigh(texts: list[str], rows: Sequence[int]) -> tuple[Vectors, list[Vectors]]:
            segments = [[own.segment_text(one) for one in own.segments] for own in job.store.get(rows)]
            return weigh_segments(texts, segments, job.config.retrieval.k1, job.config.retrieval.b)

        return weigh
    vectors = segment_vectors(job.index, job.store, ranking.docs.tolist(), job.threads, job.progress)

    def embed(texts: list[str], rows: Sequence[int]) -> tuple[Vectors, list[Vectors]]:
        return embed_queries(job.sources.embedding, texts, job.threads), [vectors[row] for row in rows]

    return embed


def _find_closest_ids(job: Job, ranking: Rankings) -> list[list[str]]:
    """Find, for each document of each topic, the id of its segment closest to the narrative (paper, section 2.4)."""
    compare = _open_comparison(job, ranking)
    found = []
    for topic, rows in zip(job.topics, _list_rows(ranking), strict=True):
        narrative, own = compare([topic.narrative], rows)
        chosen = [find_closest_segments(narrative, segments)[0][0] for segments in own]
        documents = job.store.get(rows)
        found.append([document.segments[number].id for document, number in zip(documents, chosen, strict=True)])
    return found


def _rank_segments(job: Job, queries: Sequence[Query], ranking: Rankings, limits: Sequence[int]) -> list[Hits]:
    compare = _open_comparison(job, ranking)
    found = []
    for topic, rows, limit in zip(job.topics, _list_rows(ranking), limits, strict=True):
        texts, own = compare(_list_texts(topic, queries), rows)
        ranked = rank_segments(texts, own, job.config.segments_per_document)[:limit]
        documents = job.store.get(rows)
        ids = [documents[place].segments[number].id for place, number, _ in ranked]
        scores = decrease_strictly([score for *_, score in ranked])
        found.append(list(zip(ids, scores.tolist(), strict=True)))
    return found


def _list_rows(ranking: Rankings) -> list[list[int]]:
    return [ranking.of(i).tolist() for i in range(len(ranking))]
