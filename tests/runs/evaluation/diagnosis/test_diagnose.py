"""If one stage of a run is damaged, every loss is attributed to that stage."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from benchmarks.diagnosis import compare_stages
from keystone.generation.types import Answer, Evidence, EvidenceSet, Sentence
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.store import build_store, open_store
from keystone.indexing.types import Document, Span
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.diagnosis.diagnose import (
    OF_AGENTS,
    Diagnosis,
    Stage,
    Use,
    diagnose,
    find_uses,
    insert_by_grade,
    list_stages,
    measure_worth,
    name_losses,
    says,
)
from keystone.runs.evaluation.diagnosis.stored import open_stored_run
from keystone.runs.evaluation.diagnosis.wanted import Wanted, list_nuggets, read_relevant_documents
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.pipeline import table
from keystone.runs.pipeline.run import run
from keystone.runs.report.diagnosis import print_diagnosis
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import make_run
from tests.support.indexes.small_corpus import CORPUS, write_index_file, write_topics
from tests.support.runs.command_line import keystone
from tests.support.runs.ranking_stage import make_ranking_stage

SETTINGS = ["retrieval.depth=9", "fusion.depth=9", "answer.documents=9"]

NUGGETS = [
    ("1", "bees", "Honey bees live in colonies of many thousand workers."),
    ("1", "beekeeping", "Mites are the worst enemy of a colony."),
    ("2", "volcano", "Lava, ash and gases escape from it."),
    ("2", "weather", "Ash of an eruption can cool the weather for years."),
]
"""Sentences that the undamaged run uses. The damage is that of the first topic."""
DAMAGED = ("bees", "beekeeping")
OTHER = "twin-a"
"""A document that says nothing about the nuggets."""


def make(index: Index, folder: Path, *changes: str) -> Path:
    topics = write_topics(folder / "topics.jsonl")
    places = ["run_id=run", f"index={index.folder}", f"topics={topics}", f"out={folder / 'out'}"]
    return run(read_config(None, [*places, *SETTINGS, *changes]), threads=2)


@pytest.fixture(scope="module")
def graded(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by rules whose documents all have been graded 3, as a model would do."""
    directory = make(index, tmp_path_factory.mktemp("diagnosed"))
    config = yaml.safe_load((directory / "config.yaml").read_text())
    config |= {"grading": {"method": "pointwise"}, "model": {"name": "m", "urls": ["http://localhost:1/v1"]}}
    config["answer"]["documents"] = 9
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    queries = {one["topic_id"]: [query["id"] for query in one["queries"]] for one in read_lines(directory, "queries")}
    records = []
    for topic, hits in read_run(directory / "narrative.trec").list_hits().items():
        docs = [doc for doc, _ in hits]
        grades = {"grades": [[3.0] * len(docs) for _ in queries[topic]], "spans": [[[0, 9]]] * len(docs)}
        selected = {"selected": docs, "scores": [1.0] * len(docs)}
        counts = {"graded_by": "m", "pairs": 1, "asked": 1, "fallbacks": []}
        records.append(
            {"topic_id": topic, "queries": queries[topic], "documents": docs, **grades, **selected, **counts}
        )
    write_json_lines(directory / "grades.jsonl", records)
    return directory


def read_lines(directory: Path, name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (directory / f"{name}.jsonl").read_bytes().splitlines()]


