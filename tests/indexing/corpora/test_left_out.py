"""Bad records: each irregularity of a corpus has one result in any file, and memory does not grow with the corpus."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora import trec
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.forms import FORMATS
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io import reading
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import LONGEST_DOCUMENT_ID as LONGEST
from keystone.indexing.types import Document
from tests.support import programs
from tests.support.runs.command_line import keystone

BOM = b"\xef\xbb\xbf"


def record(name: str, text: str = "x") -> bytes:
    return json.dumps({"id": name, "text": text}, ensure_ascii=False).encode() + b"\n"


A, B = record("a"), record("b")


def stored(path: Path, folder: Path, format: str | None = None) -> tuple[list[Document], list[BadRecord]]:
    """The documents of a corpus, read back from a store, and the errors of skipped records."""
    errors: list[BadRecord] = []
    arrived: list[Document] = []

    def documents() -> list[Document]:
        arrived.extend(map(cut_segments, read_corpus(path, format, report=errors.append)))
        return arrived

    build_store(documents(), folder, report=errors.append)
    store = DocumentStore(folder)
    first = {document.id: document for document in reversed(arrived)}
    found = list(store)
    assert found == [first[name] for name in sorted(first)]
    assert len(arrived) - len(found) == sum(error.kind == "repeated id" for error in errors)
    return found, errors


@pytest.mark.parametrize(
    ("raw", "kept", "left_out"),
    [
        pytest.param(A + record("a", "y") + B + record("a", "z"), "a b", ["repeated id"] * 2, id="repeated id"),
        pytest.param(A + record("b", ""), "a b", [], id="empty text is kept"),
        pytest.param(A + b'{"id": "b", "text": "x\\u0000y"}\n', "a b", [], id="NUL in a text is kept"),
        pytest.param(A + b'{"id": "b", "text": "x\0y"}\n', "a", ["not JSON"], id="a raw NUL is no JSON"),
        pytest.param(A + b'{"id": "b", "text": "x\\ud800"}\n', "a", ["not JSON"], id="lone surrogate"),
        pytest.param(A + record("b", "\u00e9 " * 5_000_000), "a b", [], id="10 MB"),
        pytest.param(A + b'{"id": "b", "text": "\xe9"}\n' + record("c"), "a c", ["not UTF-8"], id="Latin-1"),
        pytest.param(b'{"text": "x"}\n{"id": "b"}\n' + A, "a", ["no id", "no text"], id="missing keys"),
        pytest.param(
            b'{"id": [], "text": "x"}\n{"id": "b", "text": 5}\n{"id": "c", "text": "", "title": {}}\n[1]\n' + A,
            "a",
            ["bad id", "wrong type", "wrong type", "no JSON object"],
            id="wrong types",
        ),
        pytest.param(
            A + b"".join(map(record, ["", "b c", "b\u200b", "b\t", "b\u00a0c", "b\0"])),
            "a",
            ["bad id"] * 6,
            id="ids with space or invisible characters",
        ),
        pytest.param(A + record("a\0"), "a", ["bad id"], id="ids that differ in a NUL"),
        pytest.param(record("x" * LONGEST) + record("y" * (LONGEST + 1)), "x" * LONGEST, ["bad id"], id="endless id"),
        pytest.param(BOM + A + B, "a b", [], id="byte order mark"),
        pytest.param(A + BOM + B, "a", ["not JSON"], id="byte order mark inside a file"),
        pytest.param(A.replace(b"\n", b"\r\n") + b"\r\n" + B, "a b", [], id="CRLF"),
        pytest.param(b"\n \n" + A + b"\n\t\n" + B.strip(), "a b", [], id="blank lines"),
        pytest.param(A + b'{"id": "b", "te', "a", ["not JSON"], id="cut off"),
        pytest.param(A + b'{"id": "b", "text": ' + b"[" * 5000 + b"\n", "a", ["not JSON"], id="deep JSON"),
        pytest.param(A + b'{"id": 1e400, "text": ""}\n', "a", ["not JSON"], id="a number without end"),
    ],
)
def test_an_irregular_record_has_one_result(tmp_path: Path, raw: bytes, kept: str, left_out: list[str]) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(raw)
    documents, errors = stored(path, tmp_path / "store", "jsonl")
    assert [document.id for document in documents] == kept.split()
    assert [error.kind for error in errors] == left_out
    assert all(str(error).startswith(f"{path}:") for error in errors)
    if left_out:
        with pytest.raises(UserError, match=r"c\.jsonl:\d"):
            build_store(read_corpus(path, "jsonl"), tmp_path / "strict")


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "a", "text": "x"}{"id": "b", "text": "y"}',
        '{\n"id": "a",\n"text": "x"\n}\n{\n"id": "b",\n"text": "y"\n}\n',
        '{"documents": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}]}',
        '{"a": {"text": "x"},\n"b": {"text": "y"}}',
        '{"id": "a", "text": "x"}\r{"id": "b", "text": "y"}\r',
    ],
)
def test_objects_in_any_layout_are_documents(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_bytes(text.encode())
    assert [(document.id, document.text) for document in read_corpus(tmp_path / "c.json")] == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("text", ["WARC/1.0\r\n", "%PDF-1.4\n", "PK\3\4docx", "<mediawiki><page/></mediawiki>"])
def test_a_file_of_an_unknown_format_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.x").write_text(text)
    with pytest.raises(UserError, match=r"c\.x: found .*, expected a known format, or --format with one of arrow"):
        list(read_corpus(tmp_path / "c.x", report=lambda _: None))


def test_a_json_array_that_is_no_json_is_one_report(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"id": "a", "text": "x"}], indent=2)[:-1])
    (tmp_path / "b.jsonl").write_bytes(B)
    documents, errors = stored(tmp_path, tmp_path / "store")
    assert [document.id for document in documents] == ["b"]
    assert [str(error) for error in errors] == [
        f"{tmp_path}/a.json:1: expected a JSON object a line, found a JSON array"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("compress", "ending"), [(gzip.compress, ".gz"), (zstandard.compress, ".zst")])
def test_a_truncated_file_gives_what_comes_before_its_end(
    tmp_path: Path, compress: Callable[[bytes], bytes], ending: str
) -> None:
    path = tmp_path / f"c.jsonl{ending}"
    raw = compress(b"".join(record(f"d{n:05d}", f"{n * n} bees") for n in range(40_000)))
    path.write_bytes(raw[: len(raw) // 2])
    documents, errors = stored(path, tmp_path / "store")
    assert [document.id for document in documents] == [f"d{n:05d}" for n in range(len(documents))]
    assert 10_000 < len(documents) < 30_000
    assert [error.kind for error in errors] == ["unreadable file"]
    assert f"{path}: cannot be read beyond line {len(documents)}: " in str(errors[0])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_names_that_are_not_utf8_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "caf\udce9.txt").write_text("x")
    assert [document.id for document in stored(folder, tmp_path / "texts")[0]] == ["caf%E9.txt"]
    (folder / "caf\udce9.jsonl").write_bytes(A + A)
    _, (error,) = stored(folder / "caf\udce9.jsonl", tmp_path / "records")
    assert str(error) == f"{folder}/caf\ufffd.jsonl:2: document id 'a' occurs more than once in the corpus"


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE_BYTES", 64)
    monkeypatch.setattr(trec, "LONGEST_LINE_BYTES", 64)
    (tmp_path / "c.jsonl").write_bytes(A + record("long", "x" * 200) + B + b"x" * 200)
    documents, errors = stored(tmp_path / "c.jsonl", tmp_path / "store")
    assert [document.id for document in documents] == ["a", "b"]
    assert [str(error) for error in errors] == [
        f"{tmp_path}/c.jsonl:{n}: expected a line of at most 64 bytes" for n in (2, 4)
    ]
    (tmp_path / "t").write_text("<DOC><DOCNO>a</DOCNO></DOC>\n<DOC>\n" + "x y\n" * 30 + "<DOC><DOCNO>b</DOCNO></DOC>\n")
    documents, errors = stored(tmp_path / "t", tmp_path / "more")
    assert [document.id for document in documents] == ["a", "b"]
    assert [str(error) for error in errors] == [f"{tmp_path}/t:2: expected a <DOC> of at most 64 bytes"]


def test_a_text_file_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"One.")
    (folder / "b.md").write_bytes(b"caf\xe9")
    (folder / "c.txt.gz").write_bytes(b"no gzip")
    documents, errors = stored(folder, tmp_path / "store")
    assert [document.id for document in documents] == ["a.txt"]
    assert [error.kind for error in errors] == ["not UTF-8", "unreadable file"]


def test_a_bad_segment_is_left_out_of_its_document(tmp_path: Path) -> None:
    rows = [{"docid": "d#0_0", "segment": "One."}, {"docid": "d#1_5"}, {"docid": "d#2_9", "segment": "Two."}]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (document,), errors = stored(tmp_path / "s.jsonl", tmp_path / "store")
    assert (document.text, [s.id for s in document.segments]) == ("One.\nTwo.", ["d#0_0", "d#2_9"])
    assert [error.kind for error in errors] == ["no text"]


def test_an_official_segment_beyond_its_document_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(record("d", "One. Two."))
    spans = [{"docid": f"d#{n}", "start_char": n, "end_char": end} for n, end in ((0, 4), (5, 99))]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans))
    errors: list[BadRecord] = []
    (document,) = read_corpus(tmp_path / "c.jsonl", segments=tmp_path / "s.jsonl", report=errors.append)
    assert [s.id for s in document.segments] == ["d#0"]
    found = [(error.kind, str(error)) for error in errors]
    message = f"{tmp_path}/c.jsonl:1: segment d#5 ends at 99, but its document has 9 characters"
    assert found == [("bad offsets", message)]


PIECES = [
    b'{"id": "a", "text": "x"}',
    b'{"docid": "a#0", "segment": "some text"}',
    b'{"id": "',
    b'"text": "',
    b'"}\n',
    b"\n",
    b"\r",
    b"\0",
    BOM,
    b"\xff",
    b"\\ud800",
    b"[",
    b"<DOC>",
    b"<DOCNO>a b",
    b"<DOCNO>a",
    b"</DOCNO>",
    b"<TEXT>",
    b"</DOC>\n",
    b" = T = \n",
    b" = = S = = \n",
    b"<title>",
    b"<h1>",
    b"<!--",
    b"<![x[",
    b"&#" + b"9" * 5000 + b";",
    b"&#xd800;",
    "\u00e9\U0001d538".encode(),
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
]
ANY_BYTES = st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=12).map(b"".join)
WRAPPED = st.sampled_from([bytes, gzip.compress, zstandard.compress, lambda raw: zstandard.compress(raw)[:-3]])
NAMES = st.sampled_from(
    ["c.jsonl", "c.json", "c.txt", "c.md", "c.html", "ft911", "w.tokens", "c.jsonl.gz", "ft911.zst", "c.html.ZST"]
)
FORMAT = st.sampled_from([None, *(name for name in FORMATS if name != "ir_datasets")])


@pytest.mark.slow
@settings(max_examples=300)
@given(ANY_BYTES, WRAPPED, NAMES, FORMAT, st.booleans())
def test_any_bytes_are_a_corpus_or_a_user_error(
    raw: bytes, wrapped: Any, name: str, format: str | None, folder: bool
) -> None:
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "corpus" / name
        path.parent.mkdir()
        path.write_bytes(wrapped(raw))
        try:
            documents, errors = stored(path.parent if folder else path, Path(temporary) / "store", format)
        except UserError as error:
            assert str(path.parent) in str(error)  # noqa: PT017
            return
        assert documents
        assert all(str(path) in str(error) for error in errors)


MEASURE = """
import sys
from pathlib import Path
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.store import build_store
count = build_store(read_corpus(Path(sys.argv[1])), Path(sys.argv[2]))
print(count, next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 20_000):
        path = tmp_path / f"{count}.jsonl.gz"
        with gzip.open(path, "wb", 1) as out:
            for n in range(count):
                out.write(record(f"document-{n * 7919 % count}", f"Sentence {n} of a text. " * 100))
        arguments = [sys.executable, "-c", MEASURE, str(path), str(tmp_path / f"store-{count}")]
        found, peak = programs.run(arguments, capture_output=True, check=True, text=True).stdout.split()
        assert int(found) == count
        peaks.append(int(peak))
    assert peaks[1] - peaks[0] < 8_000, f"kB at 5 and 50 MB of text: {peaks}"


