"""Full or read-only disks: one message names the file and the reason, and the same command continues later.

In most tests, a limit on the size of files stands for a full disk. It needs no rights, and writing fails in the same
places. The last test fills a real disk.
"""

import os
import resource
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from keystone.indexing.corpora.archives import unpack
from keystone.indexing.errors import NotWritten
from keystone.indexing.index import Index
from keystone.indexing.io.writing import append, reserve_array, write_whole
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.places import ROOT
from tests.support.processes import start, wait
from tests.support.runs.command_line import keystone
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

LIMITED = """
__import__("sys").dont_write_bytecode = True  # Python would keep modules of which only a part fits
def limit(size, resource=__import__("resource")):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))
"""
IN_STAGE = """
from keystone.indexing.builds import index as build
from keystone.indexing.vectors import recall
def limited(folder, name, make, stage=build.stage, limit=limit):
    limit({size} if name == {name!r} else None)
    return stage(folder, name, make)
build.stage = recall.stage = limited
"""
IN_VECTORS = """
from keystone.indexing.vectors import shards
def limited(*arguments, embed_store=shards.embed_store, limit=limit):
    limit({size})
    return embed_store(*arguments)
shards.embed_store = limited
"""
READ_ONLY = """
import ctypes
ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
"""
"""Takes the right to ignore file modes from root."""

FULL = "File too large"


def command(code: str, *arguments: str | Path) -> tuple[int | None, str]:
    """Run this code and then a command; returns the command's exit code and standard error."""
    with TemporaryDirectory() as folder:
        err = Path(folder, "err")
        start(*arguments, err=str(err), code=code)
        return wait(LIMIT_S), err.read_text()


def one_message(shown: tuple[int | None, str], name: Path, reason: str = FULL) -> None:
    code, said = shown
    assert (code, said.count("\n")) == (1, 1), said
    assert said.startswith(f"error: {name}"), said
    assert ": cannot be written: " in said, said
    assert reason in said, said
    assert ".partial" not in said, said


@pytest.mark.parametrize(
    ("code", "name"),
    [
        pytest.param(IN_STAGE.format(name="store", size=300), "", id="documents"),
        pytest.param(IN_STAGE.format(name="lucene", size=300), "lucene", id="Lucene"),
        pytest.param(IN_VECTORS.format(size=1_000), "vectors/00000000.npy", id="vectors"),
        pytest.param(IN_STAGE.format(name="dense.faiss", size=1_000), "dense.faiss", id="FAISS"),
    ],
)
def test_a_full_disk_ends_indexing_with_one_message_and_the_next_try_continues(
    tmp_path: Path, index: Index, code: str, name: str
) -> None:
    corpus, out = write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index"
    arguments = ["index", str(corpus), "--out", str(out), "-q"]
    one_message(command(LIMITED + code, *arguments), out / name)
    assert not out.exists()
    assert command("", *arguments)[0] == 0
    assert (out / "dense.faiss").read_bytes() == index.dense.read_bytes()


def test_a_full_disk_ends_a_run_with_one_message_and_the_next_try_continues(tmp_path: Path, index: Index) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    config = tmp_path / "run.yaml"
    config.write_text(f"run_id: small\nindex: {index.folder}\ntopics: {topics}\nout: {tmp_path / 'out'}\n")
    for size in (300, 1_000, 2_000):
        one_message(command(f"{LIMITED}\nlimit({size})", "run", config, "-q"), tmp_path / "out/small")
    assert command("", "run", config, "-q")[0] == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "out/small").iterdir()}
    shutil.rmtree(tmp_path / "out/small")
    assert command("", "run", config, "-q")[0] == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out/small").iterdir()} == whole


def test_a_full_disk_ends_answering_with_one_message_and_the_next_try_continues(tmp_path: Path, index: Index) -> None:
    topics, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "answers.jsonl"
    arguments: list[str | Path] = ["answer", "--topics", topics, "--index", index.folder, "--out", out, "-q"]
    assert command("", *arguments) == (0, "")
    whole = sorted(out.read_bytes().splitlines())
    cut = len(whole[0]) + 100
    out.unlink()
    one_message(command(f"{LIMITED}\nlimit({cut})", *arguments), out)
    assert command("", *arguments) == (0, "")
    assert sorted(out.read_bytes().splitlines()) == whole
    shown = keystone("answer", "--topics", topics, "--index", index.folder, "-q", "--out", "/dev/full")
    assert (shown.returncode, shown.stderr.count("\n")) == (1, 1), shown.stderr


