"""A build on Ray makes the bytes of a local one, whatever happens to its workers or to the command."""

import gzip
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from keystone.indexing.builds import ray as ray_engine
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.ray import cluster
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import list_corpus_files, read_files
from keystone.indexing.corpora.forms import CorpusFile
from keystone.indexing.errors import BadRecord, MissingPackage, UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors import shards as vectors
from keystone.indexing.vectors.faiss_index import build_dense
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS, read_contents
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone
from tests.support.servers.embeddings import serving, status
from tests.support.waiting import LIMIT_S, join, wait_until

pytestmark = pytest.mark.slow

WORKERS, SHARD, FILES, LINES = 2, 8, 5, 20
SENTENCES = [sentence for _, text in CORPUS.values() for sentence in text.split(". ")]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A local Ray of two workers, which all tests share."""
    with cluster(WORKERS):
        import ray

        yield ray


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SHARD_DOCUMENTS", SHARD)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files, compressed or not, with ids that repeat and lines that are no documents."""
    folder, choose = tmp_path_factory.mktemp("corpus"), random.Random(3)
    for number in range(FILES):
        lines = []
        for line in range(LINES):
            text = ". ".join(choose.sample(SENTENCES, choose.randint(1, 12)))
            lines.append(json.dumps({"id": f"d{choose.randrange(FILES * LINES)}", "title": f"{line}", "text": text}))
            lines += ['{"id": "half'] * (line % 17 == number) + ['{"id": "a b", "text": "c"}'] * (line % 19 == number)
        content = "\n".join(lines).encode()
        name = folder / f"part-{number}.jsonl"
        name.write_bytes(content) if number % 2 else name.with_suffix(".jsonl.gz").write_bytes(gzip.compress(content))
    (folder / "part-8-caf\udce9.jsonl").write_text('{"id": "cafe", "text": "Coffee and bees."}\n{"id": "half\n')
    (folder / "part-9.jsonl.gz").write_bytes(gzip.compress(b'{"id": "last", "text": "Bees."}\n' * 99)[:-20])
    return folder


Told = list[tuple[str, str]]


def build(corpus: Path, out: Path, engine: str, **settings: Any) -> tuple[Index, Told]:
    told: Told = []
    found = build_index(
        corpus,
        out,
        BuildSettings(engine=engine, **settings),
        report=lambda error: told.append((str(error), error.kind)),
    )
    return found[0], told


@pytest.fixture(scope="session")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Told]:
    return build(corpus, tmp_path_factory.mktemp("whole") / "index", "local")


@pytest.mark.nightly
def test_a_local_cluster_that_starts_too_slowly_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own clock jumps beyond its limit, and its node seems absent, as on a machine that is too busy."""
    import ray
    from ray._private import node, services

    asked, find = count(1), services.get_node

    def find_late(*place: Any) -> Any:
        if next(asked) < 3:
            raise RuntimeError("no such node yet")
        return find(*place)

    with monkeypatch.context() as slow:
        slow.setattr(services, "get_node", find_late)
        slow.setattr(node, "time", SimpleNamespace(**vars(time) | {"monotonic": count(0, 31).__next__}))
        with cluster(1):
            assert ray.is_initialized()
    assert next(asked) > 3
    assert not ray.is_initialized()


@pytest.mark.usefixtures("ray")
def test_a_build_on_ray_has_the_bytes_and_the_reports_of_a_local_build(
    corpus: Path, whole: tuple[Index, Told], tmp_path: Path
) -> None:
    index, told = build(corpus, tmp_path / "index", "ray")
    assert read_contents(index.folder) == read_contents(whole[0].folder)
    assert told == whole[1]
    assert set(index.left_out) == {"not JSON", "bad id", "repeated id", "unreadable file"}


@pytest.mark.usefixtures("ray")
def test_documents_come_in_file_order_for_any_distribution_over_readers(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [CorpusFile(file, "", "jsonl") for file in list_corpus_files(corpus, "jsonl")]
    errors: list[BadRecord] = []
    expected = [(document, document.place) for document in read_files(files, "main", errors.append)]
    for size in (1, 3_000, 2**25):
        monkeypatch.setattr(ray_engine, "GROUP_BYTES", size)
        told: list[BadRecord] = []
        found = list(ray_engine.read_files(files, "main", told.append))
        assert [(document.id, document.text, document.place) for document in found] == [
            (document.id, document.text, place) for document, place in expected
        ]
        assert [(str(error), error.kind) for error in told] == [(str(error), error.kind) for error in errors]
        assert all(document.segments for document in found)


@pytest.mark.usefixtures("ray")
def test_a_bad_record_ends_a_strict_build_and_a_missing_file_ends_any_build(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"part-0.jsonl.gz:2: not JSON"):
        build_index(corpus, tmp_path / "index", BuildSettings(engine="ray"))
    with pytest.raises(UserError, match=r"none.jsonl: cannot be read"):
        list(ray_engine.read_files([CorpusFile(tmp_path / "none.jsonl", "", "jsonl")], "main"))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("ray")
def test_a_refused_text_is_the_local_engines_error_and_finished_shards_are_kept(corpus: Path, tmp_path: Path) -> None:
    def refuse(handler: Any, texts: list[str]) -> bool:
        return any("volcano" in text for text in texts) and status(400, "too hot")(handler, texts)

    messages = []
    for engine in ("local", "ray"):
        with serving() as server:
            server.always = refuse
            with pytest.raises(UserError) as error:
                build(corpus, tmp_path / engine, engine, embedding=Embedding("letters", server.url))
            messages.append(str(error.value).replace(server.url, "URL"))
    assert messages[0] == messages[1]
    assert "document d" in messages[0]


def processes(word: str) -> list[int]:
    """The processes whose title holds a word, as Ray names its workers by what they do."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::") and word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


