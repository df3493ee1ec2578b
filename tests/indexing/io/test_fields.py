"""Fields by their names: the first name with a value counts, and names agree whatever their case and punctuation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.io.fields import find_field, find_names, is_missing

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
