"""Further rounds of search: new texts for queries without a relevant document, and more candidates to grade."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keystone.fusion.fuse import fuse_groups
from keystone.fusion.lists import Groups, group_queries_by_topic
from keystone.generation.grading.grade import GradedTopic
from keystone.generation.queries.enrich import OpenQuery, write_search_texts
from keystone.generation.types import Fallback
from keystone.retrieval.types import Query, Rankings, ranked
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.pipeline.ranking.fuse import fuse_each_query, round_scores
from keystone.runs.pipeline.ranking.rank import choose_pool

Search = Callable[[Sequence[Query]], dict[str, Rankings]]
"""Ranks documents for queries by each system."""
RELEVANT_GRADE = 2
"""A query with a document of this grade or above is not searched again."""
SHOWN_DOCUMENTS = 5
"""How many documents of a query's ranking the model sees before it writes new search texts."""


NO_RANKINGS = ranked([], [], [], 0)
"""The rankings of no queries."""


@dataclass(frozen=True, slots=True)
class Round:
    """A further round of one topic: the new search texts of each open query, and the documents that they add."""

    topic_id: str
    number: int
    texts: dict[str, list[str]]
    """The new search texts by the query's id."""
    documents: list[str]
    """The ids of the documents that are graded next, best first."""
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The rankings and the candidates of a run before or after a round."""

    queries: Sequence[Query]
    hybrid: Rankings
    pools: dict[str, list[int]]
    """The rows of each topic's candidates, by topic id."""
    rounds: tuple[Round, ...] = ()


def find_candidates(job: Job, queries: Sequence[Query], hybrid: Rankings, narrative: Rankings) -> Found:
    """Find the candidates of the first round, from the rankings of queries and of narratives."""
    pools = {
        topic.id: choose_pool(job, topic.id, queries, hybrid, narrative.of(place).tolist())
        for place, topic in enumerate(job.topics)
    }
    return Found(queries, hybrid, pools)


def find_open_queries(graded: Sequence[GradedTopic]) -> list[Query]:
    """Find the queries without a document of grade 2 or above. A pair that was not graded counts as below."""
    return [
        query
        for topic in graded
        for query, grades in zip(topic.queries, topic.grades, strict=True)
        if not (grades >= RELEVANT_GRADE).any()
    ]


def search_again(
    job: Job, run_with_model: RunWithModel, search: Search, found: Found, graded: Sequence[GradedTopic]
) -> Found | None:
    """Search open queries by new texts of the model. None if no query is open.

    A query's new rankings are fused with the one it had. They add at most `grading.round_documents` candidates to a
    topic's pool, the best by their fusion.
    """
    if not (asked := _open_queries(job, found, graded)):
        return None

    written, fallbacks = ask_model(run_with_model, lambda model: write_search_texts(model, asked))
    number = len({one.number for one in found.rounds}) + 1
    texts = {one.query.id: own for one, own in zip(asked, written, strict=True)}
    new = [
        replace(one.query, id=f"{one.query.id}+{number}.{place}", sparse_text=text, dense_text=text, passage="")
        for one in asked
        for place, text in enumerate(texts[one.query.id], start=1)
    ]
    searched = fuse_each_query(job.config, search(new)) if new else NO_RANKINGS
    pools, rounds = dict(found.pools), list(found.rounds)
    added = _find_new_candidates(job, found, new, searched)
    for topic_id in dict.fromkeys(one.query.topic_id for one in asked):
        pools[topic_id] = [*pools[topic_id], *added[topic_id]]
        own = {one.query.id: list(texts[one.query.id]) for one in asked if one.query.topic_id == topic_id}
        missed = tuple(fallback for fallback in fallbacks if fallback.topic_id == topic_id)
        rounds.append(Round(topic_id, number, own, job.store.ids(added[topic_id]), missed))
    hybrid = _join_rankings(job, found.hybrid, searched)
    return Found(found.queries, hybrid, pools, tuple(rounds))


def _open_queries(job: Job, found: Found, graded: Sequence[GradedTopic]) -> list[OpenQuery]:
    narratives = {topic.id: topic.narrative for topic in job.topics}
    place_of = {query.id: place for place, query in enumerate(found.queries)}
    return [
        OpenQuery(
            query,
            narratives[query.topic_id],
            (query.question, *(text for one in found.rounds for text in one.texts.get(query.id, ()))),
            job.store.get(found.hybrid.of(place_of[query.id])[:SHOWN_DOCUMENTS]),
        )
        for query in find_open_queries(graded)
    ]


def _find_new_candidates(job: Job, found: Found, new: Sequence[Query], searched: Rankings) -> dict[str, list[int]]:
    """Find the best documents of each topic's new rankings that are not in its pool yet."""
    topics = [topic.id for topic in job.topics]
    groups = group_queries_by_topic([query.topic_id for query in new], topics)
    first = searched.top(job.config.grading.pool)
    fused = fuse_groups([first], groups, job.config.fusion.k_narrative, len(first.docs))
    fresh = [fused.of(i)[~np.isin(fused.of(i), found.pools[topic])] for i, topic in enumerate(topics)]
    most = job.config.grading.round_documents
    return {topic: rows[:most].tolist() for topic, rows in zip(topics, fresh, strict=True)}


def _join_rankings(job: Job, hybrid: Rankings, searched: Rankings) -> Rankings:
    """Fuse each query's ranking with the rankings of its new texts, by RRF."""
    members = [[(0, place)] for place in range(len(hybrid))]
    place_of = {query_id: place for place, query_id in enumerate(hybrid.query_ids)}
    for place, query_id in enumerate(searched.query_ids):
        members[place_of[query_id.rpartition("+")[0]]].append((1, place))
    groups = Groups(hybrid.query_ids, members)
    return round_scores(fuse_groups([hybrid, searched], groups, job.config.fusion.k, job.config.retrieval.depth))
