"""The ranking that a run submits: of documents, of the closest segment of each, or of several segments of each."""

from collections.abc import Sequence

from fusion.closest import find_closest_segments, rank_segments
from generation.queries.compose import find_places
from indexing.vectors.embed import embed_queries
from indexing.vectors.of_segments import segment_vectors
from indexing.vectors.types import Vectors
from retrieval.types import Query, Rankings, Topic
from runs.pipeline.job import Job
from runs.trec.render import decrease_strictly

Hits = list[tuple[str, float]]
"""The ids and scores of a topic, best first."""


def rank_for_track(job: Job, queries: Sequence[Query], ranking: Rankings) -> dict[str, Hits]:
    """Rank, for each topic, what the track judges, from at most as many documents as it takes rows.

    `ranking` has the documents of each topic.
    """
    ranking = ranking if job.track.rows is None else ranking.top(job.track.rows)
    if job.config.ranks_segments:
        found = _rank_segments(job, queries, ranking)
    else:
        ids = _find_closest_ids(job, ranking) if job.track.segments else map(job.store.ids, _list_rows(ranking))
        found = [list(zip(own, ranking.scores_of(i).tolist(), strict=True)) for i, own in enumerate(ids)]
    return {topic.id: hits for topic, hits in zip(job.topics, found, strict=True)}


def embed_topic(job: Job, topic: Topic, queries: Sequence[Query]) -> Vectors:
    """Embed the narrative and the decomposed queries of a topic: float32[texts, dimension]."""
    own = [queries[place].dense_text for place in find_places(topic.id, queries)]
    return embed_queries(job.sources.embedding, list(dict.fromkeys([topic.narrative, *own])), job.threads)


def _find_closest_ids(job: Job, ranking: Rankings) -> list[list[str]]:
    """Find, for each document of each topic, the id of its segment closest to the narrative (paper, section 2.4)."""
    vectors = segment_vectors(job.index, job.store, ranking.docs.tolist(), job.threads, job.progress)
    narratives = embed_queries(job.sources.embedding, [topic.narrative for topic in job.topics], job.threads)
    found = []
    for i, rows in enumerate(_list_rows(ranking)):
        chosen = [find_closest_segments(narratives[i : i + 1], vectors[row])[0][0] for row in rows]
        documents = job.store.get(rows)
        found.append([document.segments[number].id for document, number in zip(documents, chosen, strict=True)])
    return found


def _rank_segments(job: Job, queries: Sequence[Query], ranking: Rankings) -> list[Hits]:
    """Rank the segments of each topic's documents, as many as the track takes rows."""
    vectors = segment_vectors(job.index, job.store, ranking.docs.tolist(), job.threads, job.progress)
    found = []
    for topic, rows in zip(job.topics, _list_rows(ranking), strict=True):
        texts, own = embed_topic(job, topic, queries), [vectors[row] for row in rows]
        ranked = rank_segments(texts, own, job.config.segments_per_document)[: job.track.rows]
        documents = job.store.get(rows)
        ids = [documents[place].segments[number].id for place, number, _ in ranked]
        scores = decrease_strictly([score for *_, score in ranked])
        found.append(list(zip(ids, scores.tolist(), strict=True)))
    return found


def _list_rows(ranking: Rankings) -> list[list[int]]:
    return [ranking.of(i).tolist() for i in range(len(ranking))]
