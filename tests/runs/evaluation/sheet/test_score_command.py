"""The command `keystone score`: the sheet by rules and by a model, what it leaves out, bad files, foreseen cost."""

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.types import Topic
from keystone.runs.cli.commands.evaluate_command import score
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.evaluation.nuggets.score import FROM_FILES
from keystone.runs.evaluation.sheet import Asked, Judged, make_sheet, read_given
from keystone.runs.track_rules import TRACKS
from tests.support.runs.answer_files import HOW, WHY, make_record
from tests.support.runs.answered_runs import NARRATIVES, write_answered_run, write_answers, write_lines
from tests.support.servers.chat import serving

NUGGETS = [
    {
        "qid": "1",
        "query": NARRATIVES["1"],
        "nuggets": [{"text": "circles", "importance": "vital"}, {"text": "hives", "importance": "okay"}],
    }
]
RUBRICS = [
    {
        "qid": "1",
        "query": NARRATIVES["1"],
        "criteria": [{"text": "Bees dance in circles", "weight": 5}, {"text": "Volcanoes erupt", "weight": -3}],
    },
    {"qid": "2", "query": NARRATIVES["2"], "criteria": [{"text": "Ants walk on trails", "weight": 2}]},
]


def judge(body: dict[str, Any]) -> str:
    """A model that goes by words: of nuggets and criteria, of passages about colonies, and of answers that dance."""
    text = body["messages"][-1]["content"]
    if "[[Tie]]" in json.dumps(body["messages"]):
        a, b = (one.count("dance") for one in re.findall(r'<document id="[AB]">\n(.*?)\n</document>', text, re.DOTALL))
        return "[[A]]" if a > b else "[[B]]" if b > a else "[[Tie]]"
    system = body["messages"][0]["content"]
    if '"support": "full"' in system:
        return json.dumps({"support": "full" if "colonies" in text else "none"})
    answer, _, listed = text.partition("</document>")
    words = "satisfied", "not_satisfied"
    if "satisfied" not in system:
        words = "support", "not_support"
    statements = re.findall(r"^\d+\. (.*)$", listed, re.MULTILINE)
    return json.dumps({"labels": [words[0] if one in answer else words[1] for one in statements]})


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two run directories, one of which lacks a narrative, and the file of another team; also what judges them."""
    monkeypatch.chdir(tmp_path)
    sentences = ["Bees dance in circles near flowers.", "They dance."]
    good = write_answered_run(tmp_path / "runs/good", {"1": sentences, "2": ["Ants walk on trails."]})
    write_answered_run(tmp_path / "runs/fair", {"1": ["They dance."]})
    write_answers(tmp_path / "other.jsonl", "other", {"1": ["Nothing."], "2": ["Ants walk."]})
    (good / "narrative.trec").write_text("1 Q0 bees 1 2.0 good\n2 Q0 ants 1 1.0 good\n")
    (tmp_path / "qrels").write_text("1 0 bees 1\n2 0 wasps 1\n")
    write_lines(tmp_path / "nuggets.jsonl", NUGGETS)
    write_lines(tmp_path / "rubrics.jsonl", RUBRICS)


RUNS = [Path("runs/good"), Path("runs/fair"), Path("other.jsonl")]
OUT = Path("sheet")
GIVEN: Mapping[str, Any] = {"nuggets": Path("nuggets.jsonl"), "rubrics": Path("rubrics.jsonl")}


def read_sheet() -> dict[str, dict[str, Any]]:
    """Read sheet.json: the rows by run. `sheet.csv` says the same."""
    rows = json.loads((OUT / "sheet.json").read_bytes())["runs"]
    with (OUT / "sheet.csv").open() as file:
        assert [*csv.DictReader(file)] == [
            {name: "" if one is None else str(one) for name, one in row.items()} for row in rows
        ]
    return {row["run"]: row for row in rows}


@pytest.mark.slow
def test_rules_make_rubrics_and_battles_beside_the_measures_of_rankings(capsys: pytest.CaptureFixture[str]) -> None:
    score(RUNS, OUT, "rag25", qrels=Path("qrels"), rules=True, quiet=True, **GIVEN)
    shown = capsys.readouterr()
    rows = read_sheet()
    assert [*rows] == ["good", "fair", "other"]
    assert [row["answers"] for row in rows.values()] == [2, 1, 2]
    assert [row["rubric"] for row in rows.values()] == [1.0, 0.25, 0.5]
    assert [row["nDCG@10"] for row in rows.values()] == [0.5, None, None]
    assert rows["good"]["rating"] > rows["other"]["rating"]
    assert not {"V_strict", "support_recall"} & rows["good"].keys()
    assert shown.out.splitlines()[0].split() == [*rows["good"]]
    assert "left out: nuggets: rules do not judge this part; expected --judge" in shown.err
    assert "fair: no answer to 1 of 2 narratives, such as 2" in shown.err


def test_without_a_judge_the_sheet_has_counts_and_says_why_the_rest_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    score(RUNS[:1], OUT, "rag25", nuggets=GIVEN["nuggets"], json=True, quiet=True)
    result = json.loads(capsys.readouterr().out)["result"]
    assert [*result["runs"][0]] == ["run", "answers", "errors"]
    assert {part: reason.partition(";")[0] for part, reason in result["left_out"].items()} == {
        "nuggets": "found no judge",
        "rubrics": "expected --rubrics",
        "support": "found no judge",
        "battles": "expected two runs or more",
        "ranking": "expected --qrels",
    }


def test_rows_of_the_tracks_evaluator_are_scored_beside_answers_with_citations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "Bees dance in circles near flowers. They dance."
    rows = [{"run_id": "theirs", "qid": "1", "query": NARRATIVES["1"], "answer_text": text}]
    theirs = write_lines(Path("theirs.jsonl"), rows)
    asked = write_lines(Path("topics.jsonl"), [{"id": id, "narrative": text} for id, text in NARRATIVES.items()])
    score([theirs, Path("other.jsonl")], OUT, "rag25", asked, rubrics=GIVEN["rubrics"], rules=True, quiet=True)
    found = read_sheet()
    assert (found["theirs"]["answers"], found["theirs"]["errors"], found["theirs"]["rubric"]) == (1, None, 0.5)
    assert [found[name][head] for name in ("theirs", "other") for head in ("battles", "wins", "losses")] == [
        *(1, 1, 0),
        *(1, 0, 1),
    ]
    with (OUT / "ragdoll.csv").open() as file:
        own = {row["run_id"]: row for row in csv.DictReader(file)}
    assert [*own["theirs"]] == [
        *("run_id", "ternary_score", "binary_score", "arena_score", "n_judgments", "wins", "losses", "ties")
    ]
    assert [float(own[name]["arena_score"]) for name in found] == [row["rating"] for row in found.values()]
    score([theirs], OUT, "rag25", rubrics=GIVEN["rubrics"], rules=True, quiet=True)
    assert "left out: support: expected answers with citations" in capsys.readouterr().err
    write_lines(theirs, [*rows, {"run_id": "theirs", "qid": "2", "query": "x", "answer_text": 7}])
    with pytest.raises(UserError, match=r"^theirs\.jsonl:2: answer_text: expected a text, found 7$"):
        score([theirs], OUT, "rag25", rubrics=GIVEN["rubrics"], rules=True, quiet=True)


def test_battles_are_about_the_narratives_of_the_topics_alone() -> None:
    text = "Bees dance in circles near flowers."
    rows = [{"run_id": "theirs", "qid": id, "query": query, "answer_text": text} for id, query in NARRATIVES.items()]
    asked = write_lines(Path("topics.jsonl"), [{"id": "1", "narrative": NARRATIVES["1"]}])
    answers = [write_lines(Path("theirs.jsonl"), rows), Path("other.jsonl")]
    score(answers, OUT, "rag25", asked, rubrics=GIVEN["rubrics"], rules=True, quiet=True)
    assert [row["battles"] for row in read_sheet().values()] == [1, 1]


def test_support_of_files_alone_has_the_caution_that_their_topics_count(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads(Path("other.jsonl").read_text().splitlines()[0])
    record["metadata"]["narrative"] = NARRATIVES["1"]
    write_lines(Path("other.jsonl"), [record])
    cited = CitedAnswer("1", (CitedText("Bees live.", (Citation("bees", support="full"),)),), run_id="other")
    monkeypatch.setattr("keystone.runs.evaluation.sheet.judge_answers", lambda *_: Judged(cited=[cited]))
    topics = write_lines(Path("topics.jsonl"), [{"id": id, "narrative": text} for id, text in NARRATIVES.items()])
    for answers, given, cautioned in (RUNS[2:], None, True), (RUNS[2:], topics, False), (RUNS[:1], None, False):
        asked = Asked(answers, TRACKS["rag25"], given)
        assert (FROM_FILES in make_sheet(asked, read_given(asked), None, OUT).cautions) == cautioned


@pytest.mark.parametrize(("answered", "errors"), [([WHY, HOW], 0), ([WHY], 1)], ids=["whole", "a missing narrative"])
def test_errors_are_those_of_validation(answered: list[Topic], errors: int) -> None:
    write_lines(Path("team.jsonl"), [make_record("rag25", one) for one in answered])
    write_lines(Path("why.jsonl"), [{"id": one.id, "narrative": one.narrative} for one in (WHY, HOW)])
    score([Path("team.jsonl")], OUT, "rag25", topics=Path("why.jsonl"), quiet=True)
    assert read_sheet()["r"] == {"run": "r", "answers": len(answered), "errors": errors}


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        pytest.param("other.jsonl", '{"x": 1}', "other.jsonl: the keys x are those of no track", id="answers"),
        pytest.param(
            "rubrics.jsonl",
            '{"qid": "1"}',
            "rubrics.jsonl:1: expected a list or an object under criteria",
            id="rubrics",
        ),
        pytest.param("nuggets.jsonl", "{", "nuggets.jsonl:1: ", id="nuggets"),
        pytest.param("qrels", "1 0 bees", "qrels:1: expected 4 columns, found 3", id="judgments"),
        pytest.param("qrels", "9 0 bees 1", "runs/good/narrative.trec: none of its topics is judged", id="topics"),
    ],
)
def test_a_bad_file_is_named_before_anything_is_written(file: str, line: str, message: str) -> None:
    Path(file).write_text(f"{line}\n")
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        score(RUNS, OUT, "rag25", qrels=Path("qrels"), rules=True, quiet=True, **GIVEN)
    assert not OUT.exists()


def test_a_narrative_that_two_files_word_differently_leaves_out_battles_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in (("one", "Why?"), ("two", "Why so?")):
        record = json.loads(Path("other.jsonl").read_text().splitlines()[0])
        record["metadata"] |= {"run_id": name, "narrative": text}
        write_lines(Path(f"{name}.jsonl"), [record])
    score([Path("one.jsonl"), Path("two.jsonl")], OUT, "rag25", rubrics=GIVEN["rubrics"], rules=True, quiet=True)
    assert [row["rubric"] for row in read_sheet().values()] == [0.0, 0.0]
    assert "left out: battles: two.jsonl: topic '1': has another narrative" in capsys.readouterr().err


@pytest.mark.slow
def test_an_index_without_the_cited_texts_leaves_out_support_alone(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(Path("other.jsonl").read_text().splitlines()[0])
    record |= {"references": ["nowhere"], "answer": [{"text": "Bees live.", "citations": [0]}]}
    write_lines(Path("other.jsonl"), [record])
    model = {"name": "m", "urls": ["http://localhost:9/v1"], "key_env": "NO_KEY"}
    places = {"index": str(index.folder), "topics": "runs/topics.jsonl"}
    Path("judge.yaml").write_text(json.dumps({"run_id": "judge", "model": model, **places}))
    score(RUNS[2:], OUT, "rag25", rubrics=GIVEN["rubrics"], judge=Path("judge.yaml"), dry_run=True, json=True)
    told = json.loads(capsys.readouterr().out)["result"]
    assert told["left_out"]["support"] == f"{index.folder}: has no cited document or segment, such as 'nowhere'"
    assert told["total"]["likely"]["calls"] > 0


@pytest.mark.slow
def test_a_model_makes_every_column_and_is_asked_once_what_was_foreseen(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    cited = json.loads(Path("other.jsonl").read_text().splitlines()[0])
    cited |= {
        "references": ["bees"],
        "answer": [{"text": "Bees live.", "citations": [0]}, {"text": "So.", "citations": []}],
    }
    write_lines(Path("other.jsonl"), [cited])
    with serving(model=judge) as server:
        model = {"name": "m", "urls": [server.url], "key_env": "NO_KEY"}
        places = {"index": str(index.folder), "topics": "runs/topics.jsonl", "out": "kept"}
        Path("judge.yaml").write_text(json.dumps({"run_id": "judge", "model": model, **places}))

        def make(**more: Any) -> str:
            capsys.readouterr()
            score(
                RUNS,
                OUT,
                "rag25",
                qrels=Path("qrels"),
                judge=Path("judge.yaml"),
                json=True,
                quiet=True,
                **GIVEN,
                **more,
            )
            return capsys.readouterr().out

        foreseen = json.loads(make(dry_run=True))["result"]
        assert not OUT.exists()
        assert not server.requests
        made = make()
        assert len(server.requests) == foreseen["total"]["likely"]["calls"]
        assert make() == made
        assert len(server.requests) == foreseen["total"]["likely"]["calls"]
    assert not json.loads(made)["result"]["left_out"]
    rows = read_sheet()
    assert [row["V_strict"] for row in rows.values()] == [1.0, 0.0, 0.0]
    assert [row["A_strict"] for row in rows.values()] == [0.5, 0.0, 0.0]
    assert [row["rubric"] for row in rows.values()] == [1.0, 0.0, 0.0]
    assert [row["support_precision"] for row in rows.values()] == [0.0, 0.0, 0.5]
    assert [row["support_recall_hard"] for row in rows.values()] == [0.0, 0.0, 0.25]
    assert rows["good"]["rating"] > rows["fair"]["rating"] > rows["other"]["rating"]
    assert json.loads((OUT / "usage.json").read_bytes())["purposes"]["total"]["calls"] == len(server.requests)


@pytest.mark.slow
def test_a_model_that_decides_no_battle_leaves_the_other_scores(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(model=lambda body: judge(body) if "[[Tie]]" not in json.dumps(body["messages"]) else "A.") as server:
        score(
            RUNS, OUT, "rag25", set=[f"model={{name: m, key_env: NO_KEY, urls: ['{server.url}']}}"], quiet=True, **GIVEN
        )
    assert [row["V_strict"] for row in read_sheet().values()] == [1.0, 0.0, 0.0]
    assert "rating" not in read_sheet()["good"]
    assert "left out: battles: the model gave no verdict: arena:good:fair:1: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_spent_budget_makes_the_sheet_of_what_was_judged_and_a_larger_one_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(model=judge) as server:
        model = [f"model={{name: m, key_env: NO_KEY, urls: ['{server.url}']}}"]
        score(RUNS, OUT, "rag25", set=model, budget=["calls=3"], quiet=True, **GIVEN)
        assert len(server.requests) == 3
        assert "rating" not in read_sheet()["good"]
        assert "left out: battles: the model gave no verdict: arena:good:fair:1: the budget is spent" in (
            capsys.readouterr().err
        )
        score(RUNS, OUT, "rag25", set=model, budget=["calls=100"], quiet=True, **GIVEN)
        assert read_sheet()["good"]["rating"] > 1000
        bodies = [json.dumps(body["messages"]) for body in server.requests]
        assert len(bodies) == len(set(bodies))
