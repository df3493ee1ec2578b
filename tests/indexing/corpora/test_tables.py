"""Corpora in tables: Parquet, Hugging Face data sets on disk, and columns with or without a header."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from keystone.indexing.corpora.arrow import BATCH_ROWS
from keystone.indexing.corpora.corpus import guess_format, make_corpus_key, read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.types import Document


def write_parquet(path: Path, columns: dict[str, Any], group_rows: int = 100) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group_rows)
    return path


def test_rows_without_ids_are_named_by_file_and_row(tmp_path: Path) -> None:
    folder = tmp_path / "climbmix"
    count = 2 * BATCH_ROWS + 5
    write_parquet(folder / "shard_00001.parquet", {"text": ["z"]})
    file = write_parquet(folder / "shard_00000.parquet", {"text": [f"text {n}" for n in range(count)]}, 50)
    (folder / "README.md").write_text("A card.")
    assert guess_format(folder) == guess_format(file) == "parquet"
    documents = list(read_corpus(folder))
    assert [document.id for document in documents] == [f"shard_00000_{n}" for n in range(count)] + ["shard_00001_0"]
    assert documents[count - 1] == Document(f"shard_00000_{count - 1}", f"text {count - 1}")
    assert documents[count - 1].place == f"{file}: row {count - 1}"
    assert [name for name, _ in make_corpus_key(folder, "parquet")] == ["shard_00000.parquet", "shard_00001.parquet"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param({"_id": ["a"], "text": ["x"], "title": ["T"]}, Document("a", "x", "T"), id="BEIR"),
        pytest.param({"id": [7], "contents": ["x"], "year": [3]}, Document("7", "x"), id="whole number"),
        pytest.param(
            {"docid": ["a"], "body": [None], "url": ["u"], "headings": [["H", "I"]]},
            Document("a", "", "", "u", "H\nI"),
            id="null is empty, headings are a list",
        ),
        pytest.param(
            {"id": pa.array(["a"], pa.large_string()), "text": pa.array(["x"]).dictionary_encode()},
            Document("a", "x"),
            id="other types of text",
        ),
        pytest.param(
            {"docno": [b"a"], "text": pa.array([b"\xc3\xbc"], pa.large_binary())}, Document("a", "ü"), id="bytes"
        ),
        pytest.param(
            {"id": pa.array([b"a"], pa.binary(1)), "text": pa.array([b"x"]).dictionary_encode()},
            Document("a", "x"),
            id="other types of bytes",
        ),
        pytest.param(
            {"id": pa.array([1.0]), "text": pa.array([b"x"], pa.binary_view())}, Document("1", "x"), id="a whole number"
        ),
        pytest.param({"document_id": ["a"], "text": ["x"]}, Document("a", "x"), id="document_id"),
    ],
)
def test_columns_have_the_names_of_keys_of_jsonl(tmp_path: Path, columns: dict[str, Any], expected: Document) -> None:
    file = write_parquet(tmp_path / "c" / "t.parquet", columns)
    assert list(read_corpus(file)) == [expected]
    Dataset(pa.table(columns)).save_to_disk(tmp_path / "saved")
    assert list(read_corpus(tmp_path / "saved")) == [expected]


def test_a_file_in_the_file_format_of_arrow_is_read(tmp_path: Path) -> None:
    table = pa.table({"DocNo": ["a", "b"], "Passage": ["x", "y"]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    assert list(read_corpus(tmp_path / "t.arrow")) == [Document("a", "x"), Document("b", "y")]
    raw = (tmp_path / "t.arrow").read_bytes()
    (tmp_path / "t.arrow").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(UserError, match=r"t\.arrow: cannot be read beyond row 0"):
        list(read_corpus(tmp_path / "t.arrow"))


def test_bytes_that_are_no_text_are_left_out_by_row(tmp_path: Path) -> None:
    errors: list[BadRecord] = []
    file = write_parquet(tmp_path / "c" / "t.parquet", {"id": ["a", "b", "c"], "text": [b"x", b"\xff", b"z"]})
    assert [document.id for document in read_corpus(file, report=errors.append)] == ["a", "c"]
    assert [error.kind for error in errors] == ["not UTF-8"]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_ids_are_not_made_in_silence_beside_a_column_that_seems_to_hold_them(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if name.endswith(".csv"):
        (tmp_path / name).write_text("text,title,paper_id\nx,T,a\n")
    else:
        write_parquet(tmp_path / name, {"text": ["x"], "paper_id": ["a"]})
    assert [document.id for document in read_corpus(tmp_path / name)] == ["t_0"]
    assert [record.message.rpartition(", ")[2] for record in caplog.records] == ["found 'paper_id'"]


def test_irregular_rows_are_left_out_with_file_and_row(tmp_path: Path) -> None:
    broken = pa.array([b"x", b"caf\xe9", b"y", b"z"]).view(pa.string())
    file = write_parquet(tmp_path / "c" / "a.parquet", {"id": ["a", "b", None, "d e"], "text": broken})
    write_parquet(tmp_path / "c" / "b.parquet", {"id": ["f"], "text": [5]})
    nothing = write_parquet(tmp_path / "c" / "c.parquet", {"id": ["g"], "words": ["x"]})
    errors: list[BadRecord] = []
    assert list(read_corpus(tmp_path / "c", report=errors.append)) == [Document("a", "x")]
    assert [error.kind for error in errors] == ["not UTF-8", "bad id", "bad id", "wrong type", "no text"]
    assert str(errors[0]).startswith(f"{file}: row 1: cannot be read: ")
    assert str(errors[-1]) == (
        f"{nothing}: expected one of the columns text, contents, body, passage, segment, found ['id', 'words']"
    )
    with pytest.raises(UserError, match=r"a\.parquet: row 1: cannot be read: .*UTF8"):
        list(read_corpus(tmp_path / "c"))


def test_a_saved_data_set_is_read_with_all_its_splits(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["one", "two", "three"]})
    DatasetDict(train=rows, test=rows.select([0])).save_to_disk(tmp_path / "d", num_shards={"train": 2, "test": 1})
    (tmp_path / "d" / "train" / "cache-0f.arrow").write_bytes(b"an intermediate result")
    assert guess_format(tmp_path / "d") == "arrow"
    assert [(document.id, document.text) for document in read_corpus(tmp_path / "d")] == [
        ("data-00000-of-00001_0", "one"),
        ("data-00000-of-00002_0", "one"),
        ("data-00000-of-00002_1", "two"),
        ("data-00001-of-00002_0", "three"),
    ]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_damaged_table_gives_what_comes_before_the_damage(tmp_path: Path, format: str) -> None:
    """Cut off or with a flipped byte anywhere, a file gives documents and reports, never another error."""
    file = tmp_path / f"c.{format}"
    table = pa.table({"id": [f"d{n}" for n in range(150)], "text": [f"text {n}" for n in range(150)]})
    if format == "parquet":
        pq.write_table(table, file, row_group_size=30, write_page_checksum=True)
    else:
        with pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table, 30)
    whole = file.read_bytes()
    for at in range(0, len(whole), len(whole) // 40):
        for raw in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            file.write_bytes(raw)
            errors: list[BadRecord] = []
            try:
                found = len(list(read_corpus(file, report=errors.append)))
            except UserError as error:
                assert str(error) == f"{file}: holds no document"  # noqa: PT017
                found = 0
            assert found <= 150
            assert all(str(error).startswith(f"{file}: ") for error in errors)
    file.with_suffix(f".{format}.gz").write_bytes(whole)
    with pytest.raises(BadRecord, match="not compressed as a whole"):
        list(read_corpus(file.with_suffix(f".{format}.gz"), format))


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
    for format in (None, "tsv"):
        errors.clear()
        assert [document.text for document in read_corpus(tmp_path, format, report=errors.append)] == ["collection.tsv"]
        assert [error.kind for error in errors] == ["file not read", "file not read"]


@pytest.mark.parametrize(
    ("text", "ids", "left_out"),
    [
        pytest.param("id,abstract,authors,year\n1,Bees,Smith,2019\n", [], ["no text"], id="ids beside no text"),
        pytest.param("text,label\nGreat,1\n", ["c_0"], [], id="texts beside another column"),
        pytest.param("text,label,source\nGreat,1,web\n", ["c_0"], [], id="texts of three columns"),
        pytest.param(
            "D1\thttps://a.b\tText\tBees\n", ["D1"], [], id="a title that is a name of texts, without a header"
        ),
        pytest.param(
            "wiki-id\thttps://a.b\tOf bees\tBees hum\n", ["wiki-id"], [], id="an id that reads as a name of ids"
        ),
    ],
)
def test_one_known_name_makes_a_header(tmp_path: Path, text: str, ids: list[str], left_out: list[str]) -> None:
    (tmp_path / "c.csv").write_text(text)
    errors: list[BadRecord] = []
    found = []
    with suppress(UserError):  # a corpus without a document
        found = [document.id for document in read_corpus(tmp_path / "c.csv", report=errors.append)]
    assert (found, [error.kind for error in errors]) == (ids, left_out)


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
