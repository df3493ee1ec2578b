"""The judge as a class of TREC AutoJudge: the framework's own commands run it on answers and read its numbers."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.arena.tournament import Judgment, Task
from keystone.runs.evaluation.auto_judge import KeystoneJudge, compute_preferences, list_values, warn_of_gaps
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.sheet import Sheet
from tests.runs.evaluation.sheet.test_score_command import NUGGETS, RUBRICS, judge
from tests.support import programs
from tests.support.runs.answered_runs import NARRATIVES, write_lines
from tests.support.servers.chat import serving

COMMANDS = Path(sys.executable).parent
ANSWERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "good": {"1": ["Bees dance in circles near flowers.", "They dance."], "2": ["Ants walk on trails."]},
    "fair": {"1": ["They dance."]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Answers, topics and rubrics in the forms of the framework, and three stop words in place of NLTK's list."""
    (tmp_path / "nltk/corpora/stopwords").mkdir(parents=True)
    (tmp_path / "nltk/tokenizers/punkt").mkdir(parents=True)
    (tmp_path / "nltk/corpora/stopwords/english").write_text("a\nthe\nof\n")
    (tmp_path / "answers").mkdir()
    for run_id, own in ANSWERS.items():
        write_lines(tmp_path / "answers" / run_id, [make_report(run_id, *one) for one in own.items()])
    write_lines(
        tmp_path / "topics.jsonl",
        [{"request_id": id, "title": "t", "problem_statement": text} for id, text in NARRATIVES.items()],
    )
    write_lines(tmp_path / "rubrics.jsonl", RUBRICS)
    write_lines(tmp_path / "nuggets.jsonl", NUGGETS)
    return tmp_path


def make_report(run_id: str, topic_id: str, sentences: Sequence[str]) -> dict[str, Any]:
    """The line of an answer in the form of TREC RAG 2026."""
    return {
        "metadata": {
            "team_id": "t",
            "run_id": run_id,
            "narrative_id": topic_id,
            "narrative": NARRATIVES[topic_id],
            "type": "automatic",
            "run_desc": "d",
        },
        "references": ["shard_00001_1"],
        "answer": [{"text": text, "citations": [0]} for text in sentences],
    }


def call(folder: Path, command: str, *arguments: str | Path, **variables: str) -> Any:
    """Call a command of the framework."""
    if not (COMMANDS / command).exists():
        pytest.skip(f"{command} of autojudge-base is not installed: pip install 'autojudge-base>=1,<2'")
    environment = {**os.environ, "NLTK_DATA": str(folder / "nltk"), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"OPENAI_API_KEY": "k", **variables}
    return programs.run(
        [COMMANDS / command, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
    )


def run_judge(folder: Path, settings: Mapping[str, Any], **variables: str) -> dict[tuple[str, str, str], float]:
    """Run the judge with `auto-judge run`; returns the values by run, topic and measure."""
    workflow = {
        "judge_class": "keystone.runs.evaluation.auto_judge:KeystoneJudge",
        "create_nuggets": False,
        "judge": True,
        "settings": {"filebase": "ours", **settings},
    }
    (folder / "workflow.yml").write_text(yaml.safe_dump(workflow))
    inputs = "--workflow", "workflow.yml", "--rag-responses", "answers", "--rag-topics", "topics.jsonl"
    done = call(folder, "auto-judge", "run", *inputs, "--out-dir", "out", **variables)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in (folder / "out/ours.eval.txt").read_text().splitlines()]
    return {(run, topic, measure): float(value) for run, topic, measure, value in rows}


@pytest.mark.slow
def test_the_framework_runs_the_judge_by_rules_and_verifies_the_answers(folder: Path) -> None:
    found = run_judge(folder, {"rules": True, "rubrics": "rubrics.jsonl"})
    assert {measure for _, _, measure in found} == {"rubric", "rubric_binary", "preference"}
    assert [found["good", topic, "rubric"] for topic in ("1", "2", "all")] == [1.0, 1.0, 1.0]
    assert [found["fair", topic, "rubric"] for topic in ("1", "2", "all")] == [0.5, 0.0, 0.25]
    assert [found["good", topic, "preference"] for topic in ("1", "2", "all")] == [1.0, 0.5, 0.75]
    sheet = (folder / "out/ours.keystone/rubrics.jsonl").read_text().splitlines()
    assert len(sheet) == 3, "the verdicts on each answer are kept"
    verified = call(folder, "auto-judge-report", "verify", "--spec", "rag26", "answers/good", "answers/fair")
    assert verified.returncode == 0, verified.stderr


@pytest.mark.slow
def test_the_framework_gives_the_model_by_its_variables(folder: Path) -> None:
    with serving(model=judge) as server:
        found = run_judge(
            folder, {"nuggets": "nuggets.jsonl"}, OPENAI_MODEL="m", OPENAI_BASE_URL=server.url, HOME=str(folder)
        )
    assert found["good", "1", "V_strict"] == 1.0
    assert found["good", "1", "preference"] == 1.0
    assert "good" in (folder / "out/ours.keystone/nuggets.jsonl").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 3}, "settings.depth: unknown; expected one of track, judge, rubrics, nuggets, rules"),
        ({"track": "rag99"}, "settings.track: found 'rag99', expected one of"),
        ({"rubrics": 3}, "settings.rubrics: found 3, expected a path"),
        ({"rules": True, "judge": "x.yaml"}, "settings.rules: found a judge too, expected one of the two"),
        ({}, "expected judge, the YAML file of a model, or rules: true, or OPENAI_BASE_URL"),
    ],
)
def test_settings_that_do_not_fit_are_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], message: str
) -> None:
    nltk = pytest.importorskip("nltk")
    nltk.data.path.insert(0, str(folder / "nltk"))
    try:
        base = pytest.importorskip("autojudge_base")
    finally:
        nltk.data.path.remove(str(folder / "nltk"))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    reports = [report for path in sorted((folder / "answers").iterdir()) for report in base.load_report(path)]
    topics = base.load_requests_from_file(folder / "topics.jsonl")
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        KeystoneJudge().judge(reports, topics, base.LlmConfigBase.from_env(), outdir=folder / "out", **settings)


def test_a_topic_that_failed_counts_as_the_mean_of_the_others_with_a_warning() -> None:
    values = {"V_strict": np.array([1.0, np.nan, 0.5]), "A_strict": np.full(3, np.nan)}
    nuggets = [Evaluation("r", ("1", "2", "3"), values)]
    sheet = Sheet([], {"rubrics": "known", "battles": "spent"}, ["a nugget failed"], {"nuggets": nuggets})
    assert list_values(sheet, ["r"], [*"123"]) == {
        "V_strict": {("r", "1"): 1.0, ("r", "2"): 0.75, ("r", "3"): 0.5},
        "A_strict": {},
    }
    with pytest.warns(UserWarning, match="battles: spent|a nugget failed") as told:
        warn_of_gaps(sheet, {"rubrics": "known"})
    assert len(told) == 2


def test_a_tie_is_half_a_win_and_a_failure_is_no_battle() -> None:
    battles = [
        Judgment(Task("a", "b", "1", "a"), "A"),
        Judgment(Task("a", "c", "1", "c"), "Tie"),
        Judgment(Task("b", "c", "1", "b"), Failure("no reply")),
        Judgment(Task("a", "b", "2", "b"), "A"),
    ]
    assert compute_preferences(battles) == {
        ("a", "1"): 0.75,
        ("b", "1"): 0.0,
        ("c", "1"): 0.5,
        ("a", "2"): 0.0,
        ("b", "2"): 1.0,
    }
