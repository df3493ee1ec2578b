"""A served index that updates replace: no request fails, no reply mixes two indexes, and old files are closed."""

import asyncio
import itertools
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import aiohttp
import orjson
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.index import open_index
from keystone.indexing.io.writing import exchange
from keystone.indexing.types import Embedding
from keystone.retrieval.types import Bm25
from keystone.runs.config.read import make_config
from keystone.runs.serving.call_log import CallLog
from keystone.runs.serving.service import Service, answer, fetch_document, open_service, search
from tests.support.mutation import FUZZ_CASES
from tests.support.runs.command_line import keystone
from tests.support.servers.keystone_server import keystone_server
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

DOCUMENTS, SENTENCES = 12, 6
CLIENTS, AGENTS = 64, 4
UPDATES = 4 if FUZZ_CASES else 2
WARM_UPDATES, MEASURED_UPDATES = 2, 10
MOST_BYTES = 24 * 2**20
"""How much more memory a server may take after ten updates. C keeps some of what it has freed."""
EDITION = re.compile(r"edition(\d+)")
Ask = Callable[[], Awaitable[None]]
QUESTIONS = ["How do bees live?", "How do bees fly, and what do they eat? Where do they sleep? Who harms them?"]


def write_edition(folder: Path, number: int) -> Path:
    """Write the documents of one edition. Each title and each sentence of them names it; one document has no other."""
    names = [*(f"d{place}" for place in range(DOCUMENTS)), f"only-{number}"]
    path = folder / f"edition-{number}.jsonl"
    with path.open("w") as out:
        for place, name in enumerate(names):
            verbs = itertools.islice(itertools.cycle(["live", "fly", "eat", "sleep"]), place, place + SENTENCES)
            text = " ".join(
                f"In edition{number}, bees of colony {place} {verb} at place {verb}{place}." for verb in verbs
            )
            out.write(json.dumps({"id": name, "title": f"Colony {place} in edition{number}", "text": text}) + "\n")
    return path


def write_gone(folder: Path, number: int) -> Path:
    """Write the id of the document that only an edition has."""
    path = folder / f"gone-{number}.txt"
    path.write_text(f"only-{number}\n")
    return path


@dataclass
class Seen:
    """What a client saw in its replies, in order: the edition, and the key of the index as the server names it."""

    order: list[int]
    """The editions that all clients saw, in order."""
    replies: list[tuple[int, str | None]] = field(default_factory=list)

    @property
    def edition(self) -> int:
        return self.replies[-1][0] if self.replies else -1

    def add(self, what: str, text: str, key: str | None) -> None:
        found = {int(number) for number in EDITION.findall(text)}
        assert len(found) == 1, f"{what}: found the editions {found} in one reply: {text}"
        assert '"doc":null' not in text, f"{what}: found an id without a document: {text}"
        self.replies.append((found.pop(), key))
        self.order.append(self.edition)


