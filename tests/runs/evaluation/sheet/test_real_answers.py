"""The 301 answers of a real run of TREC RAG 2024, cut into three systems: each part of a sheet puts them in order.

`whole` has them as they are, `half` every second sentence, and `shuffled` the citations of the next sentence. Whether a
document supports a sentence is known from the answer as it was: what it cites there supports it in full.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keystone.runs.evaluation.arena.answers import read_answer_sets
from keystone.runs.evaluation.arena.play import run_battles
from keystone.runs.evaluation.arena.tournament import Settings
from keystone.runs.evaluation.nuggets.cited import read_cited_answers
from keystone.runs.evaluation.nuggets.score import score_cited
from keystone.runs.evaluation.rubrics import Criterion, Rubric, assign_rubrics, score_rubrics
from tests.support.places import SHARED
from tests.support.runs.answered_runs import write_lines

ANSWERS = SHARED / "trec-rag-material/answers.rag24.ragnarok-gpt-4o.jsonl.gz"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ANSWERS.exists(), reason="the answers of TREC RAG 2024 are not on this machine"),
]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The answers, each of which has a sentence or more."""
    with gzip.open(ANSWERS, "rt") as file:
        found = [json.loads(line) for line in file]
    assert len(found) == 301
    return found


def cut(row: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Make the answer of one of the three systems."""
    sentences = row["answer"]
    if run_id == "half":
        sentences = sentences[::2]
    if run_id == "shuffled":
        cited = [one["citations"] for one in sentences]
        sentences = [{**one, "citations": own} for one, own in zip(sentences, cited[1:] + cited[:1], strict=True)]
    return {**row, "run_id": run_id, "answer": sentences}


@pytest.fixture(scope="module")
def files(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The answer files of the three systems, the worst first."""
    folder = tmp_path_factory.mktemp("systems")
    names = ("half", "shuffled", "whole")
    return [write_lines(folder / f"{name}.jsonl", [cut(row, name) for row in rows]) for name in names]


def test_battles_by_rules_put_half_of_the_sentences_last(files: list[Path]) -> None:
    sets, narratives = read_answer_sets(files)
    board = run_battles(sets, narratives, Settings()).board
    rating = {one.run_id: one.rating for one in board.standings}
    assert rating["whole"] == pytest.approx(rating["shuffled"], abs=1e-3), "a battle shows no citations"
    assert rating["whole"] > rating["half"] + 50
    intervals = {one.run_id: one.interval for one in board.standings}
    assert intervals["whole"][0] > intervals["half"][1]


def test_rubrics_by_rules_put_half_of_the_sentences_last(files: list[Path], rows: list[dict[str, Any]]) -> None:
    asked = rows[::6]
    texts = [[one["text"] for one in row["answer"] if " " in one["text"]] for row in asked]  # one "sentence" is "and"
    criteria = [tuple(Criterion(text, 1) for text in own) for own in texts]
    rubrics = [Rubric(row["topic_id"], own, row["topic"]) for row, own in zip(asked, criteria, strict=True)]
    graded, _ = assign_rubrics(files, rubrics, "rubrics", None)
    mean = {one.name: one.mean("rubric") for one in score_rubrics(graded, [row["topic_id"] for row in asked])}
    assert mean["whole"] == mean["shuffled"] == 1
    assert 0.4 < mean["half"] < 0.8


def test_support_puts_shuffled_citations_last(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    records = []
    for row in rows:
        known = {one["text"]: {row["references"][n] for n in one["citations"]} for one in row["answer"]}
        for name in ("half", "shuffled", "whole"):
            sentences = []
            for one in cut(row, name)["answer"]:
                ids = [row["references"][n] for n in one["citations"]]
                cited = [{"reference": id, "support": "2" if id in known[one["text"]] else "0"} for id in ids]
                sentences.append({"text": one["text"], "citations": cited})
            records.append({"topic_id": row["topic_id"], "run_id": name, "sentences": sentences})
    cited_answers = read_cited_answers(write_lines(tmp_path / "support.jsonl", records))
    found = {one.name: one for one in score_cited(cited_answers, [row["topic_id"] for row in rows], 3)}
    precision = {name: one.mean("precision") for name, one in found.items()}
    recall = {name: one.mean("recall") for name, one in found.items()}
    cites = [sum(bool(one["citations"]) for one in row["answer"]) / len(row["answer"]) for row in rows]
    some = sum(any(one["citations"] for one in row["answer"]) for row in rows) / len(rows)
    assert precision["whole"] == pytest.approx(some)
    assert recall["whole"] == pytest.approx(sum(cites) / len(rows))
    assert precision["shuffled"] < 0.7 * precision["half"]
    assert recall["shuffled"] < 0.7 * min(recall["half"], recall["whole"])
