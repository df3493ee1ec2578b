"""The options that commands have in common: one name and one meaning everywhere, and completion in the shell."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.cli.options import OF_OTHER_TOOLS, complete_preset, complete_setting
from keystone.runs.cli.table import suggest
from keystone.runs.config.read import PRESETS
from keystone.runs.config.reference import make_readers, make_reference

TERMINAL = {"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}

COMMON: dict[str, tuple[list[str], bool]] = {
    "--quiet": (["--quiet", "-q"], True),
    "--json": (["--json"], True),
    "--threads": (["--threads"], False),
    "--out": (["--out"], False),
}
"""The common options: all their names, and whether they are flags."""
LACKING = {
    "--quiet": {},
    "--json": {
        "answer": "writes lines of JSON anyway",
        "demo": "prints what README shows",
        "serve": "answers by REST and MCP",
    },
    "--threads": {
        **dict.fromkeys(("search", "ask", "show"), "makes one request"),
        **dict.fromkeys(
            ("fuse", "validate", "evaluate", "report", "plot", "diagnose", "explain", "trace", "pool", "agree"),
            "reads files",
        ),
        **dict.fromkeys(("convert", "record", "doctor", "push", "pull"), "reads files or asks servers"),
        "score": "asks a model",
        "reproduce-track": "runs other commands",
        **{f"judge {name}": "asks a model" for name in ("use", "pair", "battles")},
        **{f"nuggets {name}": "asks a model" for name in ("create", "assign", "support", "score", "convert")},
        **{f"rubrics {name}": "asks a model" for name in ("create", "assign", "score", "convert")},
    },
    "--out": {
        **dict.fromkeys(("search", "ask", "show", "explain", "trace", "replay", "judge use", "agree"), "prints only"),
        **dict.fromkeys(("tune", "sweep", "serve"), "writes where the configuration says"),
        "validate": "--fix FILE writes the repaired file",
        "convert": "OUT is the second argument",
        "push": "the hub is what it writes to",
    },
}
"""The commands without a common option, each with the reason."""


def list_commands() -> Iterator[tuple[str, Any]]:
    group: Any = get_command(app)
    for name, command in group.commands.items():
        parts = getattr(command, "commands", None)
        yield from ((f"{name} {part}", own) for part, own in parts.items()) if parts else ((name, command),)


COMMANDS = dict(list_commands())


@pytest.mark.parametrize("option", COMMON)
def test_each_command_has_each_common_option_or_a_reason(option: str) -> None:
    names, is_flag = COMMON[option]
    found = {
        name: parameter
        for name, command in COMMANDS.items()
        for parameter in command.params
        if {option, *names} & set(parameter.opts)
    }
    assert sorted(COMMANDS.keys() - found.keys()) == sorted(LACKING[option])
    for name, parameter in found.items():
        assert (parameter.opts, bool(parameter.is_flag)) == (names, is_flag), name


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command, own in OF_OTHER_TOOLS.items() for option in own]
)
def test_the_error_for_an_option_of_another_tool_says_what_to_type(command: str, option: str) -> None:
    assert option not in {name for parameter in COMMANDS[command].params for name in parameter.opts}
    shown = CliRunner().invoke(app, [command, option, "x"], env=TERMINAL)
    assert shown.exit_code == 2
    advice = OF_OTHER_TOOLS[command][option]
    assert f"No such option: {option}; {advice}." in shown.output
    known = {name for own in COMMANDS.values() for parameter in own.params for name in parameter.opts}
    assert {word for word in advice.split() if word.startswith("--")} <= known


@pytest.mark.parametrize(
    ("word", "call"),
    [
        *((f"Comb{name}", f"fuse --method {name.lower()}") for name in ("MIN", "MED", "MAX", "SUM", "ANZ", "MNZ")),
        ("ragnarok", "answer"),
        ("pyserini", "index"),
        ("trec_eval", "evaluate"),
        ("ir_measures", "evaluate"),
        ("ranx", "evaluate"),
    ],
)
def test_the_names_of_the_field_lead_to_a_command(word: str, call: str) -> None:
    assert suggest(word) == [f"keystone {call}"]


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    (tmp_path / "a.trec").write_text("1 Q0 d 1 0.5 a\n1 Q0 e 2 0.4 a\n")
    (tmp_path / "qrels").write_text("1 0 e 1\n")
    return tmp_path


def evaluate(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(
        app,
        ["evaluate", str(folder / "a.trec"), "--qrels", str(folder / "qrels"), "-m", "RR", *arguments],
        env=TERMINAL,
    )


def test_json_prints_and_out_writes(judged: Path) -> None:
    printed = evaluate(judged, "--json")
    told = json.loads(printed.stdout)
    assert (told["command"], told["input"]) == ("evaluate", [str(judged / "a.trec")])
    assert told["result"]["runs"][0]["mean"] == {"RR": 0.5}
    assert evaluate(judged, "--out", str(judged / "scores")).exit_code == 0
    assert json.loads((judged / "scores").read_bytes()) == told["result"]


@pytest.mark.parametrize("way", ["--json {}", "--json={}"])
def test_json_with_a_file_still_writes_it_and_says_what_to_type(judged: Path, way: str) -> None:
    shown = evaluate(judged, *way.format(judged / "scores.json").split())
    assert shown.exit_code == 0
    assert "its name now follows --out" in shown.stderr
    assert json.loads((judged / "scores.json").read_bytes())["runs"][0]["mean"] == {"RR": 0.5}


def test_json_before_a_run_file_takes_it_as_a_run(judged: Path) -> None:
    shown = CliRunner().invoke(
        app, ["evaluate", "--json", str(judged / "a.trec"), "--qrels", str(judged / "qrels")], env=TERMINAL
    )
    assert json.loads(shown.stdout)["command"] == "evaluate"
    assert (judged / "a.trec").read_text().startswith("1 Q0 d")


def test_a_run_directory_stands_for_its_last_ranking(judged: Path) -> None:
    made = judged / "out/r"
    made.mkdir(parents=True)
    model = {"name": "m", "urls": ["http://localhost:9/v1"]}
    config = {"run_id": "r", "index": "index", "topics": "topics", "grading": {"method": "grid"}, "model": model}
    (made / "config.yaml").write_text(json.dumps(config))
    run = (judged / "a.trec").read_text()
    (made / "narrative.trec").write_text(run)
    alone = json.loads(evaluate(judged, str(made), "--json").stdout)["result"]["runs"]
    assert [one["mean"]["RR"] for one in alone] == [0.5, 0.5]
    (made / "keystone.trec").write_text(run.replace("e 2 0.4", "e 2 0.6"))
    graded = json.loads(evaluate(judged, str(made), "--json").stdout)["result"]["runs"]
    assert [one["mean"]["RR"] for one in graded] == [0.5, 1.0]
    fused = judged / "fused.trec"
    assert CliRunner().invoke(app, ["fuse", "-q", str(made), str(made), "--out", str(fused)]).exit_code == 0
    assert fused.read_text().startswith("1 Q0 e 1 ")


def test_all_presets_are_completed() -> None:
    assert complete_preset("") == list(PRESETS)
    assert complete_preset("keys") == ["keystone"]
    assert complete_preset("none") == []


def test_the_keys_are_those_of_the_reference() -> None:
    sections = re.split(r"^## ", f"{make_reference()}\n{make_readers()}", flags=re.MULTILINE)[1:]
    expected = set()
    for section in sections:
        head, _, body = section.partition("\n")
        above = "" if head == "The run" else f"{head.split('`')[1]}."
        expected |= {f"{above}{name}=" for name in re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)}
    offered = set(complete_setting(""))
    parts = {f"{key.rpartition('.')[0]}=" for key in offered}
    expected = {key for key in expected if ".NAME." not in key}  # whose names are the user's own
    assert expected - offered <= parts  # such as model=, which is offered by its keys
    assert offered <= expected


def test_a_key_is_completed_up_to_its_value() -> None:
    assert complete_setting("retrieval.dep") == ["retrieval.depth="]
    assert complete_setting("retrieval.depth=5") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param("keystone run --preset key", "keystone", id="preset"),
        pytest.param("keystone tune --set retrieval.dep", "retrieval.depth=", id="setting"),
        pytest.param("keystone convert --to nugget-", "nugget-qrels", id="form to write"),
        pytest.param("keystone convert --from leader", "leaderboard", id="form to read"),
    ],
)
def test_the_shell_is_given_the_completions(words: str, found: str) -> None:
    asked = {"_KEYSTONE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    shown = CliRunner().invoke(app, prog_name="keystone", env=asked)
    assert shown.output.split() == [found]
