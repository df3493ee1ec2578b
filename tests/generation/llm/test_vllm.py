"""The project's clients against a real vLLM on this machine's CPU: as a server, in batches, and in process."""

import asyncio
import json
import pydoc_data.topics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from keystone.generation.llm import endpoints
from keystone.generation.llm.cache import Cache
from keystone.generation.llm.chat import PaidReply, ReplyBound, read_reply, write_body
from keystone.generation.llm.model import make_request_key
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.replies import read_json
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.embedder import Vectors
from keystone.indexing.encoders.dense import open_encoder
from keystone.indexing.errors import Unusable, Waits
from keystone.indexing.index import Index
from keystone.indexing.types import MINILM, Embedding
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.endpoint import Endpoint
from keystone.runs.config.read import read_config
from keystone.runs.doctor.model_server import probe_model_server
from keystone.runs.pipeline.run import run as make
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, TRIAL_WARNINGS, write_topics
from tests.support.models.client import open_beside_cache
from tests.support.models.vllm_calls import (
    DOCUMENTS,
    QUERIES,
    TOO_LONG,
    UNKNOWN_KEYWORD,
    decomposition,
    mixed,
    pointwise,
    prose,
)
from tests.support.servers.vllm import CHAT_OPTIONS, STOP_TIMEOUT_S, TINY_MODEL, Server, run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PAGES = list(pydoc_data.topics.topics.values())


def cosines(a: Vectors, b: Vectors) -> Vectors:
    found: Vectors = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return found


@pytest.mark.nightly
def test_vllm_embeds_as_the_local_model_does(minilm: Server) -> None:
    texts = ["", *(text for _, text in CORPUS.values()), *(page[: 20 * i] for i, page in enumerate(PAGES[:25], 1))]
    served = load_embedder(Embedding("minilm", minilm.url))
    cut: list[int] = []
    found = served.embed(texts, cut=cut.append)
    assert not cut
    assert not found[0].any()  # servers refuse a blank text, so it is not sent
    assert cosines(found[1:], open_encoder(MINILM).embed(texts)[1:]).min() > 1 - 1e-3
    again = served.embed(texts[::-1])[::-1]
    assert again.tobytes() == found.tobytes()


@pytest.mark.nightly
def test_a_text_that_is_too_long_for_vllm_is_cut_with_a_note_and_harms_no_other(minilm: Server) -> None:
    server = Endpoint("minilm", minilm.url)
    assert server.window == 256
    long = {7: max(PAGES, key=len), 20: "1 2 3 4 5 6 7 8 9 " * 50}  # more characters than a window; more tokens only
    texts = [long.get(place, f"{place} bees and {PAGES[place][:300]}") for place in range(32)]
    cut, cut_here = set[int](), set[int]()
    found, local = server.embed(texts, cut=cut.add), open_encoder(MINILM).embed(texts, cut=cut_here.add)
    assert cut == cut_here == set(long)
    same = cosines(found, local)
    assert np.delete(same, list(long)).min() > 1 - 1e-3
    assert same.min() > 0.9


Outcomes = list[Reply | Failure]


def asked(settings: ModelSettings, requests: Sequence[Request]) -> tuple[Outcomes, dict[str, Usage]]:
    """Ask requests; returns their outcomes in order, and the usage."""

    async def ask_all() -> tuple[Outcomes, dict[str, Usage]]:
        async with open_beside_cache(settings) as model:
            found = {number: outcome async for number, outcome in model.complete(requests)}
            return [found[number] for number in range(len(requests))], dict(model.usage)

    return asyncio.run(ask_all())


def served(server: Server, cache: Path, **settings: Any) -> ModelSettings:
    return ModelSettings(name="tiny", urls=[server.url], cache=cache, **settings)


def refused(reasons: dict[int, str]) -> None:
    """Check that only the request that a server cannot take has failed, for the right reason."""
    assert [mixed()[number] for number in reasons] == [TOO_LONG]
    assert all("maximum context length is 32768 tokens" in reason for reason in reasons.values())


