"""Collections of `ir_datasets` by id, as `ir_datasets:beir/scifact`, which it downloads (ir-datasets.com)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.types import Document

PREFIX = "ir_datasets:"
PARTS = {"docs": "documents", "queries": "queries", "qrels": "judgments"}
"""The parts of a data set that are read, by the package's name, with our words for them."""


def dataset_id(path: Path) -> str | None:
    """The id that a corpus argument names; None if it names a file or folder."""
    name = os.fspath(path)
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def read(path: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """Documents of a data set: `default_text()`, title, URL and headings. `UserError` if the package fails."""
    for number, record in enumerate(read_records(path, "docs"), 1):
        where = f"{path}: document {number}"
        try:
            yield _make_document(record, where)
        except BadRecord as error:
            report(error)


def read_records(path: Path, part: str) -> Iterator[Any]:
    """Yield the records of one of the `PARTS` of a data set. `UserError` as from `read`, and if the part is missing."""
    try:
        import ir_datasets

        try:
            dataset = ir_datasets.load(dataset_id(path))
        except KeyError as error:
            raise UserError(f"{path}: ir_datasets knows no such data set: see https://ir-datasets.com") from error
        if not getattr(dataset, f"has_{part}")():
            raise UserError(f"{path}: expected a data set with {PARTS[part]}, found one without")
        yield from getattr(dataset, f"{part}_iter")()
    except UserError:
        raise
    except Exception as error:  # the package lets all errors of its downloads and parsers through
        raise UserError(f"{path}: ir_datasets could not read it: {type(error).__name__}: {error}") from error


def _make_document(record: Any, where: str) -> Document:
    doc_id = record.doc_id
    if not isinstance(doc_id, str):
        raise BadRecord(f"{where}: doc_id: expected text, found {type(doc_id).__name__}", "wrong type")
    title, url, headings = (_read_field(record, key) for key in ("title", "url", "headings"))
    text = _read_text(record, where)
    for part in (title, headings):
        text = text.removeprefix(part).lstrip()
    return Document(doc_id, text, title, url, headings, place=where)


def _read_text(record: Any, where: str) -> str:
    """The text that the package makes for search; if it makes none, all fields that hold text."""
    if not hasattr(record, "default_text"):
        values = (_read_field(record, key) for key in record._fields if key not in ("doc_id", "title", "url"))
        return "\n".join(filter(None, values))
    try:
        text = record.default_text()
    except Exception as error:
        raise BadRecord(f"{where}: no text: {type(error).__name__}: {error}", "no text") from error
    if not isinstance(text, str):
        raise BadRecord(f"{where}: expected text, found {type(text).__name__}", "wrong type")
    return text


def _read_field(record: Any, key: str) -> str:
    found = getattr(record, key, None)
    return found if isinstance(found, str) else ""
