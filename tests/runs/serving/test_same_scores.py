"""One search has the same scores by every interface: command line, REST, MCP, Python, and a run of one query."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from typer.testing import CliRunner

import keystone
from keystone.generation.queries.compose import make_narrative_query
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.runs.cli.main import app
from keystone.runs.config.read import make_config
from keystone.runs.serving.agents.server import perform
from keystone.runs.serving.app import make_app
from keystone.runs.serving.call_log import Call, open_call_log
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.service import Service, open_service
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import write_corpus
from tests.support.servers.asgi import ask_app

QUERY = "How do honey bees find flowers?"
FOUND = 3
Hits = list[tuple[str, float]]


@pytest.fixture(
    scope="module", params=[BuildSettings(threads=1), BuildSettings(embedding=None)], ids=["hybrid", "bm25"]
)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("scores")
    index, _ = build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", request.param)
    config = make_config(None, [], None, Path("-"), index.folder)
    with open_call_log(None, index.key, "settings") as calls, open_service(config, calls) as opened:
        yield opened


def search_by_command_line(index: Index) -> Hits:
    shown = CliRunner().invoke(app, ["search", str(index.folder), QUERY, "--json", "--top", str(FOUND)])
    return [(one["document"], one["score"]) for one in json.loads(shown.stdout)["passages"]]


def search_by_rest(service: Service) -> Hits:
    target = f"/v1/index/search?query={quote(QUERY)}&hits={FOUND}&method=hybrid"
    found = asyncio.run(ask_app(make_app(Served(service), Guard()), target)).json["candidates"]
    return [(one["docid"], one["score"]) for one in found]


def search_by_mcp(service: Service) -> Hits:
    reply = asyncio.run(perform(service, Call("mcp", "search", {"query": QUERY, "k": FOUND})))
    return [(one["document"], one["score"]) for one in orjson.loads(reply.body)["results"]]


def search_in_python(index: Index) -> Hits:
    queries = [make_narrative_query(keystone.Topic("1", QUERY))]
    return keystone.fuse(keystone.search(index, queries), queries).list_hits()["1"][:FOUND]


def search_in_a_run(index: Index, folder: Path) -> Hits:
    (topics := folder / "topics.jsonl").write_text(json.dumps({"id": "1", "title": QUERY}))
    named: dict[str, Any] = {"run_id": "r", "index": str(index.folder), "topics": str(topics), "out": str(folder)}
    directory = keystone.make_run(**named, track="none", queries={"method": "narrative"})
    return read_run(directory / "narrative.trec").list_hits()["1"][:FOUND]


def test_one_search_has_the_same_scores_by_every_interface(service: Service, tmp_path: Path) -> None:
    wanted = search_in_python(service.index)
    assert len(wanted) == FOUND
    found = {
        "command line": search_by_command_line(service.index),
        "REST": search_by_rest(service),
        "MCP": search_by_mcp(service),
        "a run": search_in_a_run(service.index, tmp_path),
    }
    for name, hits in found.items():
        assert [doc_id for doc_id, _ in hits] == [doc_id for doc_id, _ in wanted], name
        assert [score for _, score in hits] == pytest.approx([score for _, score in wanted], rel=1e-6), name