@pytest.fixture(scope="module")
def replies(chat: Server, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """The server's replies to a few requests of every kind."""
    outcomes, spent = asked(served(chat, tmp_path_factory.mktemp("vllm") / "replies.sqlite"), mixed())
    assert sum(usage.calls for usage in spent.values()) == len(outcomes)
    assert not any(usage.retries or usage.cache_hits for usage in spent.values())
    assert all(usage.prompt_tokens and usage.completion_tokens for usage in spent.values())
    return outcomes


def test_replies_follow_their_schema(replies: Outcomes) -> None:
    kinds: dict[str, list[Any]] = {}
    for request, outcome in zip(mixed(), replies, strict=True):
        if request.schema and request != UNKNOWN_KEYWORD and isinstance(outcome, Reply):
            kinds.setdefault(str(request.schema.get("required", "grade")), []).append(read_json(outcome))
    assert {kind: len(values) for kind, values in kinds.items()} == {
        "['questions']": 3,
        "['sentences']": 3,
        "['grades']": 12,
        "grade": 12,
    }
    assert all(1 <= len(found["questions"]) <= 4 for found in kinds["['questions']"])
    assert all(len(found["grades"]) == 3 and {*found["grades"]} <= {0, 1, 2, 3} for found in kinds["['grades']"])
    assert all({*kinds["grade"]} <= {0, 1, 2, 3} for found in kinds["grade"])
    for found in kinds["['sentences']"]:
        assert all(len(each["text"]) <= 40 and {*each["citations"]} <= {"d1", "d2"} for each in found["sentences"])


def test_the_probabilities_of_grades_are_those_of_the_allowed_tokens(replies: Outcomes) -> None:
    grades = [reply for request, reply in zip(mixed(), replies, strict=True) if request.top_logprobs]
    for reply in grades:
        assert isinstance(reply, Reply)
        first = {token: np.exp(logprob) for token, logprob in reply.logprobs[0].items()}
        assert {token for token, p in first.items() if p > 0} == {"0", "1", "2", "3"}
        assert sum(first.values()) == pytest.approx(1, abs=1e-3)
        assert max(first, key=lambda token: first[token]) == reply.text


def test_the_same_requests_have_the_same_replies(chat: Server, replies: Outcomes, tmp_path: Path) -> None:
    settings = served(chat, tmp_path / "replies.sqlite", concurrency=3)
    again, _ = asked(settings, mixed()[::-1])
    assert again[::-1] == replies
    before = chat.metric("vllm:request_success_total")
    known, spent = asked(settings, mixed()[:7])
    assert known == replies[:7]
    assert chat.metric("vllm:request_success_total") == before
    assert all(usage == Usage(cache_hits=usage.cache_hits) for usage in spent.values())


def test_a_request_that_a_server_cannot_take_fails_alone_and_a_schema_that_it_cannot_take_is_left_out(
    replies: Outcomes,
) -> None:
    refused({number: one.reason for number, one in enumerate(replies) if isinstance(one, Failure)})
    assert isinstance(replies[mixed().index(UNKNOWN_KEYWORD)], Reply)


def test_a_reply_that_is_cut_says_so(chat: Server, tmp_path: Path) -> None:
    cut = replace(decomposition(QUERIES[0]), max_tokens=5)
    fills = replace(prose(1), max_tokens=40_000)  # more than the window: the server refuses it, or cuts it silently
    (broken, *more), spent = asked(served(chat, tmp_path / "replies.sqlite"), [cut, prose(1, max_tokens=7)])
    assert isinstance(broken, Reply)
    assert broken.finish == "length"
    with pytest.raises(Unusable, match="cut before its end"):
        read_json(broken)
    assert spent["summary"].completion_tokens == 7
    assert isinstance(more[0], Reply)
    assert more[0].finish == "length"
    refused, _ = asked(served(chat, tmp_path / "replies.sqlite"), [fills])
    assert isinstance(refused[0], Failure)
    assert "max_tokens" in refused[0].reason


def test_prompts_that_begin_with_the_document_share_it(chat: Server, tmp_path: Path) -> None:
    """Every further query of a document finds the document's whole blocks of 128 tokens in the server's cache."""
    document = "A document that no other request has. " + DOCUMENTS[0]
    requests = [pointwise(document, f"{query} In other words?") for query in QUERIES]
    hits = chat.metric("vllm:prefix_cache_hits_total")
    _, spent = asked(served(chat, tmp_path / "replies.sqlite", concurrency=1), requests)
    found = chat.metric("vllm:prefix_cache_hits_total") - hits
    assert spent["grade"].cached_tokens == found
    assert found > 0.6 * spent["grade"].prompt_tokens * (len(QUERIES) - 1) / len(QUERIES)
    reverse = [Request("grade", (("user", f"{number} {document}"),), 2) for number in range(3)]
    _, spent = asked(served(chat, tmp_path / "replies.sqlite", concurrency=1), reverse)
    assert spent["grade"].cached_tokens == 0


def test_a_whole_run_with_a_real_model_is_valid(chat: Server, index: Index, tmp_path: Path) -> None:
    """The model is random, so its words mean nothing. The server enforces their form."""
    topics = write_topics(tmp_path / "topics.jsonl")
    model = f"model={{name: {chat.name}, urls: ['{chat.url}'], window: 8192}}"
    where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path}"]
    directory = make(read_config(None, [model, *where], "keystone"), threads=2)
    spent = orjson.loads((directory / "usage.json").read_bytes())["purposes"]
    assert {"contract", "umbrela", "check", "answer"} <= set(spent)
    assert spent["umbrela"]["cached_tokens"] > 0, "the system prompt, at least, is shared"
    graded = [orjson.loads(line) for line in (directory / "grades.jsonl").read_bytes().splitlines()]
    assert any(grade is not None for record in graded for row in record["grades"] for grade in row)
    for path in directory.glob("*_output_trec_rag_2025.*"):
        found = {violation.kind for violation in validate(path, TRACKS["rag25"], read_topics(topics))}
        assert found <= TRIAL_WARNINGS


