"""The engine `ray`: Ray Data reads the files of a corpus and embeds shards of documents, by an actor pool.

Workers read the corpus files, which lie under the same path on every machine. All else goes through Ray: only the
machine of the command sees the index folder. Results are taken in an order, or put in a place, that does not depend on
which worker was first, and a worker's error comes back as a value, so that it is told as the local engine tells it.

Ray makes again what a worker that died had in its hands.
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

from indexing.build.engines import Engine
from indexing.build.interrupts import interrupts_end_the_process
from indexing.corpora.corpus import Files
from indexing.corpora.corpus import read_files as read_here
from indexing.corpora.segments import segmented
from indexing.errors import BadRecord, MissingPackage, Report, UserError, stop
from indexing.lucene.java import java_class
from indexing.store import DocumentStore, from_record, to_record
from indexing.types import Document, Embedding, Tick
from indexing.vectors.shards import Made, embed_texts, refused, texts_of

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for clusters of several machines. Without them it listens on 127.0.0.1 alone, under any system."""

JAVAS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)

REACH = 10
"""Seconds in which a cluster answers."""

SERIAL = ("ir_datasets", "pyserini")
"""Formats that are read where the command runs: their data sets lie in a cache of that machine."""
GROUP = 2**25
"""Bytes of the small files that one task reads; a larger file is one task's."""
PIECE = 2**20
"""Characters of text, about, after which a reader hands on what it has."""
RECORDS = 1_000
"""Documents and bad records after which it does so too."""
BLOCK = 2**24
"""Bytes of a block of Ray Data, which bounds what lies in memory for each worker."""

Batch = dict[str, list[bytes]]
"""What Ray Data hands on: one value as JSON under `value`, and its float32 numbers, if it has any, under `vectors`."""


@contextmanager
def cluster(threads: int) -> Iterator[None]:
    """Ray for as long as the block lasts: a connection that there is, the cluster at `RAY_ADDRESS`, or a local one.

    A local one has `threads` CPUs and all GPUs, no dashboard, and listens on 127.0.0.1. `UserError` where there is no
    Ray or no cluster at the address.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address not in ("local", "auto"):
        _reach(address)
    for name, value in {**QUIET, **({LOOPBACK: "0"} if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    local = {"num_cpus": threads, "include_dashboard": False} if address == "local" else {}
    java_class("java.lang.Object")  # starts Java, which sets handlers of signals
    try:
        with _silence(), _handlers_kept():
            ray.init(address, logging_level="ERROR", log_to_driver=False, **local)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        found = "Ray cannot be started" if local else f"RAY_ADDRESS: found {address!r}, expected a running cluster"
        raise UserError(f"{found}: {(str(error).strip() or type(error).__name__).splitlines()[0]}") from error
    try:
        with interrupts_end_the_process(0):  # Ray's processes get it too, and without them this one would crash
            yield
    finally:
        with _handlers_kept():
            ray.shutdown()


@contextmanager
def open_ray(threads: int) -> Iterator[Engine]:
    """Open the engine `ray` for the length of a block; see `cluster`."""
    with cluster(threads):
        yield Engine(read_files, embed_shards)


def read_files(files: Files, format: str, report: Report = stop) -> Iterator[Document]:
    """What `indexing.corpora.corpus.read_files` gives, in the same order, read and segmented by Ray's workers."""
    if format in SERIAL:
        yield from read_here(files, format, report)
        return
    groups = _dataset([[(str(file), name) for file, name in group] for group in _groups(files)], in_order=True)
    with closing(_values(groups.map_batches(partial(_read, format), batch_size=1))) as pieces:
        for piece, _ in pieces:
            for found in piece:
                if "text" in found:
                    yield replace(from_record(found), place=found["place"])
                elif "kind" in found:
                    report(BadRecord(**found))
                else:
                    raise UserError(found["message"])


def embed_shards(
    store: DocumentStore, embedding: Embedding, shards: Sequence[range], _threads: int = 1, tick: Tick = lambda _: None
) -> Iterator[Made]:
    """What `indexing.vectors.shards.embed_shards` gives, in the order in which shards are done.

    An error waits for the shards before its own, so that it is the one that the local engine would have told.
    """
    pool = _ray().data.ActorPoolStrategy(size=max(1, min(len(shards), _cpus())))
    ends = _dataset([(rows.start, rows.stop) for rows in shards])
    texts = ends.map_batches(partial(_texts, store.folder), batch_size=1, **_here())
    made = texts.map_batches(_Embedder, fn_constructor_args=(embedding,), batch_size=1, compute=pool, num_cpus=1)
    waiting, errors = {rows.start for rows in shards}, dict[int, UserError]()
    with closing(_values(made)) as results:
        for (between, cut, error), vectors in results:
            rows = range(*between)
            waiting.discard(rows.start)
            if error:
                position, reason = error
                errors[rows.start] = UserError(reason) if position is None else refused(store, rows, position, reason)
            else:
                tick(len(rows))
                yield rows, np.frombuffer(vectors, dtype=np.float32).reshape(len(rows), -1), cut
            if errors and min(errors) < min(waiting, default=len(store)):
                raise errors[min(errors)]


