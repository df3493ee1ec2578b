"""The engine `ray`: Ray Data reads the files of a corpus, and an actor pool embeds shards of documents.

Workers read the corpus files, which lie under the same path on every machine. All other data goes through Ray: only
the machine of the command sees the index folder. The order and place of results do not depend on the speed of workers.
A worker returns an error as a value, so that Keystone reports it as the local engine does. If a worker dies, Ray does
its work again.
"""

import ctypes
import json
import logging
import os
import signal
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.builds.settings import Engine
from keystone.indexing.corpora.corpus import read_files as read_here
from keystone.indexing.corpora.forms import LOCAL_FORMATS, CorpusFile
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, MissingPackage, Report, UserError, stop
from keystone.indexing.io.system import interrupts_end_the_process, load_c_library
from keystone.indexing.lucene.java import java_class
from keystone.indexing.store import from_record, to_record
from keystone.indexing.types import Document, Embedding, Tick
from keystone.indexing.vectors.shards import EmbeddedShard, Texts, embed_texts, read_contents, refusal_error

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for clusters of several machines. If it is off, Ray listens on 127.0.0.1 alone, under any system."""

JAVAS = [signal.Signals[name] for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE") if hasattr(signal, name)]

REACH_TIMEOUT_S = 10
START_TRIES = 4
"""How many times a local cluster is started. Ray gives up a start after 30 seconds, which a busy machine can exceed."""


@contextmanager
def cluster(threads: int) -> Iterator[None]:
    """Connect to Ray for the length of a block: an open connection, the cluster at `RAY_ADDRESS`, or a local cluster.

    A local cluster has `threads` CPUs and all GPUs, no dashboard, and listens on 127.0.0.1. If it does not start in
    time, it is started again. `UserError` if Ray is not installed, or if no cluster answers at the address.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address not in ("local", "auto"):
        _reach(address)
    for name, value in {**QUIET, **({LOOPBACK: "0"} if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    local = {"num_cpus": threads, "include_dashboard": False} if address == "local" else {}
    java_class("java.lang.Object")  # starts Java, which sets handlers of signals
    for tries_left in reversed(range(START_TRIES if local else 1)):
        try:
            with _silence(), _keep_handlers():
                ray.init(address, logging_level="ERROR", log_to_driver=False, **local)
            break
        except Exception as error:  # a node that does not start in time raises no narrower type
            if tries_left:
                continue
            found = "Ray cannot be started" if local else f"RAY_ADDRESS: found {address!r}, expected a running cluster"
            raise UserError(f"{found}: {(str(error).strip() or type(error).__name__).splitlines()[0]}") from error
    try:
        with interrupts_end_the_process(0):  # Ray's processes get it too, and without them this one would crash
            yield
    finally:
        with _keep_handlers():
            ray.shutdown()


def import_ray() -> Any:
    """Import Ray. `MissingPackage` if it is not installed."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingPackage("Ray is needed for --engine ray: pip install 'ray[data]'") from error
    return ray


def _reach(address: str) -> None:
    """Raise `UserError` if nothing listens at the address. Ray itself needs minutes to say so."""
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host.strip("[]"), int(port)), REACH_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        expected = "expected HOST:PORT of a running cluster, asked from one of its machines"
        raise UserError(f"RAY_ADDRESS: found {address!r}, {expected}: {error}") from error


@contextmanager
def _keep_handlers() -> Iterator[None]:
    """Restore the handlers of the signals that Java needs: Ray replaces them, and Java would then crash."""
    if (libc := load_c_library()) is None:
        yield
        return
    kept = [(number, ctypes.create_string_buffer(1024)) for number in JAVAS]  # more than a `sigaction` takes anywhere
    for number, action in kept:
        libc.sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in kept:
            libc.sigaction(number, action, None)


@contextmanager
def _silence() -> Iterator[None]:
    """Write nothing to standard error within the block: Ray's core prints its level of messages there."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


GROUP_BYTES = 2**25
"""The total size of the small files that one task reads; a larger file is read by a separate task."""
PIECE_CHARACTERS = 2**20
"""The approximate length of text after which a reader hands on its documents."""
PIECE_RECORDS = 1_000
"""The number of documents and bad records after which a reader hands them on."""
BLOCK_BYTES = 2**24
"""The size of a block of Ray Data, which bounds the memory for each worker."""

Batch = dict[str, list[bytes]]
"""A row of Ray Data: one value as JSON under `value`, and its float32 numbers, if it has any, under `vectors`."""


@contextmanager
def open_ray(threads: int) -> Iterator[Engine]:
    """Open the engine `ray` for the length of a block; see `cluster`."""
    with cluster(threads):
        yield Engine(read_files, embed_shards)


def read_files(files: Sequence[CorpusFile], extract: str, report: Report = stop) -> Iterator[Document]:
    """Read and segment files in order, as `read_here` does, by Ray's workers; `report` receives bad records.

    `UserError` if a file cannot be read or Ray fails.
    """
    if any(file.form in LOCAL_FORMATS for file in files):
        yield from read_here(files, extract, report)
        return
    groups = _dataset([[(str(path), *rest) for path, *rest in group] for group in _groups(files)], in_order=True)
    with closing(_values(groups.map_batches(partial(_read, extract), batch_size=1))) as pieces:
        for piece, _ in pieces:
            for found in piece:
                if "text" in found:
                    yield replace(from_record(found), place=found["place"])
                elif "kind" in found:
                    report(BadRecord(**found))
                else:
                    raise UserError(found["message"])


def embed_shards(
    store: Texts, embedding: Embedding, shards: Sequence[range], _threads: int = 1, tick: Tick = lambda _: None
) -> Iterator[EmbeddedShard]:
    """Embed shards by Ray, and yield them in the order in which they are done.

    An error is raised after the shards before it, as in a local build.
    """
    ray = import_ray()
    cpus = int(ray.cluster_resources().get("CPU", 1))
    pool = ray.data.ActorPoolStrategy(size=max(1, min(len(shards), cpus)))
    ends = _dataset([(rows.start, rows.stop) for rows in shards])
    texts = ends.map_batches(partial(_texts, store), batch_size=1, **_here())
    made = texts.map_batches(_Embedder, fn_constructor_args=(embedding,), batch_size=1, compute=pool, num_cpus=1)
    waiting, errors = {rows.start for rows in shards}, dict[int, UserError]()
    with closing(_values(made)) as results:
        for (between, cut, error), vectors in results:
            rows = range(*between)
            waiting.discard(rows.start)
            if error:
                position, reason = error
                errors[rows.start] = (
                    UserError(reason) if position is None else refusal_error(store, rows, position, reason)
                )
            else:
                tick(len(rows))
                yield rows, np.frombuffer(vectors, dtype=np.float32).reshape(len(rows), -1), cut
            if errors and min(errors) < min(waiting, default=len(store)):
                raise errors[min(errors)]


class _Embedder:
    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    def __call__(self, batch: Batch) -> Batch:
        between, texts = _of(batch)
        try:
            vectors, cut = embed_texts(self._embedding, texts)
        except UserError as error:
            return _batch((between, 0, (getattr(error, "position", None), str(error))))
        return _batch((between, cut, None), vectors.tobytes())


def _texts(store: Texts, batch: Batch) -> Batch:
    between = _of(batch)
    return _batch((between, read_contents(store, range(*between))))


def _read(extract: str, batch: Batch) -> Iterator[Batch]:
    """Read a group of files piece by piece: documents, bad records by their fields, and a final error."""
    found: list[dict[str, Any]] = []

    def note(error: BadRecord) -> None:
        found.append({"message": str(error), "kind": error.kind})

    size = 0
    try:
        for document in read_here([CorpusFile(Path(path), *rest) for path, *rest in _of(batch)], extract, note):
            found.append(to_record(cut_segments(document)) | {"place": document.place})
            size += len(document.text)
            if size > PIECE_CHARACTERS or len(found) > PIECE_RECORDS:
                yield _batch(found)
                found, size = [], 0
    except UserError as error:
        found.append({"message": str(error)})
    yield _batch(found)


def _groups(files: Sequence[CorpusFile]) -> list[list[CorpusFile]]:
    """Group the files in order; small neighbours share a group."""
    groups: list[list[CorpusFile]] = []
    size = GROUP_BYTES
    for file in files:
        try:
            own = file.path.stat().st_size
        except OSError:
            own = 0  # the reader reports the error
        size += own
        if size >= GROUP_BYTES or not groups:
            groups.append([])
            size = own
        groups[-1].append(file)
    return groups


def _here() -> dict[str, Any]:
    """Return the options of tasks that run on the machine of the command, beside an actor pool that has all CPUs."""
    return {"num_cpus": 0, "resources": {f"node:{import_ray().util.get_node_ip_address()}": 0.001}}


def _dataset(values: Sequence[Any], in_order: bool = False) -> Any:
    """Make a dataset with one block per value. If `in_order`, results come in the order of the values."""
    data = import_ray().data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = in_order
    return data.from_items([{"value": _written(value)} for value in values], override_num_blocks=len(values))


def _values(dataset: Any) -> Generator[tuple[Any, bytes], None, None]:
    """Yield the values of a dataset with their vectors, as they arrive. `UserError` if Ray itself fails."""
    from ray.exceptions import RayError, RayTaskError

    try:
        for row in dataset.iter_rows():
            yield json.loads(row["value"]), row["vectors"]
    except RayTaskError:
        raise
    except RayError as error:
        found = str(error).strip().splitlines()[0]
        raise UserError(f"Ray failed: {found}: the same command continues from the finished work") from error


def _batch(value: Any, vectors: bytes = b"") -> Batch:
    return {"value": [_written(value)], "vectors": [vectors]}


def _of(batch: Batch) -> Any:
    return json.loads(batch["value"][0])


def _written(value: Any) -> bytes:
    """Return a value as JSON by the standard library, which accepts names of files that are not UTF-8."""
    return json.dumps(value).encode()
