"""The REST interface over the small corpus: replies, errors, log, and documents in the forms of Pyserini's servers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import keystone
from keystone.indexing.index import Index
from keystone.runs.config.read import make_config
from keystone.runs.serving.app import make_app, open_fronts
from keystone.runs.serving.call_log import Call, Front, open_call_log
from keystone.runs.serving.rest.calls import cut_payload, find_text, parse_object, parse_payload
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.service import Service, open_service
from tests.support.servers.asgi import Answered, ask_app

QUESTION = "How do honey bees find flowers?"
ASKED = "query=How%20do%20honey%20bees%20find%20flowers%3F"


@pytest.fixture(scope="module")
def service(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "calls.jsonl"
    with (
        open_call_log(log, index.key, "settings") as calls,
        open_service(make_config(None, [], None, Path("-"), index.folder), calls) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def app(service: Service) -> Any:
    return make_app(Served(service), Guard())


def ask(app: Any, target: str, method: str = "GET", body: Any = None) -> Answered:
    return asyncio.run(ask_app(app, target, method, None if body is None else orjson.dumps(body)))


async def repeat(front: Front, call: Call) -> bytes:
    return (await front.perform(call)).body


@pytest.mark.slow
def test_a_search_has_the_reply_of_pyserini_2(app: Any, index: Index) -> None:
    query = keystone.Query("q", "q", QUESTION, QUESTION, QUESTION)
    wanted = keystone.search(index, [query])["bm25"].list_hits()["q"][:2]
    found = ask(app, f"/v1/index/search?{ASKED}&hits=2")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert list(found.json) == ["api", "index", "query", "candidates"]
    assert found.json["query"] == {"text": QUESTION}
    assert [(one["docid"], one["score"], one["rank"]) for one in found.json["candidates"]] == [
        (doc_id, pytest.approx(score, abs=1e-6), rank) for rank, (doc_id, score) in enumerate(wanted, 1)
    ]
    first = found.json["candidates"][0]
    assert list(first) == ["docid", "score", "rank", "doc"]
    assert first["doc"]["title"] == "Bees"
    assert first["doc"]["contents"].startswith("Honey bees live")
    raw = ask(app, f"/v1/index/search?{ASKED}&hits=1&parse=false").json["candidates"][0]["doc"]
    assert orjson.loads(raw) == {"id": "bees", **first["doc"]}
    cut = ask(app, f"/v1/index/search?{ASKED}&hits=1&max_doc_length=5").json["candidates"][0]["doc"]
    assert cut == {"title": "Bees", "contents": "Honey"}


def test_a_search_has_the_reply_of_pyserini_1(app: Any) -> None:
    found = ask(app, "/v1/indexes/index/search", "POST", {"query": QUESTION, "hits": 1, "qid": "7"})
    score = ask(app, f"/v1/index/search?{ASKED}&hits=1").json["candidates"][0]["score"]
    assert list(found.json) == ["query", "candidates"]
    assert found.json["query"] == {
        "qid": "7", "query_txt": QUESTION, "query_img_path": None, "query_modality": "text", "fp16": False,
    }  # fmt: skip
    (first,) = found.json["candidates"]
    assert first.pop("document_txt").startswith("Honey bees live")
    assert first == {"docid": "bees", "score": score, "document_img_path": None, "encoded_img": None}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dense", "hybrid", "decomposed"])
def test_other_methods_rank_as_the_python_api_does(app: Any, index: Index, method: str) -> None:
    topic = keystone.Topic("1", QUESTION)
    queries = (
        keystone.decompose(index, [topic])
        if method == "decomposed"
        else [keystone.Query("1", "1", QUESTION, QUESTION, QUESTION)]
    )
    runs = keystone.search(index, queries)
    run = runs["dense"] if method == "dense" else keystone.fuse(runs, queries)
    wanted = [doc_id for doc_id, _ in run.list_hits()["1"]][:5]
    found = ask(app, f"/v1/index/search?{ASKED}&hits=5&method={method}").json["candidates"]
    assert [one["docid"] for one in found] == wanted


@pytest.mark.slow
def test_requests_that_arrive_together_share_a_batch_and_change_no_reply(app: Any, service: Service) -> None:
    texts = ["honey", "insects", "volcano", "ice", "sugar in the kitchen"]
    targets = [f"/v1/index/search?query={text.replace(' ', '+')}&hits=3" for text in texts]

    async def ask_together() -> list[Answered]:
        return await asyncio.gather(*(ask_app(app, target) for target in targets))

    alone = [ask(app, target).body for target in targets]
    before = service.bm25.batches.batches
    assert [one.body for one in asyncio.run(ask_together())] == alone
    assert service.bm25.batches.batches == before + 1


def test_documents_and_segments(app: Any) -> None:
    found = ask(app, "/v1/index/doc/bees").json
    assert list(found) == ["api", "index", "docid", "doc"]
    assert ask(app, "/v1/index/doc/bees?max_doc_length=3").json["doc"]["contents"] == "Hon"
    old = ask(app, "/v1/indexes/index/documents/bees").json
    assert old == {"id": "bees", **found["doc"]}
    assert ask(app, "/v1/index/doc/bees%23w0_0").json["doc"] == {"title": "Bees", "segment": found["doc"]["contents"]}
    old = ask(app, "/v1/indexes/index/documents/bees%23w0_0").json
    assert old == {"id": "bees#w0_0", "title": "Bees", "segment": found["doc"]["contents"]}
    segments = ask(app, "/v1/index/segments/bees").json["segments"]
    assert [(one["id"], one["docid"], one["title"]) for one in segments] == [("bees#w0_0", "bees", "Bees")]
    assert ask(app, "/v1/index/segment/bees%23w0_0").json["segment"] == segments[0]
    queries = ask(app, f"/v1/index/queries?{ASKED}").json["queries"]
    assert queries[0]["question"] == QUESTION


@pytest.mark.parametrize("doc_id", ["search", "queries", "doc", "bees", "a/b", "a%2Fb", "doc/b", "a/search"])
def test_any_id_is_that_of_a_document_of_pyserini_1(app: Any, doc_id: str) -> None:
    found = ask(app, f"/v1/indexes/index/documents/{doc_id}")
    assert found.status == (200 if doc_id == "bees" else 404)
    wanted = doc_id.replace("%2F", "/")
    assert doc_id == "bees" or found.json == {"detail": f"Document {wanted} not found in index index"}


def test_the_state_of_an_index_of_pyserini_1(app: Any, index: Index) -> None:
    assert ask(app, "/v1/indexes/?index_type=tf").json == ["index"]
    assert ask(app, "/v1/indexes/index/settings").json == {"efSearch": None, "encoder": None, "queryGenerator": None}
    status = ask(app, "/v1/indexes/index/status").json
    assert status["downloaded"] is True
    assert int(status["size_bytes"]) > (index.folder / "index.json").stat().st_size


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        pytest.param("/v1/index/search", 400, "Parameter 'query' is required", id="no query"),
        pytest.param("/v1/index/search?query=+", 400, "Parameter 'query' is required", id="a query of spaces"),
        pytest.param(
            "/v1/index/search?query=a&hits=x", 400, "Parameter 'hits' must be an integer", id="hits no number"
        ),
        pytest.param("/v1/index/search?query=a&hits=0", 400, "Parameter 'hits' must be positive", id="no hits"),
        pytest.param("/v1/index/search?query=a&hits=10001", 400, "'hits' must be at most 10000", id="too many hits"),
        pytest.param(f"/v1/index/search?query=a&hits={10**30}", 400, "at most 10000", id="hits beyond 64 bits"),
        pytest.param(f"/v1/index/doc/bees?max_doc_length={10**30}", 400, "at most", id="a cut beyond 64 bits"),
        pytest.param("/v1/index/search?query=a&parse=1", 400, "must be 'true' or 'false'", id="parse no truth"),
        pytest.param("/v1/index/search?query=a&k1=1", 400, "must be set together", id="k1 alone"),
        pytest.param("/v1/index/search?query=a&k1=x&b=0", 400, "'k1' must be a number", id="k1 no number"),
        pytest.param("/v1/index/search?query=a&k1=nan&b=0", 400, "non-negative", id="k1 not a number"),
        pytest.param("/v1/index/search?query=a&k1=1e39&b=0", 400, "at most 3.4e+38", id="k1 beyond 32 bits"),
        pytest.param("/v1/index/search?query=a&k1=1&b=2", 400, "between 0 and 1", id="b too large"),
        pytest.param("/v1/index/search?query=a&method=magic", 400, "bm25, dense, hybrid, decomposed", id="method"),
        pytest.param("/v1/index/search?query=%FF", 400, "percent-encoded UTF-8", id="no UTF-8"),
        pytest.param("/v1/index/search?query=a&parse=false&max_doc_length=3", 400, "requires parse=true", id="raw cut"),
        pytest.param("/v1/other/search?query=a", 400, "Unable to open index: other", id="another index"),
        pytest.param("/v1/index/doc/none", 404, "Document not found: none", id="no document"),
        pytest.param("/v1/index/doc/a/b", 404, "Document not found: a/b", id="an id with a slash"),
        pytest.param("/v1/index/doc/a%2Fb", 404, "Document not found: a/b", id="an id with an escaped slash"),
        pytest.param("/v1/index/doc/a/doc/b", 404, "Document not found: a/doc/b", id="an id with the name before ids"),
        pytest.param("/v1/index/doc/a/search", 404, "Document not found: a/search", id="an id that ends as a search"),
        pytest.param("/v1/indexes/index/doc/a/b", 404, "Document not found: a/b", id="a slash, below indexes"),
        pytest.param("/v1/index/segments/a/b", 404, "a/b", id="a slash in the id of segments"),
        pytest.param("/v1/index/segment/a/b#0", 404, "a/b", id="a slash in the id of a segment"),
        pytest.param("/v1/other/doc/a/b", 400, "Unable to open index: other", id="a slash, another index"),
        pytest.param("/v1/index/doc/bees%23x", 404, "Document not found: bees#x", id="no segment as a document"),
        pytest.param("/v1/index/doc/none%23w0_0", 404, "Document not found: none#w0_0", id="a segment of no document"),
        pytest.param(
            "/v1/indexes/other/doc/bees", 400, "Unable to open index: other", id="another index below indexes"
        ),
        pytest.param(
            "/v1/mall0/index/doc/bees", 400, "Unable to open index: mall0/index", id="half a name of a folder"
        ),
        pytest.param("/api/v1.0/indexes/index/search", 400, "Parameter 'query' is required", id="no query, first"),
        pytest.param(
            "/api/v1.0/indexes/other/search?query=a", 400, "Unable to open index: other", id="no index, first"
        ),
        pytest.param("/api/v1.0/indexes/index", 404, "Expected route", id="no route, first"),
        pytest.param("/api%2Fv1.0/indexes/index/search?query=a", 404, "Expected route", id="an encoded slash, first"),
        pytest.param("/api/v2/indexes/index/search?query=a", 404, "Not Found", id="another version"),
        pytest.param("/v1/index/segments/none", 404, "found no document 'none'", id="no document of segments"),
        pytest.param("/v1/index/segment/bees%23x", 404, "found no segment 'bees#x'", id="no segment"),
        pytest.param("/v1/index/nothing", 404, "Expected route", id="no route"),
        pytest.param("/v1%2Fsearch", 404, "Expected route", id="an encoded slash"),
        pytest.param("/nothing", 404, "Not Found", id="no front"),
    ],
)
def test_errors_of_pyserini_2(app: Any, target: str, status: int, words: str) -> None:
    found = ask(app, target)
    assert (found.status, list(found.json)) == (status, ["error"])
    assert words in found.json["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param([], 422, id="a list"),
        pytest.param({"hits": 1}, 422, id="no query"),
        pytest.param({"query": "a", "hits": 0}, 422, id="no hits"),
        pytest.param({"query": "a", "hits": True}, 422, id="hits no number"),
        pytest.param({"query": "a", "hits": 10_001}, 422, id="too many hits"),
        pytest.param({"query": "a", "hits": "9" * 5000}, 422, id="hits of 5,000 digits"),
        pytest.param({"query": "a", "query_generator": "dismax"}, 422, id="another generator"),
        pytest.param({"query": " "}, 404, id="a query of spaces"),
    ],
)
def test_errors_of_pyserini_1(app: Any, body: Any, status: int) -> None:
    found = ask(app, "/v1/indexes/index/search", "POST", body)
    assert (found.status, list(found.json)) == (status, ["detail"])
    assert ask(app, "/v1/indexes/other/search", "POST", body).status == 404


@pytest.mark.parametrize(
    ("target", "method", "words"),
    [
        ("/v1/indexes/other/search", "POST", "Index other not currently supported in prebuilt indexes."),
        ("/v1/indexes/other/documents/bees", "GET", "Index other not currently supported in prebuilt indexes."),
        ("/v1/indexes/other/settings", "GET", "Index other not available"),
    ],
)
def test_another_index_has_the_error_of_pyserini_1(app: Any, target: str, method: str, words: str) -> None:
    found = ask(app, target, method, {"query": "a"} if method == "POST" else None)
    assert (found.status, found.json) == (404, {"detail": words})


def test_another_index_has_the_error_of_pyserini_2(app: Any) -> None:
    wanted = {"error": "Unable to open index: a/other"}
    for path in ("search?query=a", "doc/bees"):
        found = ask(app, f"/v1/a/other/{path}")
        assert (found.status, found.json) == (400, wanted)


def test_the_description_is_there_as_json_and_for_people(app: Any) -> None:
    described = ask(app, "/openapi.json")
    assert described.json == yaml.safe_load(ask(app, "/openapi.yaml").body)
    page = ask(app, "/docs")
    text = page.body.decode()
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for path in described.json["paths"]:
        assert f"GET /v1{path}<" in text
    assert "<td>hits</td><td>integer, minimum 1, maximum 10000, default 10</td>" in text
    assert "<td>query</td><td>string, required</td>" in text
    assert "http:" not in text
    assert "https:" not in text


def test_other_methods_of_http_are_refused(app: Any) -> None:
    assert ask(app, f"/v1/index/search?{ASKED}", "POST", {}).json == {"error": "Only GET is supported"}
    first = ask(app, f"/api/v1.0/indexes/index/search?{ASKED}", "POST", {})
    assert (first.status, first.json) == (405, {"error": "Only GET is supported"})
    assert ask(app, "/v1/indexes/index/settings", "POST", {"efSearch": "5"}).status == 422


def test_parameters_of_bm25_change_the_scores(app: Any) -> None:
    default = ask(app, f"/v1/index/search?{ASKED}")
    assert ask(app, f"/v1/index/search?{ASKED}&k1=0.9&b=0.4").body == default.body
    other = ask(app, f"/v1/index/search?{ASKED}&k1=1.2&b=0.75")
    assert other.json["candidates"][0]["score"] != default.json["candidates"][0]["score"]


@pytest.mark.slow
def test_the_log_repeats_every_call_byte_for_byte(app: Any, service: Service, tmp_path: Path, index: Index) -> None:
    targets = [
        f"/v1/index/search?{ASKED}&hits=2&run_id=agent-1&step=0",
        "/v1/index/doc/bees?run_id=agent-1",
        "/v1/index/doc/none",
        f"/v1/index/search?{ASKED}&method=decomposed",
        "/v1/index/segments/bees",
        "/v1/index/doc/bees%23w0_0?run_id=agent-1",
        f"/api/v1.0/indexes/index/search?{ASKED}&hits=1&qid=7",
    ]
    path = tmp_path / "calls.jsonl"
    fronts = open_fronts(service)
    with open_call_log(path, index.key, "s") as calls:
        object.__setattr__(service, "log", calls)  # the fixture's log goes on to the next test
        replies = [ask(app, target) for target in targets]
        asyncio.run(ask_app(app, "/v1/index/search"))  # no call: nothing to repeat
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    operations = ["search", "document", "document", "search", "segments", "document", "api.search"]
    assert [line["operation"] for line in lines] == operations
    assert [line["session"] for line in lines] == ["agent-1", "agent-1", "", "", "", "agent-1", "7"]
    assert [line["status"] for line in lines] == [200, 200, 404, 200, 200, 200, 200]
    assert (lines[0]["surfaced"], lines[1]["read"], lines[2]["read"]) == (["bees", "beekeeping"], ["bees"], [])
    assert (lines[5]["read"], lines[6]["surfaced"]) == (["bees#w0_0"], ["bees"])
    for line, reply in zip(lines, replies, strict=True):
        call = Call(line["front"], line["operation"], line["arguments"], line["session"])
        assert asyncio.run(repeat(fronts[line["front"]], call)) == reply.body
        assert line["index"] == index.key


@pytest.mark.parametrize(
    ("raw", "payload", "text"),
    [
        pytest.param('{"id": "1", "contents": "a"}', "a", "a", id="one value is the payload"),
        pytest.param('{"docid": "1", "title": "t", "text": "a"}', {"title": "t", "text": "a"}, "a", id="an object"),
        pytest.param('{"_id": "1", "n": 5, "x": null}', {"n": "5", "x": "None"}, "", id="values are strings"),
        pytest.param('{"id": "1", "l": [1], "segment": "s"}', {"l": [1], "segment": "s"}, "s", id="lists stay"),
        pytest.param("plain text", "plain text", "plain text", id="no JSON"),
        pytest.param("[1, 2]", [1, 2], "", id="no object"),
    ],
)
def test_parsed_documents_and_their_texts(raw: str, payload: Any, text: str) -> None:
    assert parse_payload(raw) == payload
    assert find_text(raw) == text


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        pytest.param('{"id": "1", "contents": "a"}', {"contents": "a"}, id="one value stays in its object"),
        pytest.param("plain text", {"contents": "plain text"}, id="no JSON"),
        pytest.param("[1, 2]", {"contents": "[1, 2]"}, id="no object"),
    ],
)
def test_documents_as_objects(raw: str, found: Any) -> None:
    assert parse_object(raw) == found


@pytest.mark.parametrize(
    ("payload", "cut"),
    [
        pytest.param("abcdef", "abc", id="a text"),
        pytest.param({"Text": "abcdef", "title": "abcdef"}, {"Text": "abc", "title": "abcdef"}, id="its text alone"),
        pytest.param([1, 2, 3, 4], [1, 2, 3, 4], id="no text"),
    ],
)
def test_cut_documents(payload: Any, cut: Any) -> None:
    assert cut_payload(payload, 3) == cut
    assert orjson.dumps(cut_payload(payload, 10)) == orjson.dumps(payload)


def test_a_cut_bounds_every_long_text_of_a_document() -> None:
    record = {"title": "Bees", "headings": "Dances\n" * 99, "segment": "Bees dance. " * 99, "Body": "b" * 99}
    assert cut_payload(record, 9) == {key: text[:9] for key, text in record.items()}
