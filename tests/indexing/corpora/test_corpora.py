"""Corpora: all formats give the same documents, and an error names a bad record by file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.corpora.corpus import guess_format, list_corpus_files, read_corpus
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.types import Document, Segment, Span
from tests.support.places import SHARED

SAMPLE = SHARED / "msmarco-v2.1-sample"


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def put(path: Path, raw: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return path


def segment_records(document: Document) -> list[dict[str, str]]:
    """The records of a document's segments, in the form of MS MARCO V2.1."""
    described = {"title": document.title, "url": document.url, "headings": document.headings}
    return [{"docid": s.id, "segment": document.segment_text(s), **described} for s in document.segments]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"_id": "d1", "title": "T", "text": "x", "metadata": {}}, Document("d1", "x", "T"), id="BEIR"),
        pytest.param({"id": "d1", "contents": "x"}, Document("d1", "x"), id="plain"),
        pytest.param(
            {"docid": "d1", "url": "u", "title": "T", "headings": "a\nb", "body": "x"},
            Document("d1", "x", "T", "u", "a\nb"),
            id="MS MARCO V2.1 document",
        ),
        pytest.param(
            {"doc_id": "d1", "text": "x", "headings": ["a", "b"]},
            Document("d1", "x", headings="a\nb"),
            id="list of headings",
        ),
        pytest.param({"id": 7, "text": "x"}, Document("7", "x"), id="number as id"),
        pytest.param({"id": "007#\u00e9", "text": "x"}, Document("007#\u00e9", "x"), id="id kept as written"),
        pytest.param({"id": "d1", "title": None, "text": ""}, Document("d1", ""), id="no title, empty text"),
        pytest.param(
            {"id": "d1", "text": " \u00e9\r\n\U0001d538\t"},
            Document("d1", " \u00e9\r\n\U0001d538\t"),
            id="text kept as written",
        ),
    ],
)
@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz", "corpus.json"])
def test_one_document_a_line(tmp_path: Path, name: str, record: dict[str, Any], expected: Document) -> None:
    raw = b"\n" + jsonl(record)
    path = put(tmp_path / name, gzip.compress(raw) if name.endswith(".gz") else raw)
    assert guess_format(path) == "jsonl"
    assert list(read_corpus(path)) == list(read_corpus(path, "jsonl")) == [expected]


def test_shards_of_a_folder_are_read_in_sorted_order(tmp_path: Path) -> None:
    put(tmp_path / "b.jsonl", jsonl({"id": "2", "text": ""}, {"id": "0", "text": ""}))
    put(tmp_path / "c" / "a.jsonl", jsonl({"id": "4", "text": ""}))
    put(tmp_path / "a.jsonl.gz", gzip.compress(jsonl({"id": "1", "text": ""})))
    put(tmp_path / "README.md", "not a shard")
    assert [document.id for document in read_corpus(tmp_path)] == ["1", "2", "0", "4"]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.sampled_from(["Document {n} says sentence {i}.", "N{i}!"]),
    st.sampled_from([" ", "\n", "\n\n"]),
)
def test_segments_are_joined_into_the_documents_that_they_were_cut_from(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], sentence: str, between: str
) -> None:
    documents = [
        cut_segments(Document(f"d#{n}", between.join(sentence.format(n=n, i=i) for i in range(length)), "T", "u", "h"))
        for n, length in enumerate(lengths)
    ]
    records = [record for document in documents for record in segment_records(document)]
    path = put(tmp_path_factory.mktemp("segments") / "s.jsonl", jsonl(*records))
    assert guess_format(path) == "segments"
    assert list(read_corpus(path)) == documents


def test_segments_read_as_jsonl_are_documents_with_their_own_ids(tmp_path: Path) -> None:
    records = [{"docid": f"d#{n}_{n}", "title": "T", "segment": text} for n, text in enumerate(["One. Two.", ""])]
    path = put(tmp_path / "s.jsonl", jsonl(*records))
    assert list(read_corpus(path, "jsonl")) == [
        Document("d#0_0", "One. Two.", "T", segments=(Segment("d#0_0", Span("d#0_0", 0, 9)),)),
        Document("d#1_1", "", "T", segments=(Segment("d#1_1", Span("d#1_1", 0, 0)),)),
    ]


def test_segments_that_do_not_overlap_are_joined_by_a_newline(tmp_path: Path) -> None:
    records = [{"docid": "d#0_0", "segment": "One."}, {"docid": "d#1_9", "segment": "Two."}]
    segments = (Segment("d#0_0", Span("d", 0, 4)), Segment("d#1_9", Span("d", 5, 9)))
    path = put(tmp_path / "s.jsonl", jsonl(*records))
    assert list(read_corpus(path)) == [Document("d", "One.\nTwo.", segments=segments)]


