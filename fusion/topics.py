"""Second-stage fusion (Keystone-Docs RAG, section 2.4): the rankings of a topic's queries become one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusion.fuse import FusionSettings, fuse
from fusion.lists import group_queries_by_topic
from fusion.methods import METHODS
from retrieval.types import Rankings


@dataclass(frozen=True, slots=True)
class TopicFusion:
    """A method of `fusion.methods.METHODS` with its settings; `depth` counts documents of a topic.

    `k` is used by methods that have such a parameter, `norm` by methods that add scores.
    """

    method: str = "rrf"
    k: float = 60
    norm: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    depth: int = 100


def fuse_topics(
    rankings: Rankings,
    topic_of: Sequence[str],
    topics: Sequence[str],
    weights: Sequence[float],
    settings: TopicFusion,
) -> Rankings:
    """One ranking for each of `topics`, in their order.

    `topic_of` and `weights` stand beside the queries of `rankings`: the topic of each query, and its weight.
    """
    parameters = dict(settings.parameters)
    if "k" in METHODS[settings.method].parameters:
        parameters["k"] = settings.k
    groups = group_queries_by_topic(topic_of, topics, weights)
    return fuse([rankings], groups, FusionSettings(settings.method, settings.depth, settings.norm, parameters))
