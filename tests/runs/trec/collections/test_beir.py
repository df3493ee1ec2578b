"""Folders of BEIR, and judgments that name their fields: the split decides, and every error names file and line."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keystone.indexing.errors import UserError
from keystone.runs.trec.collections import find_folder
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import NARRATIVES
from tests.support.runs.beir_folders import HEADER, write_folder
from tests.support.runs.qrels import grades_of

GRADES = {"": {"1": {"bees": 2, "wasps": 0}}, ":test": {"1": {"bees": 2, "wasps": 0}}, ":dev": {"2": {"volcano": 1}}}


@pytest.mark.parametrize("split", GRADES)
def test_a_split_gives_its_judgments_and_the_queries_that_it_judges(tmp_path: Path, split: str) -> None:
    named = Path(f"{write_folder(tmp_path / 'small')}{split}")
    assert grades_of(read_qrels(named)) == GRADES[split]
    (query,) = GRADES[split]
    (topic,) = read_topics(named)
    assert (topic.id, topic.narrative) == (query, NARRATIVES[query])
    assert topic.place == f"{tmp_path}/small/queries.jsonl:{query}"


def test_a_folder_named_ir_datasets_hides_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "ir_datasets")
    monkeypatch.chdir(tmp_path)
    assert find_folder(Path("ir_datasets:test")) is None
    assert find_folder(Path("ir_datasets")) == (Path("ir_datasets"), "")


def test_a_folder_without_judgments_gives_all_its_queries(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl.gz").write_bytes(
        gzip.compress(b'{"_id": "b", "text": "B?"}\n{"_id": "a", "text": "A?"}')
    )
    assert [topic.id for topic in read_topics(tmp_path)] == ["b", "a"]


def test_a_file_of_judgments_in_the_form_of_beir_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(f"{HEADER}q\td\t1\r\n\nq\te\t-1\n".replace("\n", "\r\n", 1))
    assert grades_of(read_qrels(tmp_path / "x.tsv")) == {"q": {"d": 1, "e": -1}}


def test_judgments_in_the_form_of_trec_select_queries_too(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    (folder / "qrels/test.tsv").write_text("2 0 volcano 1\n")
    assert [topic.id for topic in read_topics(folder)] == ["2"]
    assert grades_of(read_qrels(folder)) == {"2": {"volcano": 1}}


def test_a_file_whose_name_looks_like_a_folder_and_a_split_is_a_file(tmp_path: Path) -> None:
    write_folder(tmp_path / "small")
    (tmp_path / "small:dev").write_text("9 0 d 1\n")
    assert grades_of(read_qrels(tmp_path / "small:dev")) == {"9": {"d": 1}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param("1\tbees\n", r"qrels/test.tsv:2: expected the 3 columns of the header", id="two columns"),
        pytest.param("1\t0\tbees\t1\n", r"qrels/test.tsv:2: expected the 3 columns of the header", id="four columns"),
        pytest.param("1\tbees\t1\n\n1\ta b\t1\n", r"qrels/test.tsv:4: expected query-id", id="a space in an id"),
        pytest.param("#1\tbees\t1\n", r"qrels/test.tsv:2: expected query-id", id="a comment"),
        pytest.param("1\tbees\tx\n", r"qrels/test.tsv:2: grade: expected a whole number, found 'x'", id="no grade"),
        pytest.param("", r"qrels/test.tsv: holds no judgment", id="only the header"),
        pytest.param("1\tbees\t1\n1\tbees\t2\n", r"qrels/test.tsv:3: document bees has two grades", id="two grades"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, rows: str, message: str) -> None:
    (write_folder(tmp_path / "small") / "qrels/test.tsv").write_text(HEADER + rows)
    with pytest.raises(UserError, match=message):
        read_qrels(tmp_path / "small")


def test_documents_may_have_the_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1 0 doc 1\n1 0 pid 2\n")
    assert grades_of(read_qrels(tmp_path / "x")) == {"1": {"doc": 1, "pid": 2}}


def test_an_unknown_split_names_the_known_ones(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    for read in (read_qrels, read_topics):
        with pytest.raises(UserError, match=r"has no qrels/train\.tsv, expected .*small:dev or .*small:test$"):
            read(Path(f"{folder}:train"))


def test_a_folder_that_is_none_of_beir_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a folder without queries\.jsonl, expected"):
        read_topics(tmp_path)
    with pytest.raises(UserError, match=r"has no qrels/test\.tsv, expected a file of judgments or a folder of BEIR"):
        read_qrels(tmp_path)


def test_a_split_that_judges_no_query_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    (folder / "qrels/test.tsv").write_text(f"{HEADER}3\tbees\t1\n")
    with pytest.raises(UserError, match=r"none of the queries of .*queries\.jsonl is judged"):
        read_topics(folder)


EXPECTED = {"1": {"a": 2, "b": 0}, "2": {"a": 1}}
FORMS = {
    "BEIR": "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\ta\t1\n",
    "grades with a decimal point": "query-id\tcorpus-id\tscore\n1\ta\t2.0\n1\tb\t0.\n2\ta\t1.00\n",
    "another header": "query_id\tdoc_id\trelevance\n1\ta\t2\n1\tb\t0\n2\ta\t1\n",
    "columns in another order": "Label\tQID\tDOCNO\n2\t1\ta\n0\t1\tb\n1\t2\ta\n",
    "four columns": "qid\titer\tdocno\trel\n1\t0\ta\t2\n1\t0\tb\t0\n2\t0\ta\t1\n",
    "spaces": "topic iteration document  relevancy\n1 0 a 2\n1 0  b 0\n2 0 a 1\n",
    "CSV": 'qid,docno,label\n1,"a",2\n1,b,0\n2,a,1\n',
    "JSON lines": "".join(
        json.dumps({"query-id": query, "corpus-id": doc, "score": grade}) + "\n"
        for query, doc, grade in [("1", "a", 2.0), (1, "b", 0), ("2", "a", 1)]
    ),
    "a JSON array": json.dumps(
        [
            {"qid": "1", "docid": "a", "rel": 2},
            {"qid": 1, "docid": "b", "rel": 0},
            {"qid": "2", "docid": "a", "rel": 1},
        ],
        indent=1,
    ),
    "an unknown name of queries": "query no,doc,label\n1,a,2\n1,b,0\n2,a,1\n",
    "TREC with a decimal point": "1 0 a 2.0\n1 0 b 0\n2 0 a 1.0\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["", "\ufeff", "\n\n", "\r\n"])
def test_judgments_of_every_form_are_read(tmp_path: Path, form: str, before: str) -> None:
    (tmp_path / "q").write_text(before + FORMS[form])
    assert grades_of(read_qrels(tmp_path / "q")) == EXPECTED


def test_judgments_in_parquet_are_read(tmp_path: Path) -> None:
    rows = [("1", "a", 2.0), ("1", "b", 0.0), ("2", "a", 1.0)]
    columns = dict(zip(("query-id", "corpus-id", "score"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "q.parquet")
    assert grades_of(read_qrels(tmp_path / "q.parquet")) == EXPECTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("qid,docno,label\n1,a,0.5\n", ":2: grade: expected a whole number, found '0.5'", id="a half"),
        pytest.param("qid,docno,label\n1,a,1\n\n2,a\n", ":4: expected the 3 columns of the header", id="columns"),
        pytest.param("qid,docno,label\n1,a b,1\n", ":2: expected query-id, corpus-id and score", id="a space"),
        pytest.param('{"qid": 1, "docno": "a"}\n', ":1: expected query-id, corpus-id and score", id="no grade"),
        pytest.param('{"qid": 1, "docno": "a", "label": 1}\nx\n', ":2: not JSON", id="no JSON"),
        pytest.param("qid,docno,label\n1,a,1\n1,a,2\n", ":3: document a has two grades", id="two grades"),
        pytest.param("1 0 a 0.5\n", ":1: grade: expected a whole number", id="a half in TREC"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "q").write_text(text)
    with pytest.raises(UserError, match=f"/q{message}"):
        read_qrels(tmp_path / "q")


@pytest.mark.parametrize(
    "judged", [pytest.param("qrels/test.jsonl", id="JSON lines"), pytest.param("data/test-0-of-1.parquet", id="shard")]
)
def test_a_folder_of_a_hub_gives_topics_and_judgments(tmp_path: Path, judged: str) -> None:
    (tmp_path / "queries").mkdir()
    pq.write_table(pa.table({"_id": ["1", "2"], "text": ["x", "y"]}), tmp_path / "queries/queries-0-of-2.parquet")
    pq.write_table(pa.table({"_id": ["3", "4"], "text": ["v", "w"]}), tmp_path / "queries/queries-1-of-2.parquet")
    file = tmp_path / judged
    file.parent.mkdir()
    if file.suffix == ".parquet":
        pq.write_table(pa.table({"query-id": ["1", "4"], "corpus-id": ["a", "b"], "score": [1, 2]}), file)
    else:
        file.write_text(
            '{"query-id": "1", "corpus-id": "a", "score": 1}\n{"query-id": "4", "corpus-id": "b", "score": 2}'
        )
    assert grades_of(read_qrels(tmp_path)) == {"1": {"a": 1}, "4": {"b": 2}}
    assert [(topic.id, topic.narrative) for topic in read_topics(tmp_path)] == [("1", "x"), ("4", "w")]
