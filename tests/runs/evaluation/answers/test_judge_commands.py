"""The commands `keystone judge use` and `judge pair`: what they print and keep, batches, replays, and errors."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.cli.table import suggest
from tests.support.runs.answered_runs import judge, write_answered_run
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers.chat import Server, serving

GOOD = {"1": ["Bees dance to tell.", "They dance in eights.", "Ants walk."], "2": ["Ants dance."]}
BAD = {"1": ["Ants walk."], "2": ["The sources do not say it."]}


def say(body: dict[str, Any]) -> str:
    return judge(body["messages"][1]["content"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two run directories, of which the first is the better one."""
    write_answered_run(tmp_path / "out/good", GOOD)
    write_answered_run(tmp_path / "out/bad", BAD)
    return tmp_path


def name_model(server: Server) -> list[str]:
    return ["--set", f"model={{name: m, urls: ['{server.url}']}}"]


@pytest.mark.slow
def test_use_is_judged_once_and_evaluated_without_references(folder: Path, server: Server) -> None:
    before = len(server.requests)
    judged = ["judge", "use", "out/good", "out/bad", *name_model(server)]
    done = keystone(*judged, cwd=folder)
    assert done.returncode == 0, done.stderr
    head, good, bad, *files = done.stdout.splitlines()
    assert head.split() == "run mark answered partly unanswered no use gaps admitted lead".split()
    assert good.split() == ["out/good", "2.5000", "1.0000", "0.0000", "0.0000", "0.1667", "-", "1.0000"]
    assert bad.split() == ["out/bad", "1.0000", "0.0000", "0.0000", "1.0000", "1.0000", "0.5000", "0.0000"]
    assert files == ["out/good/use.jsonl", "out/bad/use.jsonl"]
    kept = [(folder / name).read_bytes() for name in files]
    assert len(server.requests) - before == 4
    assert keystone(*judged, cwd=folder).stdout == done.stdout
    assert [(folder / name).read_bytes() for name in files] == kept
    result = json.loads(keystone(*judged, "--json", cwd=folder).stdout)["result"]
    assert (result["files"], result["means"][0]["gaps admitted"], result["means"][1]["mark"]) == (files, None, 1)
    assert len(server.requests) - before == 4
    shown = keystone("evaluate", "out/good", "out/bad", "--answers", "-m", "use", "--format", "csv", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    means = {(row["run"], row["measure"]): row["mean"] for row in csv.DictReader(shown.stdout.splitlines())}
    assert [means["out/good", name] for name in ("mark", "answered", "gaps admitted")] == ["2.5", "1.0", ""]
    assert [means["out/bad", name] for name in ("answered", "gaps admitted", "lead")] == ["0.0", "0.5", "0.0"]


@pytest.mark.slow
def test_a_pair_is_judged_in_both_orders_with_a_table_and_a_file(folder: Path, server: Server) -> None:
    fought = ["judge", "pair", "out/good", "out/bad", *name_model(server)]
    done = keystone(*fought, cwd=folder)
    assert done.returncode == 0, done.stderr
    head, *rows, last = done.stdout.splitlines()
    assert (head, last) == ("good against bad: 2 narratives, judged by m", "battles.jsonl")
    assert [" ".join(row.split()) for row in rows] == [
        "won, lost, tied 2, 0, 0 sign test: p 0.500",
        "share won 1.00 95 % interval 1.00 to 1.00",
        "marks 2.50 : 1.00",
        "difference of marks +1.50 95 % interval +1.00 to +2.00",
        "both orders agree 2 of 2",
        "share of the first slot 0.50 95 % interval 0.50 to 0.50",
    ]
    verdicts = (folder / "battles.jsonl").read_bytes()
    calls = len(server.requests)
    shown = keystone(*fought, "--json", cwd=folder)
    result = json.loads(shown.stdout)["result"]
    assert (result["first"], result["won"], result["win_interval"], result["out"]) == (
        "good",
        2,
        [1, 1],
        "battles.jsonl",
    )
    assert len(server.requests) == calls
    assert (folder / "battles.jsonl").read_bytes() == verdicts


@pytest.mark.slow
@pytest.mark.parametrize(("command", "number"), [("use", 4), ("pair", 4)])
def test_a_batch_has_all_requests_and_is_answered_later(folder: Path, command: str, number: int) -> None:
    judged = ["judge", command, "out/good", "out/bad", "--set", "model={name: m, backend: batch}"]
    waits = keystone(*judged, cwd=folder)
    assert waits.returncode == 3, waits.stderr
    (asked,) = (folder / "out/batch").glob("*.requests.jsonl")
    requests = [json.loads(line) for line in asked.read_text().splitlines()]
    assert len(requests) == number
    replies = [
        {
            "custom_id": one["custom_id"],
            "response": {
                "status_code": 200,
                "body": {"choices": [{"message": {"content": say(one["body"])}, "finish_reason": "stop"}]},
            },
        }
        for one in requests
    ]
    answers = asked.with_name(asked.name.replace(".requests.", ".replies."))
    answers.write_text("".join(f"{json.dumps(one)}\n" for one in replies))
    done = keystone(*judged, cwd=folder)
    assert done.returncode == 0, done.stderr
    replayed = keystone(*judged[:-1], "model={name: m, backend: replay}", cwd=folder)
    assert (replayed.returncode, replayed.stdout) == (0, done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["use", "out/good"], "model: missing; expected a language model", id="use without a model"),
        pytest.param(["pair", "out/good", "out/bad"], "model: missing; expected a language model", id="pair, too"),
        pytest.param(["pair", "out/good", "out/bad", "--out", "out/topics.jsonl", "--topics", "out/topics.jsonl"],
                     "--out out/topics.jsonl: is out/topics.jsonl", id="over the topics"),
        pytest.param(["pair", "out/good", "out/bad", "--out", "out/bad/answers"], "lies in out/bad", id="in a run"),
        pytest.param(["use", "out/none"], "found no questions", id="no run"),
        pytest.param(["a.trec", "-m", "P@1", "-m", "P@2"], "found P@1, P@2, expected one measure", id="two measures"),
    ],
)  # fmt: skip
def test_an_impossible_command_is_one_message(folder: Path, arguments: list[str], message: str) -> None:
    done = keystone_here("judge", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_command_judge_judges_runs_without_a_subcommand() -> None:
    runner = CliRunner()
    for words in (["judge", "a.trec"], ["judge", "runs", "a.trec"], ["judge", "--depth", "3", "a.trec"]):
        found = runner.invoke(app, words)
        assert "index: missing; expected a value" in str(found.exception), words
    assert "pair" in runner.invoke(app, ["judge", "--help"]).output
    assert suggest("battles") == ["keystone judge battles"]
