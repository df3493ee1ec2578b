"""What use answers are to whoever asked: the files of judgments, and measures of the judgments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from keystone.generation.grading.rate_sentences import Use
from keystone.generation.prompts.evaluation import LEAST_MARK, MOST_MARK
from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.pipeline.file_names import USE


@dataclass(frozen=True, slots=True)
class UseRecord:
    """The use of an answer to a topic, with the texts of its questions and sentences."""

    topic_id: str
    judge: str
    """The model that judged."""
    questions: tuple[str, ...]
    sentences: tuple[str, ...]
    use: Use


_USE = TypeAdapter(Use)


def list_texts(answer: Answer) -> tuple[str, ...]:
    """List the sentences of an answer that have a text."""
    return tuple(sentence.text for sentence in answer.sentences if sentence.text.strip())


def name_use_file(path: Path) -> Path:
    """Name the file of judgments of a run directory, or of an answer file beside it."""
    return path / USE if path.is_dir() else path.with_name(f"{path.name}.{USE}")


def write_use_records(path: Path, records: Sequence[UseRecord]) -> None:
    """Write one judgment per line. The file appears when it is whole."""
    write_json_lines(path, map(_encode, records))


def _encode(one: UseRecord) -> dict[str, Any]:
    questions = [
        {"question": text} | {key: value for key, value in asdict(own).items() if value is not None}
        for text, own in zip(one.questions, one.use.questions, strict=True)
    ]
    sentences = [{"text": text, **asdict(own)} for text, own in zip(one.sentences, one.use.sentences, strict=True)]
    head = {"topic_id": one.topic_id, "judge": one.judge, "mark": one.use.mark, "lead": one.use.lead}
    return {**head, "questions": questions, "sentences": sentences}


def read_use_records(path: Path) -> dict[str, UseRecord] | None:
    """Read the judgments of a run directory or answer file by topic; None if there are none.

    `UserError` with file and line for a damaged judgment.
    """
    file = name_use_file(path)
    if not file.is_file():
        return None
    found = {}
    for number, record in read_json_lines(file):
        try:
            one = _decode(record)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{file}:{number}: not a judgment of use, as keystone judge use makes them") from error
        found[one.topic_id] = one
    return found


def _decode(record: Mapping[str, Any]) -> UseRecord:
    questions, sentences = ([dict(one) for one in record[key]] for key in ("questions", "sentences"))
    asked = tuple(str(one.pop("question")) for one in questions)
    texts = tuple(str(one.pop("text")) for one in sentences)
    use = _USE.validate_python(
        {"questions": questions, "sentences": sentences, "lead": record["lead"], "mark": record["mark"]}
    )
    if not asked or not LEAST_MARK <= use.mark <= MOST_MARK:
        raise ValueError("expected a question, and a mark on the scale")
    return UseRecord(str(record["topic_id"]), str(record["judge"]), asked, texts, use)


def keep_fresh(records: Mapping[str, UseRecord], answers: Mapping[str, Answer]) -> dict[str, UseRecord]:
    """Keep the judgments of answers that have not changed since."""
    return {
        topic_id: one
        for topic_id, one in records.items()
        if one.sentences == (list_texts(answers[topic_id]) if topic_id in answers else ())
    }


CREDIT: Mapping[str, float] = {"yes": 1.0, "partly": 0.5, "no": 0.0}
"""The credit of an answer that agrees with references on a question."""


def measure_use(use: Use) -> tuple[float, ...]:
    """Measure an answer: mark; shares of questions answered, partly, not; of sentences of no use; gaps admitted; lead.

    The share of gaps admitted counts the questions that are not answered in full. It is NaN if there is no such
    question, and the share of sentences of no use is NaN without a sentence.
    """
    answered: list[str] = [one.answered for one in use.questions]
    left = [one.open for one in use.questions if one.answered != "yes"]
    useless = [not one.use for one in use.sentences]
    return (
        use.mark,
        *(answered.count(level) / len(answered) for level in CREDIT),
        sum(useless) / len(useless) if useless else nan,
        sum(left) / len(left) if left else nan,
        float(use.lead),
    )


def has_agreement(use: Use) -> bool:
    """Whether references tell the answer to a question."""
    return any(one.agrees in CREDIT for one in use.questions)


def measure_agreement(use: Use) -> float:
    """Measure how far an answer agrees with references: the mean credit of the questions whose answers they tell.

    NaN if they tell the answer to none.
    """
    credit = [CREDIT[one.agrees] for one in use.questions if one.agrees and one.agrees in CREDIT]
    return sum(credit) / len(credit) if credit else nan