def test_output_to_a_full_disk_ends_a_command_with_one_message(tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as err:
        start("doctor", out="/dev/full", err=err.name)
        assert wait(LIMIT_S) == 1
    said = (tmp_path / "err").read_text()
    assert "standard output" in said
    assert "No space left on device" in said
    assert said.count("\n") == 1


def within(size: int, work: Callable[[], object]) -> None:
    """Do work while no file can grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        work()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["fused.trec", "fused.trec.gz", "fused.trec.zst"])
def test_a_file_that_does_not_fit_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"before")

    def write() -> None:
        with write_whole(tmp_path / name) as out:
            out.write(np.random.default_rng(7).bytes(100_000))

    with pytest.raises(NotWritten, match=f"{name}: cannot be written: {FULL}"):
        within(10_000, write)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"before")]


def test_bytes_are_appended_whole_or_with_an_error(tmp_path: Path) -> None:
    with (tmp_path / "file").open("ab", buffering=0) as file:
        append(file, b"x" * 5_000)
        with pytest.raises(OSError, match=FULL):
            within(7_000, lambda: append(file, b"x" * 5_000))
    assert (tmp_path / "file").stat().st_size == 7_000


def test_the_disk_space_of_an_array_is_reserved_before_its_use(tmp_path: Path) -> None:
    array = reserve_array(tmp_path / "array.npy", np.int64, (100_000, 2))
    found = (tmp_path / "array.npy").stat()
    assert found.st_blocks * 512 >= array.nbytes
    array[:] = 7
    array.flush()
    assert np.array_equal(np.load(tmp_path / "array.npy"), array)
    with pytest.raises(NotWritten, match=rf"more.npy: cannot be written: {FULL}; it takes 1.6 MB"):
        within(10_000, lambda: reserve_array(tmp_path / "more.npy", np.int64, (100_000, 2)))


def test_space_is_reserved_also_on_a_system_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    test_the_disk_space_of_an_array_is_reserved_before_its_use(tmp_path)


def test_in_a_read_only_folder_a_finished_run_is_kept_and_an_unfinished_run_is_one_error(
    tmp_path: Path, index: Index
) -> None:
    shutil.copytree(index.folder, tmp_path / "index")
    topics, config, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "run.yaml", tmp_path / "out"
    config.write_text(f"run_id: small\nindex: {tmp_path / 'index'}\ntopics: {topics}\nout: {out}\n")
    assert command("", "run", config, "-q")[0] == 0
    before = {path.name: path.read_bytes() for path in (out / "small").iterdir()}
    folders = [out / "small", out, tmp_path / "index"]
    try:
        for folder in folders:
            folder.chmod(0o555)
        code, said = command(READ_ONLY, "run", config)
        assert (code, said.count("kept"), said.count("made")) == (0, 1, 0), said
        stages = "config, queries, search, hybrid, narrative, segments, gather, answer, submission"
        assert f"small: kept {stages}\n" in said
        assert {path.name: path.read_bytes() for path in (out / "small").iterdir()} == before
        (out / "small").chmod(0o755)
        (out / "small" / "answers.jsonl").unlink()
        (out / "small").chmod(0o555)
        one_message(command(READ_ONLY, "run", config, "-q"), out / "small/manifest.json", "Permission denied")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert command("", "run", config, "-q")[0] == 0
    assert {path.name: path.read_bytes() for path in (out / "small").iterdir()} == before


def test_a_full_file_system_is_one_message_at_every_size(tmp_path: Path) -> None:
    """The disk is a file system in memory of some kilobytes, visible to this test alone. Not every kernel allows it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
    isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    granted = programs.run([*isolated, "64k", str(disk), "true"], capture_output=True)
    if granted.returncode:
        pytest.skip(f"no file system of its own: {granted.stderr.decode().strip()}")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"id": "{"d" * 500}{n}", "text": "x"}}\n' for n in range(400)))
    indexing = [sys.executable, "-m", "keystone.runs.cli.main", "index", str(corpus), "--no-dense", "--out"]
    for size in ("300k", "700k", "900k", "1000k"):
        shown = programs.run(
            [*isolated, size, disk, *indexing, disk / "index", "-q"], capture_output=True, text=True, cwd=ROOT
        )
        one_message((shown.returncode, shown.stderr), disk / "index", "No space left on device")


def test_a_full_disk_for_temporary_files_is_no_damage_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("c.jsonl", "x" * 10)

    def open_full(path: Path, mode: str = "r", *arguments: Any, open_path: Any = Path.open) -> Any:
        return open_path(Path("/dev/full") if mode == "wb" else path, mode, *arguments)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(NotWritten, match=r"c\.jsonl: cannot be written: No space left on device"):
        list(unpack(tmp_path / "c.zip", lambda error: pytest.fail(str(error))))
