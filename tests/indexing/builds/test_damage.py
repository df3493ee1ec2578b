"""Each file of an index is damaged in turn: an error names the index, or the rankings are the same. No traceback."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query
from tests.support.indexes.searches import search_all
from tests.support.indexes.small_corpus import CORPUS

QUERIES = [Query(str(n), f"{n}-1", text, text, text) for n, (text, _) in enumerate(CORPUS.values())]

DAMAGE = [
    pytest.param(lambda content: content[: len(content) // 2], id="half"),
    pytest.param(lambda content: content[:-1], id="without its last byte"),
    pytest.param(lambda _: b"", id="empty"),
    pytest.param(lambda content: b"not what it was " * (len(content) // 16 + 1), id="other bytes"),
]


def used(folder: Path) -> list[object]:
    """All values that a run reads from an index."""
    index = open_index(folder)
    store = open_store(index)
    found = search_all(index, store, QUERIES, depth=5)
    documents = list(store)
    vectors = segment_vectors(index, store, range(len(store)))
    return [
        documents,
        *(own.docs.tolist() for own in found.values()),
        [vectors[row].tolist() for row in range(len(store))],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("unused", ["lucene", "postings"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_an_index_is_a_message(
    unused_index: Path, tmp_path: Path, damage: Callable[[bytes], bytes], unused: str
) -> None:
    """Lucene's files are not read if there are postings."""
    whole = tmp_path / "whole"
    shutil.copytree(unused_index, whole)
    shutil.rmtree(whole / unused)
    wanted = used(whole)
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file() and path.stat().st_size]
    assert len(files) > 12
    harmless = []
    for number, name in enumerate(files):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        (folder / name).write_bytes(damage((folder / name).read_bytes()))
        said = message(folder, wanted)
        if said is None:
            harmless.append(name)
            continue
        assert said.startswith(str(folder)), name
        assert "\n" not in said
        assert any(hint in said for hint in ("build", "delete it", "expected")), said
    assert len(harmless) <= 3, harmless


def message(folder: Path, wanted: list[object]) -> str | None:
    """The error of reading an index; None if the values are those wanted."""
    try:
        found = used(folder)
    except UserError as error:
        return str(error)
    assert found == wanted, folder
    return None


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param(lambda own: own + 7, id="beyond the records"),
        pytest.param(lambda own: own[:, ::-1], id="ends before beginnings"),
        pytest.param(lambda own: own - 2**60, id="negative"),
        pytest.param(lambda own: own[:-1], id="too few"),
        pytest.param(lambda own: own.astype(np.float64), id="of another type"),
        pytest.param(lambda own: own // 2, id="in the midst of records"),
    ],
)
def test_offsets_that_are_not_those_of_the_records_are_a_message(
    index: Index, tmp_path: Path, offsets: Callable[[NDArray[np.int64]], NDArray[Any]]
) -> None:
    shutil.copytree(index.folder, tmp_path / "index")
    file = tmp_path / "index/store/offsets.npy"
    np.save(file, offsets(np.load(file)))
    with pytest.raises(UserError, match=r"store.*: build the index again"):
        list(open_store(open_index(tmp_path / "index")))


def test_a_cache_that_is_damaged_in_its_midst_is_a_message(index: Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "index")
    opened = open_index(tmp_path / "index")
    cache = tmp_path / "index/segments.sqlite"
    segment_vectors(opened, open_store(opened), range(9))
    with sqlite3.connect(cache) as database:
        (page,) = database.execute("PRAGMA page_size").fetchone()
    content = cache.read_bytes()
    cache.write_bytes(content[:page] + b"\xff" * (len(content) - page))
    with pytest.raises(UserError, match=r"segments\.sqlite: damaged: delete it"):
        segment_vectors(opened, open_store(opened), range(9))
