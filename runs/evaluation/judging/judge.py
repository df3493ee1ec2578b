"""Judgments by a model of the pool of several run files, their record, and their agreement with other judgments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from keystone.generation.context.texts import clip
from keystone.generation.context.topic import join_spans, read_context
from keystone.generation.grading.grade import choose_graded_spans
from keystone.generation.grading.umbrela import JudgeSettings, choose_grade, judge_texts
from keystone.generation.llm.ask import run_together
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file
from keystone.indexing.types import document_id
from keystone.retrieval.types import Topic
from keystone.runs.evaluation.agreement import Agreement, compare_judgments, compute_tau
from keystone.runs.evaluation.circular import (
    JudgeRecord,
    PooledRun,
    count_circular_rows,
    find_shaping_grades,
    read_record,
    write_record,
)
from keystone.runs.evaluation.evaluate import take_mean
from keystone.runs.evaluation.measures import Measure
from keystone.runs.pipeline.grade_files import Judgment, read_judgments, write_judgments
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.trec.run_files import read_qrels, sort_as_trec_eval
from keystone.runs.trec.types import Run


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgments of a pool, and all grades behind each of them, in the same order.

    `failures` names each document without a grade, with the reason. `unknown` are the pooled documents that the index
    lacks.
    """

    judgments: list[Judgment]
    grades: list[list[int]]
    failures: list[str]
    unknown: list[str]
    topics: set[str]
    """The ids of the topics that were to be judged."""


def pool_runs(runs: Sequence[Run], depth: int) -> dict[str, list[str]]:
    """Pool the first `depth` documents of each run for each topic, in trec_eval's order: sorted ids by topic."""
    pool: dict[str, set[str]] = {}
    for run in map(sort_as_trec_eval, runs):
        for topic_id, hits in run.list_hits().items():
            pool.setdefault(topic_id, set()).update(doc_id for doc_id, _ in hits[:depth])
    return {topic_id: sorted(ids) for topic_id, ids in pool.items()}


def judge_pool(
    job: Job, run_with_model: RunWithModel, pool: Mapping[str, Sequence[str]], settings: JudgeSettings
) -> Judged:
    """Judge the pooled documents, or segments, of each topic of the job. The model sees the passages that a run grades.

    If the model gives no grade for a document, the document has no judgment.
    """
    texts = {topic.id: _read_texts(job, topic, pool.get(topic.id, ())) for topic in job.topics}
    asked = [(topic.narrative, [*texts[topic.id].values()]) for topic in job.topics]
    found = ask_model(
        run_with_model, lambda model: run_together(partial(judge_texts, model, *one, settings) for one in asked)
    )
    by = "_".join(job.config.require_model().name.split())
    judged = Judged([], [], [], [], {topic.id for topic in job.topics})
    for topic, of_topic in zip(job.topics, found, strict=True):
        judged.unknown.extend(doc_id for doc_id in pool.get(topic.id, ()) if doc_id not in texts[topic.id])
        for doc_id, values in zip(texts[topic.id], of_topic, strict=True):
            grades = [value for value in values if not isinstance(value, Failure)]
            if grades:
                judged.judgments.append(Judgment(topic.id, by, doc_id, choose_grade(grades)))
                judged.grades.append(grades)
            else:
                reason = next(value.reason for value in values if isinstance(value, Failure))
                judged.failures.append(f"{topic.id}: no grade for {doc_id}: {reason}")
    return judged


def _read_texts(job: Job, topic: Topic, ids: Sequence[str]) -> dict[str, str]:
    """Read the passage of each id that the index has. An id that names no document names a segment."""
    found_rows, parents = job.store.rows(ids), job.store.rows([document_id(name) for name in ids])
    rows: list[int] = np.where(found_rows < 0, parents, found_rows).tolist()
    context = read_context(job.sources, sorted({row for row in rows if row >= 0}), [make_narrative_query(topic)])
    tokens = job.config.grading.tokens
    chosen = dict(zip(context.documents, choose_graded_spans(context, job.grade_settings), strict=True))
    found = {}
    for doc_id, row in zip(ids, rows, strict=True):
        if row < 0:
            continue
        document = context.documents[row]
        own = [(one.span.start, one.span.end) for one in document.segments if one.id == doc_id]
        spans = chosen[row] if doc_id == document.id else own
        if spans:
            found[doc_id] = clip(join_spans(document, spans), tokens)
    return found


