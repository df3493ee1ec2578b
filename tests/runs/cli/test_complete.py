"""Completion in the shell: every key that it offers is a setting, and every setting is offered."""

import re

import pytest
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.cli.options import complete_preset, complete_setting
from keystone.runs.config.read import PRESETS
from keystone.runs.config.reference import make_readers, make_reference


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
