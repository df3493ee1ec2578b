"""Judgments that name their fields: any header, in TSV, CSV and spaces, in JSON lines and in Parquet."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keystone.indexing.errors import UserError
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from tests.support.runs.qrels import grades_of

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
