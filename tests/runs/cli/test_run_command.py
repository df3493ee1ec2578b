"""The end of `keystone run`: what it says about the model's replies and prompts, --strict, and --retry-unusable."""

import json
import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.llm.settings import REPLIES_FILE
from keystone.indexing.index import Index
from keystone.runs.cli.commands import run_commands
from keystone.runs.report import terminal
from tests.support.indexes.small_corpus import write_topics
from tests.support.models.plain_model import say
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import answer_command, read_run_content
from tests.support.servers.chat import Exchange, Fault, Server, changed, serving, status

SETTINGS = ("model.concurrency=4", "queries.passages=both", "grading.pool=3", "model.patience_seconds=2")
UNUSABLE = re.compile(r"warning: the model gave no usable reply in ([\d,]+) of ([\d,]+) steps \(most often: (.*?)\)")


@contextmanager
def make_run(index: Index, folder: Path, **parts: Any) -> Iterator[tuple[Server, Callable[..., tuple[int, str]]]]:
    """A server, and a function that makes the run with further arguments and returns its exit code and its messages."""
    write_topics(folder / "topics.jsonl")
    with serving(**({"model": say} | parts)) as server:

        def run(*further: str) -> tuple[int, str]:
            settings = [part for value in SETTINGS for part in ("--set", value)]
            done = keystone(*answer_command(index, folder, server, "run"), *settings, *further)
            return done.returncode, done.stderr

        yield server, run


def read_manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((folder / "out/keystone/manifest.json").read_bytes())
    return found


def list_kept(folder: Path) -> dict[str, list[str]]:
    """List the texts in each table of the cache."""
    with closing(sqlite3.connect(folder / "out" / REPLIES_FILE)) as file:
        tables = ("replies", "unusable")
        return {
            table: [json.loads(row[0])["text"] for row in file.execute(f"SELECT reply FROM {table}")]
            for table in tables
        }


def counts(window: int) -> Fault:
    """The right answer, whose server reads no more tokens of a prompt than its window."""

    async def fault(exchange: Exchange) -> bool:
        size = sum(len(message["content"]) for message in exchange.body["messages"]) // 4
        exchange.reply(exchange.completion() | {"usage": {"prompt_tokens": min(size, window), "completion_tokens": 5}})
        return True

    return fault


@pytest.mark.slow
@pytest.mark.parametrize("window", [150, pytest.param(300, marks=pytest.mark.nightly)])
def test_a_server_that_cuts_prompts_is_told_once_and_stands_in_the_manifest(
    window: int, index: Index, tmp_path: Path
) -> None:
    with make_run(index, tmp_path, always=counts(window)) as (_, run):
        said = [run(), run()]
    for code, message in said:
        assert code == 0
        assert message.count("seems to cut long prompts") == 1
        assert f"it counted {window} tokens for " in message
        assert "num_ctx" in message
        assert "model.window" in message
    assert read_manifest(tmp_path)["cut_prompt"]["tokens"] == window


@pytest.mark.slow
@pytest.mark.parametrize("always", [None, counts(10**6)], ids=["constant count", "whole prompts"])
def test_a_server_that_answers_well_has_no_warnings(always: Fault | None, index: Index, tmp_path: Path) -> None:
    with make_run(index, tmp_path, always=always) as (_, run):
        code, said = run("--strict")
    assert (code, said) == (0, "")
    assert "cut_prompt" not in read_manifest(tmp_path)


@pytest.mark.slow
def test_unusable_replies_alone_are_asked_again_and_only_when_the_user_says_so(index: Index, tmp_path: Path) -> None:
    sick = [True]

    def model(body: dict[str, Any]) -> str:
        """Spoil every reply about bees, but not the repair of its variants."""
        text, is_repair = "".join(message["content"] for message in body["messages"]), len(body["messages"]) > 2
        spoilt = sick[0] and "bees" in text and "Document" not in text
        return "" if spoilt and not (is_repair and "variants" in text) else say(body)

    with make_run(index, tmp_path, model=model) as (server, run):
        code, said = run()
        assert code == 0
        unusable, asked, _ = UNUSABLE.findall(said)[0]
        assert 0 < int(unusable) < int(asked)
        assert said.count("warning: the model gave") == 1
        assert run("--strict") == (1, said)
        assert set(list_kept(tmp_path)["unusable"]) == {""}
        first = [orjson.dumps(body) for body in server.requests]
        refused = {orjson.dumps(body) for body in server.requests if len(body["messages"]) == 2 and model(body) == ""}
        kept = list_kept(tmp_path)["replies"]
        assert kept.count("") == len([body for body in server.requests if "variants" in str(body) and not model(body)])

        sick[0], content = False, read_run_content(tmp_path / "out/keystone")
        for name in ("queries.jsonl", "grades.jsonl", "answers.jsonl"):
            (tmp_path / "out/keystone" / name).unlink()
        assert run() == (0, said)
        assert read_run_content(tmp_path / "out/keystone") == content, "a repeated run is exact"
        assert len(server.requests) == len(first)

        assert run("--retry-unusable", "--strict") == (0, "")
        again = [orjson.dumps(body) for body in server.requests[len(first) :]]
        assert set(again) & set(first)
        assert set(again) & set(first) <= refused
        assert len(again) == len(set(again))
        calls = len(server.requests)
        assert run("--retry-unusable", "--strict") == (0, "")
        assert len(server.requests) == calls
    mended_content = read_run_content(tmp_path / "out/keystone")
    (tmp_path / "well").mkdir()
    with make_run(index, tmp_path / "well") as (_, run):
        assert run()[0] == 0
    assert read_run_content(tmp_path / "well/out/keystone") == mended_content


