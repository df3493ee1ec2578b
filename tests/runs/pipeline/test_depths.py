"""A depth for each narrative: the first rows of the same ranking, and errors of the file of depths."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keystone.fusion.depth import FEATURES, calibrate, cut_by_f1, describe_by_system, expect_f1, weigh_by_grades
from keystone.generation.types import EvidenceSet
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.reading import read_json_lines
from keystone.retrieval.types import Rankings, Topic, offsets_of
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.depth import calibrate_run
from keystone.runs.pipeline.directory import Stage
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages import segments
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.research import rank_researched
from keystone.runs.report.explain import explain
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import NARRATIVES, write_topics
from tests.support.models.plain_model import say
from tests.support.servers.chat import serving

FIRST, SECOND = NARRATIVES


def rank(index: Index, folder: Path, run_id: str, *settings: str) -> dict[str, dict[str, list[str]]]:
    """Make a run; returns the documents of each topic in its two rankings."""
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    config = read_config(None, [f"run_id={run_id}", "track=rag26", "answer.documents=1", *places, *settings])
    directory = run(config)
    files = ("narrative.trec", "r_output_trec_rag_2026.tsv")
    hits = {name: read_run(directory / name).list_hits() for name in files}
    return {name: {topic: [doc for doc, _ in own] for topic, own in found.items()} for name, found in hits.items()}


@pytest.mark.slow
def test_a_narrative_of_the_file_keeps_its_own_depth_and_the_others_keep_theirs(index: Index, tmp_path: Path) -> None:
    whole = rank(index, tmp_path, "whole")
    (tmp_path / "depths.tsv").write_text(f"{FIRST}\t2\n\n")
    cut = rank(index, tmp_path, "cut", f"fusion.depths={tmp_path / 'depths.tsv'}")
    for name, own in cut.items():
        assert len(whole[name][FIRST]) > 2
        assert own == {FIRST: whole[name][FIRST][:2], SECOND: whole[name][SECOND]}
    assert rank(index, tmp_path, "given", f"fusion.depths={{{FIRST}: 2}}") == cut
    doc_id = whole["narrative.trec"][FIRST][2]
    explained = explain(tmp_path / "out" / "cut", FIRST, doc_id)
    assert (explained.kept, explained.place) == (2, 3)


def rank_rows(*rows: int) -> Rankings:
    """Rank the first documents of a store for each topic, as many as `rows` says."""
    docs = np.concatenate([np.arange(number, dtype=np.int32) for number in rows])
    scores = np.concatenate([np.linspace(9, 1, number, dtype=np.float32) for number in rows])
    return Rankings(tuple(str(place) for place in range(1, len(rows) + 1)), offsets_of(rows), docs, scores)


@pytest.mark.parametrize(
    ("fits", "budget", "depths", "rows"),
    [
        ([False, True, True], 130, "{'2': 20}", [43, 20, 67]),
        ([False, True, True], 900, "{'2': 20}", [100, 20, 120]),
        ([False, False, *[True] * 18], 200, "{}", [10] * 20),
        ([False] * 3, 2, "{}", [0] * 3),
    ],
)
def test_a_budget_of_rows_holds_for_all_narratives(
    fits: list[bool], budget: int, depths: str, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One narrative has a depth of its own, and one whose scores fit no mixture has its even share at most."""
    found = (np.linspace(0.9, 0.4, 120) if fit else None for fit in fits)
    monkeypatch.setattr("keystone.fusion.depth.separate_scores", lambda _scores: next(found))
    settings = ["run_id=r", "index=i", "topics=t", "track=rag26"]
    chosen = [f"fusion.depth={{choose: expected, budget: {budget}}}", f"fusion.depths={depths}"]
    values: Any = SimpleNamespace(job=SimpleNamespace(config=read_config(None, [*settings, *chosen])))
    records = segments.choose_depths(values, rank_rows(*[120] * len(fits)))
    assert [one.rows for one in records] == rows


def test_the_ranking_after_research_has_the_depth_of_its_narrative() -> None:
    settings = ["run_id=r", "index=i", "topics=t", "fusion.depth=2", "answer.documents=1", "fusion.depths={'2': 4}"]
    job = SimpleNamespace(
        config=read_config(None, settings),
        topics=[Topic("1", ""), Topic("2", "")],
        store=SimpleNamespace(rows=lambda ids: np.array([int(name) for name in ids], dtype=np.int32)),
    )
    made = list[Rankings]()
    held: dict[str, Any] = {NARRATIVE_FILE.name: rank_rows(9, 9), EVIDENCE_FILE.name: [EvidenceSet(())] * 2}
    work: Any = SimpleNamespace(
        job=job,
        before=SimpleNamespace(narrative_ranking=NARRATIVE_FILE),
        values=SimpleNamespace(get=lambda file: held[file.name], put=lambda _file, value: made.append(value)),
    )
    rank_researched(work)
    assert [len(made[0].of(place)) for place in (0, 1)] == [2, 4]


