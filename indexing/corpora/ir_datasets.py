"""Any collection of the `ir_datasets` package by its id, such as `ir_datasets:beir/scifact`.

The package downloads what it can on first use and says how to get the rest (https://ir-datasets.com).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from indexing.errors import BadRecord, Report, UserError, stop
from indexing.types import Document

PREFIX = "ir_datasets:"


def dataset_id(path: Path) -> str | None:
    """The id that a corpus argument names, None where it names a file or folder."""
    name = os.fspath(path)
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def read(path: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a data set: its `default_text()` with title, URL and headings where it has such fields.

    What the package raises (an unknown id, a download that fails, a file that is missing) is a `UserError`.
    """
    documents = _documents(path)
    number = 0
    while (record := _next(path, documents)) is not None:
        number += 1
        where = f"{path}: document {number}"
        try:
            yield _document(record, where)
        except BadRecord as error:
            report(error)


def _documents(path: Path) -> Iterator[Any]:
    try:
        import ir_datasets

        dataset = ir_datasets.load(dataset_id(path))
        if not dataset.has_docs():
            raise UserError(f"{path}: expected a data set with documents, found one without")
        return iter(dataset.docs_iter())
    except KeyError as error:
        raise UserError(f"{path}: ir_datasets knows no such data set: see https://ir-datasets.com") from error
    except UserError:
        raise
    except Exception as error:  # the package raises what its downloads and parsers raise
        raise _failed(path, error) from error


def _next(path: Path, documents: Iterator[Any]) -> Any:
    try:
        return next(documents, None)
    except Exception as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: ir_datasets could not read it: {type(error).__name__}: {error}")


def _document(record: Any, where: str) -> Document:
    doc_id = record.doc_id
    if not isinstance(doc_id, str):
        raise BadRecord(f"{where}: doc_id: expected text, found {type(doc_id).__name__}", "wrong type")
    title, url, headings = (_field(record, key) for key in ("title", "url", "headings"))
    text = _text(record, where)
    for part in (title, headings):
        text = text.removeprefix(part).lstrip()
    return Document(doc_id, text, title, url, headings, place=where)


def _text(record: Any, where: str) -> str:
    """The package's own text for search, or all fields that hold text."""
    if not hasattr(record, "default_text"):
        values = (_field(record, key) for key in record._fields if key not in ("doc_id", "title", "url"))
        return "\n".join(filter(None, values))
    try:
        text = record.default_text()
    except Exception as error:
        raise BadRecord(f"{where}: no text: {type(error).__name__}: {error}", "no text") from error
    if not isinstance(text, str):
        raise BadRecord(f"{where}: expected text, found {type(text).__name__}", "wrong type")
    return text


def _field(record: Any, key: str) -> str:
    found = getattr(record, key, None)
    return found if isinstance(found, str) else ""
