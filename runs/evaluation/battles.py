"""Battles of answers: which of two a model prefers, narrative by narrative in both orders, and the outcome."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keystone.generation.grading.rate_answers import AnswerPair, Battle, BothOrders, judge_battles, score_choices
from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.files import Submission, read_submission
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.kept import Item, keep_items
from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.trec.arrays import Floats

CREDIT: Mapping[str, float] = {"A": 1.0, "tie": 0.5, "B": 0.0}
"""What a verdict gives the answer that was shown first."""
TIE = "Tie"
"""A tie in the file of verdicts, as RAGDoll spells it."""
UNFOUGHT: Mapping[float, tuple[str, str]] = {1.0: ("A", "B"), 0.5: (TIE, TIE), 0.0: ("B", "A")}
"""The verdicts of both orders by the outcome, where an answer is missing."""


@dataclass(frozen=True, slots=True)
class Fight:
    """The battles over one narrative. In the first, `one` was shown as A, in the second `other`.

    If only one file has an answer, nobody was asked, and `battles` is None.
    """

    topic_id: str
    battles: BothOrders | None
    outcome: float | None
    """1 if the first file won, 0 if the second one did, 0.5 for a tie. None: a verdict is missing."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answer files by name, the fights over their narratives, the model that judged, and reasons for caution."""

    first: str
    second: str
    judge: str
    fights: tuple[Fight, ...]
    cautions: tuple[str, ...] = ()


def judge_pair(
    paths: tuple[Path, Path], narratives: Mapping[str, str], config: RunConfig, run_with_model: RunWithModel
) -> tuple[Pair, dict[str, str]]:
    """Judge two answer files narrative by narrative; also returns the narratives by topic that were judged.

    The topics are those that either file answers. If one answer is missing, the other one wins without asking, and two
    missing answers tie. `UserError` without a model, if no such topic has a narrative, and if no narrative has an
    outcome.
    """
    judge = config.require_model().name
    first, second = map(read_submission, paths)
    answered = {**first.answers, **second.answers}
    asked = {topic_id: text for topic_id, text in narratives.items() if topic_id in answered}
    if not asked:
        ids = f"they look like {next(iter(answered))!r}, those of the narratives like {next(iter(narratives), '')!r}"
        raise UserError(f"{first.name}, {second.name}: none of their topics has a narrative: {ids}")
    texts = {topic_id: (first.get_text(topic_id), second.get_text(topic_id)) for topic_id in asked}
    both = {topic_id: AnswerPair(asked[topic_id], *own) for topic_id, own in texts.items() if all(own)}
    found = ask_model(run_with_model, lambda model: judge_battles(model, list(both.values())))
    battles = dict(zip(both, found, strict=True))
    fights = tuple(
        Fight(topic_id, battles[topic_id], decide(*battles[topic_id]))
        if topic_id in battles
        else Fight(topic_id, None, 0.5 + 0.5 * (bool(own[0]) - bool(own[1])))
        for topic_id, own in texts.items()
    )
    cautions = list[str]()
    for file in (first, second):
        cautions += caution_about_topics(file.name, list(file.answers), list(asked), "an answer", "narrative")
    cautions += [f"{one.topic_id}: no verdict: {reason}" for one in fights if (reason := _find_failure(one))]
    if all(one.outcome is None for one in fights):
        raise UserError(f"the model gave no verdict: {cautions[-1]}")
    return Pair(*_name(first, second), judge, fights, tuple(cautions)), asked


def _name(first: Submission, second: Submission) -> tuple[str, str]:
    """Name two files by their runs, or by their paths if both runs have the same name."""
    if first.run_id and second.run_id and first.run_id != second.run_id:
        return first.run_id, second.run_id
    return first.name, second.name


def _find_failure(one: Fight) -> str:
    return next((own.reason for own in one.battles or () if isinstance(own, Failure)), "")


def decide(first: Battle | Failure, second: Battle | Failure) -> float | None:
    """Decide a narrative from both orders: a win only if both agree, else a tie; None without two verdicts."""
    if isinstance(first, Failure) or isinstance(second, Failure):
        return None
    return score_choices((first.verdict, second.verdict))


