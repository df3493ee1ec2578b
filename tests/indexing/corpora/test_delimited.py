"""Corpora in columns: MS MARCO's files without a header, CSV and TSV with one, and what lies beside them."""

from pathlib import Path

import pytest

from keystone.indexing.corpora.corpus import guess_format, read_corpus
from keystone.indexing.errors import BadRecord
from keystone.indexing.types import Document


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "collection.tsv",
            '0\tThe "x" y\n1\t"Open\n2\tz\n',
            [Document("0", 'The "x" y'), Document("1", '"Open'), Document("2", "z")],
            id="MS MARCO's passages",
        ),
        pytest.param(
            "msmarco-docs.tsv",
            "D1\thttps://a.b\tT\tbody\n",
            [Document("D1", "body", "T", "https://a.b")],
            id="documents",
        ),
        pytest.param(
            "psgs.tsv",
            'id\ttext\ttitle\n1\t"Aaron ""x"", y"\tAaron\n',
            [Document("1", 'Aaron "x", y', "Aaron")],
            id="passages with a header and quotes",
        ),
        pytest.param(
            "c.csv", '\ufeffid,text\n1,"a, b\nc"\n', [Document("1", "a, b\nc")], id="CSV after a byte order mark"
        ),
        pytest.param("c.csv", 'id;text\n1;a, b\n2;"c; d"\n', [Document("1", "a, b"), Document("2", "c; d")], id=";"),
    ],
)
def test_the_columns_of_known_files_are_read(tmp_path: Path, name: str, text: str, expected: list[Document]) -> None:
    (tmp_path / name).write_text(text)
    assert guess_format(tmp_path / name) == "tsv"
    assert list(read_corpus(tmp_path / name)) == expected


def test_the_queries_beside_a_collection_are_no_documents(tmp_path: Path) -> None:
    for name in ("collection.tsv", "queries.dev.tsv", "qrels.dev.tsv"):
        (tmp_path / name).write_text(f"1\t{name}\n")
    assert [document.text for document in read_corpus(tmp_path)] == ["collection.tsv"]
    (tmp_path / "collection.tsv").rename(tmp_path / "part1.tsv")
    errors: list[BadRecord] = []
    assert [document.text for document in read_corpus(tmp_path, report=errors.append)] == ["collection.tsv"]
    assert [error.kind for error in errors] == ["file not read", "file not read"]


def test_a_first_row_of_other_names_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("doc_number\tcontent\n1\tx\n")
    assert list(read_corpus(tmp_path / "c.tsv")) == [Document("1", "x")]


def test_columns_beside_other_documents_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "table.csv").write_text("id,text\n1,x\n")
    errors: list[BadRecord] = []
    assert [document.id for document in read_corpus(tmp_path, report=errors.append)] == ["a.md"]
    assert [error.kind for error in errors] == ["file not read"]


def test_a_row_of_other_columns_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("1\ta\n2\n3\tb\tc\n4 5\td\n6\te\n")
    errors: list[BadRecord] = []
    assert [document.id for document in read_corpus(tmp_path / "c.tsv", report=errors.append)] == ["1", "6"]
    assert [error.kind for error in errors] == ["wrong columns", "wrong columns", "bad id"]