def ask_over_http(session: aiohttp.ClientSession, url: str, seen: Seen, numbers: "itertools.count[int]") -> list[Ask]:
    """The requests of a client to REST and to the web page, each as a function that sends it."""
    kinds: dict[str, Callable[[int], tuple[str, Any, str]]] = {
        "search": lambda n: (f"v1/index/search?query=bees+live{n % 12}&hits=20", None, ""),
        "k1": lambda n: (f"v1/index/search?query=bees&k1=0.{n}&b=0.4", None, ""),
        "hybrid": lambda n: (f"v1/index/search?query=bees+fly{n % 12}&method=hybrid", None, ""),
        "dense": lambda n: (f"v1/index/search?query=bees+fly{n % 12}&method=dense", None, ""),
        "decomposed": lambda _: (f"v1/index/search?query={quote(QUESTIONS[1])}&method=decomposed", None, ""),
        "document": lambda n: (f"v1/index/doc/d{n % DOCUMENTS}", None, ""),
        "segments": lambda n: (f"v1/index/segments/d{n % DOCUMENTS}", None, ""),
        "Pyserini 1": lambda n: ("v1/indexes/index/search", {"query": f"bees eat{n % 12}"}, ""),
        "Pyserini 1 document": lambda n: (f"v1/indexes/index/documents/d{n % DOCUMENTS}", None, ""),
        "rank_llm": lambda n: (f"api/v1.0/indexes/index/search?query=bees+{n}", None, ""),
        "page": lambda n: (f"page/document?id=d{n % DOCUMENTS}", None, ""),
        "answer": lambda n: ("v1/answers", {"narrative": QUESTIONS[n % 2]}, "application/json"),
        "events": lambda n: ("v1/answers", {"narrative": QUESTIONS[n % 2]}, "text/event-stream"),
    }

    def make(what: str, describe: Callable[[int], tuple[str, Any, str]]) -> Ask:
        async def ask() -> None:
            path, body, accept = describe(next(numbers))
            headers = {"Accept": accept} if accept else {}
            async with session.request("POST" if body else "GET", f"{url}/{path}", json=body, headers=headers) as reply:
                text = await reply.text()
                assert reply.status == 200, f"{path}: {reply.status}: {text}"
                assert "event: error" not in text, text
                seen.add(what, text, reply.headers["keystone-index"])

        return ask

    return [make(what, describe) for what, describe in kinds.items()]


def ask_over_mcp(client: Client, seen: Seen, numbers: "itertools.count[int]") -> list[Ask]:
    """The calls of an agent, each as a function that makes it."""

    def make(tool: str, arguments: Callable[[int], dict[str, Any]]) -> Ask:
        async def ask() -> None:
            found = await client.call_tool(tool, arguments(next(numbers)))
            text = "".join(one.text for one in found.content)  # type: ignore[union-attr]
            assert not found.is_error, f"{tool}: {text}"
            seen.add(tool, text, None)

        return ask

    return [
        make("search", lambda n: {"query": f"bees sleep{n % 12}"}),
        make("fetch_document", lambda n: {"id": f"d{n % DOCUMENTS}"}),
        make("answer", lambda n: {"narrative": QUESTIONS[n % 2]}),
    ]


async def ask_until(ended: asyncio.Event, asks: list[Ask], first: int) -> None:
    """Ask in turn, beginning at a request of one's own, until the end; then ask everything once more."""
    turn = asks[first % len(asks) :] + asks[: first % len(asks)]
    while not ended.is_set():
        for ask in turn:
            await ask()
            if ended.is_set():
                break
    for ask in turn:
        await ask()


def update_by_command(tmp_path: Path, number: int) -> None:
    """Replace an edition in the index by the next one, by `keystone index`."""
    options: list[Path | str] = ["--update", write_edition(tmp_path, number)]
    options += ["--delete", write_gone(tmp_path, number - 1)]
    done = keystone("index", *options, "--out", tmp_path / "index", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"index: 13 documents: 1 added, {DOCUMENTS} replaced, 1 removed\n")


