"""`keystone index --update CORPUS --watch`: an update after each burst of changes, until Ctrl-C."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from tests.support.programs import Argument, started
from tests.support.runs.command_line import keystone
from tests.support.waiting import LIMIT_S, wait_until, within

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Watch:
    """A command that watches a corpus, and what it has said."""

    process: "subprocess.Popen[Any]"
    folder: Path

    def read_line(self) -> str:
        """Wait for the next line about an update, and return it without the name of the index."""
        line: bytes = within(self.process.stdout.readline, "an update")  # type: ignore[union-attr]
        return line.decode().removeprefix(f"{self.folder / 'index'}: ").strip()

    @property
    def said(self) -> str:
        return (self.folder / "errors.txt").read_text()

    def list_documents(self) -> dict[str, str]:
        store = open_store(open_index(self.folder / "index"))
        return {document.id: document.text for document in store.get(range(len(store)))}


@contextmanager
def watching(folder: Path) -> Iterator[Watch]:
    """Index a corpus without embeddings, and watch it."""
    corpus = next(path for path in (folder / "notes", folder / "notes.jsonl") if path.exists())
    build_index(corpus, folder / "index", BuildSettings(embedding=None))
    command: list[Argument] = [sys.executable, "-m", "keystone.runs.cli.main", "index", "--update", corpus, "--watch"]
    with (
        (folder / "errors.txt").open("wb") as errors,
        started([*command, "--out", folder / "index"], stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        watch = Watch(process, folder)
        assert watch.read_line().endswith("0 added, 0 replaced, 0 removed")
        yield watch


def write_notes(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


def write_lines(path: Path, **texts: str) -> None:
    path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))


def test_each_burst_of_changes_of_a_folder_is_one_update_and_ctrl_c_ends_with_0(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    write_notes(notes, bees="Bees live in colonies.", wasps="Wasps hunt.", ants="Ants build hills.")
    with watching(tmp_path) as watch:
        write_notes(notes / "deep", moths="Moths fly at night.")
        for number in range(20):
            write_notes(notes, bees=f"Bees live in colonies. {number}", **{f"new{number}": f"Insect {number}."})
        (notes / "wasps.txt").unlink()
        assert watch.read_line() == "23 documents: 21 added, 1 replaced, 1 removed"
        assert "wasps" not in str(watch.list_documents())
        shutil.rmtree(notes / "deep")
        assert watch.read_line() == "22 documents: 0 added, 0 replaced, 1 removed"
        (notes / "new0.txt").rename(notes / "newer.txt")
        assert watch.read_line() == "22 documents: 1 added, 0 replaced, 1 removed"
        notes.rename(tmp_path / "elsewhere")
        wait_until(lambda: f"error: {notes}: " in watch.said, "the command to miss the folder")
        assert len(watch.list_documents()) == 22
        write_notes(notes, bees="Bees are back.")
        assert watch.read_line() == "1 document: 0 added, 1 replaced, 21 removed"
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(LIMIT_S) == 0
        assert watch.process.stdout.read() == b""  # type: ignore[union-attr]
        assert "Traceback" not in watch.said
        assert "interrupted" not in watch.said


def test_a_bad_file_in_between_is_reported_removes_nothing_and_the_watch_goes_on(tmp_path: Path) -> None:
    corpus = tmp_path / "notes.jsonl"
    write_lines(corpus, a="Ants.", b="Bees.", c="Cicadas.")
    with watching(tmp_path) as watch:
        corpus.write_text('{"id": "a", "text": "Ants."}\n{"id": "b", "text": "Many be')
        assert watch.read_line() == "3 documents: 0 added, 0 replaced, 0 removed"
        assert f"left out: {corpus}:2: not JSON" in watch.said
        corpus.write_bytes(b"")
        wait_until(lambda: "the index stays as it is" in watch.said, "the command to refuse an empty file")
        assert watch.list_documents() == {"a": "Ants.", "b": "Bees.", "c": "Cicadas."}
        write_lines(tmp_path / "beside.jsonl", a="Ants.", c="Cicadas of summer.")
        (tmp_path / "beside.jsonl").replace(corpus)  # as editors write
        assert watch.read_line() == "2 documents: 0 added, 1 replaced, 1 removed"
        write_lines(corpus, a="Ants.", c="Cicadas of summer.", d="Dragonflies.")
        assert watch.read_line() == "3 documents: 1 added, 0 replaced, 0 removed"


def test_documents_of_other_corpora_stay_and_each_update_is_an_object_if_asked_for(tmp_path: Path) -> None:
    write_lines(tmp_path / "notes.jsonl", a="Ants.", b="Bees.")
    with watching(tmp_path) as first:
        write_lines(tmp_path / "notes.jsonl", a="Ants.")
        assert first.read_line() == "1 document: 0 added, 0 replaced, 1 removed"
    write_notes(tmp_path / "more", x="Moths.", y="Flies.")
    write_lines(
        tmp_path / "gone",
    )
    (tmp_path / "gone").write_text("a\n")
    options: list[Argument] = ["--update", tmp_path / "more", "--delete", tmp_path / "gone", "--watch", "--json"]
    command: list[Argument] = [
        sys.executable,
        "-m",
        "keystone.runs.cli.main",
        "index",
        *options,
        "--out",
        tmp_path / "index",
    ]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:

        def read() -> dict[str, Any]:
            result = json.loads(within(process.stdout.readline, "an update"))["result"]  # type: ignore[union-attr]
            return {name: result[name] for name in ("documents", "added", "replaced", "removed")}

        assert read() == {"documents": 2, "added": 2, "replaced": 0, "removed": 1}
        (tmp_path / "more" / "x.txt").unlink()
        assert read() == {"documents": 1, "added": 0, "replaced": 0, "removed": 1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(["--watch", "--delete", "gone"], "expected with --update CORPUS", id="without a corpus"),
        pytest.param(["--watch", "--update", "none"], "--watch: found none, expected a file or a folder", id="no file"),
        pytest.param(
            ["--watch", "--update", "ir_datasets:x"], "--watch: found ir_datasets:x, expected a file", id="a collection"
        ),
    ],
)
def test_what_cannot_be_watched_is_told(tmp_path: Path, options: list[str], told: str) -> None:
    found = keystone("index", *options, "--out", "index", cwd=tmp_path)
    assert found.returncode
    assert told in " ".join(found.stderr.replace("│", " ").split())
