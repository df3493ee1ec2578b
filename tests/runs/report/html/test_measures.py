"""The measures of a report: intervals that hold the true mean, and judgments of segments."""

from pathlib import Path

import numpy as np
import pytest

from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.report.html.measures import take_measures
from keystone.runs.report.html.read_run import read_view
from tests.support.runs.report_runs import DOC_IDS, SEGMENT_IDS, TOPIC_IDS, write_index, write_report_run


def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        low, high = find_bootstrap_interval(rng.beta(2, 3, 50))
        held += low <= 0.4 <= high
    assert 0.91 <= held / 400 <= 0.98


def test_an_interval_of_equal_values_is_their_value() -> None:
    assert find_bootstrap_interval(np.full(7, 0.25)) == (0.25, 0.25)


@pytest.mark.parametrize("judges_segments", [False, True])
def test_the_ranking_of_segments_is_measured_if_segments_are_judged(tmp_path: Path, judges_segments: bool) -> None:
    run = write_report_run(tmp_path / "runs" / "second", write_index(tmp_path / "index"), graded=True)
    (run / "r_output_trec_rag_2025.tsv").write_text(f"{TOPIC_IDS[0]} Q0 {SEGMENT_IDS[5]} 1 1 t\n")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(f"{text}track: rag25\nanswer:\n  method: rules\n")
    names = SEGMENT_IDS if judges_segments else DOC_IDS
    qrels = tmp_path / "qrels.txt"
    qrels.write_text(f"{TOPIC_IDS[0]} 0 {names[5]} 2\n{TOPIC_IDS[0]} 0 {names[6]} 1\n")
    measures = take_measures([run], [read_view(run, "name")], qrels)
    (evaluation,) = measures.evaluations
    assert evaluation.name == "name"
    assert evaluation.mean("MRR") == (1 if judges_segments else 0.2)
    judged = {DOC_IDS[5]: 2, DOC_IDS[6]: 1}
    assert measures.grades == {TOPIC_IDS[0]: judged | {names[5]: 2, names[6]: 1}}