CALLS = 6
"""The calls of the model that each reader may make for a question."""


@pytest.mark.parametrize("name", ["rdr2", "discorag", "disco_rag", "graphreader", "escalate"])
@pytest.mark.nightly
def test_each_reader_with_a_real_model_ends_within_its_limits_in_valid_files(
    name: str, chat: Server, index: Index, tmp_path: Path
) -> None:
    """The model is random, so most of its replies are no actions: the readers end by their fallbacks."""
    topics = write_topics(tmp_path / "topics.jsonl")
    model = f"model={{name: {chat.name}, urls: ['{chat.url}'], window: 8192}}"
    where = [
        f"index={index.folder}",
        f"topics={topics}",
        f"out={tmp_path}",
        "queries.method=rules",
        "queries.variants=0",
    ]
    limits = ["grading.method=none", "rerank.method=none", f"reader.calls={CALLS}", "answer.documents=4"]
    directory = make(read_config(None, [model, *where, *limits], name), threads=2)
    spent = orjson.loads((directory / "usage.json").read_bytes())["purposes"]
    writing = {"answer", "cite", "shorten", "support", "passage", "total"}
    assert sum(row["calls"] for purpose, row in spent.items() if purpose not in writing) <= CALLS * 2
    for path in directory.glob("*_output_trec_rag_2025.*"):
        found = {violation.kind for violation in validate(path, TRACKS["rag25"], read_topics(topics))}
        assert found <= TRIAL_WARNINGS


IN_FLIGHT = 24
ENDLESS_TOKENS = 32_000
"""The tokens of a reply that takes minutes and fits the model's window."""
SETTLED_S = 60.0
"""After this time, the client asks for no more endless replies. If a connection broke, it asks for fewer at once."""