def edit_first(directory: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the record of the first topic in a file of a run."""
    records = read_lines(directory, name)
    change(records[0])
    write_json_lines(directory / f"{name}.jsonl", records)


def leave_out_of_corpus(directory: Path) -> None:
    config = yaml.safe_load((directory / "config.yaml").read_text())
    whole = open_index(Path(config["index"]))
    index = replace(whole, folder=directory / "index")
    write_index_file(index)
    build_store((document for document in open_store(whole) if document.id not in DAMAGED), index.store)
    (directory / "config.yaml").write_text(yaml.safe_dump({**config, "index": str(index.folder)}))


def leave_out_of_lists(directory: Path, *names: str) -> None:
    for name in names:
        hits = read_run(directory / f"{name}.trec").list_hits()
        kept = {q: [hit for hit in own if q[0] != "1" or hit[0] not in DAMAGED] for q, own in hits.items()}
        write_run(directory / f"{name}.trec", make_run("run", kept))


def set_grades(directory: Path, grade: float | None) -> None:
    def change(record: dict[str, Any]) -> None:
        places = [record["documents"].index(name) for name in DAMAGED]
        for row in record["grades"]:
            for place in places:
                row[place] = grade

    edit_first(directory, "grades", change)


def leave_out_of_selection(directory: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["selected"] = [name for name in record["selected"] if name not in DAMAGED]

    edit_first(directory, "grades", change)


def leave_out_of_evidence(directory: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["items"] = [item for item in record["items"] if item["span"]["doc_id"] not in DAMAGED]

    edit_first(directory, "evidence", change)


def is_damaged(sentence: dict[str, Any]) -> bool:
    return any(citation.partition("#")[0] in DAMAGED for citation in sentence["citations"])


def leave_out_of_answer(directory: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["sentences"] = [sentence for sentence in record["sentences"] if not is_damaged(sentence)]

    edit_first(directory, "answers", change)


def cite_wrongly(directory: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        for sentence in filter(is_damaged, record["sentences"]):
            sentence["citations"] = [f"{OTHER}#w0_0"]

    edit_first(directory, "answers", change)


DAMAGES: dict[Stage, Callable[[Path], None]] = {
    "corpus": leave_out_of_corpus,
    "search": lambda directory: leave_out_of_lists(directory, "bm25", "dense"),
    "systems": lambda directory: leave_out_of_lists(directory, "hybrid"),
    "queries": lambda directory: leave_out_of_lists(directory, "narrative"),
    "graded": lambda directory: set_grades(directory, None),
    "grade": lambda directory: set_grades(directory, 1),
    "selected": leave_out_of_selection,
    "read": leave_out_of_evidence,
    "used": leave_out_of_answer,
    "cited": cite_wrongly,
}
"""The damage of each stage. What one stage lost, later stages lack, too."""


OF_RERANKERS = ("placed", "reranked")


def keep_notes(directory: Path, *kinds: str) -> None:
    """Keep only the agent's notes of these kinds about the damaged documents, as if it had gone no further."""

    def change(record: dict[str, Any]) -> None:
        for note in record["notes"]:
            if note["kind"] not in kinds:
                note["sources"] = [span for span in note["sources"] if span["doc_id"] not in DAMAGED]

    edit_first(directory, "evidence", change)


RESEARCH_DAMAGES: dict[Stage, Callable[[Path], None]] = {
    "found": keep_notes,
    "shown": lambda directory: keep_notes(directory, "found"),
    "noted": lambda directory: keep_notes(directory, "found", "seen", "read"),
    "read": leave_out_of_evidence,
    "used": leave_out_of_answer,
}


def write_wanted(folder: Path, kind: str) -> Path:
    path = folder / kind
    if kind == "qrels":
        path.write_text("".join(f"{topic} 0 {doc} 1\n" for topic, doc, _ in NUGGETS) + "9 0 bees 1\n1 0 wasps 0\n")
        return path
    lines = []
    for topic, doc, text in NUGGETS:
        start = CORPUS[doc][1].index(text)
        lines.append({"topic": topic, "docid": doc, "text": text, "start": start, "end": start + len(text)})
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"qid": 9, "doc_id": "x", "text": "none"}]))
    return path


def diagnose_by(directory: Path, path: Path) -> Diagnosis:
    if path.name == "qrels":
        return diagnose(directory, lambda store: read_relevant_documents(path, 1, store))
    return diagnose(directory, lambda _store: list_nuggets(read_nuggets(path)))


@pytest.mark.parametrize("stage", DAMAGES)
def test_every_loss_of_a_damaged_stage_is_attributed_to_it(graded: Path, tmp_path: Path, stage: Stage) -> None:
    directory = tmp_path / "run"
    shutil.copytree(graded, directory)
    DAMAGES[stage](directory)
    for later in list(DAMAGES)[list(DAMAGES).index(stage) + 1 :]:
        if later not in ("grade", "cited"):  # which would need what the earlier stage has lost
            DAMAGES[later](directory)
    for kind in ("qrels", "nuggets"):
        found = diagnose_by(directory, write_wanted(tmp_path, kind))
        assert found.stages == tuple(stage for stage in name_losses() if stage not in (*OF_RERANKERS, *OF_AGENTS))
        assert [one.lost for one in found.findings] == [stage, stage, None, None]
        assert (found.sum_worth(stage), found.sum_worth(None), found.left_out) == (0.5, 0.5, 1)
        if kind == "qrels":
            worth = measure_worth(directory, found, parse_measure("R@100"))
            lost = 0.5 if stage in ("corpus", "search", "systems", "queries") else 0
            assert worth["value"] == 1 - lost
            assert {one: gain for one, gain in worth["gains"].items() if gain} == ({stage: lost} if lost else {})


