"""The client with a backend in this process: its work between replies, and the replies that it keeps at its end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from keystone.generation.llm.cache import Cache
from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.client import Client
from keystone.generation.llm.model import make_request_key
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import UserError


class Backend:
    def __init__(self, answer: Callable[[Request], Awaitable[PaidReply]], at_once: int = 4) -> None:
        self._answer, self.at_once, self.notes = answer, at_once, list[str]()

    async def answer(self, request: Request) -> PaidReply:
        return await self._answer(request)

    async def close(self) -> None: ...


def asking(said: str) -> Request:
    return Request("step", (("user", said),), 10)


async def all_of(client: Client, *said: str) -> list[Reply | Failure]:
    return [outcome async for _, outcome in client.complete(map(asking, said))]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with closing(Cache(tmp_path / "c")) as cache:
        yield cache


def test_a_caller_that_waits_for_a_worker_takes_no_turns(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, start = 0, Client._start_workers

    def counted(client: Client) -> None:
        nonlocal turns
        turns += 1
        start(client)

    async def answer(request: Request) -> PaidReply:
        for _ in range(50):
            await asyncio.sleep(0)
        return PaidReply(Reply(request.messages[0][1]))

    async def run() -> list[list[Reply | Failure]]:
        client = Client("m", Backend(answer), cache)
        found = await asyncio.gather(*(all_of(client, str(i)) for i in range(60)))
        found += await asyncio.gather(*(all_of(client, str(i), "x") for i in range(50, 70)))
        await client.close()
        return found

    monkeypatch.setattr(Client, "_start_workers", counted)
    found = asyncio.run(asyncio.wait_for(run(), 20))
    assert found[:60] == [[Reply(str(i))] for i in range(60)]
    assert [set(each) for each in found[60:]] == [{Reply(str(i)), Reply("x")} for i in range(50, 70)]
    assert turns < 10 * 80


def test_a_free_worker_serves_a_caller_that_came_before_it_left(cache: Cache) -> None:
    async def run() -> list[Reply | Failure]:
        async def answer(_: Request) -> PaidReply:
            return PaidReply(Reply("a"))

        client = Client("m", Backend(answer, at_once=1), cache)
        found = []
        for i in range(20):
            found += await all_of(client, str(i))
        await client.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 20)) == [Reply("a")] * 20


def test_a_reply_that_cannot_be_kept_ends_all_callers(cache: Cache) -> None:
    async def answer(_: Request) -> PaidReply:
        return PaidReply(Reply("half a pair: \ud800"))

    async def run() -> None:
        client = Client("m", Backend(answer), cache)
        try:
            await asyncio.gather(*(all_of(client, str(i)) for i in range(6)))
        finally:
            await client.close()

    with pytest.raises(TypeError):
        asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("cancelled", [False, True])
def test_replies_that_arrive_before_the_client_closes_are_kept(cancelled: bool, cache: Cache) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        places = [loop.create_future() for _ in range(3)]

        async def answer(request: Request) -> PaidReply:
            await places[int(request.messages[0][1])]
            return PaidReply(Reply("a"))

        client = Client("m", Backend(answer), cache)
        asked = asyncio.create_task(all_of(client, "0", "1", "2"))
        await asyncio.sleep(0.01)
        for place in places[:2]:
            place.set_result(None)
        if cancelled:
            asked.cancel()
        await client.close()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(run())
    assert {key for key, _ in cache.items()} == {make_request_key("m", asking(said)) for said in "01"}


def test_after_an_error_the_next_call_asks_anew(cache: Cache) -> None:
    async def run() -> list[list[Reply | Failure]]:
        refuses = True

        async def answer(_: Request) -> PaidReply:
            await asyncio.sleep(0)
            if refuses:
                raise UserError("no such model")
            return PaidReply(Reply("a"))

        client = Client("m", Backend(answer, at_once=1), cache)
        for _ in range(2):
            errors = await asyncio.gather(all_of(client, "0", "1"), all_of(client, "1"), return_exceptions=True)
            assert [str(error) for error in errors] == ["no such model"] * 2
        refuses = False
        found = list(await asyncio.gather(all_of(client, "0", "1"), all_of(client, "1")))
        await client.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 20)) == [[Reply("a")] * 2, [Reply("a")]]


def test_after_the_time_of_a_run_no_call_asks(cache: Cache) -> None:
    async def run() -> None:
        async def answer(_: Request) -> PaidReply:
            await asyncio.sleep(60)
            raise AssertionError

        client = Client("m", Backend(answer), cache, run_seconds=0.01)
        for _ in range(2):
            with pytest.raises(UserError, match="reached its limit"):
                await all_of(client, "0")
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 20))
