"""Requests that arrive together become one batch, and an error reaches the one that causes it."""

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from keystone.runs.serving.bm25 import Batches
from tests.support.waiting import LIMIT_S


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
