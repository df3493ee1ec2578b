"""Properties of every measure, the geometric mean of AP beside trec_eval's, and measures that are refused by name."""

import ast
import math
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures.measures import registry

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import FAMILIES, Measure, parse_measure, parse_measures
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import Qrels, Run, make_qrels, make_run

VALUES: dict[type, tuple[str, ...]] = {
    bool: ("True", "False"),
    int: ("1", "2", "3", "30", "0", "True"),
    float: ("0.0", "0.125", "0.5", "0.9", "1.0", "2.0", "1e999"),
    str: ("'log2'", "'exp-log2'", "'x'"),
    dict: ("{}", "{0: 0, 1: 5, 2: 7}", "{1: 'a'}"),
}
"""Parameters of each type, good and bad ones."""
ODD = ["-", "2", "1-2", "02", "a.b", "x-y-1", "日本-7", "7" * 300, "007", "é_1", "_", "T.1-a"]
TREC_EVAL = (
    "official set all_trec ndcg_cut map_cut P recall success iprec_at_recall P_5,10 set_F.0.5 bpref num_ret".split()
)


def list_names() -> Iterator[str]:
    """List the names of all measures, bare, and with each parameter, and with two parameters."""
    for name, measure in registry.items():
        params = measure.SUPPORTED_PARAMS
        written = {key: [f"{key}={value}" for value in VALUES[param.dtype]] for key, param in params.items()}
        yield name
        yield from (f"{name}({one})" for own in written.values() for one in own)
        required = ["cutoff=5"] * ("cutoff" in params) + ["max_rel=3"] * ("max_rel" in params)
        for own in written.values():
            yield from (f"{name}({','.join(dict.fromkeys([one, *required]))})" for one in own if one[:6] != "cutoff")


def read(name: str) -> tuple[Measure, ...] | str:
    """Return the measures that a name stands for, or the message of an error."""
    try:
        return parse_measures([name])
    except UserError as error:
        return str(error)


READ = {name: read(name) for name in [*list_names(), *FAMILIES, *(f"{family}@5" for family in FAMILIES), *TREC_EVAL]}
EVERY = list({str(one): one for found in READ.values() if not isinstance(found, str) for one in found}.values())


def make_judged(rng: random.Random, topics: list[str], docs: list[str], subtopics: list[str], top: int) -> str:
    """Make the lines of judgments with subtopics; the last topic has only documents that are not relevant."""
    rows = []
    for number, topic in enumerate(topics):
        for doc, subtopic in product(docs, subtopics):
            if rng.random() < 0.5:
                grade = rng.choice([-2, 0]) if number == len(topics) - 1 else rng.choice([-1, 0, 1, 2, top])
                rows.append(f"{topic} {subtopic} {doc} {grade}\n")
        rows.append(f"{topic} {subtopics[0]} own-{number} {0 if number == len(topics) - 1 else top}\n")
    return "".join(rows)


def make_case(tmp_path_factory: Any, seed: int, names: list[str], top: int = 3) -> tuple[Run, Qrels]:
    """Make a run and judgments; `names` are the ids of topics, documents and subtopics."""
    rng = random.Random(seed)
    topics, docs, subtopics = names[:4], names[4:10], names[10:13]
    path = tmp_path_factory.mktemp("judged") / "qrels"
    path.write_text(make_judged(rng, topics, docs, subtopics, top))
    hits = {}
    for topic in topics[1:]:  # the first one has no row
        own = [*docs, *(f"other{i}" for i in range(4))]
        rng.shuffle(own)
        hits[topic] = [(doc, float(-place)) for place, doc in enumerate(own)]
    return make_run("run", hits), read_qrels(path)


def measure(run: Run, qrels: Qrels, *measures: Measure) -> dict[str, list[float]] | str:
    """Return the values of each measure, or the message of an error."""
    try:
        return {name: own.tolist() for name, own in evaluate("run", run, qrels, measures).values.items()}
    except UserError as error:
        return str(error)


PLAIN = [str(number) for number in range(1, 14)]


def test_every_name_names_measures_or_gives_an_error_of_one_line() -> None:
    refused = {name: found for name, found in READ.items() if isinstance(found, str)}
    assert all(found.startswith("measure ") and "\n" not in found for found in refused.values())
    assert all(read(str(one)) == (one,) for one in EVERY)
    assert not {"ERR", "nDCG(dcg='exp-log2')", "alpha_nDCG(judged_only=True,cutoff=5)", *TREC_EVAL} & refused.keys()


def test_names_are_read_without_the_classes_that_python_3_14_no_longer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for old in ("Num", "Str", "NameConstant"):
        monkeypatch.delattr(ast, old, raising=False)
    assert {name: read(name) for name in READ} == READ


@pytest.mark.slow
def test_every_measure_alone_has_the_values_that_it_has_among_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    run, qrels = make_case(tmp_path_factory, 1, PLAIN)
    alone = {str(one): measure(run, qrels, one) for one in EVERY}
    assert not [found for found in alone.values() if isinstance(found, str) and "\n" in found]
    able = [one for one in EVERY if isinstance(alone[str(one)], dict)]
    assert len(able) > 150
    random.Random(0).shuffle(able)
    together = measure(run, qrels, *able, *able[:20])
    assert isinstance(together, dict)
    for one in able:
        found = alone[str(one)]
        assert isinstance(found, dict)
        np.testing.assert_array_equal(together[str(one)], found[str(one)], str(one))
        assert all(math.isfinite(value) for value in together[str(one)]), str(one)


@pytest.mark.slow
@pytest.mark.parametrize("top", [3, 10])
def test_no_measure_depends_on_the_form_of_ids(tmp_path_factory: pytest.TempPathFactory, top: int) -> None:
    odd = [*random.Random(top).sample(ODD, len(ODD)), "subtopic-é"]
    run, qrels = make_case(tmp_path_factory, 2, PLAIN, top)
    odd_run, odd_qrels = make_case(tmp_path_factory, 2, odd, top)
    order = np.argsort(np.argsort(odd[:4]))
    for one in EVERY:
        found, expected = measure(odd_run, odd_qrels, one), measure(run, qrels, one)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected
        else:
            assert np.array(found[str(one)])[order].tolist() == pytest.approx(expected[str(one)], nan_ok=True), str(one)


GRADES = st.lists(st.integers(0, 2), min_size=4, max_size=4)


@settings(deadline=None, max_examples=30)
@given(st.lists(GRADES, min_size=2, max_size=4), st.integers(1, 3))
def test_the_geometric_mean_equals_that_of_trec_eval_by_topic_and_in_all(topics: list[list[int]], found: int) -> None:
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