@pytest.mark.slow
def test_the_benchmark_damages_the_stages_that_its_run_has(graded: Path, tmp_path: Path) -> None:
    rows = compare_stages(open_stored_run(graded), "qrels", write_wanted(tmp_path, "qrels"), tmp_path / "damaged")
    found = [(row.split()[1].rstrip(":,"), missed) for row, missed in rows]
    assert found == [(stage, 0) for stage in ("none", *DAMAGES)]


def test_answers_to_queries_are_made_from_the_documents_of_each_query(graded: Path, tmp_path: Path) -> None:
    shutil.copytree(graded, tmp_path / "run")
    config = yaml.safe_load((graded / "config.yaml").read_text())
    hits = read_run(graded / "hybrid.trec").list_hits()
    first = {own[0][0] for query, own in hits.items() if query.startswith("1#")}
    for method in ("answers", "claims"):
        answer = {"answer": {"method": method, "documents": 1}}
        (tmp_path / "run/config.yaml").write_text(yaml.safe_dump({**config, **answer}))
        for change, selected in ((grade_weather_alone, {"weather"}), (grade_nothing, first)):
            edit_first(tmp_path / "run", "grades", change)
            run = open_stored_run(tmp_path / "run")
            assert run.list_selected()["1"] == selected
            absent = {"queries", *OF_RERANKERS, *OF_AGENTS}
            assert {stage for stage in name_losses() if stage not in list_stages(run)} == absent


