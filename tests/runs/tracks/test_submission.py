"""Answer files of all tracks: exact bytes of written files, all forms of citations read, only valid files written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.types import Answer, Sentence
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import TRACKS, Track, set_topic_limits
from keystone.runs.tracks.answer_files import (
    Author,
    SubmittedAnswer,
    make_answer_record,
    make_answer_records,
    read_answer_file,
)
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import write_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.trec.types import make_run
from tests.support.places import SHARED
from tests.support.runs.answer_files import ANSWERED_TRACKS, tighten_limits

MATERIAL = SHARED / "trec-rag-material"
RAG25 = TRACKS["rag25"]
FLOAT32 = float(np.finfo(np.float32).max)
AUTHOR = Author("team", "run-1", "A test.")
SMALL = replace(RAG25, rows=3, references=3, length=replace(RAG25.length, limit=8))
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SEGMENTS = st.sampled_from([f"msmarco_v2.1_doc_00_{n}#0_0" for n in range(6)])
SENTENCES = st.lists(st.builds(Sentence, TEXT, st.lists(SEGMENTS, max_size=5).map(tuple)), max_size=8).map(tuple)
TOPIC_IDS = st.lists(st.text(st.sampled_from("0a7-{}[]"), min_size=1, max_size=3), unique=True, min_size=1, max_size=4)
TOPICS = TOPIC_IDS.flatmap(lambda ids: st.tuples(*(st.builds(Topic, st.just(i), TEXT.filter(str.strip)) for i in ids)))


@pytest.mark.slow
@given(st.sampled_from([TRACKS[name] for name in ANSWERED_TRACKS]).map(tighten_limits), TOPICS, st.data())
def test_a_written_answer_file_is_valid_and_read_with_its_texts_and_citations(
    tmp_path_factory: pytest.TempPathFactory, track: Track, topics: tuple[Topic, ...], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("rag") / "rag.jsonl"
    answers = {t.id: Answer(t.id, data.draw(SENTENCES)) for t in topics if data.draw(st.booleans())}
    write_json_lines(path, make_answer_records(topics, answers, track, AUTHOR))
    errors = {violation.kind for violation in validate(path, track, topics) if violation.severity == "error"}
    errors.discard("id of another corpus")
    texts_of = ([s.text for s in answer.sentences if s.text.strip()] for answer in answers.values())
    empty = all(not texts or track.length.measure(texts)[0] > (track.length.limit or 0) for texts in texts_of)
    assert errors == ({"no sentence"} if empty else set())
    for topic, found in zip(topics, read_answer_file(path, track), strict=True):
        given_ = answers.get(topic.id, Answer(topic.id, ())).sentences
        texts = [sentence for sentence in given_ if sentence.text.strip()][: len(found.answer.sentences)]
        assert [s.text for s in found.answer.sentences] == [s.text for s in texts]
        assert all(set(f.citations) <= set(g.citations) for f, g in zip(found.answer.sentences, texts, strict=True))


@pytest.mark.slow
@given(TOPICS, st.data())
def test_a_written_run_is_valid(
    tmp_path_factory: pytest.TempPathFactory, topics: tuple[Topic, ...], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.tsv"
    scores = st.lists(st.floats(-1e30, FLOAT32), max_size=SMALL.rows).map(lambda found: sorted(found, reverse=True))
    hits = {t.id: [(f"msmarco_v2.1_doc_00_{n}#0_0", s) for n, s in enumerate(data.draw(scores))] for t in topics}
    write_run(path, make_run("run", hits))
    assert [v for v in validate(path, SMALL, topics) if v.line] == []


def test_whole_sentences_and_whole_references_are_cut() -> None:
    said = (
        Sentence("One two three.", ("a", "b")),
        Sentence(" ", ("c",)),
        Sentence("Four five.", ("c", "d", "a")),
        Sentence("Six seven eight nine.", ("a",)),
        Sentence("Ten.", ("a",)),
    )
    record = make_answer_record(Topic("1", "Why?"), Answer("1", said), SMALL, AUTHOR)
    assert record["answer"] == [
        {"text": "One two three.", "citations": [0, 1]},
        {"text": "Four five.", "citations": [2, 0]},
    ]
    assert record["references"] == ["a", "b", "c"]


ANSWER = '"answer":[{"text":"Bees dance.","citations":[0,1]},{"text":"Why?","citations":[]}]}\n'
RESPONSES = (
    '{"metadata":{"team_id":"team","run_id":"run-1","topic_id":"14"},"references":["d1","d0"],'
    '"responses":[{"text":"Bees dance.","citations":["d1","d0"]},{"text":"Why?","citations":[]}]}\n'
)
GOLDEN = {
    "rag24": '{"run_id":"run-1","topic_id":"14","topic":"Ünd?","references":["d1","d0"],"response_length":3,' + ANSWER,
    "rag25": '{"metadata":{"team_id":"team","run_id":"run-1","type":"automatic","narrative_id":"14",'
    '"narrative":"Ünd?"},"references":["d1","d0"],' + ANSWER,
    "rag26": '{"metadata":{"team_id":"team","narrative_id":"14","narrative":"Ünd?","run_id":"run-1",'
    '"run_desc":"A test."},"references":["d1","d0"],' + ANSWER,
    "responses": RESPONSES,
    "ragtime25": RESPONSES,
    "ragtime26": RESPONSES.replace('"topic_id":"14"', '"topic_id":"14","run_desc":"A test."'),
    "dragun25": RESPONSES.replace('"topic_id":"14"', '"topic_id":"14","type":"automatic","use_starter_kit":0'),
    "biogen": RESPONSES,
}


@pytest.mark.parametrize("name", ANSWERED_TRACKS)
def test_an_answer_file_is_written_byte_for_byte(tmp_path: Path, name: str) -> None:
    sentences = (Sentence("Bees dance.", ("d1", "d0")), Sentence("Why?", ()))
    path, track = tmp_path / "rag.jsonl", TRACKS[name]
    topics, answers = [Topic("14", "Ünd?")], {"14": Answer("14", sentences)}
    write_json_lines(path, make_answer_records(topics, answers, track, AUTHOR))
    assert path.read_text() == GOLDEN[name]
    team = "team" if any(key.holds == "team" for key in track.keys) else ""
    assert read_answer_file(path, track) == [SubmittedAnswer("run-1", ("d1", "d0"), Answer("14", sentences), team)]


@pytest.mark.parametrize("track", TRACKS.values(), ids=lambda track: track.name)
@pytest.mark.parametrize(
    "citations",
    [
        pytest.param([1, 0], id="positions"),
        pytest.param(["b", "a"], id="ids"),
        pytest.param([1, "a"], id="both"),
        pytest.param({"a": 0.5, "b": 3}, id="scores"),
        pytest.param([1, 0, 1, "b"], id="repeated"),
    ],
)
def test_every_form_of_citations_is_read_for_every_track(tmp_path: Path, track: Track, citations: Any) -> None:
    path = tmp_path / "rag.jsonl"
    record = make_answer_record(Topic("1", "Why?"), Answer("1", ()), track, AUTHOR)
    path.write_text(
        json.dumps(record | {"references": ["a", "b"], track.sentences: [{"text": "So.", "citations": citations}]})
    )
    assert read_answer_file(path, track)[0].answer.sentences == (Sentence("So.", ("b", "a")),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": 7}, "metadata: expected an object"),
        ({"references": None}, "references: expected a list of ids"),
        ({"references": [True]}, "references: expected a list of ids"),
        ({"answer": ["So."]}, "answer: expected a list of objects"),
        ({"answer": [{"text": 1, "citations": []}]}, r"answer\[0\].text: expected text"),
        ({"answer": [{"text": "So."}]}, r"answer\[0\].citations: expected a list"),
        ({"answer": [{"text": "So.", "citations": [2]}]}, "names no reference"),
        ({"answer": [{"text": "So.", "citations": [-1]}]}, "names no reference"),
        ({"answer": [{"text": "So.", "citations": [True]}]}, "names no reference"),
        ({"answer": [{"text": "So.", "citations": [0.0]}]}, "names no reference"),
        ({"metadata": {"narrative_id": "1"}}, "run_id: expected an id"),
    ],
)
def test_an_error_names_the_line_of_an_unreadable_answer(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    record = make_answer_record(Topic("1", "Why?"), Answer("1", ()), RAG25, AUTHOR) | {"references": ["a", "b"]}
    (tmp_path / "rag.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(record | changes)}\n")
    with pytest.raises(UserError, match=rf"rag\.jsonl:2: .*{message}"):
        read_answer_file(tmp_path / "rag.jsonl", RAG25)


@pytest.mark.parametrize(
    ("name", "texts", "size"),
    [
        pytest.param("rag25", ["two\u00a0words and\u2003more "], 4, id="several kinds of white space"),
        pytest.param("rag24", ["a\ufdfab"], 4, id="one letter whose NFKC form is four words"),
        pytest.param("rag26", ["a\ufdfab"], 1, id="a track that counts words without NFKC"),
        pytest.param("ragtime26", ["ab", "\ufb01"], 5, id="characters of sentences joined by spaces, in NFKC"),
    ],
)
def test_length_is_counted_by_the_rule_of_the_track(name: str, texts: list[str], size: int) -> None:
    assert sum(TRACKS[name].length.measure(texts)) == size


def test_limits_of_topics_come_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "topics.jsonl"
    path.write_text('{"topic_id": 7, "title": "x", "limit": 2000}\n{"topic_id": "8", "title": "y"}\n')
    track = set_topic_limits(TRACKS["ragtime25"], read_topics(path))
    assert [track.limit(topic) for topic in ("7", "8")] == [2000, None]
    assert set_topic_limits(RAG25, read_topics(path)) is RAG25
    (tmp_path / "topics.tsv").write_text("7\tx\n")
    assert set_topic_limits(TRACKS["ragtime25"], read_topics(tmp_path / "topics.tsv")) is TRACKS["ragtime25"]
    path.write_text('{"topic_id": 7, "title": "x", "limit": "long"}\n')
    with pytest.raises(UserError, match=r"topics\.jsonl:1: limit: expected a whole number above 0, found 'long'"):
        set_topic_limits(track, read_topics(path))


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.tsv"
    write_run(path, make_run("t", {"1": [("a", 1.0)], "2": [("b", 0.5)]}))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not finite"):
        write_run(path, make_run("t", {"1": [("a", 1.0)], "2": [("b", float("nan"))]}))
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


@pytest.mark.skipif(not MATERIAL.exists(), reason="the answers of the TREC RAG track are not on this machine")
def test_the_301_answers_of_a_team_are_read() -> None:
    found = read_answer_file(MATERIAL / "answers.rag24.ragnarok-gpt-4o.jsonl.gz", TRACKS["rag24"])
    assert (len(found), len({submitted.answer.topic_id for submitted in found})) == (301, 301)
    assert sum(len(submitted.answer.sentences) for submitted in found) == 3975
    assert sum(len(s.citations) for submitted in found for s in submitted.answer.sentences) == 4108
    assert found[0].answer.sentences[1].citations[1] == "msmarco_v2.1_doc_11_1429319552#1_3022856821"