@dataclass(frozen=True, slots=True)
class Pool:
    """The run files to judge, to the depth `depth`."""

    runs: dict[Path, Run]
    depth: int

    @property
    def topics(self) -> set[str]:
        """The ids of all topics of the runs."""
        return {topic_id for run in self.runs.values() for topic_id in run.query_ids}


def judge_files(job: Job, run_with_model: RunWithModel, pool: Pool, settings: JudgeSettings, out: Path) -> Judged:
    """Judge the pool, and write the judgments with their record.

    `UserError` if the runs have no topic of the job, or if no pooled document gets a grade.
    """
    topics = [topic for topic in job.topics if topic.id in pool.topics]
    if not topics:
        like = f"look like {min(pool.topics, default='')!r}, those to judge like {job.topics[0].id!r}"
        raise UserError(f"{job.config.topics}: holds no topic of the runs: those of the runs {like}")
    documents = pool_runs([*pool.runs.values()], pool.depth)
    judged = judge_pool(replace(job, topics=topics), run_with_model, documents, settings)
    if not judged.judgments:
        reason = judged.failures[0] if judged.failures else f"the index has no document {judged.unknown[0]}"
        raise UserError(f"{out}: not written, because no document has a grade: {reason}")
    write_judgments(out, judged.judgments)
    write_record(out, _describe(out, pool, settings, judged))
    return judged


def _describe(out: Path, pool: Pool, settings: JudgeSettings, judged: Judged) -> JudgeRecord:
    model, lines = judged.judgments[0].graded_by, set(judged.judgments)
    runs = []
    for path, run in pool.runs.items():
        grades = find_shaping_grades(path, out)
        rows = count_circular_rows(run, lines, grades, model) if grades else 0
        runs.append(PooledRun(str(path), hash_file(path), rows))
    record = JudgeRecord(
        model=model,
        prompts={name: digest(prompt) for name, prompt in settings.prompts.items()},
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        sha256=hash_file(out),
        depth=pool.depth,
        repeats=settings.repeats,
        cascade=settings.cascade,
        failed=len(judged.failures),
        runs=runs,
        grades=judged.grades if settings.repeats > 1 or settings.cascade else [],
    )
    known = read_record(out)  # so that a repeated command writes the same bytes
    return replace(record, date=known.date) if known and known.sha256 == record.sha256 else record


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The agreement of judgments with other judgments, and the means of the runs by each, in the order of the runs."""

    agreement: Agreement
    own_means: list[float]
    other_means: list[float]

    @property
    def tau(self) -> float:
        """Kendall's tau-b between the orders of the runs."""
        return compute_tau(self.own_means, self.other_means)


def compare_with(out: Path, against: Path, pool: Pool, measure: Measure) -> Comparison:
    """Compare judgments with other judgments, and add the grades of the others to the record.

    The means are of a measure, over the topics that both judged. `UserError` if the two have judged no document in
    common.
    """
    own, other = read_qrels(out), read_qrels(against)
    agreement = compare_judgments(other, own)
    if not agreement.counts.sum():
        raise UserError(f"{against}: has judged no document of {out}; expected judgments of the same documents")
    grade_of = {(topic, doc_id): grade for topic, doc_id, grade in other.list_rows()}
    compared = [grade_of.get((judgment.query_id, judgment.doc_id)) for judgment in read_judgments(out)]
    if record := read_record(out):
        write_record(out, replace(record, against=str(against), compared=compared))
    topics = [topic for topic in own.query_ids if topic in other.query_ids]
    means = [
        [take_mean(str(path), run, one.select(topics), measure) for path, run in pool.runs.items()]
        for one in (own, other)
    ]
    return Comparison(agreement, *means)
