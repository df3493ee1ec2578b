"""The BM25 search of a server beside the system of a run, and its batches of requests that arrive together."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25, Query
from keystone.runs.serving.bm25 import Batches, open_bm25
from tests.support.declaration import make_texts
from tests.support.waiting import LIMIT_S

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


def test_requests_that_wait_become_one_batch_of_at_most_the_limit() -> None:
    sizes, go = list[int](), Event()

    def double(numbers: Sequence[int]) -> list[int]:
        sizes.append(len(numbers))
        assert go.wait(LIMIT_S)
        return [2 * number for number in numbers]

    async def ask() -> list[int]:
        batches = Batches(double, 4)
        first = asyncio.create_task(batches.ask(0))
        while not sizes:  # the first batch is under way
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batches.ask(number)) for number in range(1, 7)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(asyncio.wait_for(ask(), LIMIT_S)) == [0, 2, 4, 6, 8, 10, 12]
    assert sizes == [1, 4, 2]


def test_an_error_reaches_the_request_that_causes_it_and_no_other_of_its_batch() -> None:
    def work(texts: Sequence[str]) -> list[str]:
        if "bad" in texts:
            raise ValueError("bad text")
        return list(texts)

    async def ask() -> None:
        batches = Batches(work, 2)
        found = await asyncio.gather(*map(batches.ask, ["a", "bad", "c"]), return_exceptions=True)
        assert [str(one) for one in found] == ["a", "bad text", "c"]
        assert await batches.ask("d") == "d"

    asyncio.run(ask())


def test_a_request_that_was_given_up_keeps_no_other_waiting() -> None:
    async def ask() -> None:
        batches: Batches[int, int] = Batches(list, 8)
        gone, other = asyncio.create_task(batches.ask(1)), asyncio.create_task(batches.ask(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await other == 2
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(ask())
