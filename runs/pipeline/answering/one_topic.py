"""The answer to one narrative: the stages of a run that it needs, over values in memory, beside other narratives."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Fallback
from keystone.indexing.types import Store, silent
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Rankings, Topic
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.ranking.rank import Hits, list_hits, rank_for_track
from keystone.runs.pipeline.searches import Searches, share_means, work_in_thread
from keystone.runs.pipeline.stage import StageKind, Step, Watch, tell_nobody
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.grades import QRELS_FILE
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import get_queries
from keystone.runs.pipeline.stages.segments import choose_depths
from keystone.runs.pipeline.table import list_rankings, list_wanted, perform
from keystone.runs.pipeline.values import Artifact, MemoryValues, Values
from keystone.runs.track_rules import set_topic_limits
from keystone.runs.tracks.answer_files import cite_by_track_ids, make_answer_record

T = TypeVar("T")
WATCHED_HITS = 100
"""The most documents of a ranking that a watcher is told."""


async def answer_topic(
    job: Job, model: Model | None, searches: Searches, topic: Topic, watch: Watch | None = None
) -> Answer:
    """Answer one topic. The answer holds the fallbacks of all steps.

    `watch` is told each step as it is made, in a thread. If there is one, the ranking is made to its end, also where
    the answer does not need that.
    """

    def is_needed(one: Job, kind: StageKind) -> bool:
        return kind.answers_need(one) or (watch is not None and kind.ranks_narratives is not None)

    def answer(one: Job, run_with_model: RunWithModel) -> Answer:
        values = _ToldValues(one, watch) if watch else MemoryValues(one)
        means = share_means(searches, run_with_model)
        perform(values, run_with_model, partial(is_needed, one), means, watch or tell_nobody)
        (found,) = values.get(ANSWERS_FILE)
        if watch:
            for sentence in found.sentences:
                watch("sentence", sentence)
            ranking = values.get(list_rankings(one.config).narrative_ranking)
            chosen = [depth.rows for depth in choose_depths(values, ranking)] if one.config.fusion.choice else None
            watch("run", rank_for_track(one, get_queries(values), ranking, chosen)[topic.id])
        return replace(found, fallbacks=tuple(_list_fallbacks(values, partial(is_needed, one))))

    return await work_on_topic(job, model, topic, answer)


def make_record(job: Job, topic: Topic, answer: Answer) -> dict[str, Any]:
    """Make the line of the track's answer file that holds the answer to a topic."""
    track = set_topic_limits(job.track, [topic])
    return make_answer_record(topic, cite_by_track_ids(answer, track), track, job.author)


async def work_on_topic(job: Job, model: Model | None, topic: Topic, work: Callable[[Job, RunWithModel], T]) -> T:
    """Work on one topic of a job in a thread, beside other topics."""

    def start(run_with_model: RunWithModel) -> T:
        one = replace(job, topics=[topic], track=set_topic_limits(job.track, [topic]), progress=silent)
        if job.ranks_candidates:  # with a store of its own, the rows of a REST search are freed with the topic
            one = replace(one, store=open_store(job.index))
        return work(one, run_with_model)

    return await work_in_thread(model, start)


def _list_fallbacks(values: Values, is_needed: Callable[[StageKind], bool]) -> Iterator[Fallback]:
    """List the fallbacks of the stages that were performed, in order."""
    for kind, before in list_wanted(values.job.config):
        if is_needed(kind):
            for file in kind.records(before):
                for record in values.get(file):
                    yield from record.fallbacks


def _list_best(store: Store, rankings: Rankings) -> dict[str, Hits]:
    """List the best documents of each query: ids with scores, best first."""
    best = rankings.top(WATCHED_HITS)
    return {name: list_hits(store, best, place) for place, name in enumerate(best.query_ids)}


def _tell_rankings(values: Values) -> tuple[Step, Any]:
    store, (topic,) = values.job.store, values.job.topics
    ranking = _list_best(store, values.get(NARRATIVE_FILE))[topic.id]
    return "rankings", (_list_best(store, values.get(HYBRID_FILE)), ranking)


TOLD: Mapping[str, Callable[[Values], tuple[Step, Any]]] = {
    file_names.QUERIES: lambda values: ("queries", tuple(get_queries(values))),
    file_names.NARRATIVE: _tell_rankings,
    file_names.QRELS: lambda values: ("grades", values.get(QRELS_FILE)),
}
"""What a watcher is told of each file."""


class _ToldValues(MemoryValues):
    """The artifacts of a topic. A watcher is told of those in `TOLD` as soon as they are made."""

    def __init__(self, job: Job, watch: Watch) -> None:
        super().__init__(job)
        self._watch = watch

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Keep the value of an artifact, and tell of it."""
        super().put(artifact, value)
        if tell := TOLD.get(artifact.name):
            self._watch(*tell(self))
