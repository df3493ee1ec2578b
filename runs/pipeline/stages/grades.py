"""UMBRELA grades of each narrative's candidates, and the ranking with the selected documents first (paper, section 3).

`stages/rounds.py` has the same for runs that search again for what the grades leave open.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.grading.grade import GradedTopic
from keystone.generation.grading.umbrela import request_grades
from keystone.generation.llm.model import Model, run_together
from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen, foresee
from keystone.runs.pipeline.grading.grade_files import (
    GradeRecord,
    make_grade_records,
    make_judgments,
    read_judgments,
    write_judgments,
)
from keystone.runs.pipeline.grading.rounds import Found, find_candidates
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries
from keystone.runs.pipeline.stages.rerank import KEYSTONE_FILE
from keystone.runs.pipeline.topic_steps import (
    Pool,
    SearchedTopic,
    grade_candidates,
    list_grading_steps,
    rank_graded,
)
from keystone.runs.pipeline.values import Artifact, make_records_artifact, rank_topics_in

ASKS = ("grading.method",)

GRADES_FILE = make_records_artifact(file_names.GRADES, GradeRecord)
QRELS_FILE = Artifact(
    file_names.QRELS, lambda path, _: read_judgments(path), lambda path, found, _: write_judgments(path, found)
)
GRADED_FILE = rank_topics_in(file_names.GRADED)
"""The ranking that grades make of each narrative, if a reranker follows them."""


def choose_ranking_file(config: RunConfig) -> Artifact[Rankings]:
    """Choose the file of the ranking that the grades make: the last one is always the keystone ranking."""
    return GRADED_FILE if config.reranks_after("grades") else KEYSTONE_FILE


def grade_first_candidates(work: Work) -> None:
    """Grade the candidates of each narrative."""
    found = find_first_candidates(work)
    put_grades(work, grade_all(work, found))


def find_first_candidates(work: Work) -> Found:
    """Find the candidates of each narrative, from the rankings before the grades."""
    values = work.values
    narrative = values.get(work.before.narrative_ranking)
    return find_candidates(work.job, get_queries(values), values.get(HYBRID_FILE), narrative)


def grade_all(work: Work, found: Found) -> list[GradedTopic]:
    """Grade the candidates of all narratives. A model's budget is spent on the first documents of each one first."""
    job, narrative = work.job, work.values.get(work.before.narrative_ranking)
    find_neighbours = work.means.open_neighbours(job)
    pools = [Pool(found.pools[topic.id], narrative.of(place).tolist()) for place, topic in enumerate(job.topics)]
    has_budget = job.config.model is not None and job.config.model.budget is not None

    async def grade(model: Model | None) -> list[GradedTopic]:
        searched = [SearchedTopic(topic, found.queries, found.hybrid) for topic in job.topics]
        graded: list[GradedTopic] = []
        for step in list_grading_steps(pools) if has_budget else [pools]:
            topics = [
                partial(grade_candidates, job, model, one, pool, find_neighbours)
                for one, pool in zip(searched, step, strict=True)
            ]
            graded = await run_together(topics, TOPICS_AT_ONCE)
        return graded

    return work.run_with_model(grade)


def put_grades(work: Work, graded: Sequence[GradedTopic]) -> None:
    """Put the grades, the same as judgments, and the ranking that they make."""
    job, values = work.job, work.values
    records = list(make_grade_records(graded, job.store, job.config.require_model().name))
    values.put(GRADES_FILE, records)
    values.put(QRELS_FILE, list(make_judgments(records)))
    ranking = rank_graded(job, graded, values.get(work.before.narrative_ranking))
    values.put(choose_ranking_file(job.config), ranking)


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


def list_grade_asks(config: RunConfig, one: AskedTopic, documents: int) -> Iterator[Ask]:
    """List the requests for the grades of one topic: of the pool, of documents beyond it, and of further rounds."""
    settings = config.grading
    whole = len(one.topic.narrative) if settings.narrative else 0
    queries, characters = one.queries + bool(whole), one.characters + whole
    lists = one.queries + 1 if settings.narrative or config.retrieval.runs else one.queries
    pool = lists * settings.pool + settings.rounds * settings.round_documents
    graded = min(pool + (settings.rounds + 1) * settings.deeper, documents)
    in_one = queries if settings.method == "grid" else 1
    assert settings.method is not None
    request = request_grades([""] * in_one, "", settings.method, settings.expected)
    number = graded * queries // in_one
    shown = number * CHARACTERS_PER_TOKEN * settings.tokens + graded * characters
    yield Ask("grades", number, request, shown)


def _foresee(asked: Asked) -> Iterator[Foreseen]:
    for one in asked.topics:
        for ask in list_grade_asks(asked.job.config, one, asked.documents):
            yield foresee(ask, asked.model)


def describe_grades(before: Before) -> Iterator[dict[str, Any]]:
    """Describe the grades as a step of the ranking."""
    config = before.config
    model = {} if config.model is None else {"model": config.model.name}
    yield {
        "name": choose_ranking_file(config).name.removesuffix(".trec"),
        "method": f"UMBRELA, {config.grading.method}, {config.grading.select}",
        **model,
        "reranks": before.narrative_ranking.name.removesuffix(".trec"),
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
    foresee=_foresee,
    notes=lambda _: (QRELS_FILE,),
    records=lambda _: (GRADES_FILE,),
    why_kept=lambda config: "searches the index" if config.grading.neighbours else "",
    describe=describe_grades,
)
