"""Judgments of the pool of several runs: its documents, graded by a model for each narrative."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from keystone.generation.ask import run_together
from keystone.generation.context.passages import join_spans
from keystone.generation.context.tokens import clip
from keystone.generation.context.topic import read_context
from keystone.generation.grading.grade import choose_graded_spans
from keystone.generation.grading.judge import JudgeSettings, choose_grade, judge_texts
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.types import Failure
from keystone.indexing.types import Store, document_id
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.grading.grade_files import Judgment
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.trec.run_files import sort_as_trec_eval
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
    """The ids of the topics that were to judge."""


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
    """Read the passage of each id that the index has; an id that is no document's is a segment's."""
    rows = _find_rows(job.store, ids)
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


def _find_rows(store: Store, ids: Sequence[str]) -> list[int]:
    """Find the row of each document, or of the document of a segment; -1 if there is none."""
    rows, parents = store.rows(ids), store.rows([document_id(name) for name in ids])
    found: list[int] = np.where(rows < 0, parents, rows).tolist()
    return found
