"""The record beside a file of judgments by a model: who judged, which runs were pooled, and each single grade."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole

RECORD_SUFFIX = ".judge.json"
"""The end of the record's name, after the whole name of the file of judgments."""


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run file whose documents were judged."""

    file: str
    sha256: str
    circular_rows: int
    """The rows that are judged by the model whose grades selected the documents of the run."""


@dataclass(frozen=True, slots=True)
class JudgeRecord:
    """Who made a file of judgments, and how. `model` stands in the second column of the file."""

    model: str
    prompts: dict[str, str]
    """The SHA-256 of each prompt, by its name."""
    date: str
    """The day on which the file was made."""
    sha256: str
    """The SHA-256 of the file of judgments."""
    depth: int
    repeats: int
    cascade: bool
    failed: int
    """The number of pooled documents without a judgment, because the model gave no grade."""
    runs: list[PooledRun]
    grades: list[list[int]]
    """All grades behind each line of the file, if there are several; else empty."""
    against: str = ""
    """The file of other judgments that these were compared with, if any."""
    compared: list[int | None] = field(default_factory=list)
    """The grade in that file for each line of this one, or None; empty without such a file."""


_ADAPTER = TypeAdapter(JudgeRecord)


def name_record(qrels: Path) -> Path:
    """Name the record of a file of judgments."""
    return qrels.with_name(f"{qrels.name}{RECORD_SUFFIX}")


def read_record(qrels: Path) -> JudgeRecord | None:
    """Read the record of a file of judgments; None if it has none. `UserError` if the record is damaged."""
    path = name_record(qrels)
    if not path.is_file():
        return None
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: not a record of judgments: {place or 'the file'}: {first['msg']}") from error


def write_record(qrels: Path, record: JudgeRecord) -> None:
    """Write the record of a file of judgments. The file appears when it is whole."""
    with write_whole(name_record(qrels)) as out:
        out.write(orjson.dumps(asdict(record), option=orjson.OPT_APPEND_NEWLINE))
