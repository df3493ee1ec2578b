"""Official segments are found by fitting offsets or by their text; windows are never taken for official segments."""

import json
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.locate import MOST_MISSES, SegmentRecord, locate_segments
from keystone.indexing.corpora.segments import (
    MS_MARCO_SEGMENT_PATTERN,
    cut_segments,
    is_window,
    make_windows,
    split_sentences,
)
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import open_index
from keystone.indexing.types import Document
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.check_run import check_run
from tests.support.runs.command_line import keystone

pytestmark = pytest.mark.slow

TEXT = " ".join(f"Sentence {n} is about bee {n % 7}." for n in range(23)) + "\nIts  end\tis here."
SPANS = make_windows(split_sentences(TEXT))
NAME = "msmarco_v2.1_doc_00_7"


def spans_of(document: Document, cuts: list[SegmentRecord]) -> tuple[list[tuple[str, int, int]], list[str]]:
    told: list[BadRecord] = []
    found = locate_segments(document, cuts, told.append)
    return [(s.id, s.span.start, s.span.end) for s in found], [error.kind for error in told]


@pytest.mark.parametrize("said", ["no offsets", "right offsets", "offsets of another text", "offsets behind the end"])
@pytest.mark.parametrize("space", [" ", "  ", "\n", ""])
def test_segments_are_found_by_text_where_offsets_do_not_fit(said: str, space: str) -> None:
    cuts = []
    for n, (start, end) in enumerate(SPANS):
        offsets: dict[str, tuple[int | None, int | None]] = {
            "no offsets": (None, None),
            "right offsets": (start, end),
            "offsets of another text": (3, 90),
            "offsets behind the end": (start, len(TEXT) + 5),
        }
        first, last = offsets[said]
        cuts.append(SegmentRecord(f"d#{n}_{n * 900}", first, last, space.join(TEXT[start:end].split(" "))))
    assert spans_of(Document("d", TEXT), cuts[::-1]) == ([(f"d#{n}_{n * 900}", *s) for n, s in enumerate(SPANS)], [])


@given(st.text(st.sampled_from("ab. \n"), max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30))))
def test_a_located_span_has_the_text_of_its_segment(text: str, places: list[tuple[int, int]]) -> None:
    cuts = [SegmentRecord(f"d#{n}", None, None, text[a : a + size]) for n, (a, size) in enumerate(sorted(places))]
    found, kinds = spans_of(Document("d", text), cuts)
    filled = [cut for cut in cuts if cut.text and cut.text.strip()]
    assert len(found) == len(filled)
    assert set(kinds) <= {"segment not found"}
    texts = {cut.id: cut.text or "" for cut in cuts}
    assert all("".join(text[a:b].split()) == "".join(texts[name].split()) for name, a, b in found)


def test_a_segment_that_is_not_in_its_document_is_reported() -> None:
    document = Document("d", TEXT, place="c.jsonl:3")
    told: list[BadRecord] = []
    cuts = [
        SegmentRecord("d#0", None, None, "No such words."),
        SegmentRecord("d#1", 0, 9, "No such words."),
        SegmentRecord("d#2", 0, 999, None),
    ]
    assert locate_segments(document, cuts, told.append) == ()
    assert [(str(error), error.kind) for error in told] == [
        ("c.jsonl:3: segment d#0: its text is not in its document", "segment not found"),
        ("c.jsonl:3: segment d#1 from 0 to 9 its document has another text", "bad offsets"),
        (f"c.jsonl:3: segment d#2 ends at 999, but its document has {len(TEXT)} characters", "bad offsets"),
    ]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda _: SegmentRecord("d#0", None, None, "bee!"), id="text that is not there"),
        pytest.param(lambda n: SegmentRecord(f"d#{n}", 0, 2_000_000, None), id="the whole document, over and over"),
        pytest.param(
            lambda n: SegmentRecord(f"d#{n}", 0, 2_000_000, "bee "), id="offsets that hold more than the text"
        ),
        pytest.param(lambda n: SegmentRecord(f"d#{200_000 - n}", None, None, f"{n} bee"), id="text in another order"),
    ],
)
def test_time_and_kept_text_are_linear_for_any_segments(cut: Any) -> None:
    text = "bee " * 500_000
    started = process_time()
    found, _ = spans_of(Document("d", text), [cut(n) for n in range(100_000)])
    assert sum(end - start for _, start, end in found) <= 17 * len(text)
    assert process_time() - started < 60  # each takes a second or two; searched without bounds, hours
    assert MOST_MISSES < 1_000


def test_joined_segments_take_linear_time(tmp_path: Path) -> None:
    long = "a" * 60_000
    pieces = [f"{long}{letter}" for letter in "bcdef"]
    (tmp_path / "s.jsonl").write_text(
        "".join(json.dumps({"docid": f"{NAME}#{n}_{n}", "segment": piece}) + "\n" for n, piece in enumerate(pieces))
        + "".join(json.dumps({"docid": f"d#{n}_{n}", "segment": f"{n} bees"}) + "\n" for n in range(100_000))
    )
    started = process_time()
    one, many = read_corpus(tmp_path / "s.jsonl")
    assert one.text == "\n".join(pieces)
    assert many.text == "\n".join(f"{n} bees" for n in range(100_000))
    assert process_time() - started < 60