def test_a_served_index_is_updated_under_64_clients_and_no_reply_fails_or_mixes_editions(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(write_edition(tmp_path, 0), folder, BuildSettings(passages=True, threads=1))
    editions, order = {open_index(folder).key: 0}, list[int]()
    all_seen = [Seen(order) for _ in range(CLIENTS)]

    async def update_all(ended: asyncio.Event) -> None:
        try:
            for number in range(UPDATES + 1):
                if number:
                    await asyncio.to_thread(update_by_command, tmp_path, number)
                    editions[open_index(folder).key] = number
                async with asyncio.timeout(LIMIT_S):
                    while any(seen.edition < number for seen in all_seen):
                        await asyncio.sleep(0.05)
        finally:
            ended.set()

    async def use(url: str) -> None:
        ended, numbers = asyncio.Event(), itertools.count(1)
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

            async def be_agent(place: int) -> None:
                async with Client(streamable_http_client(f"{url}/mcp")) as client:
                    await ask_until(ended, ask_over_mcp(client, all_seen[place], numbers), place)

            async def be_client(place: int) -> None:
                await ask_until(ended, ask_over_http(session, url, all_seen[place], numbers), place)

            async with asyncio.TaskGroup() as group:
                group.create_task(update_all(ended))
                for place in range(CLIENTS):
                    group.create_task((be_agent if place < AGENTS else be_client)(place))

    with keystone_server(folder, tmp_path) as served:
        asyncio.run(use(served.url))
        metrics = urlopen(f"{served.url}/metrics").read().decode().splitlines()
    keys, told = list(editions), (tmp_path / "errors.txt").read_text().splitlines()
    assert {f'keystone_index_info{{key="{keys[-1]}"}} 1', f"keystone_index_changes_total {UPDATES}"} <= {*metrics}
    assert told == [
        f"index is replaced: 13 documents ({now}) are served in place of 13 documents ({was})"
        for was, now in itertools.pairwise(keys)
    ]
    for seen in all_seen:
        found = [edition for edition, _ in seen.replies]
        assert found == sorted(found)  # nobody gets an older index again
        assert {*found} == {*range(UPDATES + 1)}
        assert all(key is None or editions[key] == edition for edition, key in seen.replies)
    assert order != sorted(order)  # requests under way finish on the index that they began with
    logged = [orjson.loads(line) for line in served.log.read_bytes().splitlines()]
    assert Counter(editions[line["index"]] for line in logged) == Counter(order)


def measure(process: int, folder: Path) -> tuple[list[str], int]:
    """List the files of removed folders that a process still holds, and the bytes of its memory."""
    place = Path(f"/proc/{process}")
    held = [line.split(maxsplit=5)[-1] for line in (place / "maps").read_text().splitlines()]
    for file in (place / "fd").iterdir():
        with suppress(FileNotFoundError):
            held.append(str(file.readlink()))
    gone = [name for name in held if str(folder) in name and name.endswith(" (deleted)")]
    return gone, int((place / "statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process holds")
def test_ten_updates_leave_nothing_of_the_older_indexes_in_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(write_edition(tmp_path, 0), folder, BuildSettings(passages=True))
    with keystone_server(folder, tmp_path) as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)  # idle during the updates

        def ask(path: str, narrative: str = "") -> str | None:
            body = orjson.dumps({"narrative": narrative}) if narrative else None
            connection.request("POST" if body else "GET", path, body)
            reply = connection.getresponse()
            assert reply.read()
            assert reply.status == 200
            return reply.headers["keystone-index"]

        def is_served(key: str) -> bool:
            return ask("/v1/index/doc/d1") == key

        def ask_all() -> None:
            for number in range(2):
                for method in ("bm25", "dense", "hybrid", "decomposed"):
                    ask(f"/v1/index/search?query=bees+{number}&method={method}")
                ask(f"/v1/index/search?query=bees&k1=0.{number}&b=0.5")
                ask("/v1/answers", QUESTIONS[number % 2])
                ask(f"/page/document?id=d{number}")
                ask("/page/index")

        before = 0
        for number in range(1, WARM_UPDATES + MEASURED_UPDATES + 1):
            index, _ = update_index(folder, [write_edition(tmp_path, number)])
            wait_until(partial(is_served, index.key), "the server to take the new index")
            ask_all()
            wait_until(lambda: not measure(served.process.pid, folder.parent)[0], "the server to close the older index")
            if number == WARM_UPDATES:
                _, before = measure(served.process.pid, folder)
        _, after = measure(served.process.pid, folder)
    print(f"{MEASURED_UPDATES} updates: {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")
    assert after <= before + MOST_BYTES


def test_an_index_that_cannot_be_opened_leaves_the_older_one_and_the_next_one_is_taken(tmp_path: Path) -> None:
    folder, broken = tmp_path / "index", tmp_path / "broken"
    settings = BuildSettings(embedding=None)
    index, _ = build_index(write_edition(tmp_path, 0), folder, settings)
    build_index(write_edition(tmp_path, 1), broken, settings)
    (broken / "store" / "ids.npy").write_bytes(b"no array")
    with keystone_server(folder, tmp_path) as served:

        def ask() -> tuple[str, str]:
            with urlopen(f"{served.url}/v1/index/search?query=bees") as reply:
                return str(reply.headers["keystone-index"]), EDITION.findall(reply.read().decode())[0]

        exchange(broken, folder)
        said = tmp_path / "errors.txt"
        wait_until(said.read_text, "the server to refuse the index")
        assert said.read_text().startswith(f"{folder / 'store'}: not a whole document store: build the index again: ")
        assert said.read_text().endswith(f"; the index {index.key} is still served\n")
        assert ask() == (index.key, "0")
        shutil.rmtree(folder)
        assert ask() == (index.key, "0")
        newer, _ = build_index(write_edition(tmp_path, 2), folder, settings)
        wait_until(lambda: ask() == (newer.key, "2"), "the server to take the new index")
    assert len(said.read_text().splitlines()) == 2


def test_an_agent_over_stdio_gets_the_new_index_in_its_session(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(write_edition(tmp_path, 0), folder, BuildSettings(embedding=None))
    command = ["-m", "keystone.runs.cli.main", "serve", str(folder), "--stdio", "--log", str(tmp_path / "calls.jsonl")]
    parameters = StdioServerParameters(command=sys.executable, args=command, cwd=tmp_path, env=dict(os.environ))
    seen = Seen([])

    async def work() -> None:
        async with asyncio.timeout(LIMIT_S), Client(stdio_client(parameters)) as client:
            (_, read, _) = ask_over_mcp(client, seen, itertools.count())
            await read()
            await asyncio.to_thread(update_index, folder, [write_edition(tmp_path, 1)])
            while seen.edition < 1:
                await read()

    asyncio.run(work())


KINDS = {
    "documents": BuildSettings(),
    "passages": BuildSettings(passages=True),
    "passages in files": BuildSettings(passages=True, faiss_shard=7),
    "lists": BuildSettings(faiss="IVF2,Flat"),
    "HNSW": BuildSettings(faiss="HNSW4"),
    "no vectors": BuildSettings(embedding=None),
    "pool": BuildSettings(faiss=None),
    "pool of passages": BuildSettings(faiss=None, passages=True),
    "two sets": BuildSettings(vectors={"b": Embedding(query_prefix="q: ")}, passages=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_is_open_needs_its_folder_no_more(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "index"
    build_index(write_edition(tmp_path, 0), folder, KINDS[kind])
    systems = ["dense", "b"] if kind == "two sets" else []
    own = (
        ["retrieval.systems={bm25: {kind: bm25}, dense: {kind: dense}, b: {kind: dense, vectors: b}}"]
        if systems
        else []
    )
    config = make_config(None, [f"out={tmp_path / 'out'}", *own], None, Path("-"), folder)

    async def ask_all(service: Service) -> list[Any]:
        methods = [name for name in service.methods if kind != "no vectors" or name != "dense"]
        found: list[Any] = [await search(service, "bees live", 9, method) for method in methods]
        found += [await search(service, "bees", 9, "bm25", Bm25(k1, 0.3)) for k1 in (0.1, 0.2)]
        return [*found, await fetch_document(service, "d3"), str(await answer(service, QUESTIONS[1]))]

    with open_service(config, CallLog(None, "", "")) as service, open_service(config, CallLog(None, "", "")) as other:
        assert {*systems} <= {*service.methods}
        expected = asyncio.run(ask_all(service))
        shutil.rmtree(folder)
        assert asyncio.run(ask_all(other)) == asyncio.run(ask_all(service)) == expected