@pytest.mark.skipif(not SAMPLE.exists(), reason="the MS MARCO V2.1 sample is not on this machine")
def test_msmarco_segments_keep_their_ids_and_rebuild_their_documents() -> None:
    found = list(read_corpus(SAMPLE / "corpus.jsonl"))
    expected = [json.loads(line) for line in (SAMPLE / "documents.jsonl").read_text().splitlines()]
    assert (len(found), sum(len(document.segments) for document in found)) == (327, 3000)
    assert [(d.id, d.text, d.title, d.url, d.headings) for d in found] == [
        tuple(e[key] for key in ("docid", "text", "title", "url", "headings")) for e in expected
    ]
    assert [[{"docid": s.id, "start": s.span.start, "end": s.span.end} for s in d.segments] for d in found] == [
        e["segments"] for e in expected
    ]
    ids = [json.loads(line)["docid"] for line in (SAMPLE / "corpus.jsonl").read_text().splitlines()]
    assert [s.id for d in found for s in d.segments] == ids


def test_a_segments_file_cuts_the_documents_that_it_names(tmp_path: Path) -> None:
    corpus = put(tmp_path / "c.jsonl", jsonl({"docid": "a#1", "body": "One. Two."}, {"docid": "b", "body": "Three."}))
    spans = [("a#1#10_5", 5, 9), ("c#0_0", 0, 3), ("a#1#9_0", 0, 4)]
    cuts = put(tmp_path / "s.jsonl", jsonl(*({"docid": i, "start_char": s, "end_char": e} for i, s, e in spans)))
    first, second = read_corpus(corpus, segments=cuts)
    assert [(s.id, first.segment_text(s)) for s in first.segments] == [("a#1#9_0", "One."), ("a#1#10_5", "Two.")]
    assert {s.span.doc_id for s in first.segments} == {"a#1"}
    assert second == Document("b", "Three.")


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        pytest.param("deep/er/a b.txt", "# One\nTwo", Document("deep/er/a%20b.txt", "# One\nTwo", "a b"), id="text"),
        pytest.param(
            "a.md",
            "Intro\n# One #\n### Two\n#no\n",
            Document("a.md", "Intro\n# One #\n### Two\n#no\n", "One", headings="One\nTwo"),
            id="Markdown",
        ),
        pytest.param("a.markdown", "none", Document("a.markdown", "none", "a"), id="Markdown without headings"),
        pytest.param(
            "a.md",
            "# One\r\n## C#\r\n",
            Document("a.md", "# One\r\n## C#\r\n", "One", headings="One\nC#"),
            id="Markdown with CRLF, a heading that ends with #",
        ),
        pytest.param("a.md", "\ufeff# One", Document("a.md", "# One", "One", headings="One"), id="byte order mark"),
        pytest.param(
            "a.html",
            "<html><head><title> T &amp; U </title><style>p {}</style><script>var x = '<p>no</p>';</script></head>"
            "<body><h1>One</h1><p>First\t  line<br>second</p><script>no()</script><ul><li>a<li>b</ul>"
            "<noscript>no</noscript><h2>Two</h2><!-- no --> <i>l</i>ast</body></html>",
            Document("a.html", "One\n\nFirst line\n\nsecond\n\na\n\nb\n\nTwo\n\nlast", "T & U", headings="One\nTwo"),
            id="HTML",
        ),
        pytest.param("a.htm", "<p>x</p>", Document("a.htm", "x", "a"), id="HTML without title"),
        pytest.param(
            "a.html",
            "<html><head><title>T</title><body><p>x",
            Document("a.html", "x", "T"),
            id="HTML whose head has no end tag",
        ),
    ],
)
def test_one_document_a_file_of_a_folder(tmp_path: Path, name: str, raw: str, expected: Document) -> None:
    put(tmp_path / name, raw)
    put(tmp_path / "picture.png", "not a text")
    assert guess_format(tmp_path) == "folder"
    errors: list[BadRecord] = []
    for format in (None, "folder"):
        assert list(read_corpus(tmp_path, format, report=errors.append)) == [expected]
    assert [error.kind for error in errors] == ["file not read"] * 2


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        pytest.param("<h1>The <code>os</code> module</h1><p>x</p>", "The os module", id="markup inside"),
        pytest.param("<h2>\n  One\n  two\n</h2><h6>Three</h6>", "One two\nThree", id="a line break inside"),
        pytest.param("<h1></h1><h2> </h2><h3>One</h3>", "One", id="empty headings"),
        pytest.param("<header>no</header><hr><p>x</p>", "", id="other tags that begin with h"),
    ],
)
def test_headings_of_html_are_one_a_line(tmp_path: Path, html: str, expected: str) -> None:
    put(tmp_path / "a.html", html)
    assert [document.headings for document in read_corpus(tmp_path)] == [expected]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"text": "x"}, "expected one of the keys docid, .* document_id, found .'text'.", id="no id"),
        pytest.param({"id": "a b", "text": "x"}, "id: expected an id without space, found 'a b'", id="id with space"),
        pytest.param({"id": "a\0", "text": "x"}, "id: expected an id .* found 'a.x00'", id="id with NUL"),
        pytest.param({"id": "", "text": "x"}, "id: expected an id without space, found ''", id="empty id"),
        pytest.param({"_id": True, "text": "x"}, "_id: .* a text or a whole number, found True", id="boolean id"),
        pytest.param({"id": None, "text": "x"}, "id: .* a text or a whole number, found None", id="null id"),
        pytest.param({"id": 1.5, "text": "x"}, "id: .* a text or a whole number, found 1.5", id="fraction as id"),
        pytest.param(
            {"id": "b"}, "expected one of the keys text, contents, body, passage, segment, found .'id'.", id="no text"
        ),
        pytest.param({"id": "b", "text": 5}, "text: expected text, found int", id="number as text"),
        pytest.param({"id": "b", "text": 0}, "text: expected text, found int", id="zero as text"),
        pytest.param({"id": "b", "text": False}, "text: expected text, found bool", id="false as text"),
        pytest.param({"id": "b", "contents": []}, "contents: expected text, found list", id="empty list as text"),
        pytest.param(
            {"id": "b", "text": "x", "title": {"en": "T"}}, "title: expected text, found dict", id="odd title"
        ),
        pytest.param(["b", "x"], "expected a JSON object, found list", id="no object"),
    ],
)
def test_a_bad_record_is_named_with_file_and_line(tmp_path: Path, record: Any, message: str) -> None:
    path = put(tmp_path / "c.jsonl", jsonl({"id": "a", "text": "x"}, record))
    with pytest.raises(UserError, match=r"/c\.jsonl:2: " + message):
        list(read_corpus(path))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"docid": "d#1_5", "segment": 5}, id="a number"),
        pytest.param({"docid": "d#1_5", "text": "x"}, id="no key"),
    ],
)
def test_a_segment_without_text_is_named_with_file_and_line(tmp_path: Path, record: Any) -> None:
    path = put(tmp_path / "s.jsonl", jsonl({"docid": "d#0_0", "segment": "x"}, record))
    with pytest.raises(UserError, match=r"/s\.jsonl:2: .*segment"):
        list(read_corpus(path))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(0, None, id="missing"),
        pytest.param("0", "4", id="text"),
        pytest.param(False, True, id="boolean"),
        pytest.param(-1, 3, id="negative"),
        pytest.param(3, 2, id="the wrong way round"),
    ],
)
def test_bad_offsets_are_named_with_file_and_line(tmp_path: Path, start: Any, end: Any) -> None:
    corpus = put(tmp_path / "c.jsonl", jsonl({"id": "d", "text": "One."}))
    cuts = put(tmp_path / "s.jsonl", b"\n" + jsonl({"docid": "d#0_0", "start_char": start, "end_char": end}))
    with pytest.raises(UserError, match=rf"/s\.jsonl:2: expected offsets .* found {start!r} and {end!r}"):
        list(read_corpus(corpus, segments=cuts))


