"""The BM25 search of a server, beside the system of a run."""

import asyncio
from pathlib import Path

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25, Query
from keystone.runs.serving.bm25 import open_bm25
from tests.support.declaration import make_texts

LANGUAGES = ("en", "es", "ru")


@pytest.mark.parametrize("feedback", [None, "rm3", "rocchio"])
def test_each_language_is_ranked_as_in_a_run(feedback: str | None, tmp_path: Path) -> None:
    texts = [(code, text) for code in LANGUAGES for text in make_texts(code, 40, 30, seed=3)]
    lines = (orjson.dumps({"id": f"{i}", "text": text, "lang": code}) for i, (code, text) in enumerate(texts))
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(lines))
    settings = BuildSettings(embedding=None, language="field:lang", threads=1)
    index, _ = build_index(tmp_path / "c.jsonl", tmp_path / "index", settings)
    opened, served = OpenIndex(index, open_store(index)), open_bm25(index, Bm25(), threads=1)
    asked = [make_texts(code, 1, 4, seed=5)[0] for code in LANGUAGES]

    async def ask_all(language: str | None) -> list[list[tuple[str, float]]]:
        tries = (served.search(text, 9, Bm25(feedback=feedback), language) for text in asked)
        return list(await asyncio.gather(*tries))

    queries = [Query(text, text, text, text, text) for text in asked]
    for language in (None, "es"):
        system = Bm25System.model_validate({"feedback": feedback, "language": language, "depth": 9})
        found = system.search(opened, queries, None)
        names = [opened.store.ids(found.of(place)) for place in range(len(asked))]
        scores = [found.scores_of(place).tolist() for place in range(len(asked))]
        expected = [list(zip(*ranking, strict=True)) for ranking in zip(names, scores, strict=True)]
        assert asyncio.run(ask_all(language)) == expected
