"""Damaged files of judges: each is read and scored, or refused by an error that names the file."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.arena.answers import read_answer_sets
from keystone.runs.evaluation.arena.play import read_arena
from keystone.runs.evaluation.arena.tournament import make_leaderboard
from keystone.runs.evaluation.nuggets.cited import read_cited_answers
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.evaluation.nuggets.score import score_cited
from keystone.runs.evaluation.rubrics import read_rubrics, score_rubrics
from tests.support.mutation import mutate

VERDICTS = [
    {
        "task_id": f"arena:a:b:{topic}",
        "qid": topic,
        "pair": ["a", "b"],
        "assistant_a_run_id": "a",
        "assistant_b_run_id": "b",
        "judge_verdict": verdict,
        "preferred_run_id": preferred,
        "status": "completed",
    }
    for topic, verdict, preferred in (("1", "A", "a"), ("2", "B", "b"), ("3", "Tie", None))
]
CRITERIA = [
    {"text": "Bees dance", "type": "explicit", "tier": "mandatory", "weight": 5, "verdict": "satisfied"},
    {"text": "Bees sting", "type": "implicit", "tier": "optional", "weight": -2, "verdict": "not_satisfied"},
]
SENTENCES = [
    {"sentenceID": 0, "text": "Bees dance.", "citations": [{"citationID": 0, "reference": "d", "support": "2"}]}
]
NUGGETS = [{"text": "circles", "importance": "vital", "assignment": "support"}]


def rank_arena(path: Path) -> None:
    arena = read_arena(path)
    make_leaderboard(arena.judgments, arena.run_ids, "fuzz")


FILES: Mapping[str, tuple[list[dict[str, Any]] | str, Callable[[Path], object]]] = {
    "judgments.jsonl": (VERDICTS, rank_arena),
    "pairwise.csv": (
        "run_a,run_b,shared_topics,valid_judgments,run_a_wins,run_b_wins,ties,run_a_preference_rate,"
        "run_b_preference_rate\na,b,9,9,5,3,1,0.611111,0.388889\n",
        rank_arena,
    ),
    "rubrics.jsonl": (
        [{"qid": "1", "domain": "d", "rubrics": [{"criterion": "Bees", "weight": -4, "axis": "Explicit Criteria"}]}],
        read_rubrics,
    ),
    "graded.jsonl": (
        [{"qid": "1", "run_id": "a", "query": "q", "criteria": CRITERIA}],
        lambda path: score_rubrics(read_rubrics(path), ["1"]),
    ),
    "nuggets.jsonl": ([{"qid": "1", "query": "q", "run_id": "a", "nuggets": NUGGETS}], read_nuggets),
    "support.jsonl": (
        [{"topic_id": "1", "narrative_id": "1", "run_id": "a", "sentences": SENTENCES}],
        lambda path: score_cited(read_cited_answers(path), ["1"], 3),
    ),
    "answers.jsonl": (
        [{"run_id": "a", "qid": "1", "query": "Why?", "answer_text": "One."}],
        lambda path: read_answer_sets([path]),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_good_before_they_are_damaged(tmp_path: Path, name: str) -> None:
    content, read = FILES[name]
    read(write(tmp_path / name, content))


def write(path: Path, content: list[dict[str, Any]] | str) -> Path:
    path.write_text(content if isinstance(content, str) else "".join(f"{json.dumps(one)}\n" for one in content))
    return path


def find_refusal(path: Path, read: Callable[[Path], object]) -> str | None:
    """The error by which a file is refused; None if it is read."""
    try:
        read(path)
    except UserError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{path}: {path.read_bytes()[:300]!r}") from error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("number", [1000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path: Path, number: int) -> None:
    refused, names = 0, list(FILES)
    for seed in range(number):
        content, read = FILES[names[seed % len(names)]]
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = write(folder / names[seed % len(names)], content)
        path.write_bytes(mutate(path.read_bytes(), Random(seed)))
        message = find_refusal(path, read)
        assert message is None or path.name in message, f"seed {seed}: {message}"
        refused += message is not None
        shutil.rmtree(folder)
    assert number / 4 < refused < number
