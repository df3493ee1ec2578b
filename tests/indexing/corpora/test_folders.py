"""Folders and archives of files of several forms: each file is read by its own form, or counted as not read."""

import bz2
import gzip
import io
import json
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from keystone.indexing.corpora import archives
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.types import Document


def line(name: str) -> bytes:
    return json.dumps({"id": name, "contents": f"text {name}"}).encode() + b"\n"


def parquet(**columns: list[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def tar(files: Mapping[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, raw in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return out.getvalue()


def zip_link(name: str, target: str) -> bytes:
    """A zip file with a symbolic link beside a note."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo(name)
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, target)
        archive.writestr("note.md", "x")
    return out.getvalue()


def pack_zip(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)
    return out.getvalue()


def read(path: Path, files: Mapping[str, bytes], format: str | None = None) -> tuple[list[str], list[str]]:
    """The ids of the documents of a folder of these files, and the kinds of what was left out with their files."""
    for name, raw in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    errors: list[BadRecord] = []
    documents = list(read_corpus(path, format, report=errors.append))
    return [document.id for document in documents], [error.kind for error in errors]


NOTES = {f"doc{n}.md": b"# Title\n\nWords.\n" for n in range(3)}
TREC = b"<DOC><DOCNO>T1</DOCNO><TEXT>text</TEXT></DOC>\n"
PAGES = {"site/a.html": b"<title>A</title><p>text", "b.txt": b"text"}


@pytest.mark.parametrize(
    ("files", "ids", "left_out"),
    [
        pytest.param(
            NOTES | {"s.parquet": parquet(id=["p"], text=["x"])}, [*NOTES, "p"], [], id="Markdown and Parquet"
        ),
        pytest.param(NOTES | {"meta.json": line("m")}, [*NOTES, "m"], [], id="Markdown and JSON"),
        pytest.param(
            {
                "a.jsonl": line("a"),
                "b.jsonl.gz": gzip.compress(line("b")),
                "c.jsonl.bz2": bz2.compress(line("c")),
                "d.jsonl.xz": lzma.compress(line("d")),
            },
            ["a", "b", "c", "d"],
            [],
            id="compressions",
        ),
        pytest.param(
            {"a.jsonl": line("a"), "b.jl": line("b"), "c.jsonlines": line("c"), "d": line("d")},
            ["a", "b", "c", "d"],
            [],
            id="endings",
        ),
        pytest.param(
            {"a.md": b"x", "n.txt": b"A note.", "r.txt": b"= Release notes =\n\nFirst."},
            ["a.md", "n.txt", "r.txt:1"],
            [],
            id="a text that begins like WikiText",
        ),
        pytest.param(
            {"a.md": b"x", "b.png": b"\x89PNG\0", "c.css": b"p {}", ".hidden": b"x", "e.pdf.gz": gzip.compress(b"%P")},
            ["a.md"],
            ["file not read"] * 3,
            id="other files",
        ),
        pytest.param({"a.md": b"x", "b.sgml": TREC, "c.txt": TREC}, ["a.md", "T1", "T1"], [], id="TREC"),
        pytest.param({"fr1.dtd": b"x", "readchg": b"x", "fr94.0": TREC}, ["T1"], [], id="a disk of TREC"),
        pytest.param({"d0.json": b'{\n "id": "x",\n "contents": "y"\n}\n'}, ["x"], [], id="an object a file"),
        pytest.param({"a.json": b'\n[{"id": "x", "text": "y"},\n7]'}, ["x"], ["no JSON object"], id="an array"),
        pytest.param(
            {"a.jsonl": line("a"), "b.zip": pack_zip({"c.md": b"x"}), "d/e.tgz": tar({"f.jsonl": line("f")}, "w:gz")},
            ["a", "b.zip/c.md", "f"],
            [],
            id="archives",
        ),
        pytest.param(
            {"a.md": b"x", "._b.jsonl": line("b"), ".trash/c.md": b"x", "d/.venv/e.txt": b"x", "d/.git/f": b"x"},
            ["a.md"],
            [],
            id="hidden files and folders",
        ),
        pytest.param(
            {"d/s/corpus.jsonl": line("a"), "d/s/queries.jsonl": line("q"), "d/s/qrels/test.tsv": b"q\ta\t1\n"},
            ["a"],
            [],
            id="BEIR in a folder",
        ),
        pytest.param(
            {f"api/{part}/a.json": line(part) for part in ("corpus", "queries", "users")} | {"api/b.md": b"x"},
            ["api/b.md", "corpus", "users"],
            [],
            id="what is beside BEIR in a folder",
        ),
    ],
)
def test_each_file_of_a_folder_is_read_by_its_own_form(
    tmp_path: Path, files: dict[str, bytes], ids: list[str], left_out: list[str]
) -> None:
    assert read(tmp_path / "c", files) == (ids, left_out)


def test_a_named_format_counts_the_files_of_other_forms(tmp_path: Path) -> None:
    files = {"a.jsonl": line("a"), "b.md": b"x", ".c/d.jsonl": line("d")}
    assert read(tmp_path / "c", files, "jsonl") == (["a"], ["file not read"])


PACKED: dict[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "c.tar": tar,
    "c.tar.gz": lambda files: tar(files, "w:gz"),
    "c.tgz": lambda files: tar(files, "w:gz"),
    "c.TAR.BZ2": lambda files: tar(files, "w:bz2"),
    "c.txz": lambda files: tar(files, "w:xz"),
    "c.tar.zst": lambda files: zstandard.compress(tar(files)),
    "c.zip": pack_zip,
}


RENAMED = {"c": tar, "c.gz": PACKED["c.tar.gz"], "c.jsonl.zst": PACKED["c.tar.zst"]}
"""Archives whose names do not tell what they are."""


@pytest.mark.parametrize("name", [*PACKED, *RENAMED])
def test_an_archive_holds_the_documents_of_its_files(tmp_path: Path, name: str) -> None:
    files = {"c/a.jsonl": line("a") + line("b"), "c/b.jsonl.gz": gzip.compress(line("c") + line("d"))}
    files |= {"p/x y.html": b"<title>T</title><p>text", "p/i.png": b"\x89\0", ".git/x": b"x", "n.zip": pack_zip({})}
    (tmp_path / name).write_bytes((PACKED | RENAMED)[name](files))
    errors: list[BadRecord] = []
    documents = list(read_corpus(tmp_path / name, report=errors.append))
    assert [document.id for document in documents] == ["a", "b", "c", "d", "p/x%20y.html"]
    assert [document.place for document in documents[2:]] == [
        f"{tmp_path}/{name}/c/b.jsonl.gz:1",
        f"{tmp_path}/{name}/c/b.jsonl.gz:2",
        f"{tmp_path}/{name}/p/x y.html",
    ]
    assert [(error.kind, str(error).partition(": ")[0]) for error in errors] == [
        ("file not read", f"{tmp_path}/{name}/p/i.png"),
        ("file not read", f"{tmp_path}/{name}/n.zip"),
    ]
    with pytest.raises(UserError, match=r"p/i\.png: not read"):
        list(read_corpus(tmp_path / name))


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("files", "ids"),
    [
        pytest.param(
            {"b/queries.jsonl": line("q"), "b/corpus.jsonl": line("a"), "b/qrels/test.tsv": b"q\ta\t1\n"},
            ["a"],
            id="BEIR",
        ),
        pytest.param(
            {"queries.dev.tsv": b"q\tx\n", "./collection.tsv": b"0\tx\n1\ty\n", "qrels.dev.tsv": b"q\t0\t0\t1\n"},
            ["0", "1"],
            id="MS MARCO",
        ),
        pytest.param({"/d/a.tsv": b"a\tx\n", "d/b.csv": b"id,text\nb,x\n"}, ["a", "b"], id="columns"),
        pytest.param({"d/README.md": b"# Card", "d/a.jsonl": line("a")}, ["a"], id="a description"),
        pytest.param(
            {"d/s/queries.jsonl": line("q"), "d/s/corpus.jsonl": line("a"), "d/b.jsonl": line("b")},
            ["a", "b"],
            id="BEIR in a folder",
        ),
    ],
)
def test_an_archive_of_a_data_set_is_read_like_its_folder(
    tmp_path: Path, name: str, files: Mapping[str, bytes], ids: list[str]
) -> None:
    (tmp_path / name).write_bytes(PACKED[name](files))
    assert [document.id for document in read_corpus(tmp_path / name)] == ids


@pytest.mark.parametrize("name", PACKED)
def test_official_segments_may_come_in_an_archive(tmp_path: Path, name: str) -> None:
    cuts = [json.dumps({"docid": f"{doc}#0", "start_char": 0, "end_char": 4}).encode() + b"\n" for doc in "ab"]
    packed = PACKED[name]({"s/a.jsonl": cuts[0], "s/b.json.gz": gzip.compress(cuts[1] + b"{\n"), "s/README.md": b"x"})
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / name).write_bytes(packed)
    (tmp_path / "c.jsonl").write_bytes(line("a") + line("b"))
    for path in (tmp_path / "segments" / name, tmp_path / "segments"):
        errors: list[BadRecord] = []
        found = list(read_corpus(tmp_path / "c.jsonl", segments=path, report=errors.append))
        assert [segment.id for document in found for segment in document.segments] == ["a#0", "b#0"]
        assert [str(error).partition(": ")[0] for error in errors] == [f"{tmp_path}/segments/{name}/s/b.json.gz:2"]


def test_what_follows_the_end_of_a_tar_file_is_reported(tmp_path: Path) -> None:
    joined = tar({"a.md": b"x"}) + tar({"b.md": b"x"})
    assert read(tmp_path / "c", {"a.tar": joined}) == (["a.tar/a.md"], ["unreadable file"])


def test_a_link_in_a_zip_file_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path / "c", {"a.zip": zip_link("a.md", "/etc/passwd")}) == (
        ["a.zip/note.md"],
        ["link not followed"],
    )


def test_columns_beside_other_documents_of_an_archive_are_reported(tmp_path: Path) -> None:
    packed = tar({"a.tsv": b"1\tx\n", "b.md": b"x"})
    assert read(tmp_path / "c", {"d.tar": packed}) == (["d.tar/b.md"], ["file not read"])


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_archive_gives_what_comes_before_the_damage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    raw = PACKED[name]({f"{n}.jsonl": line(str(n)) for n in range(9)})
    for size in range(0, len(raw), max(1, len(raw) // 25)):
        path.write_bytes(raw[:size])
        errors: list[BadRecord] = []
        try:
            found = list(read_corpus(path, report=errors.append))
        except UserError as error:
            assert str(error) == f"{path}: holds no document"  # noqa: PT017
            found = []
        assert [document.id for document in found] == [str(n) for n in range(len(found))]
        assert errors or len(found) == 9
        assert {error.kind for error in errors} <= {"unreadable file"}


def test_what_an_archive_may_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (("link.md", tarfile.SYMTYPE), ("pipe.md", tarfile.FIFOTYPE), ("d", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        for name, raw in (("../../out.md", b"x"), ("/abs.md", b"y"), ("long.md", b"z" * 99)):
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    monkeypatch.setattr(archives, "LONGEST_MEMBER_BYTES", 50)
    ids, left_out = read(tmp_path / "c", {"a.tar": out.getvalue()})
    assert ids == ["a.tar/../../out.md", "a.tar/abs.md"]
    assert left_out == ["link not followed", "file not read", "too long"]
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["a.tar"]


@pytest.mark.parametrize(("main", "text"), [(True, "One"), (False, "Home\n\nOne\n\nCookies?")])
def test_the_furniture_of_pages_is_left_out(tmp_path: Path, main: bool, text: str) -> None:
    page = "<title>T</title><nav>Home</nav><main><h1>One</h1></main><div class='cookie-banner'>Cookies?</div>"
    (tmp_path / "a.html").write_text(page)
    assert list(read_corpus(tmp_path, extract="main" if main else "all")) == [
        Document("a.html", text, "T", headings="One")
    ]


def test_a_page_that_only_leads_elsewhere_is_counted(tmp_path: Path) -> None:
    stub = b'<meta http-equiv="Refresh" content="0; url=new.html"><p>Redirecting...'
    assert read(tmp_path / "c", {"a.html": stub, "b.html": b"<p>text"}) == (["b.html"], ["redirect"])
    assert [document.id for document in read_corpus(tmp_path / "c", extract="all")] == ["a.html", "b.html"]


def test_a_file_without_a_name_in_an_archive_is_read(tmp_path: Path) -> None:
    raw = pack_zip({"QQQQ": line("a"), "b.jsonl": line("b")}).replace(b"QQQQ", b"\0QQQ")
    assert read(tmp_path / "c", {"a.zip": raw}) == (["a", "b"], [])
