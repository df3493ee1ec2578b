"""Pyserini's REST servers as real processes, and a server that answers by script."""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from keystone.indexing.lucene.java import find_anserini_jar, find_java_home
from tests.support.indexes.lucene_indexes import find_older_jars
from tests.support.programs import started
from tests.support.servers.json_server import JsonHandler, serve_json
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

# Pyserini 1.6 serves prebuilt indexes alone, loads a default one, and imports encoders and a key of OpenAI.
PYSERINI = """
import sys
from pathlib import Path
from unittest.mock import MagicMock
for name in ("encode", "encode.optional", "encode.optional._uniir"):
    sys.modules["pyserini." + name] = MagicMock()
from pyserini.prebuilt_index_info import TF_INDEX_INFO
from pyserini.search.lucene import LuceneSearcher
folder = Path(sys.argv[1])
def local(cls, name, *_, **__):
    return LuceneSearcher(str(folder / name)) if (folder / name).is_dir() else None
LuceneSearcher.from_prebuilt_index = classmethod(local)
TF_INDEX_INFO.update({path.name: {} for path in folder.iterdir()})
from pyserini.server.rest.app import app
import uvicorn
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]))
"""


@contextmanager
def anserini_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """The URL of the server in Anserini's jar, which has the interface of 2026; indexes are folders in `folder`.

    It is given their names and paths, since it asks another server for each name that it does not know.
    """
    port = port or free_port()
    names = {name: str(path) for path in folder.iterdir() if path.is_dir() for name in (path.name, str(path))}
    (folder / "indexes.yaml").write_text(json.dumps({"indexes": names}))
    command = [
        str(find_java_home() / "bin" / "java"),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        str(find_anserini_jar()),
        "io.anserini.api.RestServer",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--index-config", "indexes.yaml"]
    with _run_server(command, folder, port) as url:
        yield url


@contextmanager
def pyserini_server(folder: Path) -> Iterator[str]:
    """The URL of Pyserini's own server, which has the older interface; its prebuilt indexes are those in `folder`.

    It runs Lucene 9, and so reads no index of Lucene 10.
    """
    port = free_port()
    command = [sys.executable, "-c", PYSERINI, str(folder), str(port)]
    with _run_server(command, folder, port, ANSERINI_CLASSPATH=str(find_older_jars())) as url:
        yield url


@contextmanager
def _run_server(command: list[str], folder: Path, port: int, **variables: str) -> Iterator[str]:
    environment = {**os.environ, "OPENAI_API_KEY": "none", "JAVA_HOME": str(find_java_home()), **variables}
    log = folder / f"server-{port}.log"

    def listens() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    with log.open("wb") as out, started(command, cwd=folder, stdout=out, stderr=out, env=environment) as process:
        wait_until(listens, f"the server to listen at port {port}")
        yield f"http://127.0.0.1:{port}"


Fault = Callable[["Handler"], bool]
"""Answers a request itself and returns True, or returns False so that the server answers."""


@dataclass
class Scripted:
    """The settings and records of the server. Each request takes one of the `faults`; later answers are right."""

    payloads: dict[str, Any]
    """The content of each document in replies to searches. All are found, in this order, from score 1 downwards."""
    documents: dict[str, Any] = field(default_factory=dict)
    """The content of a document that is requested by id."""
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    requests: list[str] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""
    lock: Any = field(default_factory=Lock)


class Handler(JsonHandler):
    state: Scripted

    def do_GET(self) -> None:  # noqa: N802
        state = self.state
        with state.lock:
            state.requests.append(self.path)
            state.keys.add(self.headers.get("Authorization"))
            fault = state.faults.pop(0) if state.faults else state.always
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
        try:
            if not (fault and fault(self)):
                self.reply(self.found())
        finally:
            with state.lock:
                state.at_once -= 1

    def do_POST(self) -> None:  # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply({"error": "Only GET is supported"}, 405)

    def hits(self) -> int:
        """The number of hits that a search asks for."""
        return int(self.path.split("hits=")[1].split("&")[0])

    def found(self) -> Any:
        if "/doc/" in self.path:
            doc_id = self.path.split("/doc/")[1].split("?")[0]
            return {"docid": doc_id, "doc": self.state.documents.get(doc_id)}
        hits = list(self.state.payloads.items())[: self.hits()]
        return {"candidates": [{"docid": d, "score": 1 - n / 64, "doc": p} for n, (d, p) in enumerate(hits)]}


@contextmanager
def scripted_server(**settings: Any) -> Iterator[Scripted]:
    state = Scripted(**settings)
    with serve_json(Handler, state) as state.url:
        yield state
