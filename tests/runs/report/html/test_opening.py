"""The opening of the report: a sentence that claims no more than the numbers show, a picture, and one answer."""

import re
from collections.abc import Mapping, Sequence
from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.rate_answers import ArenaVerdict
from keystone.runs.evaluation.arena.tournament import Judgment, Leaderboard, Task, make_leaderboard
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.report.html.measures import Measures
from keystone.runs.report.html.narratives import choose_answer, render_answer
from keystone.runs.report.html.read_run import AnswerView, CitedText, PlacedDocument, RunView, TopicView
from keystone.runs.report.html.result import (
    ROW_PIXELS,
    Row,
    choose_measure,
    rank_values,
    render_picture,
    render_result,
    tell_battles,
    tell_result,
    tell_without_judgments,
)

LOW = [0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60, 0.65]


def measured(name: str, values: Sequence[float], measure: str = "nDCG@10") -> Evaluation:
    return Evaluation(name, tuple(f"t{n}" for n in range(len(values))), {measure: np.array(values)})


def shifted(gains: Sequence[float]) -> list[float]:
    return [value + gain for value, gain in zip(LOW, gains, strict=True)]


SURE = [0.20, 0.22, 0.25, 0.18, 0.21, 0.24, 0.19, 0.29]
UNSURE = [0.10, -0.10, 0.02, -0.01, 0.03, -0.02, 0.05, -0.04]


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        pytest.param(
            {"a": LOW, "b": shifted(SURE)},
            r"b leads with nDCG@10 0\.70: \+0\.22 over a \(95 % interval \+0\.20 to \+0\.2\d\), "
            r"better in 8 of 8 narratives\.",
            id="a sure lead",
        ),
        pytest.param(
            {"a": shifted(SURE), "b": LOW},
            r"a leads with nDCG@10 0\.70: \+0\.22 over b .*\.",
            id="the first run leads",
        ),
        pytest.param(
            {"a": LOW, "b": shifted(UNSURE)},
            r"b has the highest nDCG@10, 0\.48, but it cannot be told apart from a: \+0\.00 over a "
            r"\(95 % interval \u22120\.0\d to \+0\.0\d\), better in 4 of 8 narratives\.",
            id="chance",
        ),
        pytest.param(
            {
                "a": LOW,
                "b": shifted(SURE),
                "c": shifted([gain + more for gain, more in zip(SURE, UNSURE, strict=True)]),
            },
            r"c has the highest .*, but it cannot be told apart from b: .*\. It is ahead of a: \+0\.23 over a .*\.",
            id="two runs near each other, ahead of the first",
        ),
        pytest.param(
            {"a": LOW, "b": LOW},
            r"a has the highest nDCG@10, 0\.47, but it cannot be told apart from b: \+0\.00 .*better in 0 of 8 .*\.",
            id="equal values",
        ),
        pytest.param(
            {"a": [0.1, 0.2, 0.3], "b": [0.7, 0.8, 0.9]},
            r"b has the highest nDCG@10, 0\.80, but it cannot be told apart from a: \+0\.60 .*better in 3 of 3 .*\.",
            id="too few topics for a test",
        ),
        pytest.param(
            {"a": [0.5], "b": [0.75]},
            r"b has the highest nDCG@10, 0\.75, but it cannot be told apart from a: "
            r"\+0\.25 over a, better in 1 of 1 narrative\.",
            id="one topic",
        ),
        pytest.param(
            {"a": LOW},
            r"a reaches nDCG@10 0\.47 \(95 % interval 0\.\d\d to 0\.\d\d\) over 8 narratives\.",
            id="one run",
        ),
        pytest.param({"a": [nan, 0.5]}, r"a reaches nDCG@10 0\.50 over 1 narrative\.", id="one run, one topic"),
    ],
)
def test_the_result_is_told_with_its_uncertainty(runs: Mapping[str, Sequence[float]], told: str) -> None:
    text = tell_result([measured(name, values) for name, values in runs.items()], "nDCG@10")
    assert re.fullmatch(told, text), text


