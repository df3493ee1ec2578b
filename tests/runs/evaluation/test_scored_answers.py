"""Scored answers by several judges: their agreement, their leaderboards, and what two runs with one id become."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from typer.testing import CliRunner

from keystone.indexing.errors import UserError
from keystone.runs.cli.main import app
from keystone.runs.evaluation.answers.files import NamedRun, name_apart
from keystone.runs.evaluation.nuggets.judge import read_submissions
from keystone.runs.evaluation.scored_answers import (
    CITATIONS,
    CRITERIA,
    NUGGETS,
    Kind,
    compare_labels,
    holds_answers,
    holds_scored_answers,
    judge_answers,
    keep_labels,
    score_answers,
)
from tests.support.runs.answer_files import make_record
from tests.support.runs.shared_task import write_scored_answers

UNCITED = '{"sentences": []}\n{"sentences": [{"citations": []}]}\n'


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scored_answers(tmp_path_factory.mktemp("answers"))


def list_folder(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_labels_agree_as_counted_by_hand(answers: Path) -> None:
    found = compare_labels(list_folder(answers / "model"), list_folder(answers / "people"))
    labels = [
        [nugget["assignment"] for path in list_folder(answers / kind) for line in path.read_text().splitlines()
         for nugget in json.loads(line)["nuggets"]]
        for kind in ("model", "people")
    ]  # fmt: skip
    equal = np.mean([a == b for a, b in zip(*labels, strict=True)])
    assert found.report()["nuggets"] == len(labels[0]) == 6 * 20 * 8
    assert found.report()["equal"] == pytest.approx(equal)
    kinds = sorted(set(labels[0]))
    chance = sum(labels[0].count(one) * labels[1].count(one) for one in kinds) / len(labels[0]) ** 2
    assert found.report()["kappa"] == pytest.approx((equal - chance) / (1 - chance))


def test_judges_by_their_labels_have_a_column_each(answers: Path) -> None:
    judges = {answers / kind: list_folder(answers / kind) for kind in ("model", "people")}
    judged = judge_answers([], judges)
    for path, own in zip(judges, judged.evaluations, strict=True):
        assert [one.mean("A") for one in own] == [one.mean("A") for one in score_answers(list_folder(path))]
    means = [[one.mean("A") for one in own] for own in judged.evaluations]
    shown = CliRunner().invoke(
        app, ["nuggets", "score", *(part for path in judges for part in ("--nuggets", str(path))), "--format", "json"]
    )
    tables = json.loads(shown.stdout)["tables"]
    columns = tables["A by each judge:"]
    assert {row["mean"] for row in columns} == set(np.mean(means, axis=0))
    (pair,) = tables["Agreement of judges:"]
    assert pair["judged by both"] == "960"
    assert pair["tau-b"] == pytest.approx(kendalltau(*means).statistic)


def test_judges_by_their_nuggets_have_the_answers_with_these(tmp_path: Path, answers: Path) -> None:
    ours = answers / "model" / "teamA-run1.jsonl"
    theirs, bank = tmp_path / "theirs.jsonl", tmp_path / "bank.jsonl"
    theirs.write_text(ours.read_text().replace("Fact", "Claim"))
    bank.write_text((answers / "nuggets.jsonl").read_text().replace("Fact", "Claim"))
    both = {answers / "nuggets.jsonl": [answers / "nuggets.jsonl"], bank: [bank]}
    judged = judge_answers([ours, theirs], both)
    assert [[one.name for one in own] for own in judged.evaluations] == [["teamA-run1"]] * 2
    assert (
        judged.evaluations[0][0]
        == judged.evaluations[1][0]
        == score_answers([ours], judged.evaluations[0][0].topics)[0]
    )
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(ours.read_text() + "\n".join(theirs.read_text().splitlines()[:10]))
    with pytest.raises(UserError, match="occurs more than once"):
        judge_answers([mixed], both)
    other = {bank: [bank], answers / "rubrics.jsonl": [answers / "rubrics.jsonl"]}
    with pytest.raises(UserError, match="holds another kind"):
        judge_answers([], other)
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text(theirs.read_text().replace("teamA-run1", "teamB-run1"))
    with pytest.raises(UserError, match="no run is judged by all"):
        judge_answers([ours, renamed], both)


def test_one_judge_alone_has_nothing_to_score(answers: Path) -> None:
    ours = answers / "model" / "teamA-run1.jsonl"
    with pytest.raises(UserError, match=r"teamA-run1.jsonl: found as both judges, expected two judges or answers"):
        judge_answers([], {ours: [ours]})


@pytest.mark.parametrize(("kind", "measure"), [("model", "A"), ("support", "precision"), ("rubrics", "rubric")])
@pytest.mark.parametrize("form", ["csv", "markdown", "latex", "json"])
def test_each_kind_has_each_form(answers: Path, kind: str, measure: str, form: str) -> None:
    command = "rubrics" if kind == "rubrics" else "nuggets"
    asked = [command, "score", str(answers / kind), "--sort", measure, "--format", form, "-q"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    text = shown.stdout
    assert all(part in text for part in (measure, "teamA-run1"))
    assert r"95 \% low" in text.replace("95 %", r"95 \%")
    if form == "csv":
        head, *rows = (line.split(",") for line in text.splitlines())
        assert (head[:4], len(rows)) == (["rank", "run", "team", measure], 6)


@pytest.mark.parametrize("judges", [["model"], ["--nuggets", "model", "--nuggets", "people"]])
def test_the_baseline_is_the_file_or_the_tag_of_a_run(answers: Path, judges: list[str]) -> None:
    asked = ["nuggets", "score", *(one if one.startswith("-") else str(answers / one) for one in judges)]
    second = list_folder(answers / "model")[1]
    by_file, by_tag = (
        CliRunner().invoke(app, [*asked, "--baseline", baseline, "--format", "json"])
        for baseline in (str(second), second.stem)
    )
    assert by_file.exit_code == 0, by_file.exception
    assert by_file.stdout == by_tag.stdout
    both = second.with_name("both.jsonl")
    both.write_bytes(b"".join(path.read_bytes() for path in list_folder(answers / "model")[:2]))
    refused = CliRunner().invoke(app, ["nuggets", "score", str(both), "--baseline", str(both)])
    both.unlink()
    assert "expected best, or the file or tag of one of the runs" in str(refused.exception)


@pytest.mark.parametrize(
    ("name", "kind", "label", "corrected"),
    [
        ("model", NUGGETS, b'"support"', b'"not_support"'),
        ("support", CITATIONS, b'"support": 2', b'"support": 1'),
        ("rubrics", CRITERIA, b'"satisfied"', b'"not_satisfied"'),
    ],
)
def test_no_label_that_a_person_corrected_is_lost(
    tmp_path: Path, answers: Path, name: str, kind: Kind, label: bytes, corrected: bytes
) -> None:
    made, out = kind.read(first := list_folder(answers / name)[0]), tmp_path / "out.jsonl"
    keep_labels(out, made, kind)
    out.touch()
    keep_labels(out, made, kind)
    out.write_bytes(first.read_bytes())
    keep_labels(out, made, kind)
    out.write_bytes(first.read_bytes().replace(label, corrected, 1))
    with pytest.raises(
        UserError, match=r"out\.jsonl: 1 label would be lost or changed, .*; name another file with --out"
    ):
        keep_labels(out, made, kind)
    out.write_bytes(first.read_bytes())
    with pytest.raises(UserError, match=r"out\.jsonl: 8 labels would be lost"):
        keep_labels(out, made[1:], kind)


def test_agree_reads_folders_of_labels_and_two_measures(tmp_path: Path, answers: Path) -> None:
    shown = CliRunner().invoke(app, ["agree", str(answers / "model"), str(answers / "people"), "--json"])
    found = json.loads(shown.stdout)["result"]
    assert sum(map(sum, found["counts"])) == 960
    assert {one["measure"] for one in found["measures"]} >= {"A", "V_strict"}
    board = tmp_path / "board.csv"
    board.write_text("rank,run,A,B,95 % low,95 % high\n1,x,0.5,0.1,0,1\n2,y,0.4,0.3,0,1\n3,z,0.3,0.2,0,1\n")
    shown = CliRunner().invoke(app, ["agree", str(board), "-m", "A", "-m", "B", "--json"])
    (one,) = json.loads(shown.stdout)["result"]["measures"]
    assert one["tau"] == pytest.approx(kendalltau([0.5, 0.4, 0.3], [0.1, 0.3, 0.2]).statistic)
    refused = CliRunner().invoke(app, ["agree", str(board), "-m", "A", "-m", "C"])
    assert "has no C; expected one of A, B" in str(refused.exception)


def test_agree_tells_the_fault_of_a_bad_file_beside_labels(tmp_path: Path, answers: Path) -> None:
    (tmp_path / "torn.jsonl").write_text('{"qid"')
    (tmp_path / "whole.jsonl").write_bytes((answers / "model" / "teamA-run1.jsonl").read_bytes())
    refused = CliRunner().invoke(app, ["agree", str(tmp_path), str(answers / "people")])
    assert str(refused.exception).startswith(f"{tmp_path / 'torn.jsonl'}:1: not JSON")


def test_the_runs_of_teams_with_one_run_id_are_the_same_for_two_judges(tmp_path: Path, answers: Path) -> None:
    for file in answers.glob("[mp]*/*"):
        records = [json.loads(line) | {"run_id": "run1"} for line in file.read_text().splitlines()]
        own = tmp_path / file.relative_to(answers)
        own.parent.mkdir(exist_ok=True)
        own.write_text("\n".join(map(json.dumps, records)))
    judges = {tmp_path / kind: list_folder(tmp_path / kind) for kind in ("model", "people")}
    names = [f"run1 ({path.name})" for path in list_folder(tmp_path / "model")]
    judged = judge_answers([], judges)
    assert [[one.name for one in own] for own in judged.evaluations] == [names, names]
    assert compare_labels(*judges.values()).report()["nuggets"] == 960
    assert int(judged.agreements[0].counts.sum()) == 960


def test_the_fault_of_each_bad_file_is_listed(tmp_path: Path, answers: Path) -> None:
    good = answers / "model" / "teamA-run1.jsonl"
    torn, wrong = tmp_path / "torn", tmp_path / "wrong"
    torn.write_text(good.read_text()[:50])
    wrong.write_text(good.read_text().replace("partial_support", "half", 1))
    with pytest.raises(UserError) as refused:
        score_answers([torn, good, wrong])
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [str(torn), str(wrong)]
    shown = CliRunner().invoke(app, ["nuggets", "score", str(torn), str(good), str(wrong), "--skip-bad", "--json"])
    assert [one["mean"]["A"] for one in json.loads(shown.stdout)["result"]["runs"]] == [
        score_answers([good])[0].mean("A")
    ]
    assert shown.stderr.count("left out: ") == 2
    page = tmp_path / "page.html"
    told = CliRunner().invoke(app, ["report", str(good), str(wrong), "--skip-bad", "--out", str(page)])
    assert (told.exit_code, page.read_text().count(f"left out: {wrong}:")) == (0, 1)
    assert CliRunner().invoke(app, ["nuggets", "score", str(torn), str(wrong), "--skip-bad"]).exit_code == 1


@pytest.mark.parametrize(
    ("text", "scored", "is_answers"),
    [
        ("1 Q0 a 1 1 t", False, False),
        ('{"metadata": {}, "answer": []}', False, True),
        ('{"topic_id": "1", "sentences": [{"text": "a", "citations": ["d"]}]}', False, True),
        (
            '{"topic_id": "1", "sentences": [{"text": "a", "citations": [{"reference": "d", "support": 1}]}]}',
            True,
            True,
        ),
        (f'{UNCITED}{{"sentences": [{{"citations": [{{"reference": "d", "support": 1}}]}}]}}', True, True),
        (f'{UNCITED}{{"sentences": [{{"citations": ["d"]}}]}}', False, True),
        ('{"qid": "1", "nuggets": []}', True, True),
        ('{"qid": "1", "criteria": []}', True, True),
        ("", False, False),
        ("[1]", False, True),
    ],
)
def test_the_first_line_tells_what_a_file_holds(tmp_path: Path, text: str, scored: bool, is_answers: bool) -> None:
    (tmp_path / "file").write_text(text)
    assert (holds_scored_answers(tmp_path / "file"), holds_answers(tmp_path / "file")) == (scored, is_answers)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "s", "t"]), st.sampled_from("xyz")), unique=True))
def test_no_two_files_share_a_name_unless_a_team_sends_a_run_twice(runs: list[tuple[str, str, str]]) -> None:
    try:
        names = name_apart([NamedRun(*run) for run in runs])
    except UserError:
        assert any(a[:2] == b[:2] and a[1] for i, a in enumerate(runs) for b in runs[i + 1 :])
        return
    assert len(set(names)) == len(names)
    assert all(run[0] in name for run, name in zip(runs, names, strict=True))


def test_two_teams_with_one_run_id_and_two_runs_in_a_file(tmp_path: Path) -> None:
    def write(name: str, *authors: tuple[str, str]) -> Path:
        records: list[dict[str, Any]] = []
        for topic, (team, run) in enumerate(authors):
            one = make_record("rag25")
            one["metadata"] |= {"team_id": team, "run_id": run, "narrative_id": str(topic), "topic_id": str(topic)}
            records.append(one)
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in records))
        return tmp_path / name

    first, second = write("a.jsonl", ("s", "r")), write("b.jsonl", ("t", "r"))
    assert [one.run_id for one in read_submissions([first, second])] == ["s-r", "t-r"]
    with pytest.raises(UserError, match=r"b\.jsonl: topic '1' is of run 'q', the first of run 'r'; expected one run"):
        read_submissions([first, write("b.jsonl", ("t", "r"), ("t", "q"))])
