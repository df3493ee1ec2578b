"""UMBRELA grades of each narrative's candidates, and the ranking with the selected documents first (paper, section 3).

`stages/rounds.py` has the same for runs that search again for what the grades leave open.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.context.topic import TopicContext, read_context
from keystone.generation.grading.grade import SELECTIONS, Beyond, Candidates, FindNeighbours, GradedTopic, grade_topic
from keystone.generation.grading.umbrela import request_grades
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.retrieval.types import Query, Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names, grade_files
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model, leave_uncounted
from keystone.runs.pipeline.ranking.fuse_narratives import round_scores
from keystone.runs.pipeline.ranking.rank import choose_pool, find_graded_places, get_hybrid_scores
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.stages.rerank import KEYSTONE_FILE
from keystone.runs.pipeline.values import Artifact, make_records_artifact, rank_topics_in
from keystone.runs.track_rules import TRACKS

ASKS = ("grading.method",)
RELEVANT_GRADE = 2
"""A query with a document of this grade or above is not searched again."""
FIRST_GRADED = 5
"""With a budget, this number of documents of every topic is graded before any further one."""

GRADES_FILE = make_records_artifact(file_names.GRADES, grade_files.GradeRecord)
QRELS_FILE = Artifact(
    file_names.QRELS,
    lambda path, _: grade_files.read_judgments(path),
    lambda path, found, _: grade_files.write_judgments(path, found),
)
GRADED_FILE = rank_topics_in(file_names.GRADED)
"""The ranking that grades make of each narrative, if a reranker follows them."""


@dataclass(frozen=True, slots=True)
class Found:
    """The hybrid ranking of each query, and the candidates, of a run before or after a round."""

    queries: Sequence[Query]
    hybrid: Rankings
    pools: dict[str, list[int]]
    """The rows of each topic's candidates, by topic id."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of a topic, and its whole ranking, down which grading may go on: rows of the store, best first.

    If the ranking is empty, only the candidates are graded.
    """

    rows: Sequence[int]
    ranking: Sequence[int]


def choose_ranking_file(config: RunConfig) -> Artifact[Rankings]:
    """Choose the file of the ranking that the grades make: the last one is always the keystone ranking."""
    return GRADED_FILE if config.reranks_after("grades") else KEYSTONE_FILE


def grade_first_candidates(work: Work) -> None:
    """Grade the candidates of each narrative."""
    put_grades(work, grade_all(work, find_first_candidates(work)))


def find_first_candidates(work: Work) -> Found:
    """Find the candidates of each narrative, from the rankings before the grades."""
    job, values = work.job, work.values
    queries, hybrid, narrative = get_queries(values), values.get(HYBRID_FILE), values.get(work.before.narrative_ranking)
    pools = {
        topic.id: choose_pool(job, topic.id, queries, hybrid, narrative.of(place).tolist())
        for place, topic in enumerate(job.topics)
    }
    return Found(queries, hybrid, pools)


def grade_all(work: Work, found: Found) -> list[GradedTopic]:
    """Grade the candidates of all narratives. A model's budget is spent on the first documents of each one first."""
    job, narrative = work.job, work.values.get(work.before.narrative_ranking)
    find_neighbours = work.means.open_neighbours(job)
    pools = [Pool(found.pools[topic.id], narrative.of(place).tolist()) for place, topic in enumerate(job.topics)]
    has_budget = job.config.model is not None and job.config.model.budget is not None

    async def grade(model: Model | None) -> list[GradedTopic]:
        assert model is not None  # the configuration has been checked
        graded: list[GradedTopic] = []
        for step in _list_grading_steps(pools) if has_budget else [pools]:
            asked = model if step is pools else leave_uncounted(model)
            topics = [
                partial(_grade_candidates, job, asked, topic.id, found, pool, find_neighbours)
                for topic, pool in zip(job.topics, step, strict=True)
            ]
            graded = await run_together(topics, TOPICS_AT_ONCE)
        return graded

    return work.run_with_model(grade)


def _list_grading_steps(pools: Sequence[Pool]) -> Iterator[Sequence[Pool]]:
    """List the steps in which a budget is spent on grades: the first 5 documents of all pools, 10, 20, and so on.

    The last step is the pools as they are. Replies to earlier steps are kept, so no document costs twice.
    """
    most = FIRST_GRADED
    while any(len(pool.rows) > most for pool in pools):
        yield [Pool(pool.rows[:most], ()) for pool in pools]
        most *= 2
    yield pools


