"""`keystone serve` beside Pyserini's own server (1.6) on the same passages: 64 clients and 2,000 queries.

All servers run at the same time and take turns: ours with one process, ours with `WORKERS`, and Pyserini's. Pyserini's
server has one process, which answers one request after another in one thread.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import uvloop

from benchmarks.table import Row, compare_costs
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from tests.support.indexes.lucene_indexes import build_anserini_index, find_older_jars
from tests.support.servers.keystone_server import keystone_server
from tests.support.servers.rest import pyserini_server

PASSAGES, QUERIES, HITS = 20_000, 2_000, 10
CLIENTS, REPEATS, WARM_TURNS = 64, 7, 6
"""Servers run for days. So their first turns, in which Java compiles and each process reads documents, do not count."""
WORKERS = 2
NAME = "passages"


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn: queries a second, the 99th percentile of seconds, the server's processor time for a query, resident
    bytes after the turn, and the replies.
    """

    rate: float
    p99_s: float
    cpu_s: float
    resident: int
    replies: list[Any]


def rows() -> list[Row]:
    """The rate has the target. Replies are compared by the documents of each query, in order."""
    texts = read_passages(PASSAGES)
    queries = draw_questions(texts, QUERIES)
    bodies = [orjson.dumps({"query": query, "hits": HITS}) for query in queries]
    records = [{"id": f"{row:06d}", "contents": text} for row, text in enumerate(texts)]
    with TemporaryDirectory() as name:
        folder, indexes = Path(name), Path(name) / "indexes"
        indexes.mkdir()
        build_anserini_index(folder, NAME, [records], "-storeRaw", jars=find_older_jars())
        (folder / NAME).rename(indexes / NAME)
        corpus = folder / "passages.jsonl"
        corpus.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
        index, _ = build_index(corpus, folder / NAME, BuildSettings(embedding=None))
        (folder / "workers").mkdir()
        with (
            keystone_server(index.folder, folder) as ours,
            keystone_server(index.folder, folder / "workers", "--workers", str(WORKERS)) as workers,
            pyserini_server(indexes) as peer,
        ):
            servers = {"ours": ours.port, "workers": workers.port, "peer": int(peer.rpartition(":")[2])}
            turns = [
                {side: uvloop.run(_measure(port, bodies)) for side, port in servers.items()}
                for _ in range(WARM_TURNS + REPEATS)
            ]
    return list(_compare(turns[WARM_TURNS:]))


def _compare(turns: Sequence[dict[str, Measured]]) -> Iterator[Row]:
    peer = [turn["peer"] for turn in turns]
    for side, what, target in (("workers", f" --workers {WORKERS}", 5.0), ("ours", "", None)):
        ours = [turn[side] for turn in turns]
        pairs = zip(ours[-1].replies, peer[-1].replies, strict=True)
        share = sum(_list_ids(own) == _list_ids(other) for own, other in pairs) / QUERIES
        name = f"keystone serve{what}: {CLIENTS} clients, {QUERIES:,} queries of {PASSAGES:,}"
        rates = median(one.rate for one in ours), median(one.rate for one in peer)
        bound = f"Python's requests; {share:.2%} same rankings"
        yield Row(f"{name}: Pyserini's server", *rates, "queries/s", rates[0] / rates[1], target, bound)
        late = median(one.p99_s for one in ours), median(one.p99_s for one in peer)
        yield compare_costs(f"{name}, p99", *late, None, "the batch before")
        cpu = median(one.cpu_s for one in ours), median(one.cpu_s for one in peer)
        yield compare_costs(f"{name}, in the server", cpu[0] * 1000, cpu[1] * 1000, None, "Python's requests", "CPU ms")
        held = ours[-1].resident / 2**20, peer[-1].resident / 2**20
        grown = (ours[-1].resident - ours[0].resident) / 2**20
        yield compare_costs(f"{name}, memory", *held, None, f"grew by {grown:.0f} MB in {len(turns) - 1} turns", "MB")


def _list_ids(reply: Any) -> list[str]:
    return [one["docid"] for one in reply["candidates"]]


class _Client(asyncio.Protocol):
    """One connection, with one request at a time. It does as little as it can, because the servers need the cores."""

    def __init__(self, load: "_Load", ended: asyncio.Future[None]) -> None:
        self._load, self._ended = load, ended
        self._place, self._begun = -1, 0.0
        self._found, self._length, self._body = b"", 0, 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._found += data
        if not self._length and (end := self._found.find(b"\r\n\r\n")) > 0:
            head = self._found[:end].lower()
            assert head.startswith(b"http/1.1 200 "), head
            self._length = end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            self._body = end + 4
        if self._length and len(self._found) >= self._length:
            self._load.seconds.append(time.perf_counter() - self._begun)
            self._load.replies[self._place] = self._found[self._body :]
            self._ask()

    def _ask(self) -> None:
        self._found, self._length = b"", 0
        if not self._load.left:
            self._transport.close()
            self._ended.set_result(None)
            return
        self._place, request = self._load.left.pop()
        self._begun = time.perf_counter()
        self._transport.write(request)


@dataclass(slots=True)
class _Load:
    """The requests that are left, each with its place, and the seconds and replies of the others."""

    left: list[tuple[int, bytes]]
    seconds: list[float]
    replies: dict[int, bytes]


async def _measure(port: int, bodies: Sequence[bytes]) -> Measured:
    """Send all bodies by `CLIENTS` connections."""
    path = f"POST /v1/indexes/{NAME}/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    requests = [f"{path}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    load = _Load(list(enumerate(requests))[::-1], [], {})
    loop, processes = asyncio.get_running_loop(), _find_processes(port)
    ended: list[asyncio.Future[None]] = [loop.create_future() for _ in range(CLIENTS)]
    begun, cpu = time.perf_counter(), sum(map(_read_processor_time, processes))
    for one in ended:
        await loop.create_connection(partial(_Client, load, one), "127.0.0.1", port)
    await asyncio.gather(*ended)
    rate = len(bodies) / (time.perf_counter() - begun)
    cpu = sum(map(_read_processor_time, processes)) - cpu
    replies = [orjson.loads(load.replies[place]) for place in range(len(bodies))]
    resident = sum(int((one / "status").read_text().split("VmRSS:")[1].split()[0]) * 1024 for one in processes)
    return Measured(rate, sorted(load.seconds)[int(0.99 * len(bodies))], cpu / len(bodies), resident, replies)


def _read_processor_time(process: Path) -> float:
    """Read the seconds of processor time of all threads of a process."""
    fields = _read_state(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_state(process: Path) -> list[str]:
    """Read the fields of the state of a process, from the third on."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _find_processes(port: int) -> list[Path]:
    """Find the process that listens at a port of this machine, and its children, as folders in `/proc` (Linux)."""
    first = _find_listener(port)
    found = [first]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            if _read_state(process)[1] == first.name:
                found.append(process)
    return found


def _find_listener(port: int) -> Path:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(one[9] for one in lines if one[1].endswith(f":{port:04X}") and one[3] == "0A")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink().name == f"socket:[{inode}]":
                return link.parent.parent
        except OSError:  # the process or its file has ended
            continue
    raise RuntimeError(f"no process listens at port {port}")
