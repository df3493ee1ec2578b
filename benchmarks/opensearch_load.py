"""(f) Loading OpenSearch beside the client library's own helpers, on one node in the same run; memory of a load.

All three read the same document store and send the same documents to the same mapping, in requests of the same size.
The server shares the machine, which is why documents per second tell of the server and the client's processor time of
the client. Without the jars that the tests use there are no rows.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import opensearchpy
import orjson
from opensearchpy import helpers

from benchmarks.table import Row, faster, processor_time
from benchmarks.texts import passages
from indexing.io.retry import PATIENCE_S
from indexing.opensearch.bulk import BYTES, DOCUMENTS
from indexing.opensearch.cluster import Place, close, connect, place_of
from indexing.opensearch.index import create, index_body, refresh, remove
from indexing.opensearch.load import AT_ONCE, send
from indexing.opensearch.missing import missing_rows
from indexing.store import DocumentStore, build_store
from indexing.types import Document
from tests.support.servers.opensearch import JARS, cluster

PASSAGES, REPEATS = 20_000, 3
SMALL, LARGE = 10_000, 100_000
MEMORY = 50e6
"""Bytes that the peaks of two loads may differ by."""


def rows() -> list[Row]:
    """Processor time has the target; documents per second are bound by the server, for all alike."""
    if not (JARS / ".ready").exists():
        print("opensearch_load: OpenSearch is not set up: run `make test-opensearch`", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, cluster() as node:
        return [*_beside_helpers(Path(folder), node.url), *_memory(Path(folder), node.url)]


def _beside_helpers(folder: Path, url: str) -> Iterator[Row]:
    build_store((Document(f"{n:07d}", text, f"title {n}") for n, text in enumerate(passages(PASSAGES))), folder / "s")
    store, place = DocumentStore(folder / "s"), place_of(f"{url}/loaded")

    def ours() -> None:
        nodes = connect(place.urls, AT_ONCE)
        wanted = [(0, PASSAGES)]
        send(nodes, place, store, None, wanted, folder / "note", lambda _: None, PATIENCE_S)
        close(nodes)

    jobs: dict[str, Callable[[], object]] = {
        "ours": ours,
        "parallel_bulk": lambda: _parallel_bulk(store, url, place),
        "async_streaming_bulk": lambda: asyncio.run(_async_bulk(store, url, place)),
    }
    wall, work = _take_turns(jobs, place)
    name = f"loading {PASSAGES:,} passages to OpenSearch"
    for peer in jobs:
        if peer != "ours":
            used, theirs = (work[job] / PASSAGES * 1e6 for job in ("ours", peer))
            yield faster(f"{name}: {peer}: client processor time a document", used, theirs, 2.0,
                         "reading, JSON once, the copy into the socket", "µs")  # fmt: skip
            rate, their_rate = PASSAGES / wall["ours"], PASSAGES / wall[peer]
            yield Row(f"{name}: {peer}: documents a second", rate, their_rate, "1/s", rate / their_rate, None,
                      f"the server, on the same {os.cpu_count()} cores")  # fmt: skip


def _take_turns(jobs: dict[str, Callable[[], object]], place: Place) -> tuple[dict[str, float], dict[str, float]]:
    """The median wall seconds and seconds of processor time of each job, each into an empty index, whole at the end."""
    wall: dict[str, list[float]] = {name: [] for name in jobs}
    work: dict[str, list[float]] = {name: [] for name in jobs}
    nodes = connect(place.urls, 1)
    for turn in range(REPEATS + 1):
        for name, job in jobs.items():
            create(nodes, place, index_body({"key": name}, 1, None))
            start, used = time.perf_counter(), processor_time()
            job()
            if turn:
                wall[name].append(time.perf_counter() - start)
                work[name].append(processor_time() - used)
            refresh(nodes, place)
            assert not missing_rows(nodes, place, PASSAGES), f"{name} has lost documents"
            remove(nodes, place)
    close(nodes)
    return {name: median(found) for name, found in wall.items()}, {name: median(found) for name, found in work.items()}


def _actions(store: DocumentStore, place: Place) -> Iterator[dict[str, Any]]:
    for row, record in enumerate(store.records(range(len(store)))):
        found = orjson.loads(record)
        contents = f"{found['title']}\n{found['text']}"
        source = {"docid": found["id"], "row": row, "contents": contents, "document": found}
        yield {"_op_type": "create", "_index": place.name, "_id": str(row), **source}


def _parallel_bulk(store: DocumentStore, url: str, place: Place) -> None:
    with closing(opensearchpy.OpenSearch([url], timeout=600, pool_maxsize=AT_ONCE)) as client:
        done = helpers.parallel_bulk(client, _actions(store, place), AT_ONCE, DOCUMENTS, BYTES)
        assert all(ok for ok, _ in done)


async def _async_bulk(store: DocumentStore, url: str, place: Place) -> None:
    async with opensearchpy.AsyncOpenSearch([url], timeout=600) as client:
        async for ok, _ in helpers.async_streaming_bulk(client, _actions(store, place), DOCUMENTS, BYTES):
            assert ok


def _memory(folder: Path, url: str) -> Iterator[Row]:
    """The peak of `keystone index --opensearch` for many documents against that for few."""
    peaks = {size: _peak(folder, url, size) for size in (SMALL, LARGE)}
    more = max(0, peaks[LARGE] - peaks[SMALL])
    yield Row(f"loading {LARGE:,} passages to OpenSearch: peak memory above that of {SMALL:,}", more / 1e6,
              MEMORY / 1e6, "MB", MEMORY / max(more, 1), 1.0,
              f"requests in flight; peaks of {peaks[SMALL] / 1e6:.0f} and {peaks[LARGE] / 1e6:.0f} MB")  # fmt: skip


def _peak(folder: Path, url: str, size: int) -> int:
    corpus = folder / f"{size}.jsonl"
    corpus.write_bytes(
        b"".join(orjson.dumps({"id": f"d{n}", "text": text}) + b"\n" for n, text in enumerate(passages(size)))
    )
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.peak", "index", corpus, "--out", folder / f"{size}"]
    command += ["--opensearch", f"{url}/memory-{size}", "--no-dense", "--quiet"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stderr.split()[-1])