@pytest.fixture(scope="module")
def researched(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the agent by rules that uses the wanted documents of the first topic."""
    directory = make(index, tmp_path_factory.mktemp("researched"), "reader.name=agent", "reader.hits=9")
    found = diagnose_by(directory, write_wanted(directory.parent, "qrels"))
    assert {one.lost for one in found.findings if one.wanted.doc_id in DAMAGED} <= {None, "cited"}
    return directory


@pytest.mark.parametrize("stage", RESEARCH_DAMAGES)
def test_every_loss_of_an_agent_is_attributed_to_it(researched: Path, tmp_path: Path, stage: Stage) -> None:
    directory = tmp_path / "run"
    shutil.copytree(researched, directory)
    for own in list(RESEARCH_DAMAGES)[list(RESEARCH_DAMAGES).index(stage) :]:
        if own in ("read", "used") or own == stage:
            RESEARCH_DAMAGES[own](directory)
    found = diagnose_by(directory, write_wanted(tmp_path, "qrels"))
    of_ranking = ("corpus", "search", "systems", "queries")
    assert found.stages == (*of_ranking, *OF_AGENTS, "read", "used", "cited")
    assert {one.lost for one in found.findings if one.wanted.doc_id in DAMAGED} == {stage}


def set_listwise_reranker(directory: Path) -> None:
    config = yaml.safe_load((directory / "config.yaml").read_text())
    config["model"] = {"name": "m", "urls": ["http://localhost:9/v1"]}
    config["rerank"]["method"] = "listwise"
    (directory / "config.yaml").write_text(yaml.safe_dump(config))


def grade_nothing(record: dict[str, Any]) -> None:
    record["grades"] = [[0.0] * len(record["documents"]) for _ in record["queries"]]


def grade_weather_alone(record: dict[str, Any]) -> None:
    record["grades"] = [[float(name == "weather") for name in record["documents"]] for _ in record["queries"]]


@pytest.mark.parametrize(("place", "lost"), [("first", "reranked"), ("last", "placed")])
def test_what_a_reranker_puts_too_low_is_its_loss(index: Index, tmp_path: Path, place: str, lost: Stage) -> None:
    """Before the reranker, the lost documents are first or last; after it, they are last."""
    directory = make(index, tmp_path, "answer.documents=2")
    leave_out_of_evidence(directory)
    leave_out_of_answer(directory)
    hits = read_run(directory / "narrative.trec").list_hits()
    others = [(doc, score) for doc, score in hits["1"] if doc not in DAMAGED]
    for name, first in (("narrative", place == "first"), ("reranked", False)):
        ids = [*DAMAGED, *(doc for doc, _ in others)] if first else [*(doc for doc, _ in others), *DAMAGED]
        ranked = {**hits, "1": [(doc, float(len(ids) - rank)) for rank, doc in enumerate(ids)]}
        write_run(directory / f"{name}.trec", make_run("run", ranked))
    set_listwise_reranker(directory)
    found = diagnose_by(directory, write_wanted(tmp_path, "qrels"))
    assert found.stages == ("corpus", "search", "systems", "queries", *OF_RERANKERS, "read", "used", "cited")
    assert {one.lost for one in found.findings if one.wanted.doc_id in DAMAGED} == {lost}


def test_a_reranker_before_an_agent_is_judged_by_its_own_ranking(researched: Path, tmp_path: Path) -> None:
    """The ranking after the research begins with what the agent noted."""
    directory = Path(shutil.copytree(researched, tmp_path / "run"))
    for name, docs in (("narrative", DAMAGED), ("reranked", (OTHER, "weather")), ("researched", DAMAGED)):
        write_run(directory / f"{name}.trec", make_run("run", {"1": [(doc, float(-n)) for n, doc in enumerate(docs)]}))
    keep_notes(directory)
    leave_out_of_evidence(directory)
    leave_out_of_answer(directory)
    set_listwise_reranker(directory)
    found = diagnose_by(directory, write_wanted(tmp_path, "qrels"))
    assert {one.lost for one in found.findings if one.wanted.doc_id in DAMAGED} == {"reranked"}


CUT = make_ranking_stage("cut", 1, losses={"uncut": "ranked too low before the cut", "cut": "cut off"})


@pytest.mark.parametrize(
    ("documents", "reranks", "lost"),
    [
        pytest.param(9, False, ["cut", "cut"], id="cut"),
        pytest.param(1, False, ["cut", "uncut"], id="too low before"),
        pytest.param(9, True, ["cut", "cut"], id="cut after the reranker"),
        pytest.param(2, True, ["reranked", "reranked"], id="too low by the reranker"),
    ],
)
def test_the_loss_of_a_stage_that_ranks_is_named_by_its_row_of_the_table(
    documents: int,
    reranks: bool,
    lost: list[Stage],
    index: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = next(place for place, stage in enumerate(table.STAGES) if stage.name == "segments")
    monkeypatch.setattr(table, "STAGES", (*table.STAGES[:place], CUT, *table.STAGES[place:]))
    directory = make(index, tmp_path, f"answer.documents={documents}")
    hits = read_run(directory / "narrative.trec").list_hits()
    for name, docs in (("narrative", (*DAMAGED, OTHER)), ("reranked", (OTHER, "weather", *DAMAGED)), ("cut", (OTHER,))):
        if name != "narrative" or reranks:
            own = [(doc, float(-rank)) for rank, doc in enumerate(docs)]
            write_run(directory / f"{name}.trec", make_run("run", {**hits, "1": own}))
    if reranks:
        set_listwise_reranker(directory)
    leave_out_of_evidence(directory)
    leave_out_of_answer(directory)
    found = diagnose_by(directory, write_wanted(tmp_path, "qrels"))
    again = (*(OF_RERANKERS if reranks else ()), "uncut", "cut")
    assert found.stages == ("corpus", "search", "systems", "queries", *again, "read", "used", "cited")
    assert [one.lost for one in found.findings if one.wanted.doc_id in DAMAGED] == lost
    print_diagnosis(found)
    assert re.search("^cut +cut off ", capsys.readouterr().out, re.MULTILINE)
    (directory / "cut.trec").unlink()
    with pytest.raises(UserError, match=r"has no cut\.trec yet"):
        open_stored_run(directory)


@pytest.mark.parametrize(("after", "chooses"), [("fusion", False), ("grades", True)])
def test_a_reranker_before_the_grades_does_not_choose_what_is_read(
    graded: Path, tmp_path: Path, after: str, chooses: bool
) -> None:
    directory = Path(shutil.copytree(graded, tmp_path / "run"))
    for name in ("reranked", "graded", "keystone"):
        shutil.copy(directory / "narrative.trec", directory / f"{name}.trec")
    config = yaml.safe_load((directory / "config.yaml").read_text())
    config["rerank"] |= {"method": "listwise", "after": after}
    config["answer"]["method"] = "whole"
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    stages = diagnose_by(directory, write_wanted(tmp_path, "qrels")).stages
    assert ({*OF_RERANKERS} <= {*stages}, "selected" in stages) == (chooses, not chooses)


@pytest.mark.parametrize("kind", ["qrels", "nuggets"])
def test_an_undamaged_run_keeps_everything(graded: Path, tmp_path: Path, kind: str) -> None:
    found = diagnose_by(graded, write_wanted(tmp_path, kind))
    assert {one.lost for one in found.findings} == {None}
    assert found.sum_worth(None) == 1
    assert all(one.grade == 3 and set(one.ranks) == {"search", "systems", "queries"} for one in found.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        (["fusion.depth=1", "answer.documents=1"], "queries"),
        (["answer.documents=1"], "selected"),
    ],
)
def test_a_setting_that_cuts_loses_at_its_stage(index: Index, tmp_path: Path, changes: list[str], stage: Stage) -> None:
    found = diagnose_by(make(index, tmp_path, *changes), write_wanted(tmp_path, "qrels"))
    assert found.stages == ("corpus", "search", "systems", "queries", "selected", "read", "used", "cited")
    assert {one.lost for one in found.findings} <= {stage, None}
    assert any(one.lost == stage for one in found.findings)


@pytest.mark.slow
def test_a_ranking_gains_what_it_lacks_if_the_cut_documents_stood_first(index: Index, tmp_path: Path) -> None:
    directory = make(index, tmp_path, "fusion.depth=1", "answer.documents=1")
    found = diagnose_by(directory, write_wanted(tmp_path, "qrels"))
    worth = measure_worth(directory, found, parse_measure("nDCG@10"))
    assert 0 < worth["value"] < 1
    assert worth["value"] + worth["gains"]["queries"] == pytest.approx(1)
    assert {stage for stage, gain in worth["gains"].items() if gain} == {"queries"}
    for name in ("judged@10", "alpha_nDCG@10"):
        with pytest.raises(UserError, match="expected a measure of relevance that ranx has"):
            measure_worth(directory, found, parse_measure(name))


@pytest.mark.parametrize(
    ("ranking", "missing", "expected"),
    [
        pytest.param("abx", "c", "abcx", id="equal grades stay before"),
        pytest.param("xab", "c", "cxab", id="before documents of no grade"),
        pytest.param("dab", "e", "edab", id="before a lower grade"),
        pytest.param("xdb", "b", "bxd", id="a ranked document moves"),
        pytest.param("ea", "dc", "eacd", id="at the end"),
        pytest.param("", "ce", "ec", id="nothing is ranked"),
    ],
)
def test_missing_documents_stand_before_the_first_of_a_lower_grade(ranking: str, missing: str, expected: str) -> None:
    grades = {"a": 2, "b": 2, "c": 2, "d": 1, "e": 3}
    assert "".join(insert_by_grade(ranking, missing, grades)) == expected


def test_a_run_of_rankings_keeps_what_it_ranks(index: Index, tmp_path: Path) -> None:
    found = diagnose_by(make(index, tmp_path, "track=none"), write_wanted(tmp_path, "qrels"))
    assert found.stages == ("corpus", "search", "systems", "queries")
    assert {one.lost for one in found.findings} == {None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Mites, the worst enemy of each colony, spread.", True),
        ("Mites live in a colony.", False),
        ("Beetles are the worst enemy of a hive.", False),
    ],
)
def test_a_text_says_a_nugget_if_it_has_nearly_all_its_words(text: str, said: bool) -> None:
    assert says(text, "Mites are the worst enemy of a colony.") == said


@pytest.mark.slow
def test_the_command_prints_writes_and_draws_and_refuses_bad_nuggets(graded: Path, tmp_path: Path) -> None:
    nuggets = write_wanted(tmp_path, "nuggets")
    files: list[str | Path] = ["--out", tmp_path / "losses.svg", "--out", tmp_path / "losses.json"]
    done = keystone("diagnose", graded, "--nuggets", nuggets, *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert "selected  not selected" in done.stdout
    assert "1 nugget of topics that the run lacks is left out" in done.stdout
    assert ">in the evidence, but not used<" in (tmp_path / "losses.svg").read_text()
    told = orjson.loads((tmp_path / "losses.json").read_bytes())
    assert (told["coverage"], [one["lost"] for one in told["findings"]]) == (1, [None] * 4)
    refused = keystone("diagnose", graded, "--nuggets", nuggets, "-m", "nDCG@10")
    assert refused.stderr == "error: --measure: expected with --qrels, since nuggets do not judge rankings\n"
    judged = ("diagnose", graded, "--qrels", write_wanted(tmp_path, "qrels"), "-m", "R@100")
    refused = keystone(*judged, "-m", "nDCG@10")
    assert refused.stderr == "error: --measure: found R@100, nDCG@10, expected one measure\n"
    done = keystone(*judged)
    assert "R@100: its gain if these documents stood by their grades; now 1.0000" in done.stdout
    nuggets.write_text('{"topic": "1", "text": "a"}\n')
    refused = keystone("diagnose", graded, "--nuggets", nuggets)
    assert refused.stderr == (
        f"error: {nuggets}:1: found a nugget without a document, expected an id under doc_id or references. "
        "keystone nuggets create --to nuggetbank keeps the documents of its nuggets\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "holds no line"),
        ('{"topic": "1", "docid": "d", "text": ""}', "text: expected the text of a nugget"),
        ('{"topic": "1", "docid": [], "text": "a"}', "docid: expected an id"),
        ('{"topic": "1", "docid": "d", "text": "a", "start": 3}', "start, end: expected"),
        ('{"topic": "1", "docid": "d", "text": "a", "start": 3, "end": 3}', "start, end: expected"),
    ],
)
def test_bad_nuggets_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "nuggets").write_text(line)
    with pytest.raises(UserError, match=message):
        read_nuggets(tmp_path / "nuggets")


def test_a_folder_without_a_finished_run_and_foreign_topics_are_refused(graded: Path, tmp_path: Path) -> None:
    qrels = write_wanted(tmp_path, "qrels")
    with pytest.raises(UserError, match=r"holds no config\.yaml"):
        diagnose_by(tmp_path, qrels)
    qrels.write_text("9 0 bees 1\n")
    with pytest.raises(UserError, match="its topics look like '1', not '9'"):
        diagnose_by(graded, qrels)
    shutil.copytree(graded, tmp_path / "run")
    (tmp_path / "run/answers.jsonl").unlink()
    with pytest.raises(UserError, match=r"has no answers\.jsonl yet"):
        diagnose_by(tmp_path / "run", write_wanted(tmp_path, "qrels"))


@pytest.mark.parametrize(
    ("sentence", "cited"),
    [
        ("The report from China says that bees live in hives and in trees.", True),
        ("蜜蜂在报告中没有任何提及的火山上爆发。", False),
    ],
)
def test_words_do_not_judge_the_citation_of_a_document_in_another_language(sentence: str, cited: bool) -> None:
    text = "蜜蜂生活在蜂巢里，也生活在树上。"
    document, span = Document("d", text), Span("d", 0, len(text))
    answer = Answer("1", (Sentence(sentence, ("d",)),))
    evidence = EvidenceSet((Evidence(span, text, 1.0, "1"),))
    (use,) = find_uses([Wanted("1", "d", "d")], answer, evidence, {"d": document})
    assert use == Use(read=True, used=True, cited=cited)


def test_a_sentence_that_cites_another_language_is_no_wrong_citation_of_an_equal_document() -> None:
    texts = {"c": "蜜蜂生活在蜂巢里，也生活在树上。", "e": "Bees live in hives and in hollow trees."}
    documents = {name: Document(name, text) for name, text in texts.items()}
    evidence = EvidenceSet(tuple(Evidence(Span(name, 0, len(text)), text, 1.0, "1") for name, text in texts.items()))
    answer = Answer("1", (Sentence(texts["e"], ("c",)),))
    (use,) = find_uses([Wanted("1", "e", "e")], answer, evidence, documents)
    assert use == Use(read=True, used=False, cited=False)
