"""Corpus formats beyond JSONL and folders of text: TREC SGML, WikiText, data sets of ir_datasets, compression."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import ncompress
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, TsvDocs
from ir_datasets.util import LocalDownload

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import guess_format, read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io import reading
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document
from keystone.runs.trec.topics import read_topics

NEWS = """<DOC>
<DOCNO> FT911-1 </DOCNO>
<PROFILE>_AN-1</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / Bees &amp; honey
</HEADLINE>
<TEXT>
<!-- PJG 0012 -->
A <F P=105>colony</F>   has
one queen.<P>It lives&mdash;long; AT&T, 1 < 2.</P>
</TEXT>
<BYLINE>nobody</BYLINE>
<TEXT>
More.
</TEXT>
</DOC>

<doc><docno>ft911-2</docno><head>One</head><head>line</head><text>a</text><lead>no</lead><text>b</text></doc><DOC>
<DOCNO>FT911-3</DOCNO><TEXT></TEXT></DOC>
"""
NEWS_DOCUMENTS = [
    Document(
        "FT911-1",
        "A colony has\none queen.\nIt lives\u2014long; AT&T, 1 < 2.\n\nMore.",
        "FT 14 MAY 91 / Bees & honey",
    ),
    Document("ft911-2", "a b", "One line"),
    Document("FT911-3", ""),
]
WIKI = (
    " \n"
    " = Valkyria Chronicles = \n"
    " \n"
    " The game @-@ was <unk> . \n"
    " = 1 = \n"
    " \n"
    " = = Gameplay = = \n"
    " \n"
    " Players move . \n"
    " \n"
    " = = = Maps = = = \n"
    " \n"
    " = Second = \n"
    " \n"
)
WIKI_DOCUMENTS = [
    Document(
        "wiki.test.tokens:2",
        "The game @-@ was <unk> .\n\n= 1 =\n\nGameplay\n\nPlayers move .\n\nMaps",
        "Valkyria Chronicles",
        headings="Gameplay\nMaps",
    ),
    Document("wiki.test.tokens:13", "", "Second"),
]
JSONL = '{"id": "a", "text": "x"}\n\n{"id": "b", "text": "y"}\n'
CORPORA: dict[str, tuple[str, list[Document]]] = {
    "ft911_1": (NEWS, NEWS_DOCUMENTS),
    "wiki.test.tokens": (WIKI, WIKI_DOCUMENTS),
    "c.jsonl": (JSONL, [Document("a", "x"), Document("b", "y")]),
    "a b.txt": ("One.\n\nTwo.", [Document("a%20b.txt", "One.\n\nTwo.", "a b")]),
}


def several_frames(raw: bytes) -> bytes:
    half = len(raw) // 2
    return zstandard.compress(raw[:half]) + zstandard.compress(b"") + zstandard.compress(raw[half:])


CONTENT = st.lists(st.sampled_from([b"<DOC>", b"<DOCNO>", b"a", b"</DOCNO>", b"</DOC>", b"\n"]) | st.binary()).map(
    b"".join
)
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".GZ": lambda raw: gzip.compress(raw[:9]) + gzip.compress(raw[9:]),
    ".zst": several_frames,
    ".bz2": lambda raw: bz2.compress(raw[:9]) + bz2.compress(raw[9:]),
    ".xz": lambda raw: lzma.compress(raw[:9]) + lzma.compress(raw[9:]),
}


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("ending", COMPRESSED)
@pytest.mark.parametrize("end", [pytest.param("\n", id="LF"), pytest.param("\r\n", id="CRLF")])
def test_each_format_is_guessed_and_read_compressed_or_not(tmp_path: Path, name: str, ending: str, end: str) -> None:
    text, expected = CORPORA[name]
    if end != "\n" and name == "a b.txt":
        expected = [Document("a%20b.txt", text.replace("\n", end), "a b")]
    path = tmp_path / "folder" / (name + ending)
    path.parent.mkdir()
    path.write_bytes(COMPRESSED[ending](text.replace("\n", end).encode()))
    (path.parent / "readme").write_text("no document")
    (path.parent / ".hidden").write_text("no document")
    assert list(read_corpus(path)) == list(read_corpus(path.parent)) == expected


@given(CONTENT, st.integers(0, 300))
def test_compression_does_not_change_the_documents_or_the_errors(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("c")
    found = []
    for ending, compressed in (("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)):
        path = folder / f"c.jsonl{ending}"
        path.write_bytes(compressed(raw[:cut]) + compressed(raw[cut:]))
        errors: list[Exception] = []
        documents: list[Document] = []
        try:
            documents.extend(read_corpus(path, "trec", report=errors.append))
        except UserError as error:
            errors.append(error)
        found.append((documents, [str(error).replace(str(path), "c") for error in errors]))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            "<DOC><DOCNO>a</DOCNO><TEXT>caf\u00e9</TEXT></DOC>".encode(), Document("a", "caf\u00e9"), id="UTF-8"
        ),
        pytest.param(
            "<DOC><DOCNO>a</DOCNO><TEXT>caf\u00e9</TEXT></DOC>".encode("latin-1"),
            Document("a", "caf\u00e9"),
            id="Latin-1",
        ),
        pytest.param(
            b'<DOC id="AFP_1" type="story">\n<HEADLINE>H</HEADLINE><TEXT><P>x</P><P>y</P></TEXT></DOC>',
            Document("AFP_1", "x\n\ny", "H"),
            id="id as an attribute",
        ),
        pytest.param(
            b"<DOC>\n<DOCNO>G-1</DOCNO>\n<DOCHDR>\nhttp://x\n</DOCHDR>\n<html><head><title>T</title><style>no</style>"
            b"</head><body>x<script>no</script> y</body></html></DOC>",
            Document("G-1", "x y", "T"),
            id="a web page without <TEXT>",
        ),
        pytest.param(
            b"<DOC><DOCNO>W</DOCNO><DOCHDR>\nhttp://x\n</DOCHDR>\n<html><head><title>T</title><script><!-- old\n"
            b"</script></head><body><h1>H</h1><a title='<b>'>x</a><svg><text>no</text></svg></body></html></DOC>",
            Document("W", "H\n\nx", "T", headings="H"),
            id="a web page with a comment in a script",
        ),
        pytest.param(
            b"<DOC><DOCNO>N</DOCNO><HEADER>wire</HEADER><BODY><HEADLINE>H</HEADLINE><TEXT>\n</TEXT></BODY></DOC>",
            Document("N", "", "H"),
            id="an empty <TEXT>",
        ),
        pytest.param(
            b"<DOC><DOCNO>X</DOCNO><TEXT>a <![CDATA[b < <c> &amp;]]> <p t='x > y'>d</p></TEXT></DOC>",
            Document("X", "a b < <c> &amp;\nd", ""),
            id="CDATA",
        ),
        pytest.param(b"<DOC><DOCNO>a</DOCNO><TEXT>x <TITLE>y</TEXT></DOC>", Document("a", "x", "y"), id="no end tags"),
        pytest.param(b"<DOC><DOCNO>a</DOCNO><TEXT>\0x</TEXT></DOC>", Document("a", "\0x"), id="NUL"),
    ],
)
def test_a_trec_document(tmp_path: Path, raw: bytes, expected: Document) -> None:
    path = tmp_path / "f"
    path.write_bytes(raw)
    assert list(read_corpus(path)) == [expected]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param("{ok}<DOC>\n<DOCNO>b</DOCNO><TEXT>x", ":2: found no </DOC>", id="no end"),
        pytest.param("<DOC>\n{ok}", ":1: found no </DOC>", id="a record in a record"),
        pytest.param("{ok}</DOC>", ":2: found no <DOC>", id="no beginning"),
        pytest.param("{ok}<DOC><TEXT>x</TEXT></DOC>", ":2: expected an id in <DOCNO>, found none", id="no id"),
        pytest.param("{ok}<DOC><DOCNO>a b</DOCNO></DOC>", ":2: id: expected an id .* found 'a b'", id="bad id"),
    ],
)
def test_a_bad_trec_record_is_named_and_the_rest_is_read(tmp_path: Path, raw: str, message: str) -> None:
    path = tmp_path / "f"
    path.write_text(raw.replace("{ok}", "<DOC><DOCNO>ok</DOCNO><TEXT>x</TEXT></DOC>\n"))
    errors: list[Exception] = []
    assert list(read_corpus(path, "trec", report=errors.append)) == [Document("ok", "x")]
    assert len(errors) == 1
    with pytest.raises(UserError, match=f"/f{message}"):
        list(read_corpus(path, "trec"))


def test_text_before_the_first_title_of_wikitext_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "wiki.tokens"
    path.write_text("x\ny\n\n = T = \n\nz\n")
    errors: list[Exception] = []
    assert list(read_corpus(path, "wikitext", report=errors.append)) == [Document("wiki.tokens:4", "z", "T")]
    assert [str(error) for error in errors] == [f"{path}:1: expected ` = Title = ` before the first text"]


class BeirLike(NamedTuple):
    doc_id: str
    text: str
    title: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class Marco(NamedTuple):
    doc_id: str
    url: str
    title: str
    headings: str
    body: str

    def default_text(self) -> str:
        return f"{self.title} {self.headings} {self.body}"


class Fields(NamedTuple):
    doc_id: str
    title: str
    summary: str
    pages: int
    details: str


class Bytes(NamedTuple):
    doc_id: Any
    body: bytes

    def default_text(self) -> str:
        return self.body.decode()


class Docs(BaseDocs):  # type: ignore[misc]
    def __init__(self, *documents: Any) -> None:
        self.documents = documents

    def docs_iter(self) -> Iterator[Any]:
        for document in self.documents:
            if isinstance(document, Exception):
                raise document
            yield document


def registered(name: str, *parts: Any) -> Path:
    if name not in ir_datasets.registry._registered:
        ir_datasets.registry.register(name, Dataset(*parts))
    return Path(f"ir_datasets:{name}")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(BeirLike("a", "x y", "T"), Document("a", "x y", "T"), id="title and text"),
        pytest.param(Marco("a", "u", "T", "H", "x"), Document("a", "x", "T", "u", "H"), id="headings and URL"),
        pytest.param(Fields("a", "T", "x", 7, "y"), Document("a", "x\ny", "T"), id="no default text"),
        pytest.param(Bytes("a", b"x"), Document("a", "x"), id="bytes"),
    ],
)
def test_a_record_of_ir_datasets(record: Any, expected: Document) -> None:
    path = registered(f"keystone-test/{type(record).__name__.lower()}", Docs(record))
    assert guess_format(path) == "ir_datasets"
    assert list(read_corpus(path)) == [expected]


@pytest.mark.slow
def test_a_data_set_is_indexed_by_its_id(tmp_path: Path) -> None:
    tsv = tmp_path / "docs.tsv"
    tsv.write_text("d1\tHoney bees live in colonies.\nd2\tLava.\n")
    path = registered("keystone-test/local", TsvDocs(LocalDownload(str(tsv))))
    made, built = build_index(path, tmp_path / "index", BuildSettings(embedding=None))
    assert built
    assert next(iter(DocumentStore(made.store))).text == "Honey bees live in colonies."
    assert build_index(path, tmp_path / "index", BuildSettings(embedding=None)) == (made, False)


def test_bad_records_of_a_data_set_are_reported() -> None:
    records = (Bytes(7, b"x"), Bytes("b", b"\xff"), BeirLike("c", "\ud800", ""), BeirLike("d e", "x", ""))
    path = registered("keystone-test/bad", Docs(*records, Bytes("f", b"x")))
    errors: list[Exception] = []
    assert list(read_corpus(path, report=errors.append)) == [Document("f", "x")]
    assert [str(error).removeprefix(f"{path}: ") for error in errors] == [
        "document 1: doc_id: expected text, found int",
        "document 2: no text: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte",
        "document 3: expected Unicode text, found a lone surrogate at character 0",
        "document 4: id: expected an id without space, found 'd e'",
    ]


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        pytest.param("nowhere/none", None, "knows no such data set", id="unknown"),
        pytest.param("keystone-test/queries", (), "found one without", id="no documents"),
        pytest.param("keystone-test/down", (Docs(OSError("no route to host")),), "OSError: no route", id="no download"),
    ],
)
def test_a_data_set_that_cannot_be_read_is_a_user_error(name: str, parts: Any, message: str) -> None:
    path = Path(f"ir_datasets:{name}") if parts is None else registered(name, *parts)
    with pytest.raises(UserError, match=f"^ir_datasets:{name}: .*{message}"):
        list(read_corpus(path))


def test_json_of_a_folder_that_is_no_corpus_does_not_hide_its_text(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(json.dumps({"name": "x"}))
    (tmp_path / "a.txt").write_text("One.")
    assert guess_format(tmp_path) == "folder"
    (tmp_path / "c.json").write_text(json.dumps({"id": "x", "contents": "y"}))
    assert guess_format(tmp_path) == "jsonl"


LINES = b"".join(b'{"id": "d%d", "text": "river %d"}\n' % (n, n) for n in range(2000))
PACKED = ncompress.compress(LINES)


@pytest.mark.parametrize("name", ["a.jsonl.Z", "a.jsonl.z", "fr.0z", "fr.1Z", "fr.2z"])
def test_the_endings_of_compress_are_known(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(PACKED)
    assert len(list(read_corpus(tmp_path / name, "jsonl"))) == 2000
    assert len(read_topics(tmp_path / name)) == 2000


def test_a_folder_of_them_is_a_corpus(tmp_path: Path) -> None:
    doc = b"<DOC>\n<DOCNO> D1 </DOCNO>\n<TEXT>\nriver\n</TEXT>\n</DOC>\n"
    (tmp_path / "fr940104.0z").write_bytes(ncompress.compress(doc))
    assert [(document.id, document.text) for document in read_corpus(tmp_path)] == [("D1", "river")]


@pytest.mark.parametrize(
    ("raw", "least"),
    [
        pytest.param(PACKED[: len(PACKED) // 2], 500, id="cut off"),
        pytest.param(PACKED[:9000] + b"\xff" * 90 + PACKED[9090:], 500, id="damaged"),
        pytest.param(LINES, 0, id="not compressed"),
        pytest.param(b"", 0, id="empty"),
    ],
)
def test_a_damaged_file_gives_what_comes_before_the_damage(tmp_path: Path, raw: bytes, least: int) -> None:
    (tmp_path / "a.jsonl.Z").write_bytes(raw)
    errors: list[BadRecord] = []
    try:
        found = len(list(read_corpus(tmp_path / "a.jsonl.Z", "jsonl", report=errors.append)))
    except UserError:
        found = 0
    assert least <= found < 2000
    assert errors


def test_a_file_that_unpacks_to_too_much_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HELD_LIMIT_BYTES", 1000)
    (tmp_path / "a.jsonl.Z").write_bytes(PACKED)
    with pytest.raises(BadRecord, match="it has more than 1000 bytes"):
        list(read_corpus(tmp_path / "a.jsonl.Z", "jsonl"))
