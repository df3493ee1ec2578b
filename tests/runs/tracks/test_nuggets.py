"""Files of nuggets, RAGTIME's third task: judged as the organisers' model judges them, and repaired."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from keystone.runs.evaluation.nuggets.files import GoldAnswer, Nugget, NuggetBank, Source, write_nuggets
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import detect_track, fix, validate
from tests.support.runs.answer_files import HOW, NEWS, WHY, make_line
from tests.support.runs.command_line import keystone

RAGTIME26 = TRACKS["ragtime26"]
Change = Callable[[dict[str, Any]], Any]


def make_bank(topic: str = "1") -> dict[str, Any]:
    answers = [{"answer": "Because.", "references": list(NEWS)}, {"answer": "So.", "references": [NEWS[0]]}]
    metadata = {"team_id": "t", "topic_id": topic, "run_id": "a-run-of-twenty-5-letters", "run_desc": "A test."}
    return {
        "metadata": metadata,
        "nugget_bank": [{"question": "Why?", "aggregator_type": "AND", "answers": answers}],
    }


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def nugget(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["nugget_bank"][0]
    return found


CHANGES: dict[str, tuple[Change, set[str], set[str]]] = {
    "valid": (lambda _: None, set(), set()),
    "no bank": (lambda r: r.update(nugget_bank=[]), {"no nugget"}, set()),
    "a nugget that is text": (lambda r: r["nugget_bank"].append("Why?"), {"nugget"}, set()),
    "no question": (lambda r: nugget(r).pop("question"), {"no text"}, set()),
    "a blank question": (lambda r: nugget(r).update(question=" "), {"no text"}, set()),
    "another aggregator": (lambda r: nugget(r).update(aggregator_type="SUM"), {"aggregator"}, set()),
    "no aggregator": (lambda r: nugget(r).pop("aggregator_type"), set(), set()),
    "no gold answer": (lambda r: nugget(r).pop("answers"), set(), {"no gold answer"}),
    "answers of another type": (lambda r: nugget(r).update(answers={"So.": {}}), {"answers"}, set()),
    "an answer that is text": (lambda r: nugget(r).update(answers=["So."]), {"answers"}, set()),
    "no text of an answer": (lambda r: nugget(r)["answers"][0].pop("answer"), {"no text"}, set()),
    "no reference": (lambda r: nugget(r)["answers"][0].pop("references"), set(), {"no reference"}),
    "a reference that is a number": (
        lambda r: nugget(r)["answers"][0].update(references=[7]),
        {"id as a number", "id of another corpus"},
        set(),
    ),
    "a place in a document": (
        lambda r: nugget(r)["answers"][0].update(references=[{"doc_id": NEWS[0]}]),
        set(),
        set(),
    ),
    "an id of another corpus": (
        lambda r: nugget(r)["answers"][0].update(references=["d1"]),
        {"id of another corpus"},
        set(),
    ),
    "a repeated reference": (
        lambda r: nugget(r)["answers"][0]["references"].append(NEWS[0]),
        set(),
        {"repeated reference"},
    ),
    "two nuggets without a question": (
        lambda r: r["nugget_bank"].append(nugget(r).pop("question") and nugget(r)),
        {"no text"},
        set(),
    ),
    "a repeated question": (lambda r: r["nugget_bank"].append(nugget(r)), set(), {"repeated question"}),
    "no metadata": (lambda r: r.update(metadata=[]), {"metadata", "missing topic"}, set()),
    "no topic": (lambda r: r["metadata"].pop("topic_id"), {"no topic_id", "missing topic"}, set()),
    "an unknown topic": (lambda r: r["metadata"].update(topic_id="9"), {"unknown topic", "missing topic"}, set()),
    "no team": (lambda r: r["metadata"].pop("team_id"), {"no team_id"}, set()),
    "no description": (lambda r: r["metadata"].pop("run_desc"), set(), {"no run_desc"}),
    "a run id of 26 characters": (lambda r: r["metadata"].update(run_id="r" * 26), {"run id form"}, set()),
    "further metadata": (lambda r: r["metadata"].update(task="nuggets"), set(), set()),
}


@pytest.mark.usefixtures("stop_words")
@pytest.mark.parametrize("name", CHANGES)
def test_a_bank_is_judged_as_the_organisers_model_judges_it(name: str, tmp_path: Path) -> None:
    model = pytest.importorskip("autojudge_base.nugget_data").Ragtime26NuggetBank
    change, errors, warnings = CHANGES[name]
    change(record := make_bank())
    found = validate(write(tmp_path / "nuggets.jsonl", record), RAGTIME26, [WHY])
    assert {one.kind for one in found if one.severity == "error"} == errors
    assert {one.kind for one in found if one.severity == "warning"} == warnings
    try:
        model.model_validate(record)
    except ValidationError:
        assert errors


def test_each_topic_has_one_bank_of_one_run(tmp_path: Path) -> None:
    other = make_bank("2")
    other["metadata"]["run_id"] = "s"
    file = write(tmp_path / "nuggets.jsonl", make_bank(), make_bank(), other)
    assert {one.kind for one in validate(file, RAGTIME26, [WHY, HOW])} == {"repeated topic", "run id"}
    assert {one.kind for one in validate(file, TRACKS["rag26"], [WHY, HOW])} == {"nuggets"}


def test_a_blank_line_is_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path / "nuggets.jsonl", make_bank())
    file.write_text(f"\n{file.read_text()} \n")
    found = [(one.line, one.severity, one.kind) for one in validate(file, RAGTIME26, [WHY])]
    assert found == [(1, "warning", "blank line"), (3, "warning", "blank line")]


def test_a_bank_without_a_run_id_is_no_other_run(tmp_path: Path) -> None:
    bare = make_bank("2")
    bare["metadata"].pop("run_id")
    file = write(tmp_path / "nuggets.jsonl", make_bank(), bare)
    assert {one.kind for one in validate(file, RAGTIME26, [WHY, HOW])} == {"no run_id"}


def test_what_keystone_writes_is_valid_and_the_track_is_found(tmp_path: Path) -> None:
    nuggets = (Nugget("Why?", "vital", answers=(GoldAnswer("So.", (Source(NEWS[0]),)),), aggregator="OR"),)
    write_nuggets(file := tmp_path / "x.jsonl", [NuggetBank("1", nuggets, "", "r", "", "t", "A test.")], "ragtime")
    assert detect_track(file).name == "ragtime26"
    assert validate(file, detect_track(file), [WHY]) == []


def test_a_repair_keeps_the_meaning_of_a_bank(tmp_path: Path) -> None:
    record = make_bank()
    record["metadata"]["topic_id"] = 1
    nugget(record)["answers"][0]["references"] = [NEWS[0], NEWS[1], NEWS[0]]
    repairs, verdict = fix(write(tmp_path / "in.jsonl", record), tmp_path / "out.jsonl", RAGTIME26, [WHY])
    assert [one.message.split(":")[0] for one in repairs] == ["topic_id", "references"]
    assert verdict.violations == []
    assert json.loads((tmp_path / "out.jsonl").read_text()) == make_bank()


def test_a_bank_too_deep_to_write_stays_as_it_is(tmp_path: Path) -> None:
    record = make_bank()
    record["metadata"]["topic_id"] = 1
    file = write(tmp_path / "in.jsonl", record)
    file.write_text(file.read_text().replace("{", '{"x":' + "[" * 300 + "]" * 300 + ",", 1))
    repairs, _ = fix(file, tmp_path / "out.jsonl", RAGTIME26, [WHY])
    assert repairs == []
    assert (tmp_path / "out.jsonl").read_text() == file.read_text()


@pytest.mark.slow
def test_the_command_judges_a_bank_without_the_name_of_its_track(tmp_path: Path) -> None:
    write(tmp_path / "topics.jsonl", {"id": "1", "narrative": "Why?"})
    write(tmp_path / "bank.jsonl", make_bank())
    shown = keystone("validate", tmp_path / "bank.jsonl", "--topics", tmp_path / "topics.jsonl")
    assert shown.returncode == 0, shown.stdout
    assert "1 of 1 topic, 1 nugget, 2 answers" in shown.stdout
    assert "valid for ragtime26" in shown.stdout
    (tmp_path / "responses.jsonl").write_text(make_line("ragtime26") + "\n")
    mixed = keystone("validate", tmp_path, "--topics", tmp_path / "topics.jsonl", "--track", "ragtime26")
    assert mixed.returncode == 0, mixed.stdout
