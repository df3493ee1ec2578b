"""What a caller in Python gives wrongly is named with the argument and what it should be, in the words of Python."""

# mypy: disable-error-code="arg-type, call-overload, list-item"

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pytest

import keystone
from keystone.indexing.index import Index
from keystone.runs.python.files import list_measures
from keystone.runs.python.steps import fuse_queries
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.types import make_qrels, make_run

INDEX = Index(Path("nowhere"), "", None, 1, {}, 0, None)
CONFIG = keystone.configure()
GRADING = keystone.configure("keystone", model={"name": "m", "urls": ["http://localhost:9/v1"]})
RUN = make_run("r", {"1-1": [("d", 1.0)]})


def query(name: Any = "1-1", topic: Any = "1", **texts: Any) -> keystone.Query:
    return keystone.Query(topic, name, **{"question": "bees", "sparse_text": "bees", "dense_text": "bees"} | texts)


def search(queries: Any) -> Any:
    return keystone.search(INDEX, queries, CONFIG)


def decompose(topics: Any) -> Any:
    return keystone.decompose(INDEX, topics, CONFIG)


def run_of(*query_ids: str) -> keystone.Run:
    return keystone.Run("r", query_ids, np.arange(len(query_ids) + 1), encode_ids(["d"] * len(query_ids)), np.ones(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search([query(), "bees"]), "queries: found str, expected a list of Query, as decompose makes it"),
        (lambda: search(None), "topics: found NoneType"),
        (lambda: search(pd.DataFrame({"id": ["1"], "words": ["bees"]})), "topics: found the columns id, words"),
        (lambda: search([]), "topics: found none, expected at least one"),
        (lambda: search([query(), query()]), "queries: found the id '1-1' twice"),
        (lambda: search([query("a b")]), "queries: found the id 'a b', expected an id without space"),
        (lambda: search([query("a\u202eb")]), r"queries: .* without the invisible character U\+202E"),
        (lambda: search([query(topic="a b")]), "queries: found the id 'a b', expected an id without space"),
        (lambda: search([query(topic=1)]), "queries: found the id 1, expected an id as a text$"),
        (lambda: search([query(sparse_text=None)]), "query '1-1': sparse_text: found NoneType, expected text"),
        (lambda: search([query(dense_text="\ud800")]), "query '1-1': dense_text: found half of a surrogate pair"),
        (lambda: keystone.search("index", [query()]), "index: found str, expected what open_index returns"),
        (lambda: keystone.search(INDEX, [query()], {}), "config: found dict, expected what configure returns"),
        (lambda: decompose([]), "topics: found none, expected at least one"),
        (lambda: decompose({}), "topics: found none, expected at least one"),
        (lambda: decompose("topics.jsonl"), "topics: found str, expected a value: read_topics reads a file"),
        (lambda: decompose(keystone.Topic("1", "bees")), "topics: found Topic, expected .* a list of Topic"),
        (lambda: decompose([keystone.Topic("1", " ")]), "topics:1: narrative: expected a narrative, found ' '"),
        (lambda: decompose([keystone.Topic("a b", "bees")]), "topics:1: id: expected an id without space"),
        (lambda: decompose([keystone.Topic("1", "bees")] * 2), "topics:2: topic '1' occurs more than once"),
        (lambda: decompose({"1": "bees \ud800"}), "topics:1: narrative: found half of a surrogate pair"),
        (lambda: keystone.fuse({}, [query()]), "runs: found none, expected the run of each system"),
        (lambda: keystone.fuse([RUN], [query()]), "runs: found list, expected the run of each system"),
        (lambda: keystone.fuse({"a": RUN}, []), "queries: found none"),
        (lambda: keystone.fuse({"a": RUN}, [query("2-1")]), "runs: .* other ids, such as '1-1', .* such as '2-1'"),
        (lambda: keystone.fuse({"a": RUN}, [query()], method="mnz"), "method: found 'mnz', expected a function"),
        (lambda: keystone.answer(INDEX, {"1": "x"}, reader="plain"), "reader: found 'plain', expected a function"),
        (lambda: keystone.index(["bees"], encoder="bge"), "encoder: found 'bge', expected a function"),
        (lambda: keystone.update_index(INDEX, delete=None), "delete: found the id None, expected an id as a text$"),
        (lambda: keystone.change_parts(INDEX, drop=0), "drop: found the id 0, expected an id as a text$"),
        (lambda: keystone.search(INDEX, [query()], k=3), "k: found 3 with a list of Query, whose depth is retrieval"),
        (lambda: keystone.search(INDEX, ["bees"], k="3"), "k: found '3', expected a whole number of at least 1"),
        (lambda: keystone.pool({"a": RUN}, "5"), "depth: found '5', expected a whole number"),
        (lambda: keystone.judge(INDEX, {"1": "x"}, [RUN], GRADING, depth=0), "depth: found 0, expected a whole number"),
        (
            lambda: keystone.judge(INDEX, {"1": "x"}, [RUN], GRADING, repeats="3"),
            "repeats: found '3', expected a whole number of at least 1",
        ),
        (lambda: keystone.judge(INDEX, {"1": "x"}, [RUN], GRADING, repeats=0), "repeats: found 0, expected a whole"),
        (lambda: keystone.judge_battles(["a.jsonl"], repeats=None), "repeats: found None, expected a whole number"),
        (lambda: keystone.tune("r.yaml", "q", ["a"]), "tries: found list, expected lists of values by key"),
        (lambda: keystone.tune("r.yaml", "q", folds=1), "folds: found 1, expected a whole number of at least 2"),
        (lambda: keystone.score_nuggets("x"), "assigned: found str, expected a list of NuggetBank, as assign_nuggets "),
        (lambda: keystone.score_nuggets([], [3]), "topics: found the id 3, expected an id as a text"),
        (lambda: keystone.score_nuggets([], None), "topics: found the id None, expected an id as a text"),
        (lambda: keystone.score_rubrics([3]), "graded: found int, expected a list of Rubric, as assign_rubrics makes"),
        (lambda: keystone.write_nuggets("x", None), "nuggets: found NoneType, expected a list of NuggetBank, as read_"),
        (lambda: keystone.write_rubrics("x", ["y"]), "rubrics: found str, expected a list of Rubric, as read_rubrics"),
        (lambda: keystone.assign_nuggets(["a"], "x", GRADING), "nuggets: found str, expected a list of NuggetBank"),
        (lambda: keystone.assign_rubrics(["a"], {}, None), "rubrics: found dict, expected a list of Rubric"),
        (lambda: fuse_queries(RUN, [query(), query()]), "queries: found the id '1-1' twice"),
        (lambda: keystone.rerank(INDEX, {"1": "x"}, RUN, None), "rerank.method: found none"),
        (lambda: keystone.grade(INDEX, {"1": "x"}, [query()], {}, {}), "config: found dict"),
        (
            lambda: keystone.grade(INDEX, {"2": "x"}, [query()], {"bm25": RUN}, GRADING),
            "queries: found topic '1', expected one of the topics, such as '2'",
        ),
        (
            lambda: keystone.to_run({"1": {"d": 10**400}}),
            "run: row 1: found the score 10{99}, expected a finite",
        ),
        (lambda: keystone.to_run({"1": {"d": np.complex128(1)}}), "run: row 1: found the score .*, expected a finite"),
        (lambda: keystone.to_run({"1": {"\ud800": 1}}), r"run: row 1: .* without the invisible character U\+D800"),
        (lambda: keystone.to_run({"1": {"d": 1}}, 5), "tag: found int, expected text"),
        (lambda: keystone.to_run("my.run"), "run: found str, expected a value: read_run reads a file"),
        (
            lambda: keystone.to_qrels({"1": {"d": 10**20}}),
            "qrels: row 1: found the grade 1.*, expected an integer",
        ),
        (
            lambda: keystone.to_qrels({"1": {"d": 1e20}}),
            "qrels: row 1: found the grade 1e.20, expected an integer",
        ),
        (lambda: keystone.to_qrels({"1": {"d": -(10**400)}}), "qrels: row 1: found the grade -1"),
        (lambda: keystone.to_ranx({"1": {"d": 1}}), "to_ranx: found dict, expected a Run or Qrels"),
        (lambda: keystone.to_ir_measures([]), "to_ir_measures: found list, expected a Run or Qrels"),
        (lambda: keystone.evaluate([], []), "qrels: found no row, expected judgments"),
        (lambda: keystone.open_index(INDEX), "folder: found Index, expected a path"),
        (lambda: keystone.assign_nuggets("a.jsonl", [], CONFIG), "answers: found str, expected a list of paths"),
        (lambda: keystone.assign_rubrics(Path("a.jsonl"), [], None), "answers: found .*Path, expected a list of paths"),
        (lambda: keystone.assign_nuggets([], [], CONFIG), "^nuggets: found none, expected at least one$"),
        (lambda: keystone.assign_rubrics([], [], None), "^rubrics: found none, expected at least one$"),
        (lambda: keystone.judge_battles(5), "answers: found int, expected a list of paths"),
        (lambda: keystone.read_run(None), "path: found NoneType, expected a path"),
        (lambda: keystone.read_topics(["t.jsonl"]), "path: found list, expected a path"),
        (lambda: keystone.validate(None, {"1": "x"}), "path: found NoneType, expected a path"),
        (lambda: keystone.make_run({"run_id": "r"}), "config: found dict, expected a path"),
        (lambda: keystone.configure({"retrieval": {}}), "preset: found dict, expected the name of a preset"),
        (lambda: keystone.configure("best"), "^preset best: unknown"),
        (lambda: keystone.configure(retrieval={"deth": 5}), "^retrieval.deth: unknown key"),
        (lambda: keystone.configure(retrieval={"depth": 10**30}), "^retrieval.depth: found 10{30}"),
        (lambda: keystone.configure(run_id="\ud800"), "^run_id: found a value that no YAML file can hold"),
        (lambda: keystone.configure(retrieval={"systems": [{(1, 2): 3}]}), "^retrieval.systems: found a value"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(keystone.UserError, match=message) as raised:
        call()
    str(raised.value).encode()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(run_of("1", "1"), "run: found the id '1' twice", id="a query twice"),
        pytest.param(run_of("1", "a b"), "run: found the id 'a b', expected an id without space", id="a space"),
        pytest.param({"1": {"d": 1e300}}, "run: a score is not finite in float32", id="a large score"),
    ],
)
def test_a_run_that_could_not_be_read_again_is_not_written(run: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(keystone.UserError, match=message):
        keystone.write_run(tmp_path / "r.trec", run)
    assert not list(tmp_path.iterdir())


READERS = [getattr(keystone, f"read_{what}") for what in ("nuggets", "qrels", "rubrics", "run", "topics")]


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_is_missing_or_empty_is_named(read: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(keystone.UserError, match=f"{tmp_path / name}: "):
            read(tmp_path / name)
    with pytest.raises(keystone.UserError, match="path: found int, expected a path"):
        read(3)


def test_queries_may_be_an_iterator() -> None:
    assert keystone.fuse({"a": RUN}, iter([query()])) == keystone.fuse({"a": RUN}, [query()])


@pytest.mark.parametrize("measures", ["nDCG@10", ir_measures.nDCG @ 10, ("nDCG@10",), np.array(["nDCG@10"])])
def test_a_measure_may_stand_alone(measures: Any) -> None:
    assert list(map(str, list_measures(measures))) == ["nDCG@10"]
    run, qrels = {"1": {"d": 1.0}}, make_qrels({"1": {"d": 1}})
    assert keystone.evaluate(run, qrels, measures).values["nDCG@10"].tolist() == [1.0]
    assert keystone.leaderboard({"a": run}, qrels, measures)["nDCG@10"].tolist() == [1.0]


def test_a_new_setting_of_a_section_reaches_the_systems_that_do_not_set_it() -> None:
    systems = {"a": {"kind": "bm25"}, "b": {"kind": "bm25", "k1": 0.9}, "c": {"kind": "dense", "depth": 9}}
    before = keystone.configure(retrieval={"systems": systems, "b": 0.5})
    new = {"k1": 1.2, "b": 0.75, "depth": 200, "first_passage_weight": 0}
    wanted = keystone.configure(retrieval={"systems": systems, **new}).retrieval.systems
    assert keystone.configure(before, retrieval=new).retrieval.systems == wanted
    assert keystone.configure(keystone.configure(before, run_id="r"), retrieval=new).retrieval.systems == wanted


@pytest.mark.parametrize(
    ("steps", "choose", "depth"),
    [
        ([{"track": "rag26", "retrieval": {"depth": 50}}], "expected", 50),
        ([{"track": "rag26"}, {"retrieval": {"depth": 500}}], "expected", 500),
        ([{"track": "rag26", "retrieval": {"depth": 50}}, {"retrieval": {"depth": 500}}], "expected", 500),
        ([{}, {"track": "rag26", "retrieval": {"depth": 50}}], "expected", 50),
        ([{"track": "rag26"}, {"track": "rag25"}], None, 100),
        ([{"track": "rag26"}, {"track": "rag25", "retrieval": {"depth": 50}}], None, 50),
        ([{"track": "rag26", "retrieval": {"depth": 50}}, {"track": "rag25"}], None, 50),
        ([{"track": "rag26", "retrieval": {"depth": 50}}, {"track": None}], None, 50),
        ([{"track": "rag26", "retrieval": {"depth": 50}}, {"track": "rag25", "retrieval": {"depth": 500}}], None, 100),
        ([{"retrieval": {"depth": 10}, "fusion": {"depth": {"choose": "threshold"}}}], "threshold", 10),
        ([{"fusion": {"depth": {"choose": "threshold", "most": 10}}}], "threshold", 10),
        (
            [{"track": "rag26", "fusion": {"choice": {"choose": "threshold"}}}, {"retrieval": {"depth": 50}}],
            "threshold",
            50,
        ),
        ([{"track": "rag26", "fusion": {"depth": 70}}, {"retrieval": {"depth": 50}}], None, 50),
    ],
)
def test_a_changed_configuration_still_chooses_depths_as_its_track_does(
    steps: list[dict[str, Any]], choose: str | None, depth: int
) -> None:
    config = None
    for settings in steps:
        config = keystone.configure(config, **settings)
    assert config is not None
    assert (config.fusion.choice and config.fusion.choice.choose, config.fusion.depth) == (choose, depth)


def test_depths_of_a_preset_follow_a_smaller_one() -> None:
    config = keystone.configure("bm25", retrieval={"depth": 10})
    assert (config.retrieval.depth, config.fusion.depth, config.answer.documents) == (10, 10, 10)
    assert keystone.configure("bm25", track="none").fusion.depth == 1000
    with pytest.raises(keystone.UserError, match=r"^preset keystone: .* needs a language model"):
        keystone.configure("keystone", retrieval={"depth": 10})


def test_a_deeper_search_keeps_the_depth_that_a_system_sets_itself() -> None:
    systems = {"a": {"kind": "bm25"}, "b": {"kind": "bm25", "depth": 2}}
    config = keystone.configure(retrieval={"depth": 5, "systems": systems})
    deeper = config.deepen(50)
    assert {name: one.depth for name, one in deeper.retrieval.make_systems().items()} == {"a": 50, "b": 2}
    assert (deeper.retrieval.depth, deeper.fusion.depth) == (50, 50)
    assert config.deepen(5) is config
    assert keystone.configure().deepen(10**9).retrieval.depth == 100_000


@pytest.mark.parametrize(
    "value",
    [
        "ж 🐝",
        "a\x85b\u2028c",
        " a\nb\n\n",
        "1e-05",
        "2024-01-01",
        "no",
        "...",
        "# a",
        "--- a: b",
        1e-05,
        1e16,
        -0.1,
        None,
        np.int64(7),
    ],
)
def test_settings_of_python_keep_their_values(value: object) -> None:
    extra = {"plain": value, "listed": [value, {"inner": value}], "a.b": {"c=d": value, "": value}}
    model = {"name": "m", "urls": ["http://localhost:1/v1"], "extra": extra}
    config = keystone.configure(model=model, fusion={"dense_weight": 1e-05, "depths": {"q.1": 50}})
    assert config.model is not None
    assert config.model.extra == extra
    assert (config.fusion.dense_weight, config.fusion.depths) == (1e-05, {"q.1": 50})
    assert keystone.configure(config, run_id="other").model == config.model