RECORDS = [
    {"id": "a", "title": "River", "text": "Rivers flow."},
    {"id": "b", "title": "Flood", "text": None},
    {"id": "c", "title": "Lamp", "text": " \n"},
    {"id": "d", "title": "", "text": ""},
    {"id": "e", "text": "\t"},
]


def write(folder: Path) -> Path:
    file = folder / "c.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return file


def test_documents_without_text_are_counted_by_whether_they_have_a_title(tmp_path: Path) -> None:
    errors: list[BadRecord] = []
    corpus = write(tmp_path)
    made, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=None), report=errors.append)
    assert [document.id for document in DocumentStore(made.store)] == ["a", "b", "c"]
    assert (made.documents, made.left_out, made.segments["blank"]) == (3, {"empty": 2}, 2)
    assert [str(error) for error in errors] == [
        f"{corpus}:{line}: document {name}: has neither text nor title" for line, name in ((4, "d"), (5, "e"))
    ]


def test_the_command_says_how_many_documents_have_no_text(tmp_path: Path) -> None:
    shown = keystone("index", write(tmp_path), "--out", tmp_path / "i", "--no-dense", "-q")
    assert shown.stderr.splitlines()[-2:] == [
        f"{tmp_path / 'i'}: records left out of the corpus: 2 (2 empty)",
        f"{tmp_path / 'i'}: 2 documents without text are found by their titles and never cited",
    ]
