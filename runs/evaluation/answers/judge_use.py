"""Judgments by a model of what use the answers of files are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from keystone.generation.grading.use import AskedAnswer, Use, judge_use
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Failure
from keystone.indexing.errors import UserError
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.asked import Asked
from keystone.runs.evaluation.answers.files import Reference, Submission, read_references, read_submission
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.use.records import UseRecord, list_texts, name_use_file, write_use_records
from keystone.runs.pipeline.model_runner import RunWithModel


def judge_files(
    paths: Sequence[Path],
    asked: Mapping[str, Asked],
    references_path: Path | None,
    config: RunConfig,
    run_with_model: RunWithModel,
) -> tuple[list[Path], list[str]]:
    """Judge the answers to all topics of `asked`, and write the judgments of each file beside it.

    Returns the files of judgments, and cautions about missing ones. A missing answer answers nothing, and the model is
    not asked. `UserError` without a model, for a file with none of the topics, and if no answer gets a judgment.
    """
    if config.model is None:
        raise UserError("model: missing; expected a language model, with its name and urls")
    submissions = [read_submission(path) for path in paths]
    references = {one.topic_id: one for one in read_references(references_path)} if references_path else {}
    cautions = list[str]()
    for one in submissions:
        if not one.answers.keys() & asked.keys():
            ids = f"they look like {next(iter(one.answers))!r}, those with questions like {next(iter(asked))!r}"
            raise UserError(f"{one.name}: none of its topics has questions: {ids}")
        cautions += caution_about_topics(one.name, list(one.answers), list(asked), "an answer", "question")
    requests = [
        [_make_request(one, topic_id, asked[topic_id], references) for topic_id in asked] for one in submissions
    ]

    async def judge(model: Model | None) -> list[Use | Failure]:
        assert model is not None
        return await judge_use(model, [request for of_file in requests for request in of_file])

    found, written = iter(run_with_model(judge)), list[Path]()
    for path, one, of_file in zip(paths, submissions, requests, strict=True):
        records = []
        for topic_id, request, use in zip(asked, of_file, found, strict=False):
            if isinstance(use, Failure):
                cautions.append(f"{one.name}: {topic_id}: no judgment: {use.reason}")
            else:
                texts = tuple(request.questions), tuple(request.sentences)
                records.append(UseRecord(topic_id, config.model.name, *texts, use))
        if records:
            written.append(name_use_file(path))
            write_use_records(written[-1], records)
    if not written:
        raise UserError(f"no file was written, because no answer has a judgment: {cautions[-1]}")
    return written, cautions


def _make_request(
    submission: Submission, topic_id: str, asked: Asked, references: Mapping[str, Reference]
) -> AskedAnswer:
    sentences = list_texts(submission.answers.get(topic_id, Answer(topic_id, ())))
    texts = references[topic_id].references if topic_id in references else ()
    return AskedAnswer(asked.narrative, asked.questions, sentences, texts)
