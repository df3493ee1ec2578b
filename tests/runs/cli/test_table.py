"""The table of commands: the groups of `keystone --help`, their order, and the advice after a wrong word."""

import re
from collections import Counter

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from keystone.runs.cli.main import LEFT_BY_COMMAND, app
from keystone.runs.cli.table import GROUPS, list_names, list_words, suggest

GROUP = get_command(app)
NAMES = list_names()


def show_help() -> str:
    return CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}).output


def test_every_command_is_in_one_group() -> None:
    assert sorted(NAMES) == sorted(GROUP.commands)  # type: ignore[attr-defined]
    assert len(NAMES) == len(set(NAMES)) == 33
    assert set(LEFT_BY_COMMAND) <= set(NAMES)


def test_help_shows_the_groups_and_their_commands_in_the_order_of_the_table() -> None:
    lines = re.findall(r"^(?:╭─ ([A-Z][\w ]+?) ─|│ ([a-z][a-z-]*)  )", show_help(), re.MULTILINE)
    shown = [title or name for title, name in lines]
    assert shown == [
        "Options",
        *(word for title, group in GROUPS.items() for word in (title, *(c.name for c in group))),
    ]


def test_a_command_takes_at_most_two_lines_of_help() -> None:
    lines = show_help().splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"│ [a-z][a-z-]*  ", line)]
    assert len(starts) == 33
    assert [lines[at] for at in starts if re.match(r"│ {6}", lines[at + 1]) and re.match(r"│ {6}", lines[at + 2])] == []


def test_the_line_of_validate_says_that_it_repairs() -> None:
    assert re.search(r"│ validate .*repair", show_help())


def test_each_word_leads_to_one_command_that_exists() -> None:
    words = list(list_words())
    assert [word for word, count in Counter(word for word, _ in words).items() if count > 1] == []
    for word, call in words:
        name, _, part = call.partition(" ")
        if name.startswith("--"):
            assert {name} <= {"--help", *(option for parameter in GROUP.params for option in parameter.opts)}
            continue
        command = GROUP.commands[name]  # type: ignore[attr-defined]
        options = {option for parameter in command.params for option in parameter.opts}
        assert not part or part.split()[0] in options | set(getattr(command, "commands", ())), word


@pytest.mark.parametrize(
    ("word", "call"),
    [
        pytest.param("repair", "validate --fix", id="repair"),
        pytest.param("Repair", "validate --fix", id="capital letter"),
        pytest.param("compare", "evaluate", id="compare"),
        pytest.param("metrics", "evaluate", id="metrics"),
        pytest.param("scoresheet", "score", id="scoresheet"),
        pytest.param("add", "index", id="add"),
        pytest.param("build", "index", id="build"),
        pytest.param("mcp", "serve --stdio", id="mcp"),
        pytest.param("help", "--help", id="help"),
        pytest.param("valdiate", "validate", id="a command, spelt wrongly"),
        pytest.param("evalaute", "evaluate", id="two letters exchanged"),
        pytest.param("reapir", "validate --fix", id="a word, spelt wrongly"),
    ],
)
def test_an_unknown_command_suggests_the_right_one(word: str, call: str) -> None:
    assert suggest(word)[0] == f"keystone {call}"
    shown = CliRunner().invoke(app, [word], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert shown.exit_code == 2
    assert f"No such command '{word}'. Did you mean 'keystone {call}'" in shown.output


def test_every_other_word_leads_to_the_list_of_commands() -> None:
    assert suggest("zzzz") == []
    shown = CliRunner().invoke(app, ["zzzz"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert shown.exit_code == 2
    assert "No such command 'zzzz'. All commands: 'keystone --help'." in shown.output


def test_one_letter_wrong_still_suggests_the_command() -> None:
    for name in NAMES:
        for at in range(1, len(name)):
            assert f"keystone {name}" in suggest(f"{name[:at]}x{name[at:]}") or len(name) < 4
