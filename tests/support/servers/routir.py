"""RoutIR's own server as a process, and a server that speaks its protocol."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.places import ROOT, require
from tests.support.programs import started
from tests.support.servers.json_server import JsonHandler, serve_json
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

# An engine of RoutIR, which imports this file: the number of words of a query that a document holds.
ENGINE = """
import json
from routir.models.abstract import Engine

def rank(query, documents, most):
    words = query.lower().split()
    scores = {name: float(sum(word in text.lower() for word in words)) for name, text in documents.items()}
    best = sorted((name for name in scores if scores[name]), key=lambda name: (-scores[name], name))
    return {name: scores[name] for name in best[:most]}

class WordsEngine(Engine):
    async def search_batch(self, queries, limit=20, **kwargs):
        limits = limit if isinstance(limit, list) else [limit] * len(queries)
        with open(self.config["documents"]) as lines:
            documents = {one["id"]: one["text"] for one in map(json.loads, lines)}
        return [rank(query, documents, most) for query, most in zip(queries, limits)]
"""


def rank(query: str, documents: dict[str, Any], most: int) -> dict[str, float]:
    """Rank as the engine does."""
    words = query.lower().split()
    scores = {name: float(sum(word in one["text"].lower() for word in words)) for name, one in documents.items()}
    best = sorted((name for name in scores if scores[name]), key=lambda name: (-scores[name], name))
    return {name: scores[name] for name in best[:most]}


ENVIRONMENT = ROOT / ".venv-routir"


def needs_routir() -> None:
    """If RoutIR is not set up, skip the test; on CI, fail it."""
    require(ENVIRONMENT, "`make test-routir`, which needs PyPI")


@contextmanager
def routir_server(folder: Path, documents: Path) -> Iterator[str]:
    """The URL of the program `routir`: the collection `bees` and the engine `words`."""
    needs_routir()
    (folder / "engine.py").write_text(ENGINE)
    config = {
        "file_imports": [str(folder / "engine.py")],
        "services": [{"name": "words", "engine": "WordsEngine", "config": {"documents": str(documents)}}],
        "collections": [{"name": "bees", "doc_path": str(documents), "cache_path": str(folder / "offsets")}],
    }
    (folder / "config.json").write_text(json.dumps(config))
    port, log = free_port(), folder / "routir.log"
    command = [str(ENVIRONMENT / "bin/routir"), str(folder / "config.json"), "--port", str(port), "--host", "127.0.0.1"]

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return "Running on" in log.read_text()

    environment = {**os.environ, "ROUTIR_API_KEY": "sesame"}
    with log.open("wb") as out, started(command, cwd=folder, stdout=out, stderr=out, env=environment) as process:
        wait_until(is_ready, "RoutIR to listen")
        yield f"http://127.0.0.1:{port}"


class _Handler(JsonHandler):
    """RoutIR's `/pipeline` and `/content`; `state` has the documents by id. A fusion ranks as its engines do."""

    def do_POST(self) -> None:  # noqa: N802
        asked, documents = self.read_json(), self.state
        if self.headers.get("Authorization") != "Bearer sesame":
            self.reply({"error": "missing or invalid Authorization header"}, 401)
        elif asked.get("collection") not in ("bees", "ragtime"):
            self.reply({"error": f"Service {asked.get('collection')} is not registered"}, 400)
        elif self.path == "/content":
            found = documents.get(asked["id"])
            self.reply(found or {"error": f"ID {asked['id']} is not found."}, 200 if found else 400)
        elif found := re.fullmatch(r"(?:words|\{.*\}RRF)%?(\d*)", asked["pipeline"]):
            scores = rank(asked["query"], documents, int(found[1] or 20))
            self.reply({"query": asked["query"], "scores": scores, "cached": False, "timestamp": 1.0})
        else:
            self.reply({"error": "invalid pipeline"}, 400)


@contextmanager
def scripted_routir(_folder: Path, documents: Path) -> Iterator[str]:
    """The URL of a server that speaks RoutIR's protocol over the same collection and engine."""
    records = {one["id"]: one for one in map(json.loads, documents.read_text().splitlines())}
    contents = {name: {key: one[key] for key in ("text", "title") if key in one} for name, one in records.items()}
    with serve_json(_Handler, contents) as url:
        yield url
