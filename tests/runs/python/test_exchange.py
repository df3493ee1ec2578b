"""Values of pandas, ranx, ir_measures and ir_datasets come in and go out as they are, and a bad row is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_datasets.formats import GenericQuery, TrecQrel, TrecQuery

import keystone
from keystone.runs.trec.types import make_qrels, make_run

SCORES = {"1": {"d01": 3.5, "d02": 2.5}, "2": {"d02": 0.5, "d03": 0.5}}
GRADES = {"1": {"d01": 1, "d02": 0}, "2": {"d02": 2}}
HITS = {"1": [("d01", 3.5), ("d02", 2.5)], "2": [("d03", 0.5), ("d02", 0.5)]}
"""The hits of `SCORES` in the order of trec_eval."""
IDS = st.text("abz9#é", min_size=1, max_size=3)


def list_rows(numbers: dict[str, dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(query, doc, number) for query, own in numbers.items() for doc, number in own.items()]


def frame(numbers: dict[str, dict[str, Any]], *names: str) -> pd.DataFrame:
    return pd.DataFrame(list_rows(numbers), columns=list(names))


RUNS: dict[str, Callable[[], Any]] = {
    "Run": lambda: keystone.to_run(SCORES),
    "dictionary": lambda: SCORES,
    "PyTerrier's columns": lambda: frame(SCORES, "qid", "docno", "score"),
    "ir_measures' columns": lambda: frame(SCORES, "query_id", "doc_id", "score"),
    "rows in another order": lambda: frame(SCORES, "qid", "docno", "score").iloc[[0, 3, 1, 2]],
    "ir_measures": lambda: (ir_measures.ScoredDoc(*row) for row in list_rows(SCORES)),
}
QRELS: dict[str, Callable[[], Any]] = {
    "Qrels": lambda: make_qrels(GRADES),
    "dictionary": lambda: GRADES,
    "PyTerrier's columns": lambda: frame(GRADES, "qid", "docno", "label"),
    "grades as floats": lambda: frame(GRADES, "qid", "docno", "label").astype({"label": float}),
    "ids as integers": lambda: frame(GRADES, "qid", "docno", "label").astype({"qid": int}),
    "ir_measures": lambda: (ir_measures.Qrel(*row) for row in list_rows(GRADES)),
    "ir_datasets": lambda: (TrecQrel(*row, "0") for row in list_rows(GRADES)),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_another_library_is_the_same_run_with_ties_in_the_order_of_trec_eval(name: str) -> None:
    assert keystone.to_run(RUNS[name]()).list_hits() == HITS


def test_a_tag_renames_a_run() -> None:
    run = keystone.to_run(SCORES, "mine")
    assert keystone.to_run(run) is run
    assert keystone.to_run(run, "yours") == keystone.to_run(SCORES, "yours")


@pytest.mark.parametrize("name", QRELS)
def test_judgments_of_another_library_are_the_same_judgments(name: str) -> None:
    found = keystone.to_qrels(QRELS[name]())
    assert sorted(keystone.to_ir_measures(found)) == sorted(ir_measures.Qrel(*row) for row in list_rows(GRADES))


@pytest.mark.slow
def test_values_of_ranx_come_in_and_go_out_as_they_are(tmp_path: Path) -> None:
    """One test, because ranx compiles its code for seconds."""
    run, qrels = keystone.to_ranx(keystone.to_run(SCORES, "my run")), keystone.to_ranx(make_qrels(GRADES))
    assert {query: list(own) for query, own in run.to_dict().items()} == {
        q: [d for d, _ in own] for q, own in HITS.items()
    }
    assert run["2"]["d03"] > run["2"]["d02"]
    assert qrels.to_dict() == GRADES
    back = keystone.to_run(run)
    assert (back.tag, [d for d, _ in back.list_hits()["2"]]) == ("my run", ["d03", "d02"])
    assert keystone.to_qrels(qrels).grades.tolist() == make_qrels(GRADES).grades.tolist()
    found = keystone.evaluate(run, qrels, ["nDCG@10", "AP"])
    assert found.name == "my run"
    assert keystone.to_pandas(found).equals(keystone.to_pandas(keystone.evaluate(SCORES, GRADES, ["nDCG@10", "AP"])))
    with pytest.raises(keystone.UserError, match="found the tag 'my run', expected an id without space"):
        keystone.write_run(tmp_path / "r.trec", run)
    keystone.write_run(tmp_path / "r.trec", keystone.to_run(run, "mine"))
    assert keystone.read_run(tmp_path / "r.trec").tag == "mine"


def test_rows_judgments_and_measures_of_ir_measures_are_evaluated_as_they_are() -> None:
    measures = [ir_measures.nDCG @ 10, ir_measures.AP]
    rows, judged = keystone.to_ir_measures(keystone.to_run(SCORES)), keystone.to_ir_measures(make_qrels(GRADES))
    found = keystone.evaluate(iter(rows), iter(judged), measures)
    means = keystone.to_pandas([found]).loc["run"]
    theirs = ir_measures.calc_aggregate(measures, judged, rows)
    assert means.to_dict() == pytest.approx({str(measure): value for measure, value in theirs.items()})
    assert keystone.to_pandas(found).mean().to_dict() == pytest.approx(means.to_dict())


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(IDS, st.dictionaries(IDS, st.floats(-1e30, 1e30), min_size=1)))
def test_a_run_stays_the_same_by_way_of_pandas_and_of_ir_measures(scores: dict[str, dict[str, float]]) -> None:
    run = keystone.to_run(scores)
    table = keystone.to_pandas(run)
    assert {query: dict(hits) for query, hits in run.list_hits().items()} == scores
    assert keystone.to_run(table).list_hits() == run.list_hits()
    assert keystone.to_run(keystone.to_ir_measures(run)).list_hits() == run.list_hits()
    assert table.groupby("qid")["rank"].agg(list).map(lambda own: own == list(range(len(own)))).all()


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.tuples(IDS, IDS, st.sampled_from("012")), st.integers(-2, 4), min_size=1))
def test_judgments_stay_the_same_by_way_of_pandas_and_of_ir_measures(grades: dict[tuple[str, str, str], int]) -> None:
    qrels = keystone.to_qrels([ir_measures.Qrel(t, d, grade, s) for (t, d, s), grade in grades.items()])
    several = len({subtopic for _, _, subtopic in grades}) > 1
    assert (qrels.subtopics is not None) == several
    for back in (keystone.to_pandas(qrels), keystone.to_ir_measures(qrels)):
        found = keystone.to_qrels(back)
        assert found.grades.tolist() == qrels.grades.tolist()
        assert sorted(keystone.to_ir_measures(found)) == sorted(keystone.to_ir_measures(qrels))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"1": "bees", "2": "wasps"}, id="dictionary"),
        pytest.param(pd.DataFrame({"qid": [1, 2], "query": ["bees", "wasps"]}), id="frame with integers"),
        pytest.param(pd.DataFrame({"query_id": ["1", "2"], "text": ["bees", "wasps"]}), id="columns of ir_datasets"),
        pytest.param([GenericQuery("1", "bees"), GenericQuery("2", "wasps")], id="ir_datasets"),
        pytest.param([TrecQuery("1", "bees", "", "bees"), TrecQuery("2", "wasps", "", "")], id="queries of TREC"),
        pytest.param([keystone.Topic("1", "bees"), keystone.Topic("2", "wasps")], id="topics"),
    ],
)
def test_topics_of_another_library_are_the_same_topics(value: Any) -> None:
    topics = keystone.to_topics(value)
    assert topics == [keystone.Topic("1", "bees"), keystone.Topic("2", "wasps")]
    assert keystone.to_pandas(topics).to_dict("list") == {"qid": ["1", "2"], "query": ["bees", "wasps"]}


def run_frame(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({"qid": ["1", "1"], "docno": ["a", "b"], "score": [2.0, 1.0]} | changes)


def qrels_frame(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({"qid": ["1", "1"], "docno": ["a", "b"], "label": [2, 1]} | changes)


@pytest.mark.parametrize(
    ("convert", "value", "message"),
    [
        (keystone.to_run, run_frame(docno=["a", "a"]), "run: row 2: document a occurs more than once for its query"),
        (
            keystone.to_run,
            run_frame(docno=["a", "b c"]),
            "run: row 2: found the id 'b c', expected an id without",
        ),
        (keystone.to_run, run_frame(qid=[None, "1"]), "run: row 1: found the id"),
        (keystone.to_run, run_frame(score=[1.0, float("nan")]), "run: row 2: found the score nan, expected a finite"),
        (keystone.to_run, run_frame(score=["1", "2"]), "run: row 1: found the score '1', expected a finite number"),
        (keystone.to_run, run_frame().drop(columns="score"), "run: found the columns qid, docno, expected score"),
        (keystone.to_run, [("1", "a", 2.0)], "run: found list, expected a data frame"),
        (keystone.to_run, 5, "run: found int, expected a data frame"),
        (keystone.to_qrels, qrels_frame(docno=["a", "a"]), "qrels: row 2: document a has two grades, see row 1"),
        (keystone.to_qrels, qrels_frame(label=[1, 0.5]), "qrels: row 2: found the grade 0.5, expected an integer"),
        (keystone.to_qrels, qrels_frame(label=[1, float("inf")]), "qrels: row 2: found the grade inf, expected an"),
        (keystone.to_qrels, qrels_frame().iloc[:0], "qrels: found no row, expected judgments"),
        (keystone.to_topics, {"1": "bees", "2": " "}, "topics:2: narrative: expected a narrative, found ' '"),
        (keystone.to_topics, {"1 2": "bees"}, "topics:1: id: expected an id without space, found '1 2'"),
        (keystone.to_topics, run_frame(), "topics: found the columns qid, docno, score, expected query or narrative"),
        (keystone.to_topics, None, "topics: found NoneType, expected a data frame, queries of ir_datasets"),
        (keystone.to_topics, "topics.jsonl", "topics: found str, expected a value: read_topics reads a file"),
        (
            keystone.to_topics,
            [{"id": "1", "narrative": "bees"}],
            "topics: found list, expected .* no attribute 'query_",
        ),
        (keystone.to_run, run_frame().iloc[:, [0, 1, 2, 2]], "run: found the column score more than once"),
        (keystone.to_pandas, [1], r"to_pandas: found \[1\], expected a run"),
        (keystone.to_pandas, 5, "to_pandas: found 5, expected a run"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(convert: Callable[[Any], Any], value: Any, message: str) -> None:
    with pytest.raises(keystone.UserError, match=message):
        convert(value)


def test_one_measure_may_be_named_without_a_list() -> None:
    found = keystone.evaluate({"1": {"a": 1.0}}, {"1": {"a": 1}}, "R@10")
    assert keystone.to_pandas([found]).loc["run"].to_dict() == {"R@10": 1.0}


def test_an_empty_list_is_an_empty_frame() -> None:
    assert keystone.to_pandas([]).empty
    assert list(keystone.to_pandas(make_qrels({}))) == ["qid", "docno", "label"]
    assert keystone.to_pandas(make_run("none", {})).columns.tolist() == ["qid", "docno", "score", "rank"]