async def _grade_candidates(
    job: Job, model: Model, topic_id: str, found: Found, pool: Pool, find_near: FindNeighbours
) -> GradedTopic:
    places = find_graded_places(job.config, topic_id, found.queries)
    queries = [found.queries[place] for place in places]

    async def read(rows: Sequence[int]) -> TopicContext:
        return await asyncio.to_thread(read_context, job.sources, rows, queries)

    most = job.config.grading.deeper
    beyond = Beyond(pool.ranking, find_near, read, most) if most and pool.ranking else None
    scores = get_hybrid_scores(found.hybrid, places, pool.rows)
    return await grade_topic(model, Candidates(topic_id, await read(pool.rows), scores), job.grade_settings, beyond)


def put_grades(work: Work, graded: Sequence[GradedTopic]) -> None:
    """Put the grades, the same grades as judgments, and the ranking that they make.

    If that ranking ends with the selected set, nothing follows it.
    """
    job, values = work.job, work.values
    records = list(grade_files.make_grade_records(graded, job.store, job.config.require_model().name))
    values.put(GRADES_FILE, records)
    values.put(QRELS_FILE, list(grade_files.make_judgments(records)))
    narrative = values.get(work.before.narrative_ranking)
    ranking = grade_files.make_keystone_rankings(graded, narrative, alone=ends_with_set(job.config))
    values.put(choose_ranking_file(job.config), round_scores(ranking))


def ends_with_set(config: RunConfig) -> bool:
    """Whether the ranking by grades ends with a selected set, since the track allows any number of rows."""
    is_set = config.grading.method is not None and SELECTIONS[config.grading.select].is_set
    return is_set and config.track is not None and TRACKS[config.track].rows is None


def list_grade_files(before: Before) -> tuple[Artifact[Any], ...]:
    """List the files that grades make."""
    return GRADES_FILE, QRELS_FILE, choose_ranking_file(before.config)


def list_inputs(before: Before) -> tuple[Artifact[Any], ...]:
    """List the files that grades are made from."""
    return QUERIES_FILE, HYBRID_FILE, before.narrative_ranking


def make_key(job: Job, _: Before) -> Any:
    """The settings of the grades. The track counts, because it may limit the rows of the ranking."""
    plain = job.config.model_dump(mode="json", include={"grading", "track"})
    return [job.identity, plain["grading"], describe_model(job.config), plain["track"]]


def foresee_grades(asked: Asked, one: AskedTopic) -> Iterator[Ask]:
    """Foresee the requests for the grades of one topic: of the pool, of documents beyond it, and of further rounds."""
    config, settings = asked.job.config, asked.job.config.grading
    whole = len(one.topic.narrative) if settings.narrative else 0
    queries, characters = one.queries + bool(whole), one.characters + whole
    lists = one.queries + 1 if settings.narrative or config.retrieval.runs else one.queries
    pool = lists * settings.pool + settings.rounds * settings.round_documents
    graded = min(pool + (settings.rounds + 1) * settings.deeper, asked.documents)
    in_one = queries if settings.method == "grid" else 1
    assert settings.method is not None
    request = request_grades([""] * in_one, "", settings.method, settings.expected)
    number = graded * queries // in_one
    shown = number * CHARACTERS_PER_TOKEN * settings.tokens + graded * characters
    yield Ask("grades", number, request, shown)


def describe_grades(before: Before) -> Iterator[dict[str, Any]]:
    """Describe the grades as a step of the ranking."""
    config = before.config
    model = {} if config.model is None else {"model": config.model.name}
    yield {
        "name": choose_ranking_file(config).stem,
        "method": f"UMBRELA, {config.grading.method}, {config.grading.select}",
        **model,
        "reranks": before.narrative_ranking.stem,
    }


STAGE = StageKind(
    name="grades",
    wanted=lambda config: config.grading.method is not None and not config.grading.rounds,
    makes=list_grade_files,
    reads=list_inputs,
    key=make_key,
    work=grade_first_candidates,
    ranks_narratives=choose_ranking_file,
    asks=ASKS,
    foresee=foresee_grades,
    notes=lambda _: (QRELS_FILE,),
    records=lambda _: (GRADES_FILE,),
    why_kept=lambda config: "searches the index" if config.grading.neighbours else "",
    describe=describe_grades,
)