@given(st.lists(st.tuples(st.sampled_from(LOW), st.sampled_from(LOW)), min_size=2, max_size=12))
def test_a_run_leads_only_if_it_leads_in_either_order(pairs: list[tuple[float, float]]) -> None:
    one, other = (measured(name, [pair[n] for pair in pairs]) for n, name in enumerate("ab"))
    first, second = (" leads " in tell_result(runs, "nDCG@10") for runs in ([one, other], [other, one]))
    assert first == second
    if first:
        assert abs(one.mean("nDCG@10") - other.mean("nDCG@10")) > 0


def test_the_measure_is_ndcg_at_10_or_else_the_first_one_with_a_value() -> None:
    values = {"MAP": np.array([nan]), "R@5": np.array([0.5]), "nDCG@10": np.array([0.2])}
    assert choose_measure([Evaluation("a", ("t",), values)]) == "nDCG@10"
    assert choose_measure([Evaluation("a", ("t",), values | {"nDCG@10": np.array([nan])})]) == "R@5"


@given(st.dictionaries(st.integers(0, 200), st.floats(0, 1), min_size=1))
def test_each_narrative_has_one_dot_inside_its_row(values: dict[int, float]) -> None:
    mean = float(np.mean(list(values.values())))
    shown = render_picture([Row(0, "a", values, mean, nan, nan, "0.5")], "title", [0, 0.5, 1])
    dots = re.findall(r'<circle cx="([\d.]+)%" cy="([\d.-]+)" r="4" class="dot" data-topic="(\d+)"', shown)
    assert sorted(int(topic) for _, _, topic in dots) == sorted(values)
    for x, y, topic in dots:
        assert float(x) == pytest.approx(100 * values[int(topic)], abs=0.01)
        assert 0 < float(y) < ROW_PIXELS
    assert 'class="range"' not in shown


def view(label: str, topics: Sequence[TopicView], fell_back: Sequence[str] = ()) -> RunView:
    fallbacks = [{"topic_id": name, "step": "grade", "reason": "cut"} for name in fell_back]
    return RunView(label, None, {"fallbacks": fallbacks}, {}, {}, (), {topic.id: topic for topic in topics})


def topic(name: str, docs: Sequence[str] = (), answer: AnswerView | None = None) -> TopicView:
    documents = tuple(PlacedDocument(doc, "", n, n, 0, ()) for n, doc in enumerate(docs, 1))
    return TopicView(name, f"About {name}", "", (), documents, answer, ())


TEXT = "Wasps are thin. Honey bees dance to show where flowers are. Ants walk."
ANSWER = AnswerView(
    (("Bees dance for flowers.", (0,)), ("Nobody knows.", ()), ("Lost.", (1,))),
    (CitedText("d#0", "Bees", TEXT), CitedText("e#0", "", "")),
)


def test_without_judgments_the_report_tells_what_runs_share_and_answer() -> None:
    runs = [
        view("a", [topic("t0", "xyz"), topic("t1", "xyz")]),
        view("b", [topic("t0", "xy", ANSWER), topic("t1", "uvw")]),
    ]
    told = tell_without_judgments(runs)
    assert told == [
        "a and b share 1.0 of their first 10 documents on average.",
        "b answers 1 of 2 narratives: 3.0 sentences on average, 67 % of them with a citation.",
        "Without judgments (--qrels), the report cannot say how good a run is.",
    ]
    shown = render_result(runs, Measures((), (), {}), ["t0", "t1"])
    assert re.findall(r'data-topic="(\d)" data-value="([\d.]+)"', shown) == [("1", "0"), ("0", "2")]
    assert re.findall(r"<text[^>]*>([^<]*)", shown) == ["0", "2", "4", "6", "8", "10"]
    assert tell_without_judgments(runs[:1])[0] == "a: 2 narratives."


