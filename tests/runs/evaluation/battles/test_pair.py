"""Battles of two answer files: outcomes by both orders, their numbers, and the file of verdicts."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.rate_answers import Battle
from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.battles import Fight, Pair, decide, judge_pair, summarise_pair, write_verdicts
from tests.support.models.scripted import Scripted, run_with
from tests.support.runs.answered_runs import judge, write_answers

A, B, TIE = Battle("A", 4, 2, "So."), Battle("B", 2, 5, "So."), Battle("tie", 3, 3, "So.")
NARRATIVES = {name: f"Dance {name}?" for name in "1234"}
CONFIG = ["run_id=r", "index=i", "topics=t", "model.name=a judge"]


def fight(
    paths: tuple[Path, Path], say: Callable[[str], str] = judge, narratives: dict[str, str] = NARRATIVES
) -> tuple[Pair, Scripted]:
    model = Scripted(lambda request: say(request.messages[1][1]))
    pair, asked = judge_pair(paths, narratives, read_config(None, CONFIG), run_with(model))
    assert asked.items() <= narratives.items()
    return pair, model


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    one = {"1": ["Bees dance.", "They dance."], "2": ["Ants."], "3": ["Bees dance."], "5": ["Bees."]}
    other = {"1": ["Bees dance."], "2": ["Ants dance."], "4": ["Bees dance."]}
    return write_answers(tmp_path / "a.jsonl", "one", one), write_answers(tmp_path / "b.jsonl", "other", other)


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        (A, B, 1),
        (B, A, 0),
        (A, A, 0.5),
        (B, B, 0.5),
        (A, TIE, 0.5),
        (TIE, A, 0.5),
        (TIE, TIE, 0.5),
        (A, Failure("no"), None),
        (Failure("no"), B, None),
    ],
)
def test_a_win_needs_both_orders(first: Battle | Failure, second: Battle | Failure, outcome: float | None) -> None:
    assert decide(first, second) == outcome


def test_files_fight_over_all_narratives_that_either_answers(files: tuple[Path, Path]) -> None:
    pair, model = fight(files)
    assert (pair.first, pair.second, pair.judge) == ("one", "other", "a judge")
    assert {one.topic_id: one.outcome for one in pair.fights} == {"1": 1, "2": 0, "3": 1, "4": 0}
    assert len(model.requests) == 4  # both orders of 1 and 2; the others have one answer
    assert any("topics without a narrative, which are left out: 1 of 4, such as 5" in one for one in pair.cautions)


def test_exchanged_files_have_the_opposite_outcome(files: tuple[Path, Path]) -> None:
    pair, _ = fight(files)
    turned, _ = fight(files[::-1])
    assert [one.outcome for one in turned.fights] == [1 - (one.outcome or 0) for one in pair.fights]
    one, other = summarise_pair(pair), summarise_pair(turned)
    assert (one.won, one.lost, one.tied) == (other.lost, other.won, other.tied)
    assert (one.mark, one.other_mark) == (other.other_mark, other.mark)
    assert one.mark_difference == -other.mark_difference
    assert one.p_sign == other.p_sign


def test_a_judge_that_prefers_the_first_slot_gives_ties_and_is_noticed(files: tuple[Path, Path]) -> None:
    pair, _ = fight(files, lambda _: json.dumps({"reason": "First.", "a": 4, "b": 3, "better": "A"}))
    found = summarise_pair(pair)
    assert [one.outcome for one in pair.fights] == [0.5, 0.5, 1, 0]
    assert (found.agreeing, found.judged, found.first_slot_share) == (0, 2, 1)
    assert (found.mark, found.other_mark) == (3.5, 3.5)


def test_verdicts_have_the_keys_of_an_arena_and_name_the_winner(files: tuple[Path, Path], tmp_path: Path) -> None:
    pair, _ = fight(files)
    write_verdicts(tmp_path / "out.jsonl", pair, NARRATIVES)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[1] == {
        "task_id": "arena:other:one:1",
        "qid": "1",
        "query": "Dance 1?",
        "assistant_a_run_id": "other",
        "assistant_b_run_id": "one",
        "preferred_run_id": "one",
        "judge_verdict": "B",
        "model": "a judge",
        "status": "completed",
        "mark_a": 2,
        "mark_b": 3,
        "reason": "By dances.",
    }
    preferred = [(one["qid"], one["judge_verdict"], one["preferred_run_id"]) for one in lines]
    assert preferred == [
        ("1", "A", "one"),
        ("1", "B", "one"),
        ("2", "B", "other"),
        ("2", "A", "other"),
        ("3", "A", "one"),
        ("3", "B", "one"),
        ("4", "B", "other"),
        ("4", "A", "other"),
    ]
    assert lines[4]["reason"] == "an answer is missing"


def test_ties_and_failures_prefer_nobody(files: tuple[Path, Path], tmp_path: Path) -> None:
    tie = json.dumps({"reason": "Alike.", "a": 3, "b": 3, "better": "tie"})
    pair, _ = fight(files, lambda user: tie if "Dance 1?" in user else "Both.")
    write_verdicts(tmp_path / "out.jsonl", pair, NARRATIVES)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()][:4]
    assert [one["judge_verdict"] for one in lines] == ["Tie", "Tie", None, None]
    assert [one["preferred_run_id"] for one in lines] == [None] * 4
    assert [one["status"] for one in lines] == ["completed", "completed", "failed", "failed"]
    assert summarise_pair(pair).unjudged == 1
    assert any(one.startswith("2: no verdict: ") for one in pair.cautions)


def test_no_verdict_that_stands_is_lost_and_a_failed_one_is_made(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    write_verdicts(out, fight(files, lambda user: judge(user) if "Dance 1?" in user else "Both.")[0], NARRATIVES)
    pair, _ = fight(files)
    for _ in range(2):
        write_verdicts(out, pair, NARRATIVES)
    assert '"failed"' not in out.read_text()
    out.write_text(corrected := out.read_text().replace("By dances.", "By songs.", 1))
    lost = r"out\.jsonl: 1 verdict would be lost or changed, such as that of run 'one' and topic '1': 'against other'"
    with pytest.raises(UserError, match=lost):
        write_verdicts(out, pair, NARRATIVES)
    with pytest.raises(UserError, match="4 verdicts would be lost"):
        write_verdicts(out, fight(files[::-1], narratives={"4": "Dance 4?"})[0], NARRATIVES)
    assert out.read_text() == corrected


def test_where_an_answer_was_missing_a_verdict_may_follow(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    answered = files[1].read_text()
    write_answers(files[1], "other", {"2": ["Ants dance."]})
    write_verdicts(out, fight(files)[0], NARRATIVES)
    assert "an answer is missing" in out.read_text()
    files[1].write_text(answered)
    write_verdicts(out, fight(files, narratives={name: NARRATIVES[name] for name in "12"})[0], NARRATIVES)
    assert "an answer is missing" not in out.read_text()


def test_files_of_one_run_go_by_their_paths(tmp_path: Path) -> None:
    paths = tuple(write_answers(tmp_path / name, "r", {"1": ["Bees dance."]}) for name in ("a.jsonl", "b.jsonl"))
    pair, _ = fight((paths[0], paths[1]))
    assert (pair.first, pair.second) == (str(paths[0]), str(paths[1]))


def test_no_narrative_and_no_verdict_are_errors(files: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="none of their topics has a narrative: they look like '1'"):
        fight(files, narratives={"9": "Why?"})
    with pytest.raises(UserError, match="the model gave no verdict: 2: no verdict: "):
        fight(files, lambda _: "Both.", {"1": "Why?", "2": "How?"})


def test_the_numbers_of_a_known_pair() -> None:
    fights = [Fight(str(n), (A, B), 1.0) for n in range(10)] + [Fight("x", (B, A), 0.0), Fight("y", (A, A), 0.5)]
    found = summarise_pair(Pair("one", "other", "m", tuple(fights)))
    assert (found.won, found.lost, found.tied, found.unjudged) == (10, 1, 1, 0)
    assert found.win_share == 10.5 / 12
    assert found.win_interval[0] < found.win_share < found.win_interval[1]
    assert found.p_sign == pytest.approx(2 * (1 + 11) / 2**11)
    assert found.mark == pytest.approx((10 * 4.5 + 2 + 3) / 12)
    assert (found.agreeing, found.judged) == (11, 12)
    assert found.first_slot_share == pytest.approx((11 * 0.5 + 1) / 12)


BATTLES = st.sampled_from([A, B, TIE, Failure("no")])


@given(st.lists(st.tuples(BATTLES, BATTLES) | st.none(), min_size=1, max_size=6))
def test_each_narrative_is_counted_once(battles: list[tuple[Battle | Failure, Battle | Failure] | None]) -> None:
    fights = tuple(Fight(str(n), one, decide(*one) if one else 0.5) for n, one in enumerate(battles))
    found = summarise_pair(Pair("one", "other", "m", fights))
    assert found.won + found.lost + found.tied + found.unjudged == len(fights)
    assert found.agreeing <= found.judged <= len(fights)
    assert math.isnan(found.win_share) or 0 <= found.win_share <= 1
    assert math.isnan(found.p_sign) == (found.won + found.lost == 0)