@pytest.mark.slow
def test_if_all_replies_were_cut_the_message_names_what_to_raise(index: Index, tmp_path: Path) -> None:
    cut = changed(finish_reason="length", message={"role": "assistant", "content": '{"'})
    with make_run(index, tmp_path, always=cut) as (_, run):
        code, said = run()
    assert code == 0
    assert UNUSABLE.findall(said)[0][-1] == "it was cut before its end"
    assert "model.thinking" in said
    assert "max_tokens" in said


def test_a_stage_that_fails_for_a_wrong_key_is_not_told_as_made(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "TOLD_SECONDS", -1.0)
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(always=status(401)) as server:
        model = f"model={{name: plain, urls: ['{server.url}']}}"
        where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}"]
        with pytest.raises(Exception, match="refused with status 401"):
            run_commands.run(preset="keystone", set=[model, *where, "run_id=r"])
    said = capsys.readouterr().err
    assert "r: config: " in said
    assert "r: queries" not in said
    assert "made" not in said
    assert not (tmp_path / "out/r/queries.jsonl").exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_run_with_unusable_replies_ends_with_the_same_bytes_and_the_same_warning(
    index: Index, tmp_path: Path
) -> None:
    def model(body: dict[str, Any]) -> str:
        """Spoil a third of the replies, as their prompts say, and some of their repairs."""
        return "" if zlib.crc32(orjson.dumps(body)) % 3 == 0 else say(body)

    made, whole = tmp_path / "out/keystone", dict[str, bytes]()

    def done() -> None:
        found = read_run_content(made) | {"manifest.json": (made / "manifest.json").read_bytes()}
        whole.update(whole or found)
        assert found == whole
        shutil.rmtree(tmp_path / "out")

    write_topics(tmp_path / "topics.jsonl")
    with serving(model=model, latency=0.01) as server:
        settings = [part for value in SETTINGS for part in ("--set", value)]
        run_with_kills(*answer_command(index, tmp_path, server, "run"), *settings, times=10, kills=6, done=done)
    assert b'"unusable": ' in whole["manifest.json"]


@pytest.mark.slow
def test_recorded_replies_hold_the_unusable_ones(index: Index, tmp_path: Path) -> None:
    with make_run(index, tmp_path, always=changed(message={"role": "assistant", "content": ""})) as (server, run):
        said = run()
        content, calls = read_run_content(tmp_path / "out/keystone"), len(server.requests)
        replies = tmp_path / "replies.jsonl"
        assert keystone("record", tmp_path / "out" / REPLIES_FILE, "--out", replies).returncode == 0
        shutil.rmtree(tmp_path / "out")
        recorded = "--set", "model.backend=replay", "--set", f"model.replies={replies}"
        assert run(*recorded) == said
        assert read_run_content(tmp_path / "out/keystone") == content
        assert len(server.requests) == calls
        code, refusal = run(*recorded, "--retry-unusable", "--set", "run_id=again")
    assert code == 1
    assert "found 'replay', which asks nobody again" in refusal


@pytest.mark.slow
def test_a_budget_counts_replies_that_are_asked_for_again(index: Index, tmp_path: Path) -> None:
    with make_run(index, tmp_path, always=changed(message={"role": "assistant", "content": ""})) as (server, run):
        assert run("--budget", "calls=15")[0] == 0
        assert len(server.requests) == 15
        code, said = run("--budget", "calls=15", "--retry-unusable")
        assert code == 0
        assert "most often: the budget is spent" in said
        assert len(server.requests) == 15
        run("--budget", "calls=18", "--retry-unusable")
        assert len(server.requests) == 18
