"""The work of each stage: a function from the values of the artifacts that it reads to those that it makes."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from keystone.generation.ask import run_together
from keystone.generation.grading.grade import GradedTopic
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, EvidenceSet
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.pipeline.answering.evidence_links import name_segments, point_to_evidence
from keystone.runs.pipeline.answering.one_topic import Searches, search_rows
from keystone.runs.pipeline.artifacts import RerankRecord, Summary, TopicStep
from keystone.runs.pipeline.grading.grade_files import (
    GradeRecord,
    Judgment,
    find_grades,
    find_selected_rows,
    make_grade_records,
    make_judgments,
)
from keystone.runs.pipeline.grading.rounds import Found, Round, find_candidates, search_again
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.queries import UnderstoodTopic, list_queries, understand_topics
from keystone.runs.pipeline.ranking.fuse import fuse_each_narrative, fuse_each_query
from keystone.runs.pipeline.ranking.rank import rank_for_track, search_systems, summarise_documents
from keystone.runs.pipeline.ranking.rerank import open_job_reranker, rank_by_place, rerank_rows
from keystone.runs.pipeline.topic_steps import (
    Pool,
    SearchedTopic,
    grade_candidates,
    list_grading_steps,
    open_neighbours,
    open_run_reader,
    open_task,
    rank_graded,
)
from keystone.runs.tracks.answer_files import cite_by_track_ids, make_answer_records
from keystone.runs.trec.types import Run, make_run

Grading = (
    tuple[list[GradeRecord], list[Judgment], Rankings]
    | tuple[list[GradeRecord], list[Judgment], Rankings, list[Round], Rankings]
)
"""The artifacts of the stage `grades`, without and with further rounds."""
TOPICS_AT_ONCE = 64
"""How many topics use the model at one time."""


def make_queries(job: Job, run_with_model: RunWithModel) -> tuple[list[UnderstoodTopic]]:
    """Make the understanding and the queries of each narrative. `UserError` if two queries have the same id."""
    made = run_with_model(lambda model: understand_topics(job, model))
    ids = Counter(query.id for query in list_queries(made))
    repeated, times = ids.most_common(1)[0]
    if times > 1:
        raise UserError(f"{job.config.topics}: topic ids give the query id {repeated!r} twice: rename a topic")
    return (made,)


def make_rankings(
    job: Job, run_with_model: RunWithModel, topics: Sequence[UnderstoodTopic]
) -> tuple[Rankings | list[Summary], ...]:
    """Make the ranking of every query by each system, in one batch, and the summaries, if the run has any."""
    made: list[Summary] = []
    found = search_systems(job, list_queries(topics), choose_texts(job, run_with_model, made.append))
    return (*found.values(), *([made] if job.config.retrieval.summarise else []))


def choose_texts(
    job: Job, run_with_model: RunWithModel, keep: Callable[[Summary], None] = lambda _summary: None
) -> TextsOf:
    """Choose the texts that are embedded for candidates: their contents, or summaries of the long ones.

    `keep` receives each summary.
    """
    if not job.config.retrieval.summarise:
        return join_title_and_text

    def summarise_long(documents: Sequence[Document]) -> list[str]:
        summaries, missed = run_with_model(lambda model: summarise_documents(job, model, documents))
        for doc_id, text in summaries.items():
            keep(Summary(doc_id, text, tuple(one for one in missed if one.topic_id == doc_id)))
        return [summaries.get(document.id, document.contents) for document in documents]

    return summarise_long


def make_hybrid(job: Job, _topics: Sequence[UnderstoodTopic], *systems: Rankings) -> tuple[Rankings]:
    """Make the hybrid ranking of each query."""
    return (fuse_each_query(job.config, dict(zip(job.config.list_systems(), systems, strict=True))),)


def make_narrative(job: Job, topics: Sequence[UnderstoodTopic], hybrid: Rankings) -> tuple[Rankings]:
    """Make the ranking of each narrative."""
    return (fuse_each_narrative(job.config, job.topics, list_queries(topics), hybrid),)


def make_reranked(job: Job, run_with_model: RunWithModel, narrative: Rankings) -> tuple[Rankings, list[RerankRecord]]:
    """Make the ranking of each narrative after the reranker, which the configuration must name."""

    async def rerank_all(model: Model | None) -> list[tuple[list[int], RerankRecord]]:
        with job.progress("Reranking", len(job.topics)) as tick:
            async with open_job_reranker(job, model) as rerank:
                assert rerank is not None

                async def rerank_one(topic: Topic, rows: list[int]) -> tuple[list[int], RerankRecord]:
                    ranked, found = await rerank_rows(job, rerank, topic, rows)
                    tick(1)
                    return ranked, RerankRecord(topic.id, len(found.order), found.fallbacks)

                work = [partial(rerank_one, topic, narrative.of(i).tolist()) for i, topic in enumerate(job.topics)]
                return await run_together(work, TOPICS_AT_ONCE)

    found = run_with_model(rerank_all)
    return rank_by_place(narrative.query_ids, [rows for rows, _ in found]), [record for _, record in found]


def make_grades(
    job: Job, run_with_model: RunWithModel, topics: Sequence[UnderstoodTopic], hybrid: Rankings, narrative: Rankings
) -> Grading:
    """Make UMBRELA grades, the same as judgments, and the ranking with the selected documents first.

    If the configuration has further rounds, they and the hybrid ranking of each query after them come with it.
    """
    rankings = {topic.id: narrative.of(place).tolist() for place, topic in enumerate(job.topics)}
    find_neighbours = open_neighbours(job)
    has_budget = job.config.model is not None and job.config.model.budget is not None

    async def grade_all(model: Model | None, found: Found) -> list[GradedTopic]:
        searched = [SearchedTopic(topic, found.queries, found.hybrid) for topic in job.topics]
        pools = [Pool(found.pools[topic.id], rankings[topic.id]) for topic in job.topics]
        graded: list[GradedTopic] = []
        for step in list_grading_steps(pools) if has_budget else [pools]:
            work = [
                partial(grade_candidates, job, model, one, pool, find_neighbours)
                for one, pool in zip(searched, step, strict=True)
            ]
            graded = await run_together(work, TOPICS_AT_ONCE)
        return graded

    found = find_candidates(job, list_queries(topics), hybrid, narrative)
    graded = run_with_model(partial(grade_all, found=found))
    for _ in range(job.config.grading.rounds):
        again = search_again(job, run_with_model, choose_texts(job, run_with_model), found, graded)
        if again is None:
            break
        found = again
        graded = run_with_model(partial(grade_all, found=found))
    assert job.config.model is not None  # the configuration has been checked
    records = list(make_grade_records(graded, job.store, job.config.model.name))
    made = records, list(make_judgments(records)), rank_graded(job, graded, narrative)
    return (*made, list(found.rounds), found.hybrid) if job.config.grading.rounds else made


def make_retrieval(job: Job, ranking: Rankings, topics: Sequence[UnderstoodTopic] = ()) -> tuple[Run]:
    """Make the ranking that is submitted, of documents or of their segments, as track and configuration demand."""
    return (make_run(job.config.run_id, rank_for_track(job, list_queries(topics), ranking)),)


def make_evidence(
    job: Job,
    run_with_model: RunWithModel,
    topics: Sequence[UnderstoodTopic],
    hybrid: Rankings,
    ranking: Rankings,
    *grades: list[GradeRecord],
) -> tuple[list[EvidenceSet]] | tuple[list[EvidenceSet], list[TopicStep]]:
    """Gather the evidence for each narrative from its documents. A structure-aware reader's steps come with it."""
    shared: list[Searches] = []

    async def search(queries: Sequence[Query], model: Model | None) -> list[list[int]]:
        if not shared:  # it belongs to the loop that runs now
            shared.append(Searches(job, model, None))
        return await search_rows(job, shared[0], queries)

    async def gather(model: Model | None, searched: SearchedTopic, selected: Sequence[int]) -> EvidenceSet:
        task, hits = await open_task(job, searched, selected)
        reader = open_run_reader(job, model, partial(search, model=model))
        return name_segments(await reader.gather(task, hits), job.store)

    searches = _list_searches(job, list_queries(topics), hybrid, ranking, *grades)
    work = [partial(gather, searched=searched, selected=selected) for searched, selected in searches]
    found = _work_on_each_topic(job, run_with_model, "Gathering", work)
    if job.config.reader.name == "plain":
        return (found,)
    return found, [
        TopicStep(topic.id, step) for topic, one in zip(job.topics, found, strict=True) for step in one.steps
    ]


