"""One rule for keys and columns: the same record gives the same document in every form, and in a folder of a hub."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keystone.indexing.corpora.corpus import make_corpus_key, read_corpus
from keystone.indexing.errors import BadRecord
from keystone.indexing.types import Document

Record = dict[str, Any]


def write(file: Path, record: Record) -> Path:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([record]), file)
    elif file.suffix == ".arrow":
        table = pa.Table.from_pylist([record])
        with pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    elif file.suffix in (".tsv", ".csv"):
        out_text = io.StringIO()
        by = "\t" if file.suffix == ".tsv" else ","
        csv.writer(out_text, delimiter=by, lineterminator="\n").writerows([record.keys(), record.values()])
        file.write_text(out_text.getvalue())
    else:
        file.write_text(json.dumps(record))
    return file


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow", ".tsv", ".csv"])
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"docno": "a", "text": "x"}, Document("a", "x"), id="PyTerrier"),
        pytest.param({"pid": "a", "passage": "x"}, Document("a", "x"), id="passages"),
        pytest.param(
            {"docid": "D", "pid": "a", "passage": "x"}, Document("a", "x"), id="MS MARCO V2, beside a document"
        ),
        pytest.param({"docid": "D", "pid": "a", "text": "x"}, Document("D", "x"), id="no passage"),
        pytest.param({"ID": "a", "Text": "x", "TITLE": "T"}, Document("a", "x", "T"), id="capitals"),
        pytest.param({"doc-id": "a", "contents": "x"}, Document("a", "x"), id="a hyphen"),
        pytest.param({"docid": None, "docno": "a", "text": None, "contents": "x"}, Document("a", "x"), id="null"),
        pytest.param({"docid": "", "id": "a", "text": " ", "body": "x"}, Document("a", "x"), id="blank"),
    ],
)
def test_the_same_keys_count_in_every_form(tmp_path: Path, suffix: str, record: Record, expected: Document) -> None:
    assert list(read_corpus(write(tmp_path / f"c{suffix}", record))) == [expected]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_rows_without_a_column_of_ids_get_them(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"c{suffix}", {"title": "T", "text": "x"})
    assert [document.id for document in read_corpus(file)] == ["c_0"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_a_space_in_the_name_of_a_file_is_quoted_in_the_ids_of_its_rows(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"my corpus{suffix}", {"title": "T", "text": "x"})
    assert [document.id for document in read_corpus(file)] == ["my%20corpus_0"]


def test_the_key_has_the_name_of_a_file_that_names_its_document(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("Bees.")
        (tmp_path / f"{name}.jsonl").write_text('{"id": "x", "text": "Bees."}')
    assert make_corpus_key(tmp_path / "a.txt", None) != make_corpus_key(tmp_path / "b.txt", None)
    assert make_corpus_key(tmp_path / "a.jsonl", None) == make_corpus_key(tmp_path / "b.jsonl", None)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize(
    ("record", "named"), [({"title": "T", "text": "x"}, True), ({"title": "T", "text": "x", "docno": "a"}, False)]
)
def test_the_key_has_the_name_of_a_table_that_names_its_rows(
    tmp_path: Path, suffix: str, record: Record, named: bool
) -> None:
    first, other = (make_corpus_key(write(tmp_path / f"{name}{suffix}", record), None) for name in "ab")
    assert (first != other) == named


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("corpus.parquet", "queries.parquet"), id="files"),
        pytest.param(("corpus-0-of-1.parquet", "queries-0-of-1.parquet", "data/test-0-of-1.parquet"), id="shards"),
        pytest.param(("corpus/a.parquet", "queries/a.parquet", "qrels/test.parquet"), id="folders"),
        pytest.param(("corpus.jsonl", "queries.jsonl", "qrels/test.jsonl"), id="JSONL"),
    ],
)
@pytest.mark.parametrize("linked", [pytest.param(False, id="a folder"), pytest.param(True, id="a download of the hub")])
def test_a_folder_of_a_hub_gives_its_documents(tmp_path: Path, names: tuple[str, ...], linked: bool) -> None:
    """In the cache of the hub, each file of `snapshots` is a link into `blobs`."""
    folder, blobs = tmp_path / "snapshots/0a1b", tmp_path / "blobs"
    blobs.mkdir()
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        file = write(folder / name, {"_id": f"{number}", "text": "x"})
        if linked:
            file.rename(blobs / f"{number}")
            file.symlink_to(blobs / f"{number}")
    errors: list[BadRecord] = []
    assert [document.id for document in read_corpus(folder, report=errors.append)] == ["0"]
    assert not errors
