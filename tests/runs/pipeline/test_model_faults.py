"""Runs with a faulty model, and killed runs: they answer every narrative, pay once, and write the same bytes."""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import NARRATIVES, write_topics
from tests.support.models.plain_model import say
from tests.support.processes import run_with_kills
from tests.support.programs import started
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import answer_command, check_submissions, kill_run
from tests.support.servers.chat import Exchange, Fault, changed, half, hangs_up, says, serving, status, torn
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

FAULTS: tuple[Fault, ...] = (
    status(429, Retry_After="0"),
    status(429),
    status(500),
    status(503),
    half,
    torn,
    hangs_up,
    says({"choices": []}),
    says({"error": {"message": "busy"}}),
    changed(finish_reason="abort"),
    changed(message={"role": "assistant", "content": None}),
    changed(message={"role": "assistant", "content": '{"answer": [{"te'}, finish_reason="length"),
    changed(message={"role": "assistant", "content": '{"something": "else"}'}),
    changed(message={"role": "assistant", "content": "Sure! Here you are: {}"}),
)


def sometimes(share: float) -> Fault:
    """Make a fault that hits this share of the requests, each with a fault of any kind."""
    chance = random.Random(5)

    async def fault(exchange: Exchange) -> bool:
        return chance.random() < share and await chance.choice(FAULTS)(exchange)

    return fault


def test_each_of_105_narratives_is_answered_with_30_percent_faulty_replies(index: Index, tmp_path: Path) -> None:
    narratives = [f"{text} This is version {n} of what I ask." for n in range(53) for text in NARRATIVES.values()][:105]
    topics = tmp_path / "topics.jsonl"
    topics.write_bytes(b"".join(orjson.dumps({"id": str(n), "title": x}) + b"\n" for n, x in enumerate(narratives)))
    with serving(model=say, always=sometimes(0.3)) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}"]
        directory = run(read_config(None, [model, *where], "uema21lab_B4"), threads=2)
        paid = Counter(map(orjson.dumps, server.answered))
    assert set(paid.values()) == {1}
    check_submissions(directory, read_topics(topics))
    answers = [orjson.loads(line) for line in (directory / "answers.jsonl").read_bytes().splitlines()]
    assert len(answers) == 105
    assert all(answer["sentences"] for answer in answers)
    fallbacks = orjson.loads((directory / "manifest.json").read_bytes())["fallbacks"]
    assert fallbacks
    steps = {"decompose", "topic", "expand", "passage", "umbrela", "answer", "cite"}
    assert {fallback["step"] for fallback in fallbacks} <= steps


def test_a_run_that_is_killed_at_any_moment_ends_with_the_same_bytes(index: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    changes = ["model.concurrency=2", "queries.passages=both", "grading.pool=1", "grading.rounds=2"]
    with serving(model=say, latency=0.02) as server:
        arguments = answer_command(index, tmp_path, server, "run")
        for change in changes:
            arguments += ["--set", change]
        kill_run(tmp_path / "out/keystone", *arguments, times=36, kills=25)


@pytest.mark.nightly
def test_a_run_that_is_killed_at_any_moment_stays_within_its_budget(index: Index, tmp_path: Path) -> None:
    topics = read_topics(write_topics(tmp_path / "topics.jsonl"))
    calls, before = 12, 0

    def done() -> None:
        nonlocal before
        assert len(server.requests) - before <= calls
        check_submissions(tmp_path / "out/keystone", topics)
        before = len(server.requests)
        shutil.rmtree(tmp_path / "out")

    with serving(model=say, latency=0.05) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), "--budget", f"calls={calls}"]
        run_with_kills(*arguments, times=12, kills=8, done=done)


def test_an_interrupt_waits_for_no_reply_and_loses_none(index: Index, tmp_path: Path) -> None:
    async def no_more_than_nine(exchange: Exchange) -> bool:
        if len(exchange.server.answered) >= 9:
            await asyncio.sleep(2 * LIMIT_S)
        return False

    with serving(model=say, always=no_more_than_nine) as server:
        write_topics(tmp_path / "topics.jsonl")
        arguments = [*answer_command(index, tmp_path, server, "run"), "--set", "model.concurrency=2"]
        with started(
            [sys.executable, "-m", "keystone.runs.cli.main", *arguments], stderr=subprocess.DEVNULL
        ) as process:
            wait_until(lambda: len(server.answered) >= 9 or process.poll(), "nine replies")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        answered = [orjson.dumps(body) for body in server.answered]
        server.always = None
        assert keystone(*arguments).returncode == 0
        again = Counter(map(orjson.dumps, server.answered))
    lost = sum(again[body] > 1 for body in set(answered))
    assert lost <= 2, "at most those that were on their way"
