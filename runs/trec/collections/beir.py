"""Folders of BEIR: `queries.jsonl`, and judgments as `qrels/SPLIT.tsv`. An argument `FOLDER:SPLIT` names the split.

Copies on hubs have other endings, or shards: `queries/queries-00000-of-00001.parquet` and `data/test-...parquet`.
"""

import codecs
import re
from contextlib import suppress
from pathlib import Path

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.errors import UserError
from keystone.runs.trec.collections.named_rows import read_judgment_bytes

DEFAULT_SPLIT = "test"
ENDINGS = ("jsonl", "parquet", "tsv", "csv")
"""The endings of the files of a folder, without that of a compression."""
JUDGMENTS = ("qrels", "data")
"""The folders of judgments."""
_PART = re.compile(rf"(.+?)(?:-[0-9]+-of-[0-9]+)?\.(?:{'|'.join(ENDINGS)})")


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


def find_queries(folder: Path) -> list[Path]:
    """Find the files of the queries of a folder. `UserError` if it is no folder of BEIR."""
    found = _find_part(folder, "queries") or _find_part(folder / "queries", "queries")
    if not found:
        raise UserError(f"{folder}: is a folder without queries.jsonl, expected a file of topics or a folder of BEIR")
    return found


def find_qrels(folder: Path, split: str) -> Path:
    """Find the judgments of a split; without a name it is `test`. `UserError` if the folder has none of that name."""
    name = split or DEFAULT_SPLIT
    found = [file for inner in JUDGMENTS for file in _find_part(folder / inner, name)]
    if len(found) != 1:
        names = (strip_compression(file) for inner in JUDGMENTS for file in _list_files(folder / inner))
        splits = sorted({part[1] for part in map(_PART.fullmatch, names) if part} - {name})
        expected = " or ".join(f"{folder}:{one}" for one in splits) or "a file of judgments or a folder of BEIR"
        held = f"has {len(found)} files of qrels/{name}" if found else f"has no qrels/{name}.tsv"
        raise UserError(f"{folder}: {held}, expected {expected if not found else 'one'}")
    return found[0]


def read_judged_ids(folder: Path, split: str) -> set[str] | None:
    """Read the ids of the queries that a split judges; None if the folder has no judgments and no split is named."""
    if not split and not any((folder / inner).is_dir() for inner in JUDGMENTS):
        return None
    path = find_qrels(folder, split)
    rows = read_judgment_bytes(path).tobytes().removeprefix(codecs.BOM_UTF8).splitlines()
    return {row.split(maxsplit=1)[0].decode(errors="replace") for row in rows if row.strip()}


def _find_part(folder: Path, name: str) -> list[Path]:
    """Find the files of a part of a data set: `NAME.jsonl`, or its shards `NAME-00000-of-00002.parquet`."""
    found = ((file, _PART.fullmatch(strip_compression(file))) for file in _list_files(folder))
    return [file for file, part in found if part and part[1] == name.lower()]


def _list_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