def make_answers(
    job: Job, run_with_model: RunWithModel, evidence: Sequence[EvidenceSet], *found: Any
) -> tuple[list[Answer]]:
    """Make a cited answer to each narrative from its evidence. `found` are the inputs of `make_evidence`."""
    topics, hybrid, ranking, *grades = found

    async def answer(model: Model | None, searched: SearchedTopic, selected: Sequence[int], own: EvidenceSet) -> Answer:
        task, _ = await open_task(job, searched, selected, own.added)
        return point_to_evidence(await open_run_reader(job, model).answer(task, own), own)

    searches = _list_searches(job, list_queries(topics), hybrid, ranking, *grades)
    work = [
        partial(answer, searched=searched, selected=selected, own=own)
        for (searched, selected), own in zip(searches, evidence, strict=True)
    ]
    return (_work_on_each_topic(job, run_with_model, "Answering", work),)


def make_submission(job: Job, answers: Sequence[Answer]) -> tuple[list[dict[str, Any]]]:
    """Make the objects of the track's answer file, one for each topic."""
    made = {answer.topic_id: cite_by_track_ids(answer, job.track) for answer in answers}
    return (make_answer_records(job.topics, made, job.track, job.author),)


def _list_searches(
    job: Job, queries: list[Query], hybrid: Rankings, ranking: Rankings, *grades: list[GradeRecord]
) -> list[tuple[SearchedTopic, list[int]]]:
    """List the topics as searched, each with the rows of its documents, best first.

    These are the documents that its grades select, or its ranking.
    """
    ranked = {topic.id: ranking.of(place).tolist() for place, topic in enumerate(job.topics)}
    for records in grades:
        selected, known = find_selected_rows(records, job.store), find_grades(records, job.store)
        chosen = ranked if job.answer_settings.reads_ranking else selected
        return [(SearchedTopic(one, queries, hybrid, known[one.id]), chosen[one.id]) for one in job.topics]
    return [(SearchedTopic(one, queries, hybrid), ranked[one.id]) for one in job.topics]


def _work_on_each_topic(
    job: Job, run_with_model: RunWithModel, name: str, work: Sequence[Callable[..., Any]]
) -> list[Any]:
    """Do the work for each topic; returns the results in order. Many topics use a model at one time."""
    at_once = TOPICS_AT_ONCE if job.config.model else 1
    with job.progress(name, len(work)) as tick:

        async def work_on_one(model: Model | None, start: Callable[..., Any]) -> Any:
            found = await start(model)
            tick(1)
            return found

        return run_with_model(
            lambda model: run_together([partial(work_on_one, model, start) for start in work], at_once)
        )