@pytest.mark.slow
def test_another_depth_in_the_file_makes_the_rankings_again(index: Index, tmp_path: Path) -> None:
    depths, made = tmp_path / "depths.tsv", list[str]()

    def note(stage: Stage, kept: bool) -> None:
        made.extend([] if kept else [stage.name])

    for depth in (2, 3):
        depths.write_text(f"{FIRST} {depth}\n")
        rank(index, tmp_path, "again", f"fusion.depths={depths}")
    settings = [f"index={index.folder}", f"topics={tmp_path / 'topics.jsonl'}", f"out={tmp_path / 'out'}"]
    config = read_config(None, ["run_id=again", "track=rag26", "answer.documents=1", *settings])
    run(config, announce=note)
    assert made[:3] == ["config", "narrative", "segments"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3", "depths.tsv:1: expected a topic id and a whole number, found '1 2 3'"),
        ("1 2\n2 ten", "depths.tsv:2: expected a topic id and a whole number, found '2 ten'"),
        ("1 -2", "depths.tsv:1: expected a topic id and a whole number, found '1 -2'"),
        ("1 2\n1 3", "depths.tsv:2: topic '1' has a depth already"),
        ("1 0", "fusion.depths.1: found 0; input should be greater than or equal to 1"),
        ("1 1001", "fusion.depths: found 1001 for topic '1', above retrieval.depth 1000; expected at most that"),
        (None, "depths.tsv: cannot be read"),
    ],
)
def test_an_impossible_depth_is_an_error(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "depths.tsv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(None, ["run_id=r", "index=i", "topics=t", f"fusion.depths={tmp_path / 'depths.tsv'}"])
    assert message in str(caught.value)


def test_a_depth_for_a_topic_that_is_not_there_is_an_error(index: Index, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fusion\.depths: topic 'rag2026-0' is not in .*topics\.jsonl"):
        rank(index, tmp_path, "unknown", "fusion.depths={rag2026-0: 2}")


@pytest.mark.slow
def test_grades_of_the_run_change_how_many_rows_are_chosen(index: Index, tmp_path: Path) -> None:
    """The probabilities are those of the narrative's ranking, each changed by the best grade of its document."""
    weights = [0.5, -1.0, *[0.0] * (len(FEATURES) - 2)]
    (tmp_path / "calibration.json").write_text(json.dumps({"features": FEATURES, "weights": weights}))
    choice = f"fusion.depth={{choose: expected, calibration: {tmp_path / 'calibration.json'}}}"
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        graded = ("grading={method: grid, pool: 2, documents: 2}", model, choice)
        submitted = rank(index, tmp_path, "graded", *graded)["r_output_trec_rag_2026.tsv"]
    made = tmp_path / "out/graded"
    records = {one["topic_id"]: one for _, one in read_json_lines(made / "depths.jsonl")}
    last, narrative = (read_run(made / f"{name}.trec").list_hits() for name in ("keystone", "narrative"))
    for _, own in read_json_lines(made / "grades.jsonl"):
        topic = own["topic_id"]
        docs = [doc for doc, _ in narrative[topic]]
        before = dict(zip(docs, calibrate(np.array([s for _, s in narrative[topic]]), np.array(weights)), strict=True))
        best = {doc: max(row[n] for row in own["grades"]) for n, doc in enumerate(own["documents"])}
        docs = [doc for doc, _ in last[topic]]
        p = weigh_by_grades(np.array([before[doc] for doc in docs]), np.array([best.get(doc, np.nan) for doc in docs]))
        kept = records[topic]["rows"]
        assert kept == cut_by_f1(p) == len(submitted[topic])
        assert records[topic]["expected_f1"] == pytest.approx(expect_f1(p)[kept], abs=1e-6)
        assert p.tolist() != [before[doc] for doc in docs]
        assert records[topic]["why"].endswith("calibration.json, and by grades")


AGAIN = {
    "reranker": "rerank={method: listwise, block: 4, stride: 2}",
    "agent": "reader={name: agent}",
    "set": "grading={method: grid, pool: 2, documents: 3, select: coverage}",
    "reranked set": "grading={method: grid, pool: 2, documents: 3, select: coverage}",
}


@pytest.mark.slow
@pytest.mark.parametrize("follows", AGAIN)
def test_scores_of_places_choose_no_depth_and_a_selected_set_is_kept_whole(
    follows: str, index: Index, tmp_path: Path
) -> None:
    """After a reranker and after an agent, the fusion's scores give the probabilities, place by place."""
    weights = [-9.0, 0.0, 0.0, 12.0, 0.0, 0.0]
    (tmp_path / "calibration.json").write_text(json.dumps({"features": FEATURES, "weights": weights}))
    choice = f"fusion.depth={{choose: threshold, calibration: {tmp_path / 'calibration.json'}}}"
    answer = "answer={method: retrieval, documents: 1}"
    reranks = ["rerank={method: listwise, after: grades}"] if follows == "reranked set" else []
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        made = rank(index, tmp_path, "again", choice, model, answer, AGAIN[follows], *reranks)
    records = {one["topic_id"]: one for _, one in read_json_lines(tmp_path / "out/again/depths.jsonl")}
    grades = tmp_path / "out/again/grades.jsonl"
    selected = {one["topic_id"]: one["selected"] for _, one in read_json_lines(grades)} if grades.exists() else {}
    narrative = read_run(tmp_path / "out/again/narrative.trec").list_hits()
    for topic, submitted in made["r_output_trec_rag_2026.tsv"].items():
        scores = np.array([score for _, score in narrative[topic]])
        rows = len(selected[topic]) if selected else int(np.sum(calibrate(scores, np.array(weights)) >= 0.5))
        assert 0 < rows < len(scores)
        assert records[topic]["rows"] == len(submitted) == rows
        assert not selected or set(submitted) == set(selected[topic])


@pytest.mark.slow
def test_a_calibration_of_several_systems_reads_the_lists_of_the_run(index: Index, tmp_path: Path) -> None:
    topics, qrels, path = (tmp_path / name for name in ("topics.jsonl", "qrels.txt", "calibration.json"))
    config = tmp_path / "run.yaml"
    config.write_text(f"run_id: r\nindex: {index.folder}\ntopics: {write_topics(topics)}\n")
    qrels.write_text(f"{FIRST} 0 bees 1\n{FIRST} 0 beekeeping 1\n{FIRST} 0 flowers 1\n{SECOND} 0 volcano 1\n")
    fitted = calibrate_run(config, [], qrels, folds=2)
    assert fitted["features"] == [
        *FEATURES,
        *(f"{name} by {system}" for system in ("bm25", "dense") for name in ("log rank", "score")),
    ]
    of_segments = ["track=rag25", "ranking=segments", "retrieval.depth=500"]
    assert calibrate_run(config, of_segments, qrels, folds=2) == fitted, "no list has 500 documents"
    single = calibrate_run(config, ["retrieval.systems=[bm25]"], qrels, folds=2)
    assert single["features"] == [*FEATURES]
    weights = [-0.5, -1.0, 0.0, 0.5, 1.0, 0.0, -0.4, 0.05, -0.2, 3.0]
    path.write_text(json.dumps(fitted | {"weights": weights}))
    choice = f"fusion.depth={{choose: expected, calibration: {path}}}"
    submitted = rank(index, tmp_path, "listed", choice)["r_output_trec_rag_2026.tsv"]
    narrative, *lists = (
        read_run(tmp_path / "out/listed" / f"{name}.trec").list_hits() for name in ("narrative", "bm25", "dense")
    )
    probabilities = {}
    for topic, own in narrative.items():
        docs, scores = zip(*own, strict=True)
        by_system = [describe_by_system(docs, one[topic]) for one in lists]
        probabilities[topic] = calibrate(np.array(scores), np.array(weights), by_system)
        assert len(submitted[topic]) == cut_by_f1(probabilities[topic])
    records = {one["topic_id"]: one for _, one in read_json_lines(tmp_path / "out/listed/depths.jsonl")}
    assert records[FIRST]["expected_f1"] == pytest.approx(max(expect_f1(probabilities[FIRST])), abs=1e-4)
    for setting, message in (
        ("retrieval.systems=[bm25]", r"fitted with the systems bm25, dense; expected .* which are bm25"),
        ("queries.narrative_weight=0", r"fitted with lists for whole narratives; expected queries\.narrative_weight"),
    ):
        with pytest.raises(UserError, match=message):
            rank(index, tmp_path, "refused", choice, setting)
    path.write_text(json.dumps({"features": fitted["features"][:-1], "weights": weights[:-1]}))
    with pytest.raises(UserError, match=r"expected a finite weight for each of .*score by dense"):
        rank(index, tmp_path, "broken", choice)