@pytest.mark.nightly
@pytest.mark.timeout(1200)  # it starts a server again
@pytest.mark.parametrize("aborts", [True, False], ids=["engine first", "killed"])
def test_a_run_outlives_its_server(chat: Server, aborts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies that arrived are not requested again. Replies that broke off are, and none of them counts as whole.

    The server ends while it works on as many replies as it is asked for at once: from the 31st on they take minutes
    until it has been started again. Some of these may still end before the server does.
    """
    requests = [prose(number) for number in range(120)]
    settings = served(chat, tmp_path / "replies.sqlite", concurrency=IN_FLIGHT)
    before = in_flight = 0
    answers: list[tuple[str, str]] = []
    endless = {request.messages for request in requests[30:]}

    def body(model: str, request: Request, *more: Any) -> dict[str, Any]:
        longer = {"max_tokens": ENDLESS_TOKENS, "ignore_eos": True} if request.messages in endless else {}
        return write_body(model, request, *more) | longer

    def seen(body: Any, asked: ReplyBound) -> PaidReply:
        choice = body["choices"][0]
        answers.append((choice["finish_reason"], choice["message"]["content"]))
        return read_reply(body, asked)

    monkeypatch.setattr(endpoints, "read_reply", seen)
    monkeypatch.setattr(endpoints, "write_body", body)

    def count_requests() -> dict[str, float]:
        return {state: chat.metric(f"vllm:num_requests_{state}") for state in ("running", "waiting")}

    def count_if_settled(since: float) -> int:
        found = int(sum(count_requests().values()))
        return found if found >= IN_FLIGHT or time.monotonic() > since + SETTLED_S else 0

    def aborted() -> bool:
        return any(finish == "abort" for finish, _ in answers)

    def again() -> None:
        nonlocal before, in_flight
        settle = partial(count_if_settled, time.monotonic())
        in_flight = wait_until(settle, lambda: f"requests in flight: vLLM counts {count_requests()}")
        if aborts:
            chat.end_engine()
            wait_until(aborted, "a reply that was broken off")
        chat.stop(patience=STOP_TIMEOUT_S * aborts)
        endless.clear()
        with closing(Cache(settings.replies_in(tmp_path))) as cache:
            before = sum(1 for _ in cache.items())
        chat.launch()

    async def interrupted() -> tuple[Outcomes, Usage]:
        async with open_beside_cache(settings) as model, asyncio.TaskGroup() as restart:
            found: dict[int, Reply | Failure] = {}
            async for number, outcome in model.complete(requests):
                found[number] = outcome
                if len(found) == 30:
                    restart.create_task(asyncio.to_thread(again))
            return [found[number] for number in range(len(requests))], model.usage["summary"]

    try:
        outcomes, spent = asyncio.run(interrupted())
    finally:
        if chat.ended():
            chat.launch()
        chat.ready()
    assert aborted() == aborts
    assert 30 <= before < len(requests)
    assert spent.calls == len(requests)
    assert spent.retries >= in_flight > 0
    assert chat.metric("vllm:request_success_total") == len(requests) - before
    assert sorted(one.text for one in outcomes if isinstance(one, Reply)) == sorted(
        text for finish, text in answers if finish != "abort"
    )


@pytest.mark.nightly
def test_run_batch_answers_the_files_of_a_run(replies: Outcomes, tmp_path: Path) -> None:
    settings = ModelSettings(name="tiny", backend="batch", cache=tmp_path / "replies.sqlite")
    with pytest.raises(Waits, match=rf"{len(mixed())} requests wait"):
        asked(settings, mixed())
    places: list[str | Path] = ["--model", TINY_MODEL, "--served-model-name", "tiny", *CHAT_OPTIONS]

    def answer_file() -> None:
        open_files = [
            (file, made)
            for file in (tmp_path / "batch").glob("*.requests.jsonl")
            if not (made := file.with_name(file.name.replace("requests", "replies"))).exists()
        ]
        ((file, made),) = open_files
        run("vllm", "run-batch", "-i", file, "-o", made, *places, folder=tmp_path)

    answer_file()
    with pytest.raises(Waits, match=r"(?s)1 request waits .*uniqueItems.*is asked in another way"):
        asked(settings, mixed())
    answer_file()
    outcomes, _ = asked(settings, mixed())
    refused({number: outcome.reason for number, outcome in enumerate(outcomes) if isinstance(outcome, Failure)})
    assert [one for one in outcomes if isinstance(one, Reply)] == [one for one in replies if isinstance(one, Reply)]


@pytest.fixture(scope="module")
def in_process(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of vLLM's engine in process, beside the cache of its replies."""
    report = tmp_path_factory.mktemp("engine") / "report.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYSTONE_PACKAGES", str(Path(np.__file__).parents[1]))
        program = "tests.support.models.engine_in_process"
        run("python", "-m", program, index.folder, TINY_MODEL, str(CALLS), report, folder=report.parent)
    return report


@pytest.mark.nightly
def test_the_engine_in_process_gives_the_replies_of_the_server(replies: Outcomes, in_process: Path) -> None:
    said = json.loads(in_process.read_text())
    refused({int(number): reason for number, reason in said["failed"].items()})
    with closing(Cache(in_process.with_name("replies.sqlite"))) as kept:
        found = {key: answered.outcome for key, answered in kept.items()}
    for request, reply in zip(mixed(), replies, strict=True):
        assert found.get(make_request_key("tiny", request)) == (reply if isinstance(reply, Reply) else None)
    assert said["outcomes"] == len(replies)
    assert said["spent"]["summary"]["completion_tokens"] == 8 * 48


@pytest.mark.nightly
def test_each_reader_with_the_engine_in_process_ends_within_its_limits(in_process: Path) -> None:
    said = json.loads(in_process.read_text())["readers"]
    assert set(said) == {"rdr2", "discorag", "disco_rag", "graphreader"}
    for found in said.values():
        assert found["by"] == "tiny"
        assert found["calls"] <= CALLS
        assert found["sentences"]
    assert sum(found["calls"] for found in said.values()) > CALLS


def test_the_doctor_describes_vllm(chat: Server) -> None:
    found = probe_model_server(chat.url)
    facts = found.facts
    assert (facts.model, facts.window, facts.logprobs, facts.schema) == ("tiny", 32_768, True, True)
    assert None not in (facts.same_when_warm, facts.same_in_batch)
    assert "problem" not in {one.state for one in found.findings}
