"""Rubrics created from the documents that judgments call relevant, and graded on answers by a model or by rules."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from keystone.generation.grading.nuggets import create_criteria, grade_by_rules, grade_criteria
from keystone.generation.llm.model import Model, run_together
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.nuggets.citations import read_submissions
from keystone.runs.evaluation.nuggets.create import Judgments, read_passages
from keystone.runs.evaluation.rubrics.files import Criterion, Rubric
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from keystone.runs.wording import plural


def create_rubrics(
    config: RunConfig, qrels_path: Path, relevant_from: int, run_with_model: RunWithModel
) -> tuple[list[Rubric], list[str]]:
    """Create the rubric of each topic of a run from its relevant documents; also cautions about parts that are missing.

    A topic without a relevant document gets a rubric from its narrative alone. `UserError` without a model.
    """
    topics = read_topics(config.topics)
    window = config.require_model("rubrics: needs a language model; expected one under the key model").window
    judged = Judgments(str(qrels_path), read_qrels(qrels_path), relevant_from)
    passages, cautions = read_passages(open_store(open_index(config.index)), topics, judged)
    shown = [(topic, list(passages.get(topic.id, {}).values())) for topic in topics]
    if bare := sum(not own for _, own in shown):
        cautions.append(f"{plural(bare, 'topic')} without a relevant document, whose rubrics are from narratives alone")
    found = ask_model(
        run_with_model,
        lambda model: run_together(partial(_create_rubric, model, topic, own, window) for topic, own in shown),
    )
    return [rubric for rubric, _ in found if rubric.criteria], [*cautions, *(one for _, own in found for one in own)]


async def _create_rubric(model: Model, topic: Topic, passages: Sequence[str], window: int) -> tuple[Rubric, list[str]]:
    made, failures = await create_criteria(model, topic.narrative, passages, window)
    criteria = tuple(Criterion(one.text.strip(), float(one.weight), one.type) for one in made)
    cautions = [f"{topic.id}: the model gave no criteria of some passages: {one.reason}" for one in failures]
    return Rubric(topic.id, criteria, topic.narrative), cautions


def assign_rubrics(
    paths: Sequence[Path], rubrics: Sequence[Rubric], name: str, run_with_model: RunWithModel | None
) -> tuple[list[Rubric], list[str]]:
    """Grade the answers of files or run directories by the rubrics of their topics; also cautions about topics.

    Without a runner, rules grade: see `grade_by_rules`. A missing answer is not graded. `name` is that of the rubrics
    in messages. `UserError` without a model, for rubrics that have runs, and for a file without one of their topics.
    """
    submissions, cautions = read_submissions(paths), list[str]()
    topics = [one.topic_id for one in rubrics]
    if graded := next((one for one in rubrics if one.run_id), None):
        raise UserError(f"{name}: topic {graded.topic_id!r} has run {graded.run_id!r}, expected rubrics without runs")
    for one in submissions:
        if not one.answers.keys() & set(topics):
            ids = f"its topics look like {next(iter(one.answers))!r}, those of the rubrics like {topics[0]!r}"
            raise UserError(f"{one.name}: none of its topics has a rubric: {ids}")
        cautions += caution_about_topics(one.name, list(one.answers), topics, "an answer", "rubric")
    asked = [
        replace(rubric, run_id=one.run_id, answer_text=one.get_text(rubric.topic_id))
        for one in submissions
        for rubric in rubrics
        if rubric.topic_id in one.answers
    ]
    texts = [(rubric, [criterion.text for criterion in rubric.criteria]) for rubric in asked]
    if run_with_model is None:
        verdicts = [grade_by_rules(rubric.answer_text, own) for rubric, own in texts]
    else:
        verdicts = ask_model(
            run_with_model,
            lambda model: run_together(partial(grade_criteria, model, r.query, r.answer_text, own) for r, own in texts),
            "rubrics: needs a language model; expected one under the key model, or --rules",
        )
    found = [
        replace(one, criteria=tuple(replace(c, verdict=v) for c, v in zip(one.criteria, own, strict=True)))
        for one, own in zip(asked, verdicts, strict=True)
    ]
    return found, cautions
