"""The BM25 search of a server: which searchers it opens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_sparse
from keystone.retrieval.types import BM25, Bm25
from keystone.runs.serving import bm25
from tests.support.indexes.small_corpus import write_corpus


def test_one_searcher_serves_each_kind_of_feedback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = BuildSettings(embedding=None, threads=1)
    index, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)
    opened: list[Bm25] = []

    def watch(*given: Any) -> Any:
        opened.append(given[2])
        return open_sparse(*given)

    monkeypatch.setattr(bm25, "open_sparse", watch)
    served = bm25.open_bm25(index, BM25, threads=1)

    async def ask_all() -> list[Any]:
        asked = [Bm25(feedback=one) for one in (None, "rm3", "rocchio")]
        return [await served.search("honey bees", 3, one) for one in (*asked, Bm25(b=0.7, feedback="rm3"))]

    found = asyncio.run(ask_all())
    assert opened == [BM25, Bm25(b=0.7)]
    assert len({tuple(hits) for hits in found}) == len(found)
