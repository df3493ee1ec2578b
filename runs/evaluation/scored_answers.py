"""Scores of answers, whoever graded what: assigned nuggets, rated citations or graded rubrics, told apart by file."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import open_binary
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.nuggets.score import score_files
from keystone.runs.evaluation.rubrics.files import read_rubrics
from keystone.runs.evaluation.rubrics.score import score_rubrics

RUBRIC_KEYS = ("criteria", "rubrics")
NUGGET_KEYS = ("nuggets", "nugget_bank")
MOST_BYTES = 10_000_000
"""The longest first line of a file of scored answers."""


def read_first_line(path: Path) -> bytes:
    """Read the first line of a file, plain or compressed, as far as `MOST_BYTES`."""
    with open_binary(path) as file:
        return file.readline(MOST_BYTES)


def read_first_record(path: Path) -> dict[str, Any]:
    """Read the JSON object on the first line of a file; empty for any other file."""
    try:
        found = parse_json(read_first_line(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def holds_answers(path: Path) -> bool:
    """Whether a file holds JSON, as answers and scored answers do, and not the rows of a run."""
    return read_first_line(path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def holds_scored_answers(path: Path) -> bool:
    """Whether a file holds rubrics, nuggets or rated citations, by its first line, and no answers to be scored."""
    record = read_first_record(path)
    sentences = record.get("sentences")
    cited = [one.get("citations") or [] for one in sentences or () if isinstance(one, dict)]
    rated = any(isinstance(citation, dict) and "support" in citation for own in cited for citation in own)
    return rated or any(key in record for key in (*RUBRIC_KEYS, *NUGGET_KEYS))


def score_answers(paths: Sequence[Path], topics: Collection[str] = ()) -> list[Evaluation]:
    """Score the runs of files of one kind on these topics, as `keystone nuggets score` and `rubrics score` do.

    `UserError` as from `score_files` and `score_rubrics`, and for files of several kinds.
    """
    of_rubrics = [any(key in read_first_record(path) for key in RUBRIC_KEYS) for path in paths]
    if any(of_rubrics) != all(of_rubrics):
        raise UserError(f"{paths[of_rubrics.index(True)]}: holds rubrics, another file does not; expected one kind")
    if not any(of_rubrics):
        return score_files(paths, topics)
    return score_rubrics([rubric for path in paths for rubric in read_rubrics(path)], topics)
