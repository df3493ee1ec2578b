"""The probe of a model's server: against a real vLLM, and against a scripted server for each fault."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.llm.settings import LEAST_WINDOW
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.machine_commands import doctor
from keystone.runs.config.read import read_config
from keystone.runs.doctor.model_server import BATCH_REQUESTS, BETTER, Probe, probe_model_server
from keystone.runs.doctor.server_records import SERVERS_FILE, ServerFacts, keep_facts, read_facts, select_facts
from keystone.runs.pipeline.run import run
from tests.support.indexes.small_corpus import write_topics
from tests.support.models import plain_model
from tests.support.pages import MODEL_URL, find_words, list_commands
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone
from tests.support.servers.chat import Exchange, Fault, serving

FACTS = ServerFacts("http://h/v1", "m", "2026-01-01", True, True, "right in both", True, True, 4096, [])


def say(body: dict[str, Any]) -> Any:
    """A model that ranks the better passage first, keeps to schemas, and gives log-probabilities."""
    messages = [message["content"] for message in body["messages"]]
    if body.get("logprobs"):
        alternatives = [{"token": token, "logprob": -1.0} for token in ("a", "b")]
        logprobs = {"content": [{"top_logprobs": alternatives}]}
        return {"message": {"role": "assistant", "content": "a"}, "logprobs": logprobs}
    if "rank passages" in messages[0]:
        first, second = (1, 2) if messages[1].index(BETTER[:20]) < messages[1].index("The tram") else (2, 1)
        return json.dumps({"ranking": [first, second]})
    return plain_model.say(body) if len(messages) > 1 else messages[-1][:200]


def make_always(**parts: Any) -> Fault:
    """A server that lists one model, and answers chat requests by its model; `parts` change that."""
    counted = dict.fromkeys(("requests",), 0)

    async def answer(exchange: Exchange) -> bool:
        if exchange.path.endswith("/models") and "status" in parts:
            exchange.reply({"error": {"message": "who are you?"}}, parts["status"])
            return True
        if exchange.path.endswith("/models"):
            exchange.reply(parts.get("models", {"data": [{"id": "m", "max_model_len": 4096}]}))
            return True
        counted["requests"] += 1
        refuse: Callable[[dict[str, Any], int], str] = parts.get("refuse", lambda _body, _number: "")
        if reason := refuse(exchange.body, counted["requests"]):
            exchange.reply({"error": {"message": reason}}, 400)
            return True
        return False

    return answer


def probe(model: Callable[[dict[str, Any]], Any] = say, **parts: Any) -> Probe:
    with serving(model=model, always=make_always(**parts)) as server:
        return probe_model_server(server.url)


def describe(found: Probe) -> dict[str, tuple[str, str]]:
    return {one.subject: (one.state, one.message) for one in found.findings}


@pytest.mark.slow
def test_the_command_of_the_page_prints_each_fact_of_its_table(tmp_path: Path) -> None:
    """A server of the tests is in the place of the page's. Its host has no dialect of its own."""
    (command,) = list_commands("keystone doctor --model")
    with serving(model=say, always=make_always()) as server:
        done = keystone(*find_words(command.replace(MODEL_URL, server.url)), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/models.md").read_text().partition("## Probe a server")[2].partition("\n## ")[0]
    facts = [
        name for row in re.findall(r"^\| (`.*?|JSON.*?|log-.*?|context.*?) \|", page, re.M) for name in row.split(", ")
    ]
    assert len(facts) >= 7
    assert [name for name in facts if name.strip("`") not in done.stdout] == ["`dialect`"]


def test_a_good_server_has_no_notes() -> None:
    found = probe()
    assert {one.state for one in found.findings} == {"ok"}
    assert asdict(found.facts) | {"url": "", "date": ""} == asdict(FACTS) | {"url": "", "date": ""}


def drift(body: dict[str, Any], seen: dict[str, int] = {}) -> Any:  # noqa: B006
    text = str(body["messages"][-1]["content"])
    seen[text] = seen.get(text, 0) + 1
    return f"{text} {seen[text]}" if len(body["messages"]) == 1 and not body.get("logprobs") else say(body)


def rank_first_shown(body: dict[str, Any]) -> Any:
    return '{"ranking": [1, 2]}' if "rank passages" in body["messages"][0]["content"] else say(body)


def ignore_schemas(body: dict[str, Any]) -> Any:
    return "It is of grade 2." if "response_format" in body else say(body)


@pytest.mark.parametrize(
    ("model", "parts", "subject", "message"),
    [
        pytest.param(drift, {}, "warm", "the same request again: another reply", id="warm differs"),
        pytest.param(drift, {}, "batch", f"among {BATCH_REQUESTS} at the same time: another reply", id="batch differs"),
        pytest.param(rank_first_shown, {}, "pair", "first in 1 of 2 orders", id="prefers the first place"),
        pytest.param(ignore_schemas, {}, "pair", "no ranking of two passages", id="no ranking"),
        pytest.param(ignore_schemas, {}, "JSON schema", "does not follow it", id="schema ignored"),
        pytest.param(
            say,
            {"refuse": lambda body, _: "response_format is not supported" if "response_format" in body else ""},
            "JSON schema",
            "refused; requests go without it",
            id="schema refused",
        ),
        pytest.param(
            say,
            {"refuse": lambda body, _: "logprobs are not supported" if "logprobs" in body else ""},
            "log-probabilities",
            "none; grading.expected",
            id="no log-probabilities",
        ),
        pytest.param(say, {"models": {"data": [{"id": "m"}]}}, "context length", "set model.window", id="no window"),
    ],
)
def test_a_weakness_is_a_note(model: Any, parts: dict[str, Any], subject: str, message: str) -> None:
    state, said = describe(probe(model, **parts))[subject]
    assert state == "note"
    assert message in said


@pytest.mark.parametrize(
    "refusal",
    [
        "max_tokens is too large: 100000000. This model's maximum context length is 8192 tokens",
        "'max_tokens' is too large. The model's context window is 8,192 tokens",
    ],
)
def test_the_context_length_is_read_from_a_refusal(refusal: str) -> None:
    def refuse(body: dict[str, Any], _number: int) -> str:
        return refusal if body["max_tokens"] > 10**6 else ""

    assert probe(models={"data": [{"id": "m"}]}, refuse=refuse).facts.window == 8192


@pytest.mark.parametrize("window", [200, 2_048, 4_096, 10**6])
def test_a_window_to_which_the_server_cuts_prompts_is_found_by_two_long_ones(window: int) -> None:
    answers = make_always(models={"data": [{"id": "m"}]})

    async def count(exchange: Exchange) -> bool:
        if exchange.path.endswith("/models"):
            return await answers(exchange)
        size = sum(len(message["content"]) for message in exchange.body["messages"]) // 4
        usage = {"prompt_tokens": min(size, window), "completion_tokens": 5}
        exchange.reply(exchange.completion() | {"usage": usage})
        return True

    with serving(model=say, always=count) as server:
        found = probe_model_server(server.url)
    state, said = describe(found)["context length"]
    assert state == "note"
    if window < 10**6:
        assert found.facts.window == window
        assert f"{window:,} tokens: the server cuts longer prompts" in said
        assert (f"set model.window to {window}" in said) == (window >= LEAST_WINDOW)
    else:
        assert found.facts.window is None
        assert "read a prompt of 12," in said


def test_requests_that_fail_in_a_batch_are_a_problem() -> None:
    found = probe(refuse=lambda _body, number: "busy" if 3 <= number < 6 else "")
    problems = [one.message for one in found.findings if one.state == "problem"]
    assert [message.partition(":")[0] for message in problems] == [f"3 of {BATCH_REQUESTS} requests failed"]


def test_a_server_that_answers_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no is said; expected a reply to a plain request"):
        probe(refuse=lambda _body, _number: "no is said")
    with pytest.raises(UserError, match="refused with status 401; expected a key in OPENAI_API_KEY"):
        probe(status=401)
    with pytest.raises(UserError, match="serves the models a, b; expected the name of one by --name"):
        probe(models={"data": [{"id": "b"}, {"id": "a"}]})
    for unlisted in ({"status": 500}, {"models": {"data": [{"id": None}, {"id": ""}, {"x": 1}]}}):
        with pytest.raises(UserError, match="has no list of models at /models; expected the name of one by --name"):
            probe(**unlisted)
    with pytest.raises(UserError, match=r"^http://127\.0\.0\.1:9/v1: cannot be reached: "):
        probe_model_server("http://127.0.0.1:9/v1")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UserError, match="NO_SUCH_KEY: holds no key"):
        probe_model_server("http://127.0.0.1:9/v1", key_env="NO_SUCH_KEY")


