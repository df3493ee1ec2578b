"""Checkpoints of the hub: fetched once from a stand-in, found again without network, refused if they are not there."""

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest

from keystone.indexing.index import open_index
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus
from tests.support.models.checkpoints import write_checkpoint
from tests.support.places import ROOT
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """Serves one repository, `someone/encoder`, in the hub's protocol."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, *_: Any) -> None: ...

    def _answer(self, whole: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        files = [own for own in self.folder.rglob("*") if own.is_file()]
        if path.startswith("/api/models/someone/encoder/tree/"):
            listed = [
                {
                    "type": "file",
                    "path": own.relative_to(self.folder).as_posix(),
                    "size": own.stat().st_size,
                    "oid": str(own.stat().st_size),
                }
                for own in files
            ]
            self._send(200, orjson.dumps(listed), whole)
        elif path.startswith("/api/models/someone/encoder"):
            names = [{"rfilename": own.relative_to(self.folder).as_posix()} for own in files]
            self._send(200, orjson.dumps({"id": "someone/encoder", "sha": COMMIT, "siblings": names}), whole)
        elif path.startswith("/someone/encoder/resolve/"):
            own = self.folder / path.split("/", 5)[5]
            self._send(200, own.read_bytes(), whole) if own.is_file() else self._send(404, b"", whole)
        else:
            self._send(404, b"{}", whole)

    def _send(self, status: int, body: bytes, whole: bool) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            "ETag": f'"{len(body)}"',
            "X-Repo-Commit": COMMIT,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if whole:
            self.wfile.write(body)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    Hub.folder, Hub.asked = write_checkpoint(tmp_path / "encoder", pooling="cls", prompts={"query": "q: "}), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(LIMIT_S)


def build(tmp_path: Path, name: str, out: str, **variables: str) -> Any:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command: list[str | Path] = [
        ROOT / ".venv/bin/keystone",
        "index",
        corpus,
        "--out",
        tmp_path / out,
        "--embedding",
        name,
        "-q",
    ]
    own = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment = {**own, "HF_HOME": str(tmp_path / "hub"), **variables}
    return programs.run(command, env=environment, capture_output=True, text=True)


def test_a_checkpoint_is_fetched_once_and_then_found_without_network(hub: str, tmp_path: Path) -> None:
    shown = build(tmp_path, "someone/encoder", "one", HF_ENDPOINT=hub)
    assert shown.returncode == 0, shown.stderr
    made = open_index(tmp_path / "one").embedding
    assert made is not None
    assert (made.model, made.query_prefix) == ("someone/encoder", "q: ")
    asked = len(Hub.asked)
    shown = build(tmp_path, "someone/encoder", "two", HF_ENDPOINT=hub, HF_HUB_OFFLINE="1")
    assert (shown.returncode, len(Hub.asked)) == (0, asked), shown.stderr
    assert open_index(tmp_path / "two").key == open_index(tmp_path / "one").key


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_checkpoint_that_cannot_be_had_is_an_error_with_the_remedy(hub: str, offline: str, tmp_path: Path) -> None:
    shown = build(tmp_path, "someone/other", "index", HF_ENDPOINT=hub, HF_HUB_OFFLINE=offline)
    assert shown.returncode == 1
    assert "model 'someone/other': could not be fetched from the hub:" in shown.stderr
    assert "put the checkpoint into a folder on this machine" in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.stderr
    assert not (tmp_path / "index").exists()
