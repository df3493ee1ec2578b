"""The measures of task A of BioGen 2025: documents that support or contradict the sentences of answers.

Source: task_a_eval.py in the track's starter kit. Judgments are the rows of a CSV file with a qid, a sentence, a
citation with a line `PMID: NUMBER`, and a label.
"""

import csv
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_text
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.evaluate import Counts, Evaluation
from keystone.runs.tracks.grounded import read_grounded

COLUMNS = ("qid", "answer_sentence", "citation", "judgement")
MOST_BYTES = 2**30
MOST_COUNTED = 3
"""How many documents of each kind count for a sentence."""
_PMID = re.compile(r"(?im)^\s*pmid:\s*(\S+)")

Labels = Mapping[tuple[str, str], Mapping[str, str]]
"""The label of each judged document, by the answer's id and the letters of the sentence."""


class _Kind(NamedTuple):
    """A kind of documents of a sentence, and the labels that are right for it."""

    name: str
    right: Set[str]
    supports: bool


KINDS = (
    _Kind("support", {"supports"}, True),
    _Kind("support_relaxed", {"supports", "partial"}, True),
    _Kind("contradict", {"contradicts"}, False),
)


def evaluate_grounded(paths: Sequence[Path], judgments: Path) -> list[Evaluation]:
    """Measure files of grounded answers, each topic a judged answer: means over its sentences, from 0 to 1.

    `P` is the share of the judged documents that are right, 0 if none is judged. `R` is 1 if one of them is right.
    `relaxed` takes partial support, too. A missing answer counts 0. `UserError` for a file that is not CSV, and for
    one without a judged answer.
    """
    labels = _read_labels(judgments)
    return [_evaluate(path, labels, judgments) for path in paths]


def _evaluate(path: Path, labels: Labels, judgments: Path) -> Evaluation:
    topics = sorted({answer_id for answer_id, _ in labels})
    answers = read_grounded(path)
    if not (answered := answers.keys() & topics):
        raise UserError(f"{path}: none of its answers has judgments in {judgments}")
    values: dict[str, list[float]] = {f"{kind.name}_{letter}": [] for kind in KINDS for letter in "PR"}
    for answer_id in topics:
        rows: dict[str, list[float]] = {name: [] for name in values}
        for text, existing, grounds in answers.get(answer_id, ()):
            known = labels.get((answer_id, _letters(text)), {})
            new = [name for name in grounds.supporting if name not in existing]
            for kind in KINDS:
                named = (new if kind.supports else grounds.contradicting)[:MOST_COUNTED]
                found = [known[name] in kind.right for name in set(named) & known.keys()]
                rows[f"{kind.name}_P"].append(sum(found) / len(found) if found else 0.0)
                rows[f"{kind.name}_R"].append(float(any(found)))
        for name, own in rows.items():
            values[name].append(sum(own) / (len(own) or 1))
    arrays = {name: np.array(own) for name, own in values.items()}
    cautions = caution_about_topics(str(path), list(answers), topics, "an answer")
    return Evaluation(str(path), tuple(topics), arrays, Counts(len(topics), len(answered)), tuple(cautions))


def _read_labels(path: Path) -> Labels:
    """Read judgments. `UserError` for a file that is no CSV, lacks their columns, or has no row with a PMID."""
    rows = csv.DictReader(read_text(path, MOST_BYTES).removeprefix("\ufeff").splitlines(keepends=True))
    try:
        heads, listed = rows.fieldnames or (), list(rows)
    except csv.Error as error:
        found = f"{path}:{rows.line_num}: expected a CSV file, found a line that is not CSV"
        raise UserError(f"{found}: {error}") from error
    if missing := [name for name in COLUMNS if name not in heads]:
        found = ", ".join(heads) or "none"
        raise UserError(f"{path}:1: expected the columns {', '.join(COLUMNS)}, found {found}: {missing[0]} is missing")
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for row in listed:
        cited = _PMID.search(row["citation"] or "")
        if cited:
            key = (row["qid"] or "").strip(), _letters(row["answer_sentence"] or "")
            labels.setdefault(key, {})[cited[1]] = _read_label(row["judgement"] or "")
    if not labels:
        raise UserError(f"{path}: expected rows whose citation has a line 'PMID: NUMBER', found none")
    return labels


def _read_label(label: str) -> str:
    """Read a label in one of its spellings: supports, partial, contradicts, or another one."""
    folded = label.strip().lower()
    kinds = {"partial": "partial", "contradict": "contradicts", "support": "supports"}
    return next((kind for beginning, kind in kinds.items() if folded.startswith(beginning)), "other")


def _letters(text: str) -> str:
    """The letters and digits of a sentence, by which it is found, since judgments have other spaces and marks."""
    return "".join(filter(str.isalnum, text.casefold()))