@pytest.mark.parametrize(
    ("name", "raw", "format", "message"),
    [
        pytest.param("c.jsonl", "", None, r"c\.jsonl: holds no document", id="empty file"),
        pytest.param("c", None, None, "c: no such file or folder", id="missing"),
        pytest.param("c", None, "folder", "c: no such file or folder", id="missing folder"),
        pytest.param("c.jsonl", None, "jsonl", r"c\.jsonl: .*[Nn]o such file", id="missing file"),
        pytest.param("c/a.png", "", None, r"c: holds no \.txt, \.md, .* file", id="folder without text"),
        pytest.param("c/a.txt", b"a\xff", None, r"c/a\.txt: not UTF-8: .* at byte 1", id="text that is not UTF-8"),
        pytest.param(
            "c.jsonl", "", "warc", "format: found 'warc', expected one of arrow, folder, ir_datasets", id="format"
        ),
    ],
)
def test_a_corpus_that_cannot_be_read_is_a_user_error(
    tmp_path: Path, name: str, raw: bytes | str | None, format: str | None, message: str
) -> None:
    if raw is not None:
        put(tmp_path / name, raw)
    with pytest.raises(UserError, match=message):
        list(read_corpus(tmp_path / Path(name).parts[0], format))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(["corpus.jsonl", "queries.jsonl"], ["corpus.jsonl"], id="BEIR"),
        pytest.param(["corpus.jsonl.gz", "queries.jsonl.zst"], ["corpus.jsonl.gz"], id="compressed BEIR"),
        pytest.param(["corpus.jsonl", "more.jsonl"], ["corpus.jsonl", "more.jsonl"], id="no queries"),
        pytest.param(["a/corpus.jsonl", "queries.jsonl"], ["a/corpus.jsonl", "queries.jsonl"], id="another folder"),
    ],
)
def test_the_queries_of_a_beir_folder_are_no_documents(tmp_path: Path, files: list[str], expected: list[str]) -> None:
    for name in files:
        put(tmp_path / name, "")
    put(tmp_path / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n")
    assert list_corpus_files(tmp_path, guess_format(tmp_path)) == [tmp_path / name for name in expected]
