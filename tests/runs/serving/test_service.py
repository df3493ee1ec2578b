"""The operations that every front serves: answers with their steps, and an index without embeddings."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import keystone
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.types import Sentence
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import document_id
from keystone.runs.config.read import make_config
from keystone.runs.pipeline.stages.queries import STAGE, get_queries
from keystone.runs.serving import service as operations
from keystone.runs.serving.call_log import Call, CallLog
from keystone.runs.serving.service import Engine, open_service
from keystone.runs.serving.web.front import stream_events
from tests.support.indexes.small_corpus import NARRATIVES, write_corpus
from tests.support.waiting import LIMIT_S

NO_LOG = CallLog(None, "", "")


@pytest.mark.slow
def test_an_answer_is_that_of_the_python_api_and_its_watcher_is_told_each_step(index: Index) -> None:
    topic = keystone.Topic("1", NARRATIVES["1"])
    (wanted,) = keystone.answer(index, [topic])
    steps: list[tuple[str, Any]] = []
    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        watched = asyncio.run(operations.answer(service, topic.narrative, lambda *step: steps.append(step)))
        assert asyncio.run(operations.answer(service, topic.narrative)) == watched
        queries = asyncio.run(operations.decompose(service, topic.narrative))
    assert str(watched) == str(wanted)
    names = [name for name, _ in steps]
    assert names == ["queries", "rankings", "chosen", *["sentence"] * len(watched.sentences), "run"]
    told = dict(steps)
    assert told["queries"] == queries == tuple(keystone.decompose(index, [topic]))
    rankings, fused = told["rankings"]
    assert list(rankings) == [query.id for query in queries]
    assert set(told["chosen"]) <= {doc_id for doc_id, _ in fused}
    assert [document_id(segment_id) for segment_id, _ in told["run"]] == [doc_id for doc_id, _ in fused]
    assert tuple(value for name, value in steps if name == "sentence") == watched.sentences


@pytest.mark.slow
def test_an_index_without_embeddings_serves_all_but_dense_search(tmp_path: Path) -> None:
    settings = BuildSettings(embedding=None, threads=1)
    index, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "plain", settings)
    config = make_config(None, [], None, Path("-"), index.folder)
    with open_service(config, NO_LOG) as service:
        for method in service.methods:
            if method != "dense":
                assert asyncio.run(operations.search(service, "honey bees", 1, method))[0][0] == "beekeeping"
        with pytest.raises(UserError, match=r"has no embeddings for dense search: .* built without --no-dense"):
            asyncio.run(operations.search(service, "honey bees", 1, "dense"))
        found = asyncio.run(operations.answer(service, "How do honey bees live?"))
        assert "Honey bees live in colonies" in found.sentences[0].text
        assert not asyncio.run(operations.doubt(service, "How do honey bees live?", found))
        assert asyncio.run(operations.doubt(service, "What is the GDP of Norway?", found))


def test_documents_are_cut_and_quoted_beside_the_event_loop(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def watch(name: str) -> None:
        own = getattr(operations, name)

        def work(*given: Any) -> Any:
            threads.add((name, threading.current_thread() is threading.main_thread()))
            return own(*given)

        monkeypatch.setattr(operations, name, work)

    watch("cut_segments")
    watch("find_quote")
    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        sentence = Sentence("Honey bees live in colonies.", ("bees", "volcano"))
        bees, _ = asyncio.run(operations.find_quotes(service, sentence))
    assert bees
    assert bees[1] == "Honey bees live in colonies of many thousand workers."
    assert threads == {("cut_segments", False), ("find_quote", False)}


@pytest.mark.parametrize(
    ("text", "k", "message"),
    [
        pytest.param(" ", 1, "query: found none, expected words", id="no words"),
        pytest.param("\ud800", 1, "expected UTF-8", id="half a pair"),
        pytest.param("a" * 65_537, 1, "query: found 65537 characters, expected at most 65536", id="no end"),
        pytest.param("bees", 0, "k: found 0, expected 1 to 10000", id="no hits"),
        pytest.param("bees", 10_001, "k: found 10001", id="too many hits"),
    ],
)
def test_impossible_searches_are_errors(index: Index, text: str, k: int, message: str) -> None:
    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        with pytest.raises(UserError, match=message):
            asyncio.run(operations.search(service, text, k))
        with pytest.raises(UserError, match="method: found 'magic', expected one of bm25, dense"):
            asyncio.run(operations.search(service, "bees", 1, "magic"))


@pytest.mark.slow
def test_a_document_that_is_a_segment_is_fetched_and_cited_by_its_id(tmp_path: Path) -> None:
    name, text = "msmarco_v2.1_doc_00_0#1_123", "Honey bees live together. Honey bees find flowers."
    (corpus := tmp_path / "corpus.jsonl").write_text(f'{{"id": "{name}", "title": "Bees", "text": "{text}"}}\n')
    index, _ = build_index(corpus, tmp_path / "index", BuildSettings(threads=1))
    events: list[Any] = []

    async def work() -> None:
        call = Call("web", "answer", {"narrative": "How do honey bees live together?"})
        events.extend([event async for event in stream_events(service, call)])
        segment = await operations.fetch_segment(service, name)
        assert (segment.id, segment.document, segment.text) == (name, name, text)

    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        asyncio.run(work())
    assert [event.event for event in events] == ["queries", "rankings", "chosen", "sentence", "done"]
    quote = {"start": 0, "end": len(text), "text": text}
    assert orjson.loads(events[3].data)["citations"] == [
        {"id": name, "document": name, "title": "Bees", "quote": quote}
    ]


@pytest.mark.slow
def test_a_long_narrative_has_few_queries_and_lets_others_search_between_them(index: Index) -> None:
    narrative = " ".join(f"How do bees of colony {number} live?" for number in range(400))
    done: list[str] = []

    async def search(service: operations.Service, text: str, method: str) -> None:
        assert await operations.search(service, text, 1, method)
        done.append(method)

    async def search_beside(service: operations.Service) -> None:
        queries = await operations.decompose(service, narrative)
        assert len(queries) == 1 + service.config.queries.questions
        assert " ".join(query.question for query in queries[1:]) == narrative
        long = asyncio.create_task(search(service, narrative, "decomposed"))
        async with asyncio.timeout(LIMIT_S):
            while not service.engine.searches.java.locked():
                await asyncio.sleep(0.001)
            await asyncio.gather(long, search(service, "honey bees", "hybrid"))

    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        asyncio.run(search_beside(service))
    assert done == ["hybrid", "decomposed"]


def test_a_search_finds_as_many_documents_as_are_asked_for(index: Index) -> None:
    async def search_together(engine: Engine) -> list[int]:
        query = make_narrative_query(keystone.Topic("1", NARRATIVES["1"]))
        jobs = [replace(engine.job, config=engine.job.config.deepen(depth)) for depth in (1, 4)]
        async with engine.searches.java:  # so that both wait for one batch
            waiting = [asyncio.create_task(engine.searches.search(job, [query])) for job in jobs]
            await asyncio.sleep(0)
        return [len((await one)["dense"].docs) for one in waiting]

    few = ["retrieval.depth=2", "fusion.depth=1", "answer.documents=1"]
    with open_service(make_config(None, few, None, Path("-"), index.folder), NO_LOG) as service:
        for method in service.methods:
            found = asyncio.run(operations.search(service, NARRATIVES["1"], 4, method))
            assert len(found) == 4, method
        assert asyncio.run(service.engine.run(search_together(service.engine))) == [2, 4]
        assert service.engine.hybrid.requests == 1


def test_a_request_ranks_no_more_candidates_than_the_configuration_allows(index: Index) -> None:
    systems = "retrieval.systems={bm25: {kind: bm25}, dense: {kind: dense, within: bm25}}"
    few = [systems, "retrieval.depth=2", "fusion.depth=1", "answer.documents=1"]
    with open_service(make_config(None, few, None, Path("-"), index.folder), NO_LOG) as service:
        found = [len(asyncio.run(operations.search(service, NARRATIVES["1"], 4, name))) for name in service.methods]
    assert dict(zip(service.methods, found, strict=True)) == {"bm25": 4, "dense": 2, "hybrid": 2, "decomposed": 2}


@pytest.mark.slow
def test_a_cancelled_search_leaves_the_others_of_its_batch(index: Index) -> None:
    async def work(engine: Engine) -> None:
        queries = await engine.perform(keystone.Topic("1", NARRATIVES["1"]), [STAGE], get_queries)
        searches = engine.searches
        async with searches.java:  # so that both wait for one batch
            first, second = (asyncio.create_task(searches.search(engine.job, queries)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
        async with asyncio.timeout(LIMIT_S):
            assert (await second)["bm25"].query_ids == tuple(query.id for query in queries)

    with open_service(make_config(None, [], None, Path("-"), index.folder), NO_LOG) as service:
        asyncio.run(service.engine.run(work(service.engine)))


@pytest.mark.slow
def test_a_stream_tells_each_step_of_a_research_agent(index: Index) -> None:
    config = make_config(None, ["reader.name=agent"], None, Path("-"), index.folder)
    call = Call("web", "answer", {"narrative": NARRATIVES["1"]})

    async def list_events() -> list[Any]:
        return [event async for event in stream_events(service, call)]

    with open_service(config, NO_LOG) as service:
        events = asyncio.run(list_events())
    steps = [orjson.loads(str(event.data)) for event in events if event.event == "research"]
    names = [event.event for event in events]
    assert names[: len(steps) + 3] == ["queries", "rankings", "chosen", *["research"] * len(steps)]
    assert steps[0]["action"].startswith("search ")
    assert steps[0]["result"].startswith("Search '")
    assert "\n" not in steps[0]["result"]
    assert sum(step["notes"] for step in steps) > 0
    assert steps[-1]["action"].startswith("end: ")
