"""Submission files: the writers cannot produce what the validator rejects, and the validator names each fault."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.types import Answer, Sentence
from retrieval.types import Topic
from runs.rag import rag_record, word_count, write_rag
from runs.tracks import TRACKS
from runs.trec import run_of, write_run
from runs.validate import Violation, validate

RAG25 = TRACKS["rag25"]
A, B = "msmarco_v2.1_doc_00_1#0_2", "msmarco_v2.1_doc_00_1#5_7"
SMALL = replace(RAG25, rows=3, references=3, words=8)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SEGMENTS = st.sampled_from([f"msmarco_v2.1_doc_0_{n}#0_0" for n in range(6)])
SENTENCES = st.lists(st.builds(Sentence, TEXT, st.lists(SEGMENTS, max_size=5).map(tuple)), max_size=8).map(tuple)
TOPIC_IDS = st.lists(st.text(st.sampled_from("0a7-{}[]"), min_size=1, max_size=3), unique=True, min_size=1, max_size=4)
TOPICS = TOPIC_IDS.flatmap(lambda ids: st.tuples(*(st.builds(Topic, st.just(i), TEXT.filter(str.strip)) for i in ids)))


@given(TOPICS, st.data())
def test_a_written_answer_file_is_valid(
    tmp_path_factory: pytest.TempPathFactory, topics: tuple[Topic, ...], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("rag") / "rag.jsonl"
    answers = {t.id: Answer(t.id, data.draw(SENTENCES)) for t in topics if data.draw(st.booleans())}
    write_rag(path, topics, answers, SMALL, "team", "run")
    assert not [v for v in validate(path, SMALL, topics) if v.severity == "error"]


@given(TOPICS, st.data())
def test_a_written_run_is_valid(
    tmp_path_factory: pytest.TempPathFactory, topics: tuple[Topic, ...], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.tsv"
    scores = st.lists(st.floats(-1e30, 1e30), max_size=6).map(lambda found: sorted(found, reverse=True))
    hits = {t.id: [(f"msmarco_v2.1_doc_0_{n}#0_0", s) for n, s in enumerate(data.draw(scores))] for t in topics}
    write_run(path, run_of("run", hits), SMALL.rows)
    assert [v for v in validate(path, SMALL, topics) if v.line] == []


def test_what_is_cut_is_cut_at_whole_sentences_and_whole_references() -> None:
    said = (
        Sentence("One two three.", ("a", "b")),
        Sentence(" ", ("c",)),
        Sentence("Four five.", ("c", "d", "a")),
        Sentence("Six seven eight nine.", ("a",)),
        Sentence("Ten.", ("a",)),
    )
    record = rag_record(Topic("1", "Why?"), Answer("1", said), SMALL, "team", "run")
    assert record["answer"] == [
        {"text": "One two three.", "citations": [0, 1]},
        {"text": "Four five.", "citations": [2, 0]},
    ]
    assert record["references"] == ["a", "b", "c"]


def test_an_answer_file_golden(tmp_path: Path) -> None:
    answers = {"14": Answer("14", (Sentence("Bees dance.", ("d#1_9", "d#0_0")), Sentence("Why?", ())))}
    write_rag(tmp_path / "rag", [Topic("14", "How?"), Topic("2", "Ünd?")], answers, RAG25, "team", "run-1")
    assert (tmp_path / "rag").read_text() == (
        '{"metadata":{"team_id":"team","run_id":"run-1","type":"automatic","narrative_id":"14","narrative":"How?"},'
        '"references":["d#1_9","d#0_0"],"answer":[{"text":"Bees dance.","citations":[0,1]},'
        '{"text":"Why?","citations":[]}]}\n'
        '{"metadata":{"team_id":"team","run_id":"run-1","type":"automatic","narrative_id":"2","narrative":"Ünd?"},'
        '"references":[],"answer":[]}\n'
    )


def test_words_are_counted_as_the_track_counts_them() -> None:
    assert word_count("two\u00a0words and\u2003more ") == 4


VALID: dict[str, Any] = {
    "metadata": {"team_id": "t", "run_id": "r", "type": "automatic", "narrative_id": "1", "narrative": "Why?"},
    "references": [A, B],
    "answer": [{"text": "Because.", "citations": [0, 1]}],
}


def changed(**parts: Any) -> str:
    record = json.loads(json.dumps(VALID))
    for key, value in parts.items():
        target, _, inner = key.partition("__")
        if inner:
            record[target][inner] = value
        else:
            record[target] = value
    return json.dumps(record)


def said(**parts: Any) -> list[dict[str, Any]]:
    return [{"text": "Because.", "citations": [0], **parts}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("{", "not JSON", id="not JSON"),
        pytest.param("[1]", "expected an object, found list", id="not an object"),
        pytest.param(changed(metadata=7), "metadata: expected an object", id="no metadata"),
        pytest.param(changed(metadata__team_id=""), "metadata.team_id: expected text, found ''", id="no team"),
        pytest.param(changed(metadata__narrative_id="9"), "topic '9' is not in the topics file", id="unknown topic"),
        pytest.param(changed(metadata__narrative="why?"), "differs from the topics file", id="another narrative"),
        pytest.param(changed(metadata__type="magic"), "expected one of automatic, manual, found 'magic'", id="type"),
        pytest.param(changed(metadata__run_id="s"), "run_id: expected 'r' on every line, found 's'", id="two run ids"),
        pytest.param(changed(), "topic 1 is already answered on line 1", id="a topic twice"),
        pytest.param(changed(references="a"), "references: expected a list", id="references not a list"),
        pytest.param(changed(references=["a", "a"]), "listed more than once", id="a reference twice"),
        pytest.param(
            changed(references=[str(n) for n in range(101)]), "expected at most 100, found 101", id="too many"
        ),
        pytest.param(changed(answer={}), "answer: expected a list, found dict", id="answer not a list"),
        pytest.param(changed(answer=["x"]), "answer[0]: expected an object", id="a bare sentence"),
        pytest.param(changed(answer=said(text=" ")), "answer[0].text: expected text", id="no text"),
        pytest.param(changed(answer=said(text="w " * 401)), "at most 400 words, found 401", id="too many words"),
        pytest.param(changed(answer=said(citations=None)), "answer[0].citations: expected a list", id="no citations"),
        pytest.param(changed(answer=said(citations=[2])), "2 is outside 0..1", id="a citation outside"),
        pytest.param(changed(answer=said(citations=[-1])), "-1 is outside 0..1", id="a negative citation"),
        pytest.param(changed(answer=said(citations=[True])), "expected a position or a segment id", id="a boolean"),
        pytest.param(changed(answer=said(citations=["c"])), "'c' is not in references", id="an unknown segment"),
    ],
)
def test_each_fault_of_an_answer_file_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(f"{json.dumps(VALID)}\n{line}\n")
    found = validate(path, RAG25, [Topic("1", "Why?")])
    assert any(v.line == 2 and v.severity == "error" and message in v.message for v in found), found


@pytest.mark.parametrize("citations", [[0, 1], [A, B], []])
def test_both_forms_of_citations_are_valid(tmp_path: Path, citations: list[Any]) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(changed(answer=said(citations=citations)))
    assert validate(path, RAG25, [Topic("1", "Why?")]) == []


def test_a_missing_answer_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(json.dumps(VALID))
    assert validate(path, RAG25, [Topic("1", "Why?"), Topic("2", "How?")]) == [
        Violation(0, "error", "topic 2: no answer")
    ]


@pytest.mark.parametrize(
    ("lines", "line", "severity", "message"),
    [
        (["1 Q0 a 1 0.5"], 1, "error", "expected 6 columns, found 5"),
        (["9 Q0 a 1 0.5 t"], 1, "error", "topic '9' is not in the topics file"),
        (["1 Q0 a 1 0.5 t", "1 Q0 a 2 0.4 t"], 2, "error", "a is already listed for topic 1 on line 1"),
        (["1 Q0 a 0 0.5 t"], 1, "error", "rank: expected 1, found '0'"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 3 0.4 t"], 2, "error", "rank: expected 2, found '3'"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.6 t"], 2, "error", "score 0.6 is above the one of line 1"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.5 t"], 2, "warning", "equals the one of line 1 in float32"),
        (["1 Q0 a 1 x t"], 1, "error", "expected a finite number, found 'x'"),
        (["1 Q0 a 1 0.5 t", "2 Q0 b 1 0.4 u"], 2, "error", "run tag: expected 't' on every line, found 'u'"),
        (["1 0 a 1 0.5 t"], 1, "warning", "second column: expected Q0, found '0'"),
        (["1 Q0 a 1 0.5 t"], 0, "warning", "topic 2: no row"),
        ([f"1 Q0 d{n} {n} {1 / n} t" for n in range(1, 102)], 101, "error", "topic 1: more than 100 rows"),
    ],
)
def test_each_fault_of_a_run_is_named_with_its_line(
    tmp_path: Path, lines: list[str], line: int, severity: str, message: str
) -> None:
    path = tmp_path / "run.tsv"
    path.write_text("\n".join(lines))
    found = validate(path, RAG25, [Topic("1", "Why?"), Topic("2", "How?")])
    assert any(v.line == line and v.severity == severity and message in v.message for v in found), found


@pytest.mark.parametrize(("name", "severity"), [("run.tsv", "warning"), ("rag.jsonl", "error")])
def test_an_empty_file_lacks_every_topic(tmp_path: Path, name: str, severity: str) -> None:
    (tmp_path / name).touch()
    found = validate(tmp_path / name, RAG25, [Topic("1", "Why?"), Topic("2", "How?")])
    assert [(v.line, v.severity) for v in found] == [(0, severity)] * 2


def test_ids_of_another_corpus_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / "run.tsv").write_text(f"1 Q0 {A} 1 0.5 t\n1 Q0 b 2 0.4 t\n1 Q0 c 3 0.3 t\n")
    (tmp_path / "rag.jsonl").write_text(changed(references=[A, "b", "c"]))
    for name, line in (("run.tsv", 2), ("rag.jsonl", 1)):
        (found,) = validate(tmp_path / name, RAG25, [Topic("1", "Why?")])
        assert (found.line, found.severity) == (line, "warning")
        assert "b: not an id of the track's corpus; 2 ids" in found.message


def test_writing_fails_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.tsv"
    write_run(path, run_of("t", {"1": [("a", 1.0)], "2": [("b", 0.5)]}))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not finite"):
        write_run(path, run_of("t", {"1": [("a", 1.0)], "2": [("b", float("nan"))]}))
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])