def rank_battles(outcomes: Mapping[tuple[str, str], str]) -> Leaderboard:
    """Make the leaderboard of pairs of runs with a verdict for each narrative, where the first run is shown first."""
    verdicts: Mapping[str, ArenaVerdict] = {"A": "A", "B": "B", "=": "Tie"}
    judgments = [
        Judgment(Task(*pair, f"t{n}", pair[0]), verdicts[one])
        for pair, own in outcomes.items()
        for n, one in enumerate(own)
    ]
    return make_leaderboard(judgments, sorted({name for pair in outcomes for name in pair}), "m")


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        pytest.param(
            {("a", "b"): "A" * 18 + "BB"},
            r"a won the battles with a rating of 1191 \(95 % interval \d+ to \d+\), before b with 809 "
            r"\(95 % interval \d+ to \d+\): 20 battles on 20 narratives, judged by m\.",
            id="a winner",
        ),
        pytest.param(
            {("a", "b"): "A" * 18 + "BB", ("a", "c"): "A" * 18 + "BB"},
            r"a won the battles with a rating of \d+ \(.*\), before b with (\d+) \(.*\) and c with \1 \(.*\): .*",
            id="two runs share the second place",
        ),
        pytest.param(
            {("a", "b"): "ABABB", ("b", "c"): "AAAAA"},
            r"b has the highest rating of the battles, \d+ \(.*\), but its interval overlaps a with \d+ \(.*\): "
            r"10 battles on 5 narratives, judged by m\.",
            id="near each other",
        ),
        pytest.param(
            {("a", "b"): "A"},
            r"a has the highest rating of the battles, \d+, but it has no interval: 1 battle on 1 narrative.*",
            id="one narrative",
        ),
        pytest.param(
            {("a", "b"): "AAA"},
            r"a has the highest rating of the battles, \d+ \(.*\), but 3 narratives are too few to be sure: .*",
            id="few narratives",
        ),
        pytest.param(
            {("a", "b"): "A" * 20, ("c", "d"): "A" * 6},
            r"a has the highest rating of the battles, \d+ \(.*\), but battles do not link all runs: 26 battles .*",
            id="runs that never met",
        ),
        pytest.param(
            {("a", "b"): "==", ("b", "c"): "AA", ("a", "c"): "AA"},
            r"a and b share the first place in 6 battles on 2 narratives, judged by m, with a rating of \d+\.",
            id="equal ratings",
        ),
    ],
)
def test_the_winner_of_battles_is_told_with_its_uncertainty(outcomes: dict[tuple[str, str], str], told: str) -> None:
    text = tell_battles(rank_battles(outcomes))
    assert re.fullmatch(told, text), text


def test_battles_are_the_headline_without_judgments_and_come_second_with_them() -> None:
    runs, topics = [view("a", [topic("t0", "xy")]), view("b", [topic("t0", "xy")])], ["t0"]
    board = rank_battles({("a", "b"): "A" * 18 + "BB"})
    plain = Measures((), (), {})
    assert "<h1>a won the battles with" in render_result(runs, plain, topics, board=board)
    measures = Measures([measured("a", [0.1]), measured("b", [0.2])], (), {})
    shown = render_result(runs, measures, topics, board=board)
    assert re.search('<h1>b has the highest nDCG@10.*</h1><p class="told">a won the battles with', shown)
    nothing = make_leaderboard([], ["a", "b"], "m")
    assert render_result(runs, plain, topics, board=nothing) == render_result(runs, plain, topics)


def test_the_answer_shown_is_the_middle_one_of_the_best_run_without_fallbacks() -> None:
    topics = [topic(f"t{n}", "x", ANSWER) for n in range(4)]
    runs = [view("a", topics), view("b", topics, ["t1"])]
    measures = Measures([measured("a", [0, 0, 0, 0]), measured("b", [0.1, 0.5, 0.7, 0.9])], (), {})
    values, measure = rank_values(measures)
    assert (list(values), measure) == (["b", "a"], "nDCG@10")
    number, chosen = choose_answer(runs, values) or (None, None)
    assert (number, chosen) == (1, topics[2])
    assert choose_answer(runs, {}) == (1, topics[0])
    assert choose_answer([view("a", [topic("t0")])], {}) is None
    assert render_answer([view("a", [topic("t0")])], {}, "") == ""


def test_the_supporting_sentence_is_marked_and_a_sentence_without_sources_says_so() -> None:
    shown = render_answer([view("a", [topic("t0", "x", ANSWER)])], {}, "")
    assert re.findall("<mark>(.*?)</mark>", shown) == ["Honey bees dance to show where flowers are."]
    assert "Wasps are thin. <mark>" in shown
    assert "This sentence cites nothing." in shown
    assert "No text of this id is at hand." in shown


def test_a_run_with_fallbacks_says_so_below_the_result() -> None:
    shown = render_result([view("a", [topic("t0")], ["t0", "t0"])], Measures((), (), {}), ["t0"])
    assert "in 2 steps of 1 narrative, marked below, a rule replaced" in shown
