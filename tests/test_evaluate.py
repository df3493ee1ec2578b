"""Evaluation: the numbers of trec_eval, on any order of lines, any ties and any missing topic."""

import statistics
from pathlib import Path

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.errors import UserError
from runs.evaluate import MEASURES, as_json, evaluate, evaluate_files, paired_test
from runs.trec import Qrels, Run

TREC_EVAL = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG@30": "ndcg_cut_30",
    "nDCG@100": "ndcg_cut_100",
    "R@100": "recall_100",
    "MAP": "map",
    "MRR": "recip_rank",
}
DOCS = st.sampled_from([f"d{n}" for n in range(150)])
GRADES = st.dictionaries(st.sampled_from("abcd"), st.dictionaries(DOCS, st.integers(-1, 4), min_size=1), min_size=1)
HITS = st.dictionaries(DOCS, st.sampled_from([1.0, 0.5, 0.25, 1 / 61, 1 / 61 + 1e-10]) | st.floats(0, 1), max_size=130)


def by_trec_eval(run: Run, qrels: Qrels) -> dict[str, float]:
    """The mean over all judged topics (trec_eval -c), from trec_eval's own code."""
    wanted = {"ndcg_cut.10,30,100", "recall.100", "map", "recip_rank"}
    scores = {topic: dict(hits) for topic, hits in run.hits.items()}
    found = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(scores)
    return {ours: sum(found[t][theirs] for t in found) / len(qrels) for ours, theirs in TREC_EVAL.items()}


@settings(max_examples=60)
@given(GRADES, st.dictionaries(st.sampled_from("abcde"), HITS), st.randoms())
def test_measures_equal_those_of_trec_eval(qrels: Qrels, hits: dict[str, dict[str, float]], random: object) -> None:
    run = Run("tag", {topic: list(own.items()) for topic, own in hits.items()})
    for own in run.hits.values():
        random.shuffle(own)  # type: ignore[attr-defined]
    if all(grade <= 0 for grades in qrels.values() for grade in grades.values()):
        with pytest.raises(UserError, match="no judged topic has a relevant document"):
            evaluate("run", run, qrels)
        return
    evaluation, expected = evaluate("run", run, qrels), by_trec_eval(run, qrels)
    for measure in MEASURES:
        assert evaluation.mean(measure) == pytest.approx(expected[measure], abs=1e-6), measure


def write(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_two_runs_are_compared_topic_by_topic(tmp_path: Path) -> None:
    qrels = write(tmp_path / "qrels", *(f"{t} 0 d{t} 1" for t in range(8)))
    good = write(tmp_path / "good", *(f"{t} Q0 d{t} 1 0.9 good" for t in range(8)))
    poor = write(tmp_path / "poor", *(f"{t} Q0 {'d' if t < 2 else 'x'}{t} 1 0.9 poor" for t in range(8)))
    first, second, third = evaluate_files([good, poor, good], qrels)
    assert (first.mean("MRR"), second.mean("MRR")) == (1.0, 0.25)
    differences = [a - b for a, b in zip(first.values["MRR"], second.values["MRR"], strict=True)]
    t = statistics.mean(differences) / (statistics.stdev(differences) / 8**0.5)
    assert t == pytest.approx(4.58, abs=0.01)
    assert paired_test(first, second)["MRR"] == pytest.approx(0.00253, abs=1e-5)  # t of 4.58 with 7 degrees
    assert set(paired_test(first, third).values()) == {1.0}
    report = as_json([first, second])
    assert report["runs"][1]["topics"]["2"]["MRR"] == 0.0
    assert report["paired_t_test"][0]["p"]["MRR"] == pytest.approx(0.00253, abs=1e-5)


def test_a_run_of_other_topics_is_refused(tmp_path: Path) -> None:
    qrels = write(tmp_path / "qrels", "1 0 a 1")
    with pytest.raises(UserError, match="none of its topics is judged"):
        evaluate_files([write(tmp_path / "run", "2 Q0 a 1 0.5 t")], qrels)
