"""Fusion of each query and of each narrative, for `run`, `answer`, `tune` and `explain` alike.

After each step the scores are rounded as in a run file. So the next step gets the same ranking from memory and from a
file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusion.fuse import TopicFusion, combine_systems, fuse_topics
from fusion.rrf import fuse_systems
from generation.queries.compose import weigh_queries
from retrieval.ties import decrease_strictly
from retrieval.types import Query, Rankings, Topic
from runs.config.run_config import RunConfig


def round_scores(rankings: Rankings) -> Rankings:
    """Round scores as a run file does: to float32, strictly decreasing. `ValueError` if float32 cannot hold a score."""
    return replace(rankings, scores=decrease_strictly(rankings.scores, rankings.offsets))


def fuse_each_query(config: RunConfig, systems: Mapping[str, Rankings]) -> Rankings:
    """Fuse the systems of each query into its hybrid ranking, by RRF (paper, section 2.4) or by scores.

    Systems that search by passages have `queries.passage_weight`, all others weight 1. By scores, `fusion.dense_weight`
    also weighs those that search by embeddings, and the rest to 1 weighs the others.
    """
    fusion, by_passage = config.fusion, list[str](config.list_passage_systems())
    weights = {system: config.queries.passage_weight if system in by_passage else 1 for system in systems}
    lists, depth = list(systems.values()), config.retrieval.depth
    if fusion.systems == "rrf":
        return round_scores(fuse_systems(lists, fusion.k, depth, list(weights.values())))
    shares = [
        weight * (fusion.dense_weight if system in ("dense", "hyde") else 1 - fusion.dense_weight)
        for system, weight in weights.items()
    ]
    return round_scores(combine_systems(list(map(round_scores, lists)), shares, depth))


def fuse_each_narrative(
    config: RunConfig, topics: Sequence[Topic], queries: Sequence[Query], hybrid: Rankings
) -> Rankings:
    """Fuse the hybrid rankings of each topic's queries into one ranking of `fusion.depth` documents."""
    return round_scores(fuse_topics_of(config, [topic.id for topic in topics], queries, hybrid, config.fusion.depth))


def list_topics(queries: Sequence[Query]) -> list[Topic]:
    """List the topics of queries, in the order of their first query, without narratives."""
    return [Topic(topic_id, "") for topic_id in dict.fromkeys(query.topic_id for query in queries)]


def fuse_topics_of(
    config: RunConfig, topics: Sequence[str], queries: Sequence[Query], hybrid: Rankings, depth: int
) -> Rankings:
    """Fuse the rankings of the queries of each of `topics` by the configured method, into `depth` documents."""
    settings = config.fusion
    fusion = TopicFusion(settings.method, settings.k_narrative, settings.norm, settings.parameters, depth)
    weights = weigh_queries(queries, config.queries.narrative_weight)
    return fuse_topics(hybrid, [query.topic_id for query in queries], topics, weights, fusion)
