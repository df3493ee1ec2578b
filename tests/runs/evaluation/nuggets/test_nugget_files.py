"""Files of nuggets: each form is read and written, real files are read, and bad lines are refused."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.types import Span
from keystone.runs.evaluation.nuggets.cited import (
    CODES,
    Citation,
    CitedAnswer,
    CitedText,
    read_cited_answers,
    write_cited_answers,
)
from keystone.runs.evaluation.nuggets.files import (
    FORMS,
    GoldAnswer,
    Nugget,
    NuggetBank,
    Source,
    keep_nuggets,
    read_nuggets,
    write_nuggets,
)
from tests.support.places import SHARED
from tests.support.runs.answer_files import JSON

few = settings(max_examples=30)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(str.strip)
SOURCE = st.builds(Source, TEXT) | st.builds(
    lambda doc, start, size: Source(doc, Span(doc, start, start + size)), TEXT, st.integers(0, 9), st.integers(1, 9)
)
SOURCES = st.lists(SOURCE, max_size=2).map(tuple)
DOCUMENTS = st.lists(st.builds(Source, TEXT), max_size=2).map(tuple)
IMPORTANCE = st.sampled_from(["vital", "okay", "failed", None])
ASSIGNMENT = st.sampled_from(["support", "partial_support", "not_support", "failed", None])
AGGREGATOR = st.sampled_from(["AND", "OR"])


def make_banks(nuggets: st.SearchStrategy[Nugget], **fields: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    listed = st.lists(nuggets, max_size=4).map(tuple)
    banks = st.builds(NuggetBank, TEXT, listed, **fields)
    return st.lists(banks, min_size=1, max_size=3, unique_by=lambda bank: bank.topic_id)


PLAIN = st.builds(Nugget, TEXT, IMPORTANCE, ASSIGNMENT)
CLAIM = st.builds(Nugget, TEXT, IMPORTANCE, name=TEXT, sources=SOURCES, aggregator=AGGREGATOR | st.none())
ANSWERS = st.lists(st.builds(GoldAnswer, TEXT, SOURCES), max_size=2).map(tuple)
QUESTION = st.builds(
    Nugget, TEXT, IMPORTANCE, name=TEXT, sources=SOURCES, answers=ANSWERS, aggregator=AGGREGATOR | st.none()
)
ASKED = st.builds(
    Nugget,
    TEXT,
    IMPORTANCE,
    answers=st.lists(st.builds(GoldAnswer, TEXT, DOCUMENTS), max_size=2).map(tuple),
    aggregator=AGGREGATOR,
)


def write_and_read(banks: list[NuggetBank], form: str) -> list[NuggetBank]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "nuggets.jsonl")
        write_nuggets(path, banks, form)
        return read_nuggets(path)


@few
@given(make_banks(PLAIN, query=TEXT, run_id=TEXT, answer_text=TEXT))
def test_nuggetizers_form_keeps_nuggets_with_their_labels_and_their_run(banks: list[NuggetBank]) -> None:
    assert write_and_read(banks, "nuggetizer") == banks


@few
@given(make_banks(CLAIM, query=TEXT), make_banks(QUESTION, query=TEXT))
def test_a_nugget_bank_keeps_claims_questions_answers_and_places(
    claims: list[NuggetBank], questions: list[NuggetBank]
) -> None:
    banks = [
        replace(one, nuggets=(*other.nuggets, *one.nuggets)) for one, other in zip(claims, questions, strict=False)
    ]
    assert write_and_read(banks, "nuggetbank") == banks


def test_a_nugget_bank_cannot_hold_two_runs(tmp_path: Path) -> None:
    banks = [NuggetBank("1", (Nugget("bees dance"),), run_id=name) for name in "ab"]
    with pytest.raises(UserError, match="topic '1' has several runs; a NuggetBank holds none"):
        write_nuggets(tmp_path / "bank.jsonl", banks, "nuggetbank")
    assert not list(tmp_path.iterdir())


@few
@given(make_banks(ASKED, run_id=TEXT))
def test_ragtimes_form_keeps_questions_and_their_answers(banks: list[NuggetBank]) -> None:
    assert write_and_read(banks, "ragtime") == banks


def test_ragtimes_form_asks_the_query_of_a_claim() -> None:
    bank = NuggetBank("1", (Nugget("bees dance", "vital", sources=(Source("d1"),)),), "Why?")
    (found,) = write_and_read([bank], "ragtime")[0].nuggets
    assert found == Nugget("Why?", "vital", answers=(GoldAnswer("bees dance", (Source("d1"),)),), aggregator="AND")
    assert found.describe() == "Why? bees dance"


CITATION = st.builds(Citation, TEXT, support=st.sampled_from(list(CODES.values())))
SENTENCES = st.lists(st.builds(CitedText, TEXT, st.lists(CITATION, max_size=3).map(tuple)), max_size=3)


@few
@given(
    st.lists(
        st.builds(CitedAnswer, TEXT, SENTENCES.map(tuple), run_id=TEXT),
        max_size=3,
        unique_by=lambda one: (one.topic_id, one.run_id),
    )
)
def test_rated_citations_survive_their_file(answers: list[CitedAnswer]) -> None:
    with TemporaryDirectory() as folder:
        write_cited_answers(Path(folder, "support"), answers)
        assert read_cited_answers(Path(folder, "support")) == answers


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(
            {"query": {"qid": "q", "text": "Why?"}, "qid": 7, "nuggets": [{"text": "a", "importance": "okay"}]},
            NuggetBank("7", (Nugget("a", "okay"),), "Why?"),
            id="nuggetizer",
        ),
        pytest.param(
            {
                "query_id": "q",
                "title_query": "Why?",
                "nugget_bank": {
                    "Who?": {
                        "question": "Who?",
                        "question_id": "n1",
                        "query_id": "q",
                        "aggregator_type": "OR",
                        "answers": {"bees": {"answer": "bees", "references": [{"doc_id": "d", "offsets": None}]}},
                        "sub_nuggets": [{"claim": "b", "query_id": "q"}],
                    }
                },
            },
            NuggetBank(
                "q",
                (
                    Nugget("Who?", name="n1", answers=(GoldAnswer("bees", (Source("d"),)),), aggregator="OR"),
                    Nugget("b"),
                ),
                "Why?",
            ),
            id="auto-judge, nuggets within nuggets",
        ),
        pytest.param(
            {
                "metadata": {"team_id": "t", "topic_id": "q", "run_id": "r", "run_desc": "d"},
                "nugget_bank": [
                    {
                        "question": "Who?",
                        "aggregator_type": "AND",
                        "answers": [{"answer": "bees", "references": ["d1", {"doc_id": "d2"}]}],
                    }
                ],
            },
            NuggetBank(
                "q",
                (Nugget("Who?", answers=(GoldAnswer("bees", (Source("d1"), Source("d2"))),), aggregator="AND"),),
                run_id="r",
                team_id="t",
                description="d",
            ),
            id="RAGTIME",
        ),
        pytest.param(
            {"topic": "1", "claim_id": 7, "text": "a", "docid": "d", "start": 1, "end": 2},
            NuggetBank("1", (Nugget("a", name="7", sources=(Source("d", Span("d", 1, 2)),)),)),
            id="a line of one nugget",
        ),
    ],
)
def test_files_of_other_teams_are_read(tmp_path: Path, record: Any, expected: NuggetBank) -> None:
    (tmp_path / "nuggets").write_text(json.dumps(record))
    assert read_nuggets(tmp_path / "nuggets") == [expected]


@pytest.mark.skipif(not SHARED.exists(), reason="the collections are not here")
def test_real_files_are_read_whole() -> None:
    dev = read_nuggets(SHARED / "trec-rag-material/nuggets.rag25-dev22.jsonl")
    assert (len(dev), sum(len(bank.nuggets) for bank in dev)) == (22, 1255)
    claims = read_nuggets(SHARED / "ibm-claims-wiki/nuggets.jsonl")
    assert (len(claims), sum(len(bank.nuggets) for bank in claims)) == (55, 2394)
    assert write_and_read(dev, "nuggetizer") == dev


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "holds no line"),
        ('{"qid": "1", "nuggets": [{"text": "a"}]}\n{"qid": 1, "nuggets": []}', ":2: topic '1' occurs more than once"),
        ('{"nuggets": []}', ":1: expected an id under topic_id or topic or qid"),
        ('{"qid": "1", "nuggets": "a"}', "nuggets: expected a list or an object, found 'a'"),
        ('{"qid": "1", "nuggets": ["a"]}', r"nuggets\[0\]: expected an object, found 'a'"),
        ('{"qid": "1", "nuggets": [{"text": " "}]}', r"nuggets\[0\]\.text: expected the text of a nugget"),
        (
            '{"qid": "1", "nuggets": [{"text": "a", "importance": "high"}]}',
            r"importance: expected one of vital, okay, failed",
        ),
        ('{"qid": "1", "nuggets": [{"text": "a", "assignment": []}]}', "assignment: expected one of support"),
        ('{"qid": "1", "query": 3, "nuggets": []}', "query: expected a text, found 3"),
        (
            '{"query_id": "1", "claim_bank": {"a": {"claim": "a", "references": [{}]}}}',
            r"claim_bank.a.references\[0\]: expected an id",
        ),
        (
            '{"qid": "1", "nuggets": [{"text": "a", "references": [{"docid": "d", "offsets": {"start_offset": {}}}]}]}',
            r"nuggets\[0\].references\[0\]: start, end: expected the nugget's place in .*, found {} and None",
        ),
        ('{"metadata": [], "nugget_bank": []}', "metadata: expected an object, found"),
    ],
)
def test_bad_lines_are_refused_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "nuggets").write_text(line)
    with pytest.raises(UserError, match=message):
        read_nuggets(tmp_path / "nuggets")


KEYS = ["query", "nuggets", "nugget_bank", "text", "importance", "docid", "start", "answers", "references"]
RECORD = st.fixed_dictionaries(
    {"qid": st.just("1")}, optional=dict.fromkeys([*KEYS, "metadata", "run_id", "sentences", "sub_nuggets"], JSON)
)


@few
@given(RECORD, st.sampled_from(["nuggets", "nugget_bank", "claim_bank", "sentences"]))
def test_any_object_is_read_or_refused(record: dict[str, Any], key: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "lines")
        path.write_bytes(json.dumps(record | {key: [record]}, ensure_ascii=True).encode())
        for read in (read_nuggets, read_cited_answers):
            with suppress(UserError):
                assert read(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "sentences: expected a list or an object, found the keys topic_id, run_id"),
        ({"topic_id": None, "sentences": []}, "expected an id under topic_id or topic"),
        (
            {"sentences": [{"citations": [{"support": 3}]}]},
            r"sentences\[0\]\.citations\[0\]\.support: expected one of 2",
        ),
    ],
)
def test_bad_ratings_are_refused_with_their_place(tmp_path: Path, record: Any, message: str) -> None:
    (tmp_path / "support").write_text(json.dumps({"topic_id": "1", "run_id": "r"} | record))
    with pytest.raises(UserError, match=message):
        read_cited_answers(tmp_path / "support")


@pytest.mark.parametrize("form", FORMS)
def test_no_nugget_that_stands_in_a_file_is_lost_or_changed(tmp_path: Path, form: str) -> None:
    first, unrated = Nugget("Bees dance.", "vital", sources=(Source("bees"),)), Nugget("Ants walk.", "failed")
    made, out = NuggetBank("1", (first, unrated), "Why?"), tmp_path / "out.jsonl"
    keep_nuggets(out, [made], form)
    write_nuggets(out, [made], form)
    keep_nuggets(out, [made], form)
    keep_nuggets(out, [replace(made, nuggets=(first, replace(unrated, importance="okay"), Nugget("New.")))], form)
    written = out.read_bytes()
    for old, new in ((b"dance", b"sing"), (b"walk", b"run"), (b'"vital"', b'"okay"')):
        out.write_bytes(written.replace(old, new))
        with pytest.raises(
            UserError, match=r"out.jsonl: 1 nugget would be lost or changed, .* topic '1': '"
        ) as refused:
            keep_nuggets(out, [made], form)
        assert str(refused.value).endswith("; name another file with --out, or remove this one")
