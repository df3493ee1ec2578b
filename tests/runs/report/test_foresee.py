"""A run never makes more calls or tokens than its dry run said; the dry run writes nothing and asks nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.blocks import make_blocks
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import MESSAGE_TOKENS
from keystone.generation.types import Request
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.runs.cli.commands import run_commands
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.file_names import USAGE_FILE
from keystone.runs.pipeline.foresight import Ask, foresee
from keystone.runs.pipeline.run import run
from keystone.runs.report.foresight import Foresight, foresee_run, list_foresight
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_topics
from tests.support.models import reading_model
from tests.support.servers import rerank
from tests.support.servers.chat import Server, serving

WHOLE = ["grading.rounds=2", "grading.deeper=3", "grading.bounds=false", "queries.passages=both"]
RUNS = {
    "retrieval": ("keystone", WHOLE),
    "whole": ("listwise", ["answer.method=whole", "answer.support=model"]),
    "answers": (
        "uema21lab_B4",
        [
            *("answer.method=answers", "answer.synthesis=resynthesise", "answer.support=model"),
            *("queries.narrative_weight=2", "grading.narrative=true"),
        ],
    ),
    "claims": ("listwise", ["answer.method=claims", "rerank.block=4"]),
    "sliding": ("listwise", ["rerank.method=sliding", "rerank.block=4", "rerank.stride=2", "answer.method=answers"]),
    "readers": ("escalate", ["reader={name: fused, readers: [rdr2, graphreader]}", "queries.method=rules"]),
    "escalation": ("escalate", ["model.thinking=5"]),
}
"""Settings that together send the requests of every purpose but `summarise`."""


def refuse_first(body: dict[str, Any]) -> str:
    """A model whose first reply to every request is of no use, so that each one is repaired."""
    return "" if len(body["messages"]) == 2 else reading_model.say(body)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=refuse_first) as found:
        yield found


def configure(index: Index, folder: Path, preset: str | None, *settings: str) -> RunConfig:
    topics = write_topics(folder / "topics.jsonl")
    return read_config(None, [f"index={index.folder}", f"topics={topics}", f"out={folder / 'out'}", *settings], preset)


def count_most(found: Foresight) -> tuple[int, int, int]:
    usages = [one.most for one in found.calls]
    return (
        sum(one.calls for one in usages),
        sum(one.prompt_tokens for one in usages),
        sum(one.completion_tokens for one in usages),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_costs_no_more_than_was_foreseen(name: str, index: Index, tmp_path: Path, server: Server) -> None:
    preset, changes = RUNS[name]
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    config = configure(index, tmp_path, preset, model, *changes)
    found, asked = foresee_run(config, 2), len(server.requests)
    assert not (tmp_path / "out").exists()
    directory = run(config, threads=2)
    sent = server.requests[asked:]
    calls, prompts, replies = count_most(found)
    assert 0 < len(sent) <= calls
    assert sum(len(message["content"]) for body in sent for message in body["messages"]) <= prompts
    assert sum(body["max_tokens"] for body in sent) <= replies
    usage = orjson.loads((directory / USAGE_FILE).read_bytes())["purposes"]
    most = {purpose: sum(one.most.calls for one in found.calls if one.purpose == purpose) for purpose in usage}
    assert [purpose for purpose, calls in most.items() if calls and usage[purpose]["calls"] > calls] == []
    read = {purpose for purpose, calls in most.items() if not calls} - {"total"}
    assert not read or any(one.purpose.startswith("reader ") for one in found.calls)
    again = foresee_run(config, 2)
    assert ({plan for _, plan in again.stages}, again.calls) == ({"kept"}, ())


@pytest.mark.slow
def test_bounds_are_met_if_the_settings_fix_the_calls(index: Index, tmp_path: Path, server: Server) -> None:
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    config = configure(index, tmp_path, "keystone", model, "queries.passages=none", "answer.method=rules")
    most = {one.purpose: one.most.calls for one in foresee_run(config).calls}
    usage = orjson.loads((run(config, threads=2) / USAGE_FILE).read_bytes())["purposes"]
    twice = 2 * len(NARRATIVES)
    once = {"contract": twice, "rerank": twice}
    assert most == once | {"umbrela": twice * len(CORPUS)}
    distinct = {"umbrela": twice * (len(CORPUS) - 1)}  # two documents have the same text, which is asked about once
    assert {purpose: usage[purpose]["calls"] for purpose in most} == most | distinct


def test_the_bound_follows_the_most_questions_and_the_queries_that_are_made(
    index: Index, tmp_path: Path, server: Server
) -> None:
    settings = [f"model={{name: plain, urls: ['{server.url}']}}", "queries={method: model, passages: hyde}"]
    bounds = []
    for questions in (3, 30):
        config = configure(index, tmp_path, None, "run_id=r", *settings, f"queries.questions={questions}")
        bounds += [one.most.calls for one in foresee_run(config).calls if one.purpose == "passage"]
    assert bounds == [2 * len(NARRATIVES) * (1 + questions) for questions in (3, 30)]


def test_a_reranking_server_is_counted(index: Index, tmp_path: Path) -> None:
    with rerank.serving() as server:
        place = f"rerank={{method: endpoint, depth: 6, endpoint: {{url: '{server.root}/v1', name: letters}}}}"
        config = configure(index, tmp_path, None, "run_id=r", place)
        found = foresee_run(config)
        assert found.reranker
        assert (found.reranker.most.calls, found.calls) == (len(NARRATIVES), ())


def test_a_reranker_after_grades_also_ranks_what_they_select(index: Index, tmp_path: Path) -> None:
    settings = ["fusion.depth=3", "answer.documents=3", "grading.documents=3", "rerank.block=2", "rerank.stride=1"]
    config = configure(index, tmp_path, "keystone", "model={name: m, urls: ['http://localhost:1/v1']}", *settings)
    (most,) = (one.most for one in foresee_run(config).calls if one.purpose == "rerank")
    assert most.calls == 2 * len(NARRATIVES) * len(make_blocks(6, 2))


def test_each_server_of_several_rerankers_is_counted(index: Index, tmp_path: Path) -> None:
    one = "{{url: 'http://localhost:1/v1', name: {}}}".format
    first = f"method: endpoint, depth: 6, endpoint: {one('letters')}"
    then = f"method: endpoint, depth: 3, endpoint: {one('words')}"
    found = foresee_run(configure(index, tmp_path, None, "run_id=r", f"rerank={{{first}, then: {{{then}}}}}")).reranker
    assert found
    assert (found.purpose, found.most.calls) == ("letters, words", 2 * len(NARRATIVES))


def test_the_command_prints_the_table_and_writes_nothing(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    prices = "model={name: m, urls: ['http://localhost:1/v1'], prices: {prompt: 1, completion: 4}, budget: {calls: 7}}"
    settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", prices]
    run_commands.run(preset="keystone", set=settings, dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("out/keystone: 2 topics; nothing is written, no model is asked")
    assert "queries     made: queries.jsonl" in lines
    assert next(line.split()[:3] for line in lines if "contract" in line) == ["queries", "contract", "4"]
    assert "the budget allows at most: calls 7" in lines
    assert not (tmp_path / "out").exists()


def test_the_values_of_json_are_those_of_the_table(index: Index, tmp_path: Path) -> None:
    model = "model={name: m, urls: ['http://localhost:1/v1']}"
    found = foresee_run(configure(index, tmp_path, "keystone", model))
    values = orjson.loads(orjson.dumps(list_foresight(found)))
    total = values["total"]["most"]
    assert (total["calls"], total["prompt_tokens"], total["completion_tokens"]) == count_most(found)
    assert [stage["name"] for stage in values["stages"]] == [stage.name for stage, _ in found.stages]


def test_a_prompt_fills_the_window_at_most() -> None:
    model = ModelSettings(name="m", window=1000, thinking=10)
    request = Request("answer", (("user", "x" * 3000),), 200)
    found = foresee(Ask("answer", 3, request), model)
    assert (found.most.calls, found.most.prompt_tokens) == (6, 6000)
    assert found.most.completion_tokens == 3 * (210 + 420)
    assert found.likely.prompt_tokens == 3 * (len("user") + 3000 + 2 * MESSAGE_TOKENS) / 4


@pytest.mark.slow
def test_the_summaries_of_a_candidate_pool_are_counted_once_for_all_topics(tmp_path: Path, server: Server) -> None:
    texts = {"bees": "Honey bees dance for flowers. " * 1_200, "volcano": "A volcano erupts on the planet."}
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b"".join(orjson.dumps({"id": name, "text": text}) + b"\n" for name, text in texts.items()))
    pooled = build_index(corpus, tmp_path / "pooled", BuildSettings(faiss=None))[0]
    config = configure(pooled, tmp_path, "uema2lab_rrf", f"model={{name: plain, urls: ['{server.url}']}}")
    (most,) = (one.most for one in foresee_run(config).calls if one.purpose == "summarise")
    asked = len(server.requests)
    run(config, threads=2)
    sent = [body for body in server.requests[asked:] if texts["bees"][:60] in body["messages"][1]["content"]]
    assert 0 < len(sent) <= most.calls == 2 * len(texts)
    assert sum(len(message["content"]) for body in sent for message in body["messages"]) <= most.prompt_tokens


def test_checks_and_citations_are_likely_for_sentences_of_a_usual_length(index: Index, tmp_path: Path) -> None:
    model = "model={name: m, urls: ['http://localhost:1/v1']}"
    config = configure(index, tmp_path, "keystone", model, "answer.words=360", "answer.support=model")
    found = {one.purpose: one for one in foresee_run(config).calls}
    topics = len(NARRATIVES)
    assert found["support"].most.calls == 2 * topics * 13  # 256 sentences, 20 in one request
    assert found["support"].likely.calls == topics * 2  # 24 sentences
    assert found["cite"].likely.completion_tokens == topics * (1024 + 64 * 24)


def test_an_answer_has_no_more_sentences_than_words_to_cite(index: Index, tmp_path: Path) -> None:
    model = "model={name: m, urls: ['http://localhost:1/v1']}"
    config = configure(index, tmp_path, "keystone", model, "answer.words=100")
    (cited,) = (one.most for one in foresee_run(config).calls if one.purpose == "cite")
    assert cited.completion_tokens == len(NARRATIVES) * 3 * (1024 + 64 * 100)


COUNTS = st.integers(0, 10_000)


@given(COUNTS, COUNTS, COUNTS, st.integers(1, 10_000), st.integers(512, 100_000), st.integers(0, 10_000))
def test_the_likely_cost_is_never_above_the_most(
    number: int, shown: int, replied: int, reply: int, window: int, thinking: int
) -> None:
    model = ModelSettings(name="m", window=window, thinking=thinking)
    request = Request("answer", (("user", "Why?"),), reply)
    found = foresee(Ask("answer", number, request, shown, replied), model)
    more = foresee(Ask("answer", number + 1, request, shown + 1, replied + 1), model)
    for name in ("calls", "prompt_tokens", "completion_tokens"):
        assert 0 <= getattr(found.likely, name) <= getattr(found.most, name) <= getattr(more.most, name)
    assert found.most.prompt_tokens <= 2 * number * window
