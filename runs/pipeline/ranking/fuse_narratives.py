"""Fusion of each query and of each narrative, for `run`, `answer`, `tune` and `explain` alike.

After each step the scores are rounded as in a run file. So the next step gets the same ranking from memory and from a
file.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from keystone.fusion.fuse import FusionSettings, combine_systems, fuse, fuse_systems
from keystone.fusion.lists import group_queries_by_topic
from keystone.fusion.methods import METHODS
from keystone.generation.queries.compose import weigh_queries
from keystone.indexing.errors import UserError
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.config.sections import SHORT_FORM


def round_scores(rankings: Rankings) -> Rankings:
    """Round scores as a run file does: to float32, strictly decreasing. `ValueError` if float32 cannot hold a score."""
    return replace(rankings, scores=decrease_strictly(rankings.scores, rankings.offsets))


def fuse_each_query(config: RunConfig, systems: Mapping[str, Rankings]) -> Rankings:
    """Fuse the systems of each query into its hybrid ranking, by scores or by RRF (paper, section 2.4).

    A system has the `weight` that it sets. Without one, it has weight 1, or `queries.passage_weight` if it searches by
    passages. Fusion by scores multiplies this by `fusion.dense_weight` for search by embeddings, and by 1 minus it for
    other systems. A single system keeps its scores. Only RRF fuses a system whose lowest score nobody knows;
    `UserError` if the configuration asks for scores then.
    """
    lists, depth, weights = list(systems.values()), config.retrieval.depth, weigh_systems(config, list(systems))
    lowest = [_find_lowest(config, name) for name in systems]
    if choose_first_stage(config, list(systems)) == "scores":
        if len(lists) == 1:
            return round_scores(lists[0])
        depths = [own.depth if (own := config.find_system(name)) else depth for name in systems]
        return round_scores(combine_systems(list(map(round_scores, lists)), weights, lowest, depths, depth))
    return round_scores(fuse_systems(lists, config.fusion.k, depth, weights))


def weigh_systems(config: RunConfig, systems: Sequence[str]) -> list[float]:
    """Weigh the systems of a query for the first stage, in their order; `fuse_each_query` says how."""
    by_scores, by_passage = choose_first_stage(config, systems) == "scores", config.list_passage_systems()

    def weigh(name: str) -> float:
        own = config.find_system(name)
        if own and own.weight is not None:
            return own.weight
        weight, dense = config.queries.passage_weight if name in by_passage else 1, config.fusion.dense_weight
        return weight * (dense if _find_lowest(config, name) < 0 else 1 - dense) if by_scores else weight

    return list(map(weigh, systems))


def list_ranks_alone(config: RunConfig, systems: Sequence[str]) -> list[str]:
    """List the systems whose lowest score nobody knows, so that only their ranks can be fused."""
    return [name for name in systems if math.isnan(_find_lowest(config, name))]


def choose_first_stage(config: RunConfig, systems: Sequence[str]) -> str:
    """Choose how the systems of a query are fused, by `rrf` or by `scores`. `UserError` as from `fuse_each_query`."""
    by_rank = list_ranks_alone(config, systems)
    if by_rank and config.fusion.systems == "scores":
        known = ", ".join(dict.fromkeys([*config.make_systems(), *SHORT_FORM]))
        raise UserError(f"fusion.systems: found 'scores' for {by_rank[0]!r}, expected it for {known}")
    return "rrf" if by_rank else config.first_stage


def _find_lowest(config: RunConfig, name: str) -> float:
    """Find the lowest possible score of a system; NaN if nobody knows it."""
    own = config.find_system(name)
    return own.lowest if own else math.nan


def fuse_each_narrative(
    config: RunConfig, topics: Sequence[Topic], queries: Sequence[Query], hybrid: Rankings
) -> Rankings:
    """Fuse the hybrid rankings of each topic's queries into one ranking, as deep as `fusion` says for the topic.

    By RRF, the only query of a topic keeps its scores, so that they are those of a search for this text.
    """
    ids = [topic.id for topic in topics]
    depths = list(map(config.fusion.get_depth, ids))
    found = fuse_topics_of(config, ids, queries, hybrid, max(depths, default=1)).top(depths)
    if config.fusion.method == "rrf":
        number = Counter(query.topic_id for query in queries)
        alone = {query.topic_id: place for place, query in enumerate(queries) if number[query.topic_id] == 1}
        own = [
            hybrid.scores_of(alone[name])[: len(found.of(i))] if name in alone else found.scores_of(i)
            for i, name in enumerate(ids)
        ]
        found = replace(found, scores=np.concatenate([found.scores[:0], *own]))
    return round_scores(found)


def list_topics(queries: Sequence[Query]) -> list[Topic]:
    """List the topics of queries, in the order of their first query, without narratives."""
    return [Topic(topic_id, "") for topic_id in dict.fromkeys(query.topic_id for query in queries)]


def fuse_topics_of(
    config: RunConfig, topics: Sequence[str], queries: Sequence[Query], hybrid: Rankings, depth: int
) -> Rankings:
    """Fuse the rankings of the queries of each of `topics` by the configured method, into `depth` documents."""
    settings = config.fusion
    has_k = "k" in METHODS[settings.method].parameters
    parameters = {**settings.parameters, **({"k": settings.k_narrative} if has_k else {})}
    weights = weigh_queries(queries, config.queries.narrative_weight)
    groups = group_queries_by_topic([query.topic_id for query in queries], topics, weights)
    return fuse([hybrid], groups, FusionSettings(settings.method, depth, settings.norm, parameters))