COMMAND = (
    f"from keystone.indexing.vectors import shards; shards.SHARD_DOCUMENTS = {SHARD}; "
    "from keystone.runs.cli.main import main; main()"
)


@contextmanager
def command(
    corpus: Path, out: Path, engine: str, url: str | None = None, **environment: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A build that is killed at the end of the block, it alone."""
    model = ["--embedding", "letters", "--embedding-url", url] if url else []
    arguments = [
        "index",
        str(corpus),
        "--out",
        str(out),
        "--engine",
        engine,
        "--threads",
        str(WORKERS),
        "--dense",
        "all",
        "--quiet",
    ]
    process = programs.start(
        [sys.executable, "-c", COMMAND, *arguments, *model],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_S)


def address(ray: Any) -> str:
    return str(ray.get_runtime_context().gcs_address)


def done(out: Path) -> list[str]:
    return sorted(path.name for path in (out.parent / f".{out.name}.partial" / "vectors").glob("*.json"))


def held(out: Path, goes_on: Event) -> Callable[[Any, list[str]], bool]:
    """No reply from the second shard on, so that the build is in the midst of its work until it may go on."""

    def fault(_handler: Any, _texts: list[str]) -> bool:
        if _begun(out, 2):
            goes_on.wait(LIMIT_S)
        return False

    return fault


@pytest.mark.nightly
@pytest.mark.usefixtures("ray")
def test_a_worker_killed_while_embedding_costs_only_its_current_shards(corpus: Path, tmp_path: Path) -> None:
    killed: list[tuple[int, int]] = []
    goes_on = Event()

    def kill() -> None:
        try:
            wait_until(partial(_begun, tmp_path / "index", 2), "two shards")
            worker = wait_until(lambda: processes("_Embedder"), "workers that embed")[0]
            os.kill(worker, signal.SIGKILL)
            killed.append((worker, len(done(tmp_path / "index"))))
        finally:
            goes_on.set()

    with serving() as server:
        embedding = Embedding("letters", server.url)
        whole = build(corpus, tmp_path / "whole", "local", embedding=embedding)
        needed = sum(len(texts) for texts in server.requests)
        server.requests.clear()
        server.always = held(tmp_path / "index", goes_on)
        killer = Thread(target=kill)
        killer.start()
        index, told = build(corpus, tmp_path / "index", "ray", embedding=embedding)
        join(killer, "the worker to be killed")
    assert index.documents
    shards = -(-index.documents // SHARD)
    assert killed[0][1] < shards
    assert read_contents(index.folder) == read_contents(whole[0].folder)
    assert told == whole[1]
    at_most = 2 * 2 * SHARD  # what an actor has in its hands: a shard that it embeds, one that waits
    assert sum(len(texts) for texts in server.requests) <= needed + at_most


@pytest.mark.nightly
def test_a_killed_build_is_finished_by_either_engine(ray: Any, corpus: Path, tmp_path: Path) -> None:
    with serving() as server:
        embedding = Embedding("letters", server.url)
        whole, _ = build(corpus, tmp_path / "whole", "local", embedding=embedding)
        for first, second in (("ray", "local"), ("local", "ray")):
            out, goes_on = tmp_path / f"first-{first}", Event()
            server.always = held(out, goes_on)
            with command(corpus, out, first, url=server.url, RAY_ADDRESS=address(ray)):
                wait_until(partial(_begun, out, 2), "two shards")
            server.always = None
            goes_on.set()
            kept = {name: _written(out, name) for name in done(out)}
            assert whole.documents
            assert 2 <= len(kept) < -(-whole.documents // SHARD)

            def compared(*arguments: Any, kept: dict[str, int] = kept, out: Path = out) -> None:
                assert {name: _written(out, name) for name in kept} == kept, "a shard that was there was made again"
                build_dense(*arguments)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("keystone.indexing.vectors.faiss_index.build_dense", compared)
                index, _ = build(corpus, out, second, embedding=embedding)
            assert read_contents(index.folder) == read_contents(whole.folder)


def _begun(out: Path, shards: int) -> bool:
    return len(done(out)) >= shards


def _written(out: Path, name: str) -> int:
    return (out.parent / f".{out.name}.partial" / "vectors" / name).stat().st_mtime_ns


IDLE = """if True:
    import sys
    from keystone.indexing.builds.ray import cluster
    with cluster(1):
        print("started", flush=True)
        sys.stdin.read()
"""


@pytest.mark.timeout(1800)
def test_an_idle_local_ray_listens_only_on_the_loopback_and_ends_with_its_process() -> None:
    soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # a minute otherwise
    environment = {**os.environ, **soon, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": ""}
    with programs.started([sys.executable, "-c", IDLE], stdin=-1, stdout=-1, env=environment, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        family = _family(process.pid)
        assert len(family) >= 3
        check_hosts(family)
        process.kill()
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        wait_until(partial(_gone, family), "the end of Ray", 2 * LIMIT_S)


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # Ray's last process ends a minute after the build, later on a busy machine
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=lambda one: one.name)
def test_a_local_ray_listens_only_on_the_loopback_and_ends_with_the_command(
    corpus: Path, tmp_path: Path, end: signal.Signals
) -> None:
    """In `make test`, an idle Ray ends with its process, and `test_interrupts.py` interrupts a thread at work."""
    out, goes_on = tmp_path / "index", Event()
    with serving() as server:
        server.always = held(out, goes_on)
        with command(corpus, out, "ray", url=server.url, RAY_ADDRESS="") as process:
            wait_until(partial(_begun, out, 2), "two shards")
            family = _family(process.pid)
            assert len(family) >= 2 + WORKERS
            check_hosts(family)
            os.killpg(process.pid, end) if end == signal.SIGINT else process.kill()
            assert process.wait(LIMIT_S) == (130 if end == signal.SIGINT else -end)
        goes_on.set()
        # the last of them look for their parent now and then
        wait_until(partial(_gone, family), "the end of Ray", 2 * LIMIT_S)


def check_hosts(family: set[int]) -> None:
    hosts = _listening(family)
    assert hosts
    assert hosts <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def _gone(pids: set[int]) -> bool:
    return not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _family(root: int) -> set[int]:
    """A process and all that come from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    found, more = {root}, {root}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found


def _listening(pids: set[int]) -> set[str]:
    """The addresses on which processes listen."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(link.readlink()))
    found = set()
    for table, family, size in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                raw = bytes.fromhex(fields[1].split(":")[0])
                packed = b"".join(raw[at : at + 4][::-1] for at in range(0, size, 4))
                found.add(socket.inet_ntop(family, packed))
    return found


@pytest.mark.nightly
def test_java_works_beside_ray_and_after_it() -> None:
    code = """if True:
        import ctypes, signal
        from keystone.indexing.lucene.java import java_class
        from keystone.indexing.builds.ray import cluster

        def handlers():
            found = [ctypes.create_string_buffer(1024) for _ in range(4)]
            for number, action in zip((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE), found):
                ctypes.CDLL(None).sigaction(number, None, action)
            return [action.raw[:8] for action in found]

        java_class("java.lang.Object")
        before = handlers()
        with cluster(1):
            assert handlers() == before
        assert handlers() == before
    """
    root = ROOT
    done = programs.run([sys.executable, "-c", code], cwd=root, stderr=subprocess.PIPE, text=True)
    assert not done.returncode, done.stderr


def test_a_machine_without_ray_is_told_what_to_install(corpus: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingPackage, match=r"pip install 'ray\[data\]'"):
            build_index(corpus, tmp_path / "index", BuildSettings(engine="ray"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere", "127.0.0.1:x"])
def test_an_address_without_a_cluster_is_an_error_at_once(corpus: Path, tmp_path: Path, where: str) -> None:
    done = keystone("index", corpus, "--out", tmp_path / "index", "--engine", "ray", "--quiet", RAY_ADDRESS=where)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: RAY_ADDRESS: found {where!r}, expected HOST:PORT of a running cluster")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
