"""The geometric mean of AP equals trec_eval's, and measures of sampled judgments are refused by name."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.trec.types import make_qrels, make_run

GRADES = st.lists(st.integers(0, 2), min_size=4, max_size=4)


@settings(deadline=None, max_examples=30)
@given(st.lists(GRADES, min_size=2, max_size=4), st.integers(1, 3))
def test_it_equals_that_of_trec_eval_by_topic_and_in_all(topics: list[list[int]], found: int) -> None:
    grades = {str(n): {f"d{place}": grade for place, grade in enumerate(own)} for n, own in enumerate(topics)}
    grades["0"]["d0"] = 1
    hits = {topic: [(f"d{place}", 9.0 - place) for place in range(found)] for topic in grades}
    measured = evaluate("r", make_run("r", hits), make_qrels(grades), [parse_measure("gm_map")])
    run = {topic: dict(own) for topic, own in hits.items()}
    theirs = pytrec_eval.RelevanceEvaluator(grades, {"gm_map", "map"}).evaluate(run)
    # pytrec_eval gives NaN or log(1e-5) for a topic without a relevant document, by its version
    expected = [max(np.log(max(theirs[topic]["map"], 1e-5)), np.log(1e-5)) for topic in measured.topics]
    assert measured.values["gm_map"] == pytest.approx(expected)
    known = [topic for topic in measured.topics if any(grades[topic].values())]
    logs = [theirs[topic]["gm_map"] for topic in known]
    assert [own for own, topic in zip(expected, measured.topics, strict=True) if topic in known] == pytest.approx(logs)
    assert measured.mean("gm_map") == pytest.approx(np.exp(np.mean(expected)))
    low, high = measured.interval("gm_map")
    assert 0 < low <= measured.mean("gm_map") * (1 + 1e-9)
    assert measured.mean("gm_map") <= high * (1 + 1e-9)


@pytest.mark.parametrize("name", ["infNDCG", "statAP", "xinfAP"])
def test_measures_of_samples_are_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=f"measure '{name}': no package .*sample_eval.pl"):
        parse_measure(name)
