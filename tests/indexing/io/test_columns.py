"""Rows of columns: headers are told from data, quotes end where they should, and the first name with a value counts."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keystone.indexing.errors import BadRecord
from keystone.indexing.io.columns import MOST_LINES, Layout, read_columns
from keystone.indexing.io.fields import find_field, find_names, is_missing

LAYOUT = Layout(("id", "qid"), ("text", "query"), ("title",), {2: ("id", "text")}, "an id and a text")
Row = dict[str, str]


def read(text: str) -> tuple[list[tuple[int, Row]], list[str]]:
    errors: list[BadRecord] = []
    rows = list(read_columns(Path("f"), enumerate(text.split("\n"), 1), LAYOUT, errors.append))
    return rows, [str(error) for error in errors]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1\ta", [(1, {"id": "1", "text": "a"})], id="TSV without a header"),
        pytest.param("qid\tquery\n1\ta", [(2, {"qid": "1", "query": "a"})], id="TSV with a header"),
        pytest.param("Q-ID\tutterance\n1\ta", [(2, {"Q-ID": "1", "text": "a"})], id="a header with one known name"),
        pytest.param("query_number\tquery\n1\ta", [(2, {"id": "1", "query": "a"})], id="an unknown name of ids"),
        pytest.param("topicNo\twords\n1\ta", [(2, {"id": "1", "text": "a"})], id="two unknown names"),
        pytest.param("Topic No\tThe words\n1\ta", [(2, {"id": "1", "text": "a"})], id="names with spaces"),
        pytest.param("Q ID\tThe words\n1\ta", [(2, {"Q ID": "1", "text": "a"})], id="a known name with a space"),
        pytest.param(
            "doc no\theadline\ttext\n1\ta\tb",
            [(2, {"id": "1", "headline": "a", "text": "b"})],
            id="an unknown name of ids among three",
        ),
        pytest.param(
            "id,abstract,publication year\n1,a,2019",
            [(2, {"id": "1", "abstract": "a", "publication year": "2019"})],
            id="one known name of three, that of ids",
        ),
        pytest.param(
            ",text,label\n0,a b,1",
            [(2, {"": "0", "text": "a b", "label": "1"})],
            id="one known name of three words, beside the index of a frame",
        ),
        pytest.param(
            "paper_id,first author,text\n1,a,b",
            [(2, {"id": "1", "first author": "a", "text": "b"})],
            id="an unknown name of ids before a name with a space",
        ),
        pytest.param(
            "text,label\na b,1", [(2, {"text": "a b", "label": "1"})], id="a name of texts before another one"
        ),
        pytest.param("text\ta b", [(1, {"id": "text", "text": "a b"})], id="an id that is a name of texts"),
        pytest.param("1;a, b\n2;c", [(1, {"id": "1", "text": "a, b"}), (2, {"id": "2", "text": "c"})], id="semicolons"),
        pytest.param('"a;b",c', [(1, {"id": "a;b", "text": "c"})], id="a semicolon in quotes before a comma"),
        pytest.param("casino\tlamp", [(1, {"id": "casino", "text": "lamp"})], id="an id that ends like a name of ids"),
        pytest.param("a_no\tb c", [(1, {"id": "a_no", "text": "b c"})], id="an id beside a text of several words"),
        pytest.param("qid\ta b", [(1, {"id": "qid", "text": "a b"})], id="an id that looks like a header"),
        pytest.param("\n\n1\ta", [(3, {"id": "1", "text": "a"})], id="blank lines"),
        pytest.param(
            'id,Title,text\n1,,"a, ""b""\nc"\n2,T,d',
            [(2, {"id": "1", "Title": "", "text": 'a, "b"\nc'}), (4, {"id": "2", "Title": "T", "text": "d"})],
            id="CSV with quotes, commas and line ends",
        ),
        pytest.param('qid,query\n1,"a"', [(2, {"qid": "1", "query": "a"})], id="needless quotes of CSV"),
        pytest.param('1\t"a"', [(1, {"id": "1", "text": '"a"'})], id="quotes of a text in TSV"),
        pytest.param('1\t5" by 6"', [(1, {"id": "1", "text": '5" by 6"'})], id="inches"),
        pytest.param(
            '1\t"open\n2\tb',
            [(1, {"id": "1", "text": '"open'}), (2, {"id": "2", "text": "b"})],
            id="a quote that is never closed, in TSV",
        ),
        pytest.param(
            'qid,query\n1,"open\n2,b\n3,"c"',
            [(2, {"qid": "1", "query": '"open'}), (3, {"qid": "2", "query": "b"}), (4, {"qid": "3", "query": "c"})],
            id="a quote that is never closed, in CSV",
        ),
        pytest.param("id\ttitle\ttext\n1\t\tb", [(2, {"id": "1", "title": "", "text": "b"})], id="an empty column"),
    ],
)
def test_rows_are_read(text: str, expected: list[tuple[int, Row]]) -> None:
    assert read(text) == (expected, [])


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        pytest.param("1\ta\n2", ["f:2: expected 2 columns, an id and a text, found 1"], id="too few"),
        pytest.param("id\ttitle\ttext\n1\ta", ["f:2: expected the 3 columns of the header, found 2"], id="the header"),
        pytest.param("a\rb,id,text\rc", ["f:1: expected 2 columns, an id and a text, found 3"], id="carriage returns"),
    ],
)
def test_a_row_of_other_columns_is_reported(text: str, errors: list[str]) -> None:
    assert read(text)[1] == errors


CELL = st.text(st.sampled_from('ab "\t,\n'), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(CELL, min_size=1, max_size=6))
def test_what_csv_writes_is_read_back(texts: list[str]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([("id", "text"), *((str(number), text) for number, text in enumerate(texts))])
    rows, errors = read(out.getvalue())
    assert ([row["text"] for _, row in rows], errors) == (texts, [])


@example('1\n"\n1\n"')  # a first row that no reader takes: a row of several lines is reported once
@given(st.text(st.sampled_from('1ab"\t,\n'), max_size=60))
def test_every_line_is_in_a_row_or_reported(text: str) -> None:
    rows, errors = read(text)
    lines = sum(1 + "".join(row.values()).count("\n") for _, row in rows) + len(errors)
    filled = sum(1 for line in text.split("\n") if line.strip())
    assert lines >= filled - 1 or (errors and not rows)


def test_open_quotes_take_linear_time() -> None:
    rows, errors = read("id,text\n" + '1,"a\n' * (3 * MOST_LINES + 1))
    assert len(rows) + len(errors) > 0
    assert sum(1 + row["text"].count("\n") for _, row in rows) + len(errors) == 3 * MOST_LINES + 1


NAMES = ("docid", "_id", "doc_no")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"_id": "a", "docid": "b"}, "docid", id="the order of the names, not of the record"),
        pytest.param({"docid": None, "_id": "a"}, "_id", id="null"),
        pytest.param({"docid": "", "_id": " \t", "doc_no": "a"}, "doc_no", id="blank"),
        pytest.param({"docid": float("nan"), "_id": 3}, "_id", id="the NaN of frames"),
        pytest.param({"docid": 0, "_id": 3}, "docid", id="zero is a value"),
        pytest.param({"docid": None, "_id": ""}, "docid", id="none has a value"),
        pytest.param({"ID": 1}, "ID", id="another case"),
        pytest.param({"Doc Id": 1}, "Doc Id", id="a space"),
        pytest.param({"doc-no": 1, "ID": 2}, "ID", id="alike names in the order of the names"),
        pytest.param({"DOCID": 1, "_id": 2}, "_id", id="the same name goes before one that is alike"),
        pytest.param({"docid": None, "DOCID": 1}, "DOCID", id="null and an alike name"),
        pytest.param({"ids": 1}, None, id="another name"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_the_first_name_with_a_value_counts(record: dict[str, Any], expected: str | None) -> None:
    assert find_field(record, NAMES) == expected


VALUES = st.sampled_from([None, "", " ", "x", 0, float("nan")])


@given(st.dictionaries(st.sampled_from(["docid", "DocId", "_id", "Id", "DOCNO", "x"]), VALUES))
def test_a_value_is_never_missed(record: dict[str, Any]) -> None:
    known = find_names(record, NAMES)
    found = find_field(record, NAMES)
    assert (found is None) == (not known)
    assert found is None or is_missing(record[found]) == all(is_missing(record[name]) for name in known)
