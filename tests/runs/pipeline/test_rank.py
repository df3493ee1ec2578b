"""`run`, `answer` and `tune` make the same rankings, with the scores that a run file holds."""

import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.fuse import FusionSettings, fuse
from keystone.fusion.lists import Groups
from keystone.generation.grading.grade import GradedTopic
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.types import Query, Rankings, Topic, offsets_of, ranked
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation import tune as tuning
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.pipeline import answering
from keystone.runs.pipeline.file_names import NARRATIVE
from keystone.runs.pipeline.grade_files import GradeRecord, make_judgments, make_keystone_rankings
from keystone.runs.pipeline.ranking.fuse_narratives import (
    choose_first_stage,
    fuse_each_narrative,
    fuse_each_query,
    round_scores,
)
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages import narrative
from keystone.runs.pipeline.values import convert_to_run, read_rankings
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run

DOCUMENTS = 12


class Numbered:
    """A store whose document in row n is `dn`, in the order of the ids."""

    def ids(self, rows: Sequence[int]) -> list[str]:
        return [f"d{row:02}" for row in rows]

    def rows(self, ids: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        return np.array([int(name[1:]) for name in ids], dtype=np.int32)


SCORES = st.floats(-1e30, 1e30, width=64) | st.sampled_from([0.0, -0.0, 1 / 3, 1 / 61, 1e-45, 0.016393442])


@given(st.lists(st.dictionaries(st.integers(0, DOCUMENTS - 1), SCORES, max_size=DOCUMENTS), min_size=1, max_size=4))
def test_rounded_rankings_are_those_that_are_read_from_the_file(given_hits: list[dict[int, float]]) -> None:
    ids = [f"q{number}" for number in range(len(given_hits))]
    docs = [np.array(list(own), dtype=np.int32) for own in given_hits]
    found = ranked(ids, docs, [np.array(list(own.values()), dtype=np.float64) for own in given_hits], DOCUMENTS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        write_run(path, convert_to_run(Numbered(), found, "x"))  # type: ignore[arg-type]
        wanted = read_rankings(path, Numbered(), ids)  # type: ignore[arg-type]
    made = round_scores(found)
    assert made.query_ids == wanted.query_ids
    assert (made.offsets == wanted.offsets).all()
    assert (made.docs == wanted.docs).all()
    assert made.scores.dtype == wanted.scores.dtype == np.float32
    assert (made.scores == wanted.scores).all()
    assert np.array_equal(round_scores(made).scores, made.scores), "rounding what is rounded changes nothing"


def test_rounding_decides_the_first_rank_of_a_method_that_adds_scores() -> None:
    """Two sums differ in float64, but not in a file. So all commands must round alike."""
    docs, scores = np.array([0, 1, 0, 1], dtype=np.int32), np.array([1 + 1e-12, 1.0, 0.5 - 1e-12, 0.5])
    order = np.array([0, 1, 3, 2])
    found = Rankings(("a", "b"), offsets_of([2, 2]), docs[order], scores[order])
    groups, settings = Groups(["1"], [[(0, 0), (0, 1)]]), FusionSettings("sum", norm="none")
    raw, rounded = (fuse([one], groups, settings).scores for one in (found, round_scores(found)))
    assert raw.tolist() != rounded.tolist()


def test_scores_of_systems_count_as_in_their_files_and_by_their_weights() -> None:
    docs = np.array([0, 1, 2, 2, 1], dtype=np.int32)
    tied = Rankings(("q",), offsets_of([3]), docs[:3], np.array([3.0, 3.0, 1.0], np.float32))
    dense = Rankings(("q",), offsets_of([2]), docs[3:], np.array([0.9, 0.5], np.float32))
    lists = {"bm25": tied, "dense": dense, "hyde": dense}
    settings = "run_id=r index=i topics=t track=none fusion.systems=scores fusion.dense_weight=0.6 model.name=m"
    passages = "queries.method=model queries.passages=hyde queries.passage_weight=0.5"
    config = read_config(None, f"{settings} {passages}".split())
    found = fuse_each_query(config, lists)
    assert found.docs.tolist() == [1, 2, 0]
    assert found.scores.tolist() == pytest.approx([0.4 + 0.9 * 1.5 / 1.9, 0.9 + 0.4 / 3, 0.4])
    rounded = fuse_each_query(config, {name: round_scores(own) for name, own in lists.items()})
    assert found.scores.tolist() == rounded.scores.tolist()


def test_a_system_of_another_name_is_fused_by_ranks_and_its_scores_are_refused() -> None:
    first = Rankings(("q",), offsets_of([2]), np.array([0, 1], np.int32), np.array([9.0, 1.0], np.float32))
    second = Rankings(("q",), offsets_of([2]), np.array([1, 2], np.int32), np.array([0.9, 0.5], np.float32))
    settings = "run_id=r index=i topics=t track=none".split()
    own, other = {"bm25": first, "dense": second}, {"bm25": first, "splade": second}
    by_rank = read_config(None, [*settings, "fusion.systems=rrf"])
    plain = read_config(None, settings)
    assert fuse_each_query(plain, other).scores.tolist() == fuse_each_query(by_rank, own).scores.tolist()
    assert fuse_each_query(plain, own).scores.tolist() != fuse_each_query(by_rank, own).scores.tolist()
    with pytest.raises(UserError, match="found 'scores' for 'splade', expected it for bm25, "):
        fuse_each_query(read_config(None, [*settings, "fusion.systems=scores"]), other)


@pytest.mark.parametrize("method", ["log_isr", "frequency"])
def test_a_method_that_compares_queries_keeps_the_order_of_a_single_query(method: str) -> None:
    docs, scores = np.array([9, 3, 5, 7, 2, 7, 2], np.int32), np.array([3, 2, 1, 2, 1, 2, 1], np.float32)
    hybrid = Rankings(("1#1", "1#2", "2#1", "2#2"), offsets_of([3, 0, 2, 2]), docs, scores)
    queries = [Query(name[0], name, "x", "x", "x") for name in hybrid.query_ids]
    settings = f"run_id=r index=i topics=t track=none queries.narrative_weight=0 fusion.method={method}".split()
    found = fuse_each_narrative(read_config(None, settings), [Topic("1", "x"), Topic("2", "x")], queries, hybrid)
    assert [found.of(0).tolist(), found.of(1).tolist()] == [[9, 3, 5], [7, 2]]


def test_a_list_is_cut_at_the_depth_of_its_own_system() -> None:
    sparse = Rankings(("q",), offsets_of([1]), np.array([9], np.int32), np.array([12.0], np.float32))
    dense = Rankings(("q",), offsets_of([3]), np.array([1, 2, 3], np.int32), np.array([0.9, 0.89, 0.88], np.float32))
    found = {}
    for depth in (3, 4):
        systems = f"retrieval.systems={{sparse: {{kind: bm25}}, dense: {{kind: dense, depth: {depth}}}}}"
        config = read_config(None, ["run_id=r", "index=i", "topics=t", "track=none", systems])
        found[depth] = fuse_each_query(config, {"sparse": sparse, "dense": dense}).docs.tolist()
    assert found == {3: [9, 1, 2, 3], 4: [1, 2, 3, 9]}


@pytest.mark.parametrize(
    ("lowest", "described", "chosen"), [(0.0, "convex combination (TM2C2)", "scores"), (math.nan, "rrf", "rrf")]
)
def test_the_first_stage_is_described_as_it_fuses_systems_of_known_and_unknown_lowest_scores(
    lowest: float, described: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bm25System, "lowest", lowest)
    config = read_config(None, "run_id=r index=i topics=t track=none".split())
    assert config.describe_first_stage()["method"] == described
    assert choose_first_stage(config, list(config.make_systems())) == chosen


def hits(found: Run) -> dict[str, list[tuple[str, float]]]:
    """List the documents and scores of each topic, in float32, for comparison."""
    listed = found.list_hits()
    return {topic: [(doc_id, float(np.float32(score))) for doc_id, score in own] for topic, own in listed.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "systems"), [("sum", "rrf"), ("mnz", "rrf"), ("max", "rrf"), ("rrf", "rrf"), ("rrf", "scores")]
)
def test_run_answer_and_tune_give_one_narrative_ranking(
    method: str, systems: str, index: Index, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [
        "run_id=r",
        f"index={index.folder}",
        f"topics={topics}",
        f"out={tmp_path}",
        f"fusion.method={method}",
        f"fusion.systems={systems}",
        "queries.narrative_weight=1",
        "retrieval.depth=9",
        "fusion.depth=9",
        "answer.documents=9",
    ]
    directory = run(read_config(None, settings))
    wanted = hits(read_run(directory / NARRATIVE))
    fused: dict[str, list[tuple[str, float]]] = {}

    def noted(config: RunConfig, topics: Sequence[Topic], queries: Sequence[Query], hybrid: Rankings) -> Rankings:
        found = fuse_each_narrative(config, topics, queries, hybrid)
        fused.update(hits(convert_to_run(open_store(index), found, "r")))
        return found

    monkeypatch.setattr(narrative, "fuse_each_narrative", noted)
    answering.answer_to_file(read_config(None, settings), tmp_path / "answers.jsonl")
    assert fused == wanted

    measured: list[Run] = []

    def kept(name: str, found: Run, *rest: object) -> object:
        measured.append(found)
        return evaluate(name, found, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "evaluate", kept)
    config, qrels = tmp_path / "run.yaml", tmp_path / "qrels.txt"
    config.write_text("track: none\n")
    qrels.write_text("1 0 bees 1\n2 0 volcano 1\n")
    trials = tuning.Trials(qrels, [parse_measure("nDCG@5")], ["fusion.depth=[9]"], folds=2)
    tuning.tune(config, settings, trials)
    assert hits(measured[-1]) == wanted


def graded(rows: list[int], selected: list[int], scores: list[float]) -> GradedTopic:
    return GradedTopic("t", [], rows, [[] for _ in rows], np.zeros((0, len(rows))), 0, selected, scores, [])


def test_equal_scores_keep_the_order_of_the_selection_above_the_rest() -> None:
    """Parasol breaks ties by the candidates' order, in which rows do not ascend."""
    narrative = Rankings(("t",), offsets_of([4]), np.array([9, 7, 3, 5], np.int32), np.array([4.0, 3.0, 2.0, 1.0]))
    topic = graded([9, 7, 3], [0, 1, 2], [0.5, 0.5, 0.0])
    found = make_keystone_rankings([topic], narrative, alone=False)
    assert found.docs.tolist() == [9, 7, 3, 5]
    assert found.scores.tolist() == [1.5, np.nextafter(np.float32(1.5), np.float32(0)), 1.0, 0.5]
    assert make_keystone_rankings([topic], narrative, alone=True).docs.tolist() == [9, 7, 3]


@pytest.mark.parametrize(
    ("queries", "grades", "lines"),
    [
        (["t#1", "t#2"], [[0, 3], [1, None]], ["t#1 a 0", "t#1 b 3", "t#2 a 1", "t a 1", "t b 3"]),
        (["t", "t#1"], [[0, 2], [3, None]], ["t#1 a 3", "t a 3", "t b 2"]),
        (["t"], [[0, None]], ["t a 0"]),
        ([], [], []),
    ],
)
def test_under_the_topic_a_document_has_its_highest_grade_once(
    queries: list[str], grades: list[list[float | None]], lines: list[str]
) -> None:
    record = GradeRecord("t", "m", 4, 4, queries, ["a", "b"], [], grades, [], [], ())
    assert [f"{one.query_id} {one.doc_id} {one.grade}" for one in make_judgments([record])] == lines
