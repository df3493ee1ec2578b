"""Folders of BEIR: `queries.jsonl`, and judgments as `qrels/SPLIT.tsv`. An argument `FOLDER:SPLIT` names the split."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_bytes

DEFAULT_SPLIT = "test"
HEADER = b"query-id\tcorpus-id\tscore"
"""The first line of a file of judgments. Such a file has three columns, with tabs between them."""


def find_folder(path: Path) -> tuple[Path, str] | None:
    """Find the folder and the split that an argument `FOLDER` or `FOLDER:SPLIT` names.

    The split is empty if the argument names none. The result is None if the argument names no folder.
    """
    with suppress(OSError):
        if path.is_dir():
            return path, ""
        folder, colon, split = str(path).rpartition(":")
        if colon and split and not path.exists() and Path(folder).is_dir():
            return Path(folder), split
    return None


def find_queries(folder: Path) -> Path:
    """Find the queries of a folder. `UserError` if it is no folder of BEIR."""
    found = _list_files(folder).get("queries.jsonl")
    if found is None:
        raise UserError(f"{folder}: is a folder without queries.jsonl, expected a file of topics or a folder of BEIR")
    return found


def find_qrels(folder: Path, split: str) -> Path:
    """Find the judgments of a split; without a name it is `test`. `UserError` if the folder has none of that name."""
    files = _list_files(folder / "qrels")
    found = files.get(f"{split or DEFAULT_SPLIT}.tsv")
    if found is None:
        splits = sorted(name.removesuffix(".tsv") for name in files if name.endswith(".tsv"))
        expected = " or ".join(f"{folder}:{name}" for name in splits) or "a file of judgments or a folder of BEIR"
        raise UserError(f"{folder}: has no qrels/{split or DEFAULT_SPLIT}.tsv, expected {expected}")
    return found


def read_judged_ids(folder: Path, split: str) -> set[str] | None:
    """Read the ids of the queries that a split judges; None if the folder has no judgments and no split is named."""
    if not split and not (folder / "qrels").is_dir():
        return None
    path = find_qrels(folder, split)
    rows = convert_rows(path, read_bytes(path)).tobytes().splitlines()
    return {row.split(maxsplit=1)[0].decode(errors="replace") for row in rows if row.strip()}


def convert_rows(path: Path, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert the bytes of judgments to TREC's four columns, line by line. Without BEIR's header they stay as they are.

    `UserError` with file and line for a row that has not three columns.
    """
    if data[: len(HEADER)].tobytes() != HEADER:
        return data
    return np.frombuffer(b"\n".join(_convert_lines(path, data.tobytes())), np.uint8)


def _convert_lines(path: Path, content: bytes) -> Iterator[bytes]:
    yield b"#"  # in the place of the header, so that lines keep their numbers
    for number, line in enumerate(content.split(b"\n")[1:], 2):
        columns = line.rstrip(b"\r").split(b"\t")
        if columns == [b""]:
            yield b""
            continue
        if len(columns) != 3 or line.startswith(b"#") or not all(len(column.split()) == 1 for column in columns):
            found = line.decode(errors="replace")
            raise UserError(f"{path}:{number}: expected query-id, corpus-id and score between tabs, found {found!r}")
        yield b"\t".join((columns[0], b"0", *columns[1:]))


def _list_files(folder: Path) -> dict[str, Path]:
    """List the files of a folder by their names, in lower case and without the ending of a compression."""
    return {strip_compression(file): file for file in sorted(folder.iterdir())} if folder.is_dir() else {}