class _Embedder:
    """An actor of the pool, with the model in its memory."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    def __call__(self, batch: Batch) -> Batch:
        between, texts = _of(batch)
        try:
            vectors, cut = embed_texts(self._embedding, texts)
        except UserError as error:
            return _batch((between, 0, (getattr(error, "position", None), str(error))))
        return _batch((between, cut, None), vectors.tobytes())


def _texts(folder: Path, batch: Batch) -> Batch:
    between = _of(batch)
    return _batch((between, texts_of(DocumentStore(folder), range(*between))))


def _read(format: str, batch: Batch) -> Iterator[Batch]:
    """What a group of files holds, piece by piece: documents, bad records by their fields, an error that ends it."""
    found: list[dict[str, Any]] = []

    def note(error: BadRecord) -> None:
        found.append({"message": str(error), "kind": error.kind})

    size = 0
    try:
        for document in read_here([(Path(file), name) for file, name in _of(batch)], format, note):
            found.append(to_record(segmented(document)) | {"place": document.place})
            size += len(document.text)
            if size > PIECE or len(found) > RECORDS:
                yield _batch(found)
                found, size = [], 0
    except UserError as error:
        found.append({"message": str(error)})
    yield _batch(found)


def _groups(files: Files) -> list[Files]:
    """The files in order, those that are small together."""
    groups: list[list[tuple[Path, str]]] = []
    size = GROUP
    for file, name in files:
        try:
            own = file.stat().st_size
        except OSError:
            own = 0  # whoever reads it says so
        size += own
        if size >= GROUP or not groups:
            groups.append([])
            size = own
        groups[-1].append((file, name))
    return list(groups)


def _reach(address: str) -> None:
    """`UserError` where nothing listens, which Ray itself takes minutes to say."""
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, ValueError) as error:
        expected = "expected HOST:PORT of a running cluster, asked from one of its machines"
        raise UserError(f"RAY_ADDRESS: found {address!r}, {expected}: {error}") from error


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Signals that Java works by have the same handlers after the block; Ray would take them, and Java then crash."""
    libc = ctypes.CDLL(None)
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
    """Nothing on standard error: Ray's core says there which level of messages it was asked for."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingPackage("Ray is needed for --engine ray: pip install 'ray[data]'") from error
    return ray


def _cpus() -> int:
    return int(_ray().cluster_resources().get("CPU", 1))


def _here() -> dict[str, Any]:
    """Options of tasks that run on the machine of the command, beside an actor pool that has all CPUs."""
    return {"num_cpus": 0, "resources": {f"node:{_ray().util.get_node_ip_address()}": 0.001}}


def _dataset(values: Sequence[Any], in_order: bool = False) -> Any:
    """A dataset of one block a value; `in_order` says that what becomes of them comes in their order."""
    data = _ray().data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.target_max_block_size = BLOCK
    context.execution_options.preserve_order = in_order
    return data.from_items([{"value": _written(value)} for value in values], override_num_blocks=len(values))


def _values(dataset: Any) -> Generator[tuple[Any, bytes], None, None]:
    """The values of a dataset with their vectors, as they are made. `UserError` where Ray itself fails."""
    from ray.exceptions import RayError, RayTaskError

    try:
        for row in dataset.iter_rows():
            yield json.loads(row["value"]), row["vectors"]
    except RayTaskError:
        raise
    except RayError as error:
        found = str(error).strip().splitlines()[0]
        raise UserError(f"Ray failed: {found}: what is done is kept, and the same command goes on") from error


def _batch(value: Any, vectors: bytes = b"") -> Batch:
    return {"value": [_written(value)], "vectors": [vectors]}


def _of(batch: Batch) -> Any:
    return json.loads(batch["value"][0])


def _written(value: Any) -> bytes:
    """A value as JSON; that of the standard library, which takes names of files that are not UTF-8."""
    return json.dumps(value).encode()