@given(st.text(st.sampled_from("ab"), min_size=10, max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_the_longest_overlap_is_found_both_ways(text: str, a: int, b: int) -> None:
    from keystone.indexing.corpora.jsonl import LEAST_OVERLAP_CHARACTERS, _measure_border, _measure_overlap

    before, piece = text[: max(a, b)], text[min(a, b) :]
    assume(len(piece) >= LEAST_OVERLAP_CHARACTERS)
    expected = max(
        n
        for n in (0, *range(LEAST_OVERLAP_CHARACTERS, len(text) + 1))
        if before.endswith(piece[:n]) and len(piece) >= n
    )
    assert _measure_overlap(before, piece) == _measure_border(piece[: len(before)], before) == expected


def corpus(folder: Path, given_segments: int, documents: int = 4) -> tuple[Path, list[str]]:
    """Documents of MS MARCO's form, and options that name their first segments, without offsets."""
    names = [f"msmarco_v2.1_doc_00_{n}" for n in range(documents)]
    path, cuts = folder / "c.jsonl", folder / "s.jsonl"
    path.write_text("".join(json.dumps({"docid": name, "body": f"{TEXT} {name}"}) + "\n" for name in names))
    records = [
        {"docid": f"{name}#{n}_{9_000 + n}", "segment": TEXT[start:end]}
        for name in names
        for n, (start, end) in enumerate(SPANS)
    ]
    cuts.write_text("".join(json.dumps(record) + "\n" for record in records[:given_segments]))
    return path, ["--segments", str(cuts)] if given_segments else []


@pytest.mark.parametrize(
    ("given_segments", "windows_asked", "expected"),
    [
        pytest.param(4 * len(SPANS), False, (4 * len(SPANS), 0), id="all segments"),
        pytest.param(len(SPANS) + 1, True, (len(SPANS) + 1, 2 * len(SPANS)), id="segments of two of four documents"),
        pytest.param(len(SPANS) + 1, False, None, id="missing segments, no windows asked for"),
        pytest.param(0, True, (0, 4 * len(SPANS)), id="windows by name"),
        pytest.param(0, False, None, id="no segments at all"),
    ],
)
def test_windows_of_a_tracks_documents_need_the_option(
    tmp_path: Path, given_segments: int, windows_asked: bool, expected: tuple[int, int] | None
) -> None:
    path, options = corpus(tmp_path, given_segments)
    named = ["--windows"] if windows_asked else []
    shown = keystone("index", path, "--out", tmp_path / "i", "--no-dense", "-q", *options, *named)
    if expected is None:
        line = 3 if given_segments else 1
        assert f"{path}:{line}: document msmarco_v2.1_doc_00_{line - 1} has no official segment" in shown.stderr
        assert "--windows" in shown.stderr
        remedy = f"{options[1]} holds none that fits its text" if options else "name the file of its official segments"
        assert remedy in shown.stderr
        assert (shown.returncode, (tmp_path / "i").exists()) == (1, False)
        return
    official, cut = expected
    assert (shown.returncode, shown.stderr) == (0, f"{tmp_path / 'i'}: segments: {official} official, {cut} windows\n")
    assert open_index(tmp_path / "i").segments == {"official": official, "windows": cut}


def test_segments_of_a_document_that_comes_twice_count_once(tmp_path: Path) -> None:
    path, options = corpus(tmp_path, 4 * len(SPANS))
    path.write_text(path.read_text() * 2)
    made, _ = build_index(
        path, tmp_path / "i", BuildSettings(segments=Path(options[1]), embedding=None), report=lambda _: None
    )
    assert made.segments == {"official": 4 * len(SPANS), "windows": 0}


@pytest.mark.parametrize("form", ["jsonl", "segments"])
def test_a_segment_that_comes_twice_counts_once_and_is_reported(tmp_path: Path, form: str) -> None:
    path, options = corpus(tmp_path, len(SPANS), 1)
    given = Path(options[1])
    given.write_text(given.read_text() * 2)
    left_out = Counter[str]()
    source, segments = (path, given) if form == "jsonl" else (given, None)
    documents = list(read_corpus(source, form, segments, lambda error: left_out.update([error.kind])))
    assert [len(document.segments) for document in documents] == [len(SPANS)]
    assert left_out == {"repeated segment": len(SPANS)}


def test_documents_that_are_segments_have_their_own_id() -> None:
    assert [s.id for s in cut_segments(Document(f"{NAME}#3_1200", TEXT)).segments] == [f"{NAME}#3_1200"]


@pytest.mark.parametrize("track", ["rag24", "rag25"])
@given(st.text(max_size=80))
def test_no_window_looks_like_an_official_segment_and_every_one_is_an_error(track: str, text: str) -> None:
    rules = TRACKS[track]
    for segment in cut_segments(Document(NAME, text)).segments:
        assert is_window(segment.id)
        assert not rules.owns(segment.id)
        row = f"1 Q0 {segment.id} 1 1.0 t"
        found = [(v.severity, v.kind) for v in check_run([(1, row)], rules, {"1": "What?"})]
        assert ("error", "no official segment") in found
    assert not is_window(f"{NAME}#3_1200")
    assert rules.id_form == MS_MARCO_SEGMENT_PATTERN


def test_a_segment_without_offsets_and_text_is_left_out(tmp_path: Path) -> None:
    path, _ = corpus(tmp_path, 0, 1)
    (tmp_path / "s.jsonl").write_text(json.dumps({"docid": f"{NAME}#0_1", "segment": " "}) + "\n")
    with pytest.raises(UserError, match=r"s\.jsonl:1: expected offsets .*, or the text of the segment"):
        list(read_corpus(path, segments=tmp_path / "s.jsonl"))
