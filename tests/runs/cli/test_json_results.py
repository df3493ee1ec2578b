"""The option `--json`: every command prints one object with the same keys, whose numbers are those of the text."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import typer

from keystone.indexing.index import Index
from keystone.runs.cli.commands.file_commands import explain, validate
from keystone.runs.cli.commands.machine_commands import doctor
from keystone.runs.cli.commands.run_commands import run
from keystone.runs.cli.commands.tune_commands import sweep, tune
from keystone.runs.report.explain import explain as explained
from keystone.runs.report.say import say_result
from tests.support.indexes.small_corpus import write_topics

Captured = pytest.CaptureFixture[str]


def read_result(capsys: Captured, command: str) -> Any:
    (line,) = capsys.readouterr().out.splitlines()
    found = orjson.loads(line)
    assert list(found) == ["command", "input", "result"]
    assert found["command"] == command
    return found["result"]


def test_the_envelope_holds_any_values_on_one_ascii_line(capsys: Captured) -> None:
    say_result("x", Path("a/b"), {1: [np.float32(0.5), "\u00e9\n\x1b[0m", float("nan")], "paths": (Path("c"),)})
    line = capsys.readouterr().out
    assert line.isascii()
    assert line.count("\n") == 1
    assert orjson.loads(line) == {
        "command": "x",
        "input": "a/b",
        "result": {"1": [0.5, "\u00e9\n\x1b[0m", None], "paths": ["c"]},
    }


@pytest.fixture(scope="module")
def made(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a run, and its directory `out/r`."""
    folder = tmp_path_factory.mktemp("json")
    topics = write_topics(folder / "topics.jsonl")
    config = folder / "run.yaml"
    config.write_text(f"run_id: r\nindex: {index.folder}\ntopics: {topics}\nout: {folder / 'out'}\n")
    (folder / "qrels").write_text("1 0 bees 2\n2 0 volcano 1\n")
    run(config, quiet=True)
    return config


@pytest.mark.slow
def test_a_run_and_its_dry_run(made: Path, capsys: Captured) -> None:
    capsys.readouterr()
    run(made, json=True, quiet=True)
    assert read_result(capsys, "run") == {"directory": str(made.parent / "out/r")}
    run(made, json=True, dry_run=True)
    assert {stage["plan"] for stage in read_result(capsys, "run")["stages"]} == {"kept"}


@pytest.mark.slow
def test_verdicts_are_those_of_the_text(made: Path, tmp_path: Path, capsys: Captured) -> None:
    capsys.readouterr()
    directory, topics = made.parent / "out/r", made.parent / "topics.jsonl"
    validate([directory], topics, json=True)
    found = read_result(capsys, "validate")
    assert [(Path(one["file"]).parent, one["valid"], one["track"]) for one in found] == [(directory, True, "rag25")] * 2
    validate([directory], topics)
    shown = capsys.readouterr().out
    assert all(f"{one['file']}: {one['verdict']['size']}" in shown for one in found)
    (tmp_path / "bad.tsv").write_text("1 Q0 d 1 0.5 r\n1 Q0 d 2 0.4 r\n")
    with pytest.raises(typer.Exit):
        validate([tmp_path / "bad.tsv"], topics, track="rag25", json=True)
    (one,) = read_result(capsys, "validate")
    assert not one["valid"]
    assert "error" in {violation["severity"] for violation in one["verdict"]["violations"]}


@pytest.mark.slow
def test_an_explanation(made: Path, capsys: Captured) -> None:
    capsys.readouterr()
    directory = made.parent / "out/r"
    explain(directory, "1", "bees", json=True)
    found, expected = read_result(capsys, "explain"), explained(directory, "1", "bees")
    assert (found["place"], len(found["parts"])) == (expected.place, len(expected.parts))


@pytest.mark.slow
def test_settings_that_were_tried(made: Path, capsys: Captured) -> None:
    capsys.readouterr()
    qrels, attempt = made.parent / "qrels", ["fusion.k_narrative=[20, 60]"]
    tune(made, qrels, attempt, measure=["MRR"], folds=2, json=True, quiet=True)
    tuned = read_result(capsys, "tune")
    sweep(made, attempt, qrels, measure=["MRR"], folds=2, json=True, quiet=True)
    swept = read_result(capsys, "sweep")
    settings: list[list[str]] = [[], ["fusion.k_narrative=20"], ["fusion.k_narrative=60"]]
    for found in (tuned, swept):
        assert [trial["settings"] for trial in found["trials"]] == settings
        assert all(0 < trial["means"]["MRR"] <= 1 for trial in found["trials"])
    assert [one["settings"] for one in swept["runs"]] == settings
    assert all(Path(one["directory"]).is_dir() for one in swept["runs"])


@pytest.mark.slow
def test_the_checks_of_the_machine(capsys: Captured) -> None:
    doctor(json=True)
    found = read_result(capsys, "doctor")
    assert {"Python", "Java", "memory"} <= {one["subject"] for one in found}
    assert {one["state"] for one in found} <= {"ok", "note"}
