"""Answer files of tracks: valid ones, and ones with a single change."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from keystone.generation.types import Answer, Sentence
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import TRACKS, Track
from keystone.runs.tracks.answer_files import Author, make_answer_record

ANSWERED_TRACKS = [name for name, track in TRACKS.items() if not track.grounds]
"""The tracks whose topics are answered."""


def tighten_limits(track: Track) -> Track:
    """Give a track limits that small answers break."""
    return replace(track, rows=3, references=3, cited=2, length=replace(track.length, limit=8))


A, B = "msmarco_v2.1_doc_00_1#0_2", "msmarco_v2.1_doc_00_1#5_7"

NEWS = tuple(f"0c2f9d1e-5b7a-4c3d-9e8f-00112233445{n}_1" for n in range(2))
IDS = {"rag26": ("shard_00001_1", "shard_00001_2"), "ragtime25": NEWS, "ragtime26": NEWS, "biogen": ("30000001", "7")}
"""Two ids of a track's corpus, where `A` and `B` are not ids."""

WHY, HOW = Topic("1", "Why?"), Topic("2", "How?")


def make_record(track: str, topic: Topic = WHY) -> dict[str, Any]:
    """Make a valid answer with two references, both cited."""
    ids = IDS.get(track, (A, B))
    answer = Answer(topic.id, (Sentence("Because.", ids),))
    return make_answer_record(topic, answer, TRACKS[track], Author("t", "r", "A test."))


def make_line(track: str = "rag25", **parts: Any) -> str:
    """Make a valid answer with some values replaced. `a__b` is the key b in a; the value None removes the key."""
    record = make_record(track)
    for key, value in parts.items():
        outer, _, inner = key.partition("__")
        target, name = (record[outer], inner) if inner else (record, outer)
        target[name] = value
        if value is None:
            del target[name]
    return json.dumps(record)


def make_sentences(**parts: Any) -> list[dict[str, Any]]:
    """Make a list of one sentence, with some parts replaced."""
    return [{"text": "Because.", "citations": [0], **parts}]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([A, 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.just(A), inner, max_size=3),
    max_leaves=6,
)
"""Values of any type, including NaN, infinities, numbers beyond 64 bits and lone surrogates."""

KEYS = st.sampled_from(["metadata", "references", "answer", "responses", "topic_id", "run_id", "response_length"])

BROKEN = st.builds(
    lambda track, changes, inner, sentence: json.dumps(
        make_record(track)
        | {"metadata": make_record("rag25")["metadata"] | inner}
        | {"answer": [{"text": "So.", "citations": [1, 1, 7]} | sentence]}
        | changes
    ).encode(),
    st.sampled_from(ANSWERED_TRACKS),
    st.dictionaries(KEYS, JSON, max_size=2),
    st.dictionaries(st.sampled_from(["narrative_id", "narrative", "run_id", "type"]), JSON, max_size=2),
    st.dictionaries(st.sampled_from(["text", "citations"]), JSON, max_size=2),
)

COLUMN = st.sampled_from(["1", "Q0", A, "0", "1e400", "nan", "-5", "9" * 5000, "\x00", "é", "\x1c", "#"])

ROW = st.lists(COLUMN, min_size=5, max_size=7).map(lambda columns: " ".join(columns).encode())

FILE = st.lists(BROKEN | ROW | st.binary(max_size=20) | st.just(b"[" * 2000), max_size=5).map(b"\n".join)
"""Files of damaged lines."""


REPAIRABLE = {
    "blank line",
    "citation form",
    "citation without reference",
    "id as a number",
    "mixed citations",
    "no narrative",
    "no topic",
    "repeated citation",
    "repeated reference",
    "response_length",
    "text",
    "too long",
    "too many citations",
    "too many references",
    "uncited reference",
}