def write_verdicts(path: Path, pair: Pair, narratives: Mapping[str, str]) -> None:
    """Write a line for each judged order, with the keys of RAGDoll's arena. The file appears when it is whole.

    `UserError` if the file has a verdict that would be lost or changed.
    """
    lines = [line for one in pair.fights for line in _list_lines(pair, one, narratives[one.topic_id])]
    nouns = "verdict", "verdicts"
    keep_items(path, nouns, lambda out: _list_items(line for _, line in read_json_lines(out)), _list_items(lines))
    write_json_lines(path, lines)


def _list_items(lines: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """List the verdicts that a judge gave. Where a request failed or an answer is missing, there is none."""
    for line in lines:
        if line.get("model") and line.get("status") != "failed":
            first, topic, second = (str(line.get(key)) for key in ("assistant_a_run_id", "qid", "assistant_b_run_id"))
            yield (first, topic, f"against {second}"), line


def _list_lines(pair: Pair, fight: Fight, narrative: str) -> list[dict[str, Any]]:
    both = (pair.first, pair.second), (pair.second, pair.first)
    if fight.battles is None:
        verdicts = UNFOUGHT[fight.outcome or 0.0]
        lines = [{"judge_verdict": one, "status": "completed", "reason": "an answer is missing"} for one in verdicts]
    else:
        lines = [_encode(battle, pair.judge) for battle in fight.battles]
    found = []
    for (a, b), line in zip(both, lines, strict=True):
        place = {"task_id": f"arena:{a}:{b}:{fight.topic_id}", "qid": fight.topic_id, "query": narrative}
        winner = {"A": a, "B": b}.get(line["judge_verdict"] or "")
        found.append({**place, "assistant_a_run_id": a, "assistant_b_run_id": b, "preferred_run_id": winner, **line})
    return found


def _encode(battle: Battle | Failure, judge: str) -> dict[str, Any]:
    if isinstance(battle, Failure):
        return {"judge_verdict": None, "model": judge, "status": "failed", "error": battle.reason}
    verdict = battle.verdict.replace("tie", TIE)
    marks = {"mark_a": battle.mark_a, "mark_b": battle.mark_b, "reason": battle.reason}
    return {"judge_verdict": verdict, "model": judge, "status": "completed", **marks}


Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of the battles of a pair, for its first file. Intervals of 95 % are by bootstrap over narratives.

    Numbers that cannot be computed, such as marks of answers that nobody saw, are NaN.
    """

    won: int
    lost: int
    tied: int
    unjudged: int
    """The narratives without two verdicts."""
    win_share: float
    """The share of narratives won, where a tie counts half."""
    win_interval: Interval
    p_sign: float
    """p of the two-sided sign test on narratives that were won or lost."""
    mark: float
    other_mark: float
    mark_difference: float
    mark_interval: Interval
    agreeing: int
    """The narratives on which both orders say the same."""
    judged: int
    """The narratives that the model judged in both orders."""
    first_slot_share: float
    """The share of verdicts for the answer that was shown first, where a tie counts half; .5 without bias."""
    first_slot_interval: Interval


def summarise_pair(pair: Pair) -> Summary:
    """Summarise the battles of a pair. Marks are means over both orders, then over narratives."""
    from scipy.stats import binomtest

    outcomes = np.array([one.outcome for one in pair.fights if one.outcome is not None])
    judged = [
        (one, other)
        for fight in pair.fights
        for one, other in [fight.battles or (Failure(""), Failure(""))]
        if isinstance(one, Battle) and isinstance(other, Battle)
    ]
    marks = np.array([((one.mark_a + other.mark_b) / 2, (one.mark_b + other.mark_a) / 2) for one, other in judged])
    marks = marks.reshape(-1, 2)
    differences = marks[:, 0] - marks[:, 1]
    slots = np.array([(CREDIT[one.verdict] + CREDIT[other.verdict]) / 2 for one, other in judged])
    won, lost = int(np.count_nonzero(outcomes == 1)), int(np.count_nonzero(outcomes == 0))
    return Summary(
        won,
        lost,
        len(outcomes) - won - lost,
        len(pair.fights) - len(outcomes),
        _mean(outcomes),
        find_bootstrap_interval(outcomes),
        float(binomtest(won, won + lost).pvalue) if won + lost else float("nan"),
        _mean(marks[:, 0]),
        _mean(marks[:, 1]),
        _mean(differences),
        find_bootstrap_interval(differences),
        sum(CREDIT[one.verdict] + CREDIT[other.verdict] == 1 for one, other in judged),
        len(judged),
        _mean(slots),
        find_bootstrap_interval(slots),
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
