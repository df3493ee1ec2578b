"""A shared task as its organiser holds it: runs of several teams, judgments of two judges, and scored answers."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keystone.runs.trec.run_files import write_run
from keystone.runs.trec.types import make_run

RELEVANT = 30
"""How many documents of each topic are relevant, with grades 1 and 2."""
JUDGED = 120
LABELS = ("not_support", "partial_support", "support")
VERDICTS = ("not_satisfied", "partially_satisfied", "satisfied")


def list_tags(runs: int) -> list[str]:
    """The tags of runs: three of each team, or fewer of the last."""
    return [f"team{chr(65 + number // 3)}-run{number % 3 + 1}" for number in range(runs)]


def write_shared_task(folder: Path, runs: int = 40, topics: int = 60, depth: int = 1000, seed: int = 1) -> Path:
    """Write `runs/TAG.trec`, `qrels.txt`, `second.qrels` and `topics.jsonl`. Runs differ in quality, topics in ease.

    Topics with a higher number are easier, and the first runs are better.
    """
    draw = np.random.default_rng(seed)
    (folder / "runs").mkdir(parents=True)
    grades = np.zeros(2 * depth)
    grades[:RELEVANT] = np.where(np.arange(RELEVANT) < RELEVANT // 3, 2, 1)
    ids = [str(100 + number) for number in range(topics)]
    ease = np.linspace(0.2, 2.5, topics)
    names = [f"doc{number:05}" for number in range(len(grades))]
    quality = np.linspace(3.5, 1.5, runs)
    for tag, own in zip(list_tags(runs), quality, strict=True):
        hits = {}
        for topic, easy in zip(ids, ease, strict=True):
            scores = own * easy * grades + draw.gumbel(0, 1, len(grades))
            best = np.argsort(-scores)[:depth]
            hits[topic] = [(names[place], float(scores[place])) for place in best.tolist()]
        write_run(folder / "runs" / f"{tag}.trec", make_run(tag, hits))
    flips = draw.random((topics, JUDGED)) < 0.05
    for file, changed in (("qrels.txt", np.zeros_like(flips)), ("second.qrels", flips)):
        lines = [
            f"{topic} 0 {names[place]} {int(0 if changed[row, place] else grades[place])}\n"
            for row, topic in enumerate(ids)
            for place in range(JUDGED)
        ]
        (folder / file).write_text("".join(lines))
    about = [{"id": topic, "title": f"What does theme {topic} mean to people?"} for topic in ids]
    (folder / "topics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in about))
    return folder


def write_scored_answers(folder: Path, runs: int = 6, topics: int = 20, seed: int = 1) -> Path:
    """Write what judges say of answers: nuggets in `model/` and `people/`, `support/` and `rubrics/`, one file per run.

    `nuggets.jsonl` has the nuggets of each topic, and `rubrics.jsonl` the rubric.
    """
    draw = np.random.default_rng(seed)
    facts = [{"text": f"Fact {number}.", "importance": "vital" if number < 4 else "okay"} for number in range(8)]
    criteria = [{"text": one["text"], "weight": 5 if one["importance"] == "vital" else 1} for one in facts]
    ids = [str(100 + number) for number in range(topics)]
    _write(folder / "nuggets.jsonl", [{"qid": topic, "query": "What?", "nuggets": facts} for topic in ids])
    _write(folder / "rubrics.jsonl", [{"qid": topic, "query": "What?", "criteria": criteria} for topic in ids])
    for tag, quality in zip(list_tags(runs), np.linspace(0.8, 0.3, runs).tolist(), strict=True):
        found: dict[str, list[object]] = {kind: [] for kind in ("model", "people", "support", "rubrics")}
        for topic in ids:
            labels = 2 - np.searchsorted([quality * 0.7, quality], draw.random(len(facts)))
            other = np.where(draw.random(len(facts)) < 0.15, draw.integers(0, 3, len(facts)), labels)
            head = {"qid": topic, "run_id": tag, "answer_text": "An answer."}
            for kind, own in (("model", labels), ("people", other)):
                marked = [one | {"assignment": LABELS[own[number]]} for number, one in enumerate(facts)]
                found[kind].append(head | {"nuggets": marked})
            graded = [one | {"verdict": VERDICTS[labels[number]]} for number, one in enumerate(criteria)]
            found["rubrics"].append(head | {"criteria": graded})
            cited = [[{"reference": "doc1", "support": int(label)}] for label in labels]
            sentences = [{"text": "A sentence.", "citations": own} for own in cited]
            found["support"].append({"topic_id": topic, "run_id": tag, "sentences": sentences})
        for kind, records in found.items():
            _write(folder / kind / f"{tag}.jsonl", records)
    return folder


def _write(path: Path, records: Sequence[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
