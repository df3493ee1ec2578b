"""Topics and judgments of the `ir_datasets` package by id, such as `ir_datasets:beir/scifact/test`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.corpora.ir_datasets import dataset_id, read_records
from keystone.indexing.errors import UserError
from keystone.indexing.types import describe_id, is_id

LONGER_TEXTS = ("description", "narrative")
"""The fields that a narrative has besides the text that the package makes for search."""


def is_data_set(path: Path) -> bool:
    """Whether an argument names a data set of the package."""
    return dataset_id(path) is not None


def read_queries(path: Path) -> Iterator[tuple[int, Any, str, Mapping[str, Any]]]:
    """Yield number, id, narrative and all fields of each query of a data set.

    `UserError` if the package cannot load the data set, or if that has no queries.
    """
    for number, query in enumerate(read_records(path, "queries"), 1):
        yield number, query.query_id, make_narrative(query), query._asdict()


def make_narrative(query: Any) -> str:
    """Make the narrative of a query: its `default_text()`, then its description and its narrative, as paragraphs."""
    text = query.default_text() if hasattr(query, "default_text") else getattr(query, "text", None)
    texts = [text, *(getattr(query, name, None) for name in LONGER_TEXTS)]
    return "\n\n".join(dict.fromkeys(one.strip() for one in texts if isinstance(one, str) and one.strip()))


def render_qrels(path: Path) -> NDArray[np.uint8]:
    """Render the judgments of a data set as rows in TREC form: uint8[bytes].

    The second column is the subtopic or the iteration, or 0 if the data set has neither. `UserError` if the package
    cannot load the data set, if that has no judgments, and for an id with a space.
    """
    rows = bytearray()
    for number, one in enumerate(read_records(path, "qrels"), 1):
        subtopic = getattr(one, "subtopic_id", None) or getattr(one, "iteration", None) or "0"
        columns = [str(part) for part in (one.query_id, subtopic, one.doc_id, one.relevance)]
        bad = next((column for column in columns if not is_id(column)), None)
        if bad is not None or columns[0].startswith("#"):
            expected = "no # at the beginning" if bad is None else describe_id(bad)
            raise UserError(f"{path}: judgment {number}: expected {expected}, found {' '.join(columns)!r}")
        rows += " ".join(columns).encode() + b"\n"
    return np.frombuffer(bytes(rows), np.uint8)
