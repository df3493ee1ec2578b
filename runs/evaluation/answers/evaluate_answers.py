"""Evaluation of answer files on references, topic by topic."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.answers.asked import find_narratives
from keystone.runs.evaluation.answers.families import JUDGED, Family, Given, choose_families
from keystone.runs.evaluation.answers.files import (
    REFERENCE_FIELDS,
    Context,
    Reference,
    Submission,
    read_judged_submission,
    read_references,
)
from keystone.runs.evaluation.answers.judge import judge_submissions
from keystone.runs.evaluation.answers.wins import Comparison
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.evaluate import Counts, Evaluation
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.wording import plural


def evaluate_answer_files(
    paths: Sequence[Path], references_path: Path | None, names: Sequence[str], run_with_model: RunWithModel
) -> tuple[list[Evaluation], list[Comparison]]:
    """Evaluate answer files and run directories by the measures of these names; see `choose_families`.

    Without references, the topics are those of all files. Where neither a reference nor a run directory has the
    narrative, the question is unknown.

    Returns the measures of each file, and the comparisons of the first file with each other one. `LR` and `pairwise`
    ask the model. If a file cannot be read or has no topic of the references, or if a measure is unknown, the function
    raises `UserError`. If a named measure lacks its fields, its model or its second file, it also raises `UserError`.
    """
    submissions = [read_judged_submission(path) for path in paths]
    references = read_references(references_path) if references_path else _list_topics(submissions)
    references = _ask_narratives(sorted(references, key=lambda reference: reference.topic_id), paths)
    uses = [record.use for one in submissions for record in (one.uses or {}).values()]
    families = choose_families(names, references, any(one.contexts is not None for one in submissions), uses)
    judged = [name for name in JUDGED if name in names]
    if references_path and not names and not any(family.needs for family in families):
        raise UserError(f"{references_path}: no line has the fields of a measure: {', '.join(REFERENCE_FIELDS)}")
    if "pairwise" in judged and len(submissions) < 2:
        raise UserError("measure 'pairwise': found one answer file, expected two or more")
    evaluations = [evaluate_submission(one, references, families) for one in submissions]
    if any(family.of_use for family in families) and (differing := _find_differing_questions(submissions)):
        text = f"judged by other questions than another file: {plural(len(differing), 'topic')}, such as {differing[0]}"
        evaluations[0] = replace(evaluations[0], cautions=(*evaluations[0].cautions, text))
    if not judged:
        return evaluations, []
    ratings, comparisons = run_with_model(lambda model: judge_submissions(model, submissions, references, judged))
    if ratings:
        evaluations = [
            replace(one, values=rating.values | one.values, cautions=(*one.cautions, *rating.cautions))
            for one, rating in zip(evaluations, ratings, strict=True)
        ]
    return evaluations, comparisons


def _list_topics(submissions: Sequence[Submission]) -> list[Reference]:
    return [Reference(topic_id) for topic_id in {topic_id for one in submissions for topic_id in one.answers}]


def _ask_narratives(references: Sequence[Reference], paths: Sequence[Path]) -> list[Reference]:
    """Ask the narratives of run directories where references have no question."""
    if all(reference.question for reference in references):
        return list(references)
    narratives = find_narratives(paths)
    return [replace(one, question=one.question or narratives.get(one.topic_id, "")) for one in references]


def _find_differing_questions(submissions: Sequence[Submission]) -> list[str]:
    """Find the topics whose answers were judged by different questions in different files."""
    asked: dict[str, set[tuple[str, ...]]] = {}
    for record in (record for one in submissions for record in (one.uses or {}).values()):
        asked.setdefault(record.topic_id, set()).add(record.questions)
    return sorted(topic_id for topic_id, questions in asked.items() if len(questions) > 1)


def evaluate_submission(
    submission: Submission, references: Sequence[Reference], families: Sequence[Family]
) -> Evaluation:
    """Measure the answers of a file on each topic of the references, which are in the order of topic ids.

    A missing topic counts as an empty answer, so its numbers are 0. If the references of a topic lack a field, or if
    the file comes without evidence, the value of measures that need it is NaN.
    """
    topics = tuple(reference.topic_id for reference in references)
    answered = [topic for topic in topics if topic in submission.answers]
    if not answered:
        own = next(iter(submission.answers), None)
        ids = f"its topics look like {own!r}, those of the references like {topics[0]!r}" if own else "it is empty"
        raise UserError(f"{submission.name}: none of its topics has references: {ids}")
    values = {column: np.full(len(topics), np.nan) for family in families for column in family.columns}
    for family in families:
        if family.of_context and submission.contexts is None:
            continue
        for place, reference in enumerate(references):
            if family.applies(reference):
                numbers = family.measure(reference, _get_given(submission, reference.topic_id))
                for column, value in zip(family.columns, numbers, strict=True):
                    values[column][place] = value
    found = caution_about_topics(submission.name, list(submission.answers), topics, "an answer", "reference")
    found += _caution_about_fields(references, families)
    found += _caution_about_use(submission, topics, families)
    return Evaluation(submission.name, topics, values, Counts(len(topics), len(answered)), tuple(found))


def _get_given(submission: Submission, topic_id: str) -> Given:
    answer = submission.answers.get(topic_id, Answer(topic_id, ()))
    judged = (submission.uses or {}).get(topic_id)
    context = (submission.contexts or {}).get(topic_id, Context())
    return Given(answer, context, judged.use if judged else None)


def _caution_about_fields(references: Sequence[Reference], families: Sequence[Family]) -> list[str]:
    """Caution about measures that only some topics have the fields for."""
    found = []
    for family in families:
        without = [reference.topic_id for reference in references if not family.applies(reference)]
        if without:
            share = f"{len(without):,} of {len(references):,}"
            columns, needs = ", ".join(family.columns), " or ".join(family.needs)
            found.append(f"{columns}: topics without {needs}, which are left out: {share}, such as {without[0]}")
    return found


def _caution_about_use(submission: Submission, topics: Sequence[str], families: Sequence[Family]) -> list[str]:
    """Caution about topics without a judgment of use, if the file has any, or if another one has."""
    without = [topic for topic in topics if topic not in (submission.uses or {})]
    if not without or not any(family.of_use for family in families):
        return []
    share = f"{len(without):,} of {len(topics):,}"
    return [f"{submission.name}: topics whose answer now has no judgment of use: {share}, such as {without[0]}"]
