"""The tables of engines: every line leads to a function, and nothing is imported before it is needed."""

import sys
from dataclasses import replace
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from keystone.indexing.builds.settings import ENGINES, open_engine
from keystone.indexing.errors import UserError
from keystone.indexing.index import ImpactSet, Index
from keystone.indexing.store import DocumentStore
from keystone.retrieval.backends import BACKENDS, counts_words, open_dense, open_sparse, open_store
from keystone.retrieval.types import Bm25
from tests.support import programs
from tests.support.indexes.small_corpus import write_index_file

LAZY = """
import sys
import keystone.retrieval.backends
heavy = ("jnius", "faiss", "onnxruntime", "sqlite3", "aiohttp", "ray")
print([name for name in sys.modules if name.split(".")[0] in heavy])
others = ("keystone.indexing.attached", "keystone.indexing.opensearch", "keystone.retrieval.rest")
print([name for name in sys.modules if name.startswith(others)])
"""


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        *((own.store, 1) for own in BACKENDS.values()),
        *((own.attach, 4) for own in BACKENDS.values() if own.attach),
        *((own.sparse, 3) for own in BACKENDS.values()),
        *((own.dense, 3) for own in BACKENDS.values() if own.dense),
        *((path, 1) for path in ENGINES.values()),
    ],
)
def test_every_import_path_leads_to_a_function_of_the_same_form(path: str, parameters: int) -> None:
    assert len(signature(resolve_name(path)).parameters) == parameters


def test_engines_are_imported_when_they_are_needed() -> None:
    shown = programs.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["[]", "[]"]


def test_an_unknown_engine_is_an_error(index: Index, tmp_path: Path) -> None:
    other = write_index_file(replace(index, folder=tmp_path / "other", at={"backend": "future"}))
    with pytest.raises(UserError, match=r"found an index at .*future.*, which this version cannot open"):
        open_store(other)
    store = DocumentStore(index.store)
    with pytest.raises(UserError, match=r"found an index at .*future.*, which this version cannot search"):
        open_sparse(other, store)
    with pytest.raises(UserError, match="which this version cannot search"):
        open_dense(other)
    with pytest.raises(UserError, match="which this version cannot search"):
        open_dense(write_index_file(replace(other, folder=tmp_path / "rest", at={"backend": "rest"})))
    with pytest.raises(UserError, match="engine: found 'cloud', expected one of local, ray"):
        open_engine("cloud", 1)


def test_an_index_of_impacts_in_place_of_words_counts_none(index: Index) -> None:
    impacts, there = {"s": ImpactSet("m", "w")}, {"backend": "pyserini"}
    local, attached = (replace(index, at=at, impacts=impacts) for at in ({}, there))
    assert all(map(counts_words, (index, local, replace(index, at=there))))
    assert not any(map(counts_words, (attached, replace(index, at={"backend": "rest"}))))


def test_an_engine_with_parameters_of_its_own_refuses_others(tmp_path: Path) -> None:
    class NoServer:
        url = "http://127.0.0.1:1"

    store: Any = type("NoStore", (), {"server": NoServer()})()
    at = {"backend": "opensearch", "url": "http://127.0.0.1:1", "name": "x"}
    index = Index(tmp_path, "k", None, 1, {}, 0, None, at)
    write_index_file(index)
    for own, key in ((Bm25(k1=1.2), "k1: found 1.2"), (Bm25(b=0.75), r"b: found 0\.75")):
        with pytest.raises(UserError, match=rf"retrieval\.{key}, but .* that a run cannot change; expected 0\.\d"):
            open_sparse(index, store, own)
