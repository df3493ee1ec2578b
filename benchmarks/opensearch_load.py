"""(f) Loading OpenSearch beside the client library's own helpers, on one node in the same run; memory of a load.

All three read the same document store and send the same documents to the same mapping, in requests of the same size.
The server shares the machine. So documents per second measure the server, and processor time measures the client. If
OpenSearch is not set up, there are no rows.
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

from benchmarks.table import Row, compare_costs, read_processor_time
from benchmarks.texts import read_passages
from keystone.indexing.opensearch.cluster import Place, close, connect, place_of
from keystone.indexing.opensearch.index import Target, create, index_body, refresh, remove
from keystone.indexing.opensearch.load import (
    REQUEST_BYTES,
    REQUEST_DOCUMENTS,
    Upload,
    missing_rows,
    send_rows,
)
from keystone.indexing.opensearch.requests import NODE_REQUESTS
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document
from tests.support.servers.opensearch import JARS, start_cluster

PASSAGES, REPEATS = 20_000, 3
SMALL_DOCUMENTS, LARGE_DOCUMENTS = 10_000, 100_000
MEMORY_GROWTH_BYTES = 50e6
"""The peaks of two loads may differ by this amount."""


def rows() -> list[Row]:
    """Processor time, which has the target; documents per second, which the server bounds; and memory."""
    if not (JARS / ".ready").exists():
        print("opensearch_load: OpenSearch is not set up: run `make test-opensearch`", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, start_cluster() as node:
        return [*_compare_helpers(Path(folder), node.url), *_compare_memory(Path(folder), node.url)]


def _compare_helpers(folder: Path, url: str) -> Iterator[Row]:
    build_store(
        (Document(f"{n:07d}", text, f"title {n}") for n, text in enumerate(read_passages(PASSAGES))), folder / "s"
    )
    store, place = DocumentStore(folder / "s"), place_of(f"{url}/loaded")

    def ours() -> None:
        nodes = connect(place.urls, NODE_REQUESTS)
        send_rows(nodes, Upload(Target(place), {}, store, None, folder / "note"), [(0, PASSAGES)], lambda _: None)
        close(nodes)

    jobs: dict[str, Callable[[], object]] = {
        "ours": ours,
        "parallel_bulk": lambda: _load_by_parallel_bulk(store, url, place),
        "async_streaming_bulk": lambda: asyncio.run(_load_by_async_bulk(store, url, place)),
    }
    wall, work = _take_turns(jobs, place)
    name = f"loading {PASSAGES:,} passages to OpenSearch"
    for peer in jobs:
        if peer != "ours":
            used, theirs = (work[job] / PASSAGES * 1e6 for job in ("ours", peer))
            yield compare_costs(
                f"{name}: {peer}: client processor time a document",
                used,
                theirs,
                2.0,
                "reading, JSON once, the copy into the socket",
                "µs",
            )
            rate, their_rate = PASSAGES / wall["ours"], PASSAGES / wall[peer]
            yield Row(
                f"{name}: {peer}: documents a second",
                rate,
                their_rate,
                "1/s",
                rate / their_rate,
                None,
                f"the server, on the same {os.cpu_count()} cores",
            )


def _take_turns(jobs: dict[str, Callable[[], object]], place: Place) -> tuple[dict[str, float], dict[str, float]]:
    """The median seconds of wall time and of processor time of each job, which fills an empty index."""
    wall: dict[str, list[float]] = {name: [] for name in jobs}
    work: dict[str, list[float]] = {name: [] for name in jobs}
    nodes = connect(place.urls, 1)
    for turn in range(REPEATS + 1):
        for name, job in jobs.items():
            create(nodes, place, index_body({"key": name}, 1, None))
            start, used = time.perf_counter(), read_processor_time()
            job()
            if turn:
                wall[name].append(time.perf_counter() - start)
                work[name].append(read_processor_time() - used)
            refresh(nodes, place)
            assert not missing_rows(nodes, place, PASSAGES), f"{name} has lost documents"
            remove(nodes, place)
    close(nodes)
    return {name: median(found) for name, found in wall.items()}, {name: median(found) for name, found in work.items()}


def _make_actions(store: DocumentStore, place: Place) -> Iterator[dict[str, Any]]:
    for row, record in enumerate(store.records(range(len(store)))):
        found = orjson.loads(record)
        contents = f"{found['title']}\n{found['text']}"
        source = {"docid": found["id"], "row": row, "contents": contents, "document": found}
        yield {"_op_type": "create", "_index": place.name, "_id": str(row), **source}


def _load_by_parallel_bulk(store: DocumentStore, url: str, place: Place) -> None:
    with closing(opensearchpy.OpenSearch([url], timeout=600, pool_maxsize=NODE_REQUESTS)) as client:
        done = helpers.parallel_bulk(
            client, _make_actions(store, place), NODE_REQUESTS, REQUEST_DOCUMENTS, REQUEST_BYTES
        )
        assert all(ok for ok, _ in done)


async def _load_by_async_bulk(store: DocumentStore, url: str, place: Place) -> None:
    async with opensearchpy.AsyncOpenSearch([url], timeout=600) as client:
        async for ok, _ in helpers.async_streaming_bulk(
            client, _make_actions(store, place), REQUEST_DOCUMENTS, REQUEST_BYTES
        ):
            assert ok


def _compare_memory(folder: Path, url: str) -> Iterator[Row]:
    """The peak memory of `keystone index --opensearch` for many documents, beside that for few."""
    peaks = {size: _measure_peak(folder, url, size) for size in (SMALL_DOCUMENTS, LARGE_DOCUMENTS)}
    more = max(0, peaks[LARGE_DOCUMENTS] - peaks[SMALL_DOCUMENTS])
    name = f"loading {LARGE_DOCUMENTS:,} passages to OpenSearch: peak memory above that of {SMALL_DOCUMENTS:,}"
    few, many = (peaks[size] / 1e6 for size in (SMALL_DOCUMENTS, LARGE_DOCUMENTS))
    yield Row(
        name,
        more / 1e6,
        MEMORY_GROWTH_BYTES / 1e6,
        "MB",
        MEMORY_GROWTH_BYTES / max(more, 1),
        1.0,
        f"requests in flight; peaks of {few:.0f} and {many:.0f} MB",
    )


def _measure_peak(folder: Path, url: str, size: int) -> int:
    corpus = folder / f"{size}.jsonl"
    corpus.write_bytes(
        b"".join(orjson.dumps({"id": f"d{n}", "text": text}) + b"\n" for n, text in enumerate(read_passages(size)))
    )
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.peak", "index", corpus, "--out", folder / f"{size}"]
    command += ["--opensearch", f"{url}/memory-{size}", "--no-dense", "--quiet"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stderr.split()[-1])
