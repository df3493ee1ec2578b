"""Judgments by a model of what use the answers of files are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from keystone.generation.grading.rate_sentences import AskedAnswer, judge_use
from keystone.generation.types import Answer, Failure
from keystone.indexing.errors import UserError
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.asked import Asked
from keystone.runs.evaluation.answers.evaluate_answers import evaluate_submission
from keystone.runs.evaluation.answers.families import FAMILIES
from keystone.runs.evaluation.answers.files import Reference, Submission, read_references, read_submission
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.use import UseRecord, list_texts, name_use_file, write_use_records
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model


def judge_files(
    paths: Sequence[Path],
    asked: Mapping[str, Asked],
    references_path: Path | None,
    config: RunConfig,
    run_with_model: RunWithModel,
) -> list[Evaluation]:
    """Judge the answers to all topics of `asked`, and write the judgments of each file beside it.

    Returns the measures of use of each file. A missing answer answers nothing, and the model is not asked. If the model
    gives no usable reply, an answer has no judgment, and a caution says why. `UserError` without a model, for a file
    with none of the topics, and for a file without any judgment.
    """
    judge = config.require_model().name
    submissions = [read_submission(path) for path in paths]
    references = {one.topic_id: one for one in read_references(references_path)} if references_path else {}
    for one in submissions:
        if not one.answers.keys() & asked.keys():
            ids = f"they look like {next(iter(one.answers))!r}, those with questions like {next(iter(asked))!r}"
            raise UserError(f"{one.name}: none of its topics has questions: {ids}")
    requests = [
        [_make_request(one, topic_id, asked[topic_id], references) for topic_id in asked] for one in submissions
    ]
    every = [request for of_file in requests for request in of_file]
    found = iter(ask_model(run_with_model, lambda model: judge_use(model, every)))
    judged = list[tuple[Submission, list[str]]]()
    for path, one, of_file in zip(paths, submissions, requests, strict=True):
        records, failures = {}, []
        for topic_id, request, use in zip(asked, of_file, found, strict=False):
            if isinstance(use, Failure):
                failures.append(f"{one.name}: {topic_id}: no judgment: {use.reason}")
            else:
                texts = tuple(request.questions), tuple(request.sentences)
                records[topic_id] = UseRecord(topic_id, judge, *texts, use)
        if not records:
            raise UserError(failures[0])
        write_use_records(name_use_file(path), [*records.values()])
        judged.append((replace(one, uses=records), failures))
    return _evaluate(judged, sorted(asked))


def _make_request(
    submission: Submission, topic_id: str, asked: Asked, references: Mapping[str, Reference]
) -> AskedAnswer:
    sentences = list_texts(submission.answers.get(topic_id, Answer(topic_id, ())))
    texts = references[topic_id].references if topic_id in references else ()
    return AskedAnswer(asked.narrative, asked.questions, sentences, texts)


def _evaluate(judged: Sequence[tuple[Submission, list[str]]], topics: Sequence[str]) -> list[Evaluation]:
    """Measure the use of the answers of each file, and add its failures to the cautions."""
    uses = [record.use for one, _ in judged for record in (one.uses or {}).values()]
    families = [family for family in FAMILIES.values() if family.of_use and family.can_be_taken(uses)]
    references = [Reference(topic_id) for topic_id in topics]
    found = [evaluate_submission(one, references, families) for one, _ in judged]
    return [replace(one, cautions=(*one.cautions, *own)) for one, (_, own) in zip(found, judged, strict=True)]