def test_facts_of_a_server_replace_earlier_ones(tmp_path: Path) -> None:
    other = ServerFacts(**{**asdict(FACTS), "model": "n"})
    newer = ServerFacts(**{**asdict(FACTS), "date": "2026-02-02"})
    for facts in (FACTS, other, newer):
        path = keep_facts(tmp_path, facts)
    assert read_facts(tmp_path) == [newer, other]
    assert select_facts(tmp_path, "m", ["http://g/v1", "http://h/v1/"]) == [asdict(newer)]
    path.write_text('{"url": "http://h/v1"}\n')
    with pytest.raises(UserError, match=r"servers\.jsonl:1: expected the keys date, "):
        read_facts(tmp_path)


@pytest.mark.slow
def test_the_facts_are_stamped_on_the_runs_of_the_server(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say, always=make_always()) as server:
        doctor(model=server.url, out=tmp_path / "out")
        shown = capsys.readouterr().out.splitlines()
        assert shown[-1] == f"ok       kept: {tmp_path / 'out' / SERVERS_FILE}"
        settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", "queries.method=model"]
        model = f"model={{name: m, urls: ['{server.url}']}}"
        directory = run(read_config(None, ["run_id=r", "track=none", model, *settings]))
    manifest = orjson.loads((directory / "manifest.json").read_bytes())
    assert manifest["servers"] == [asdict(one) for one in read_facts(tmp_path / "out")]


def test_options_of_the_doctor_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="found several of --opensearch, --index and --model"):
        doctor(opensearch="http://h", model="http://h/v1")
    with pytest.raises(UserError, match="found --name or --key-env without --model"):
        doctor(name="m")
