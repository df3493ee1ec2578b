"""Stored documents in the forms of Pyserini's servers."""

from typing import Any

import orjson
import pytest

from keystone.runs.serving.rest.calls import cut_payload, find_text, parse_object, parse_payload


@pytest.mark.parametrize(
    ("raw", "payload", "text"),
    [
        pytest.param('{"id": "1", "contents": "a"}', "a", "a", id="one value is the payload"),
        pytest.param('{"docid": "1", "title": "t", "text": "a"}', {"title": "t", "text": "a"}, "a", id="an object"),
        pytest.param('{"_id": "1", "n": 5, "x": null}', {"n": "5", "x": "None"}, "", id="values are strings"),
        pytest.param('{"id": "1", "l": [1], "segment": "s"}', {"l": [1], "segment": "s"}, "s", id="lists stay"),
        pytest.param("plain text", "plain text", "plain text", id="no JSON"),
        pytest.param("[1, 2]", [1, 2], "", id="no object"),
    ],
)
def test_parsed_documents_and_their_texts(raw: str, payload: Any, text: str) -> None:
    assert parse_payload(raw) == payload
    assert find_text(raw) == text


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        pytest.param('{"id": "1", "contents": "a"}', {"contents": "a"}, id="one value stays in its object"),
        pytest.param("plain text", {"contents": "plain text"}, id="no JSON"),
        pytest.param("[1, 2]", {"contents": "[1, 2]"}, id="no object"),
    ],
)
def test_documents_as_objects(raw: str, found: Any) -> None:
    assert parse_object(raw) == found


@pytest.mark.parametrize(
    ("payload", "cut"),
    [
        pytest.param("abcdef", "abc", id="a text"),
        pytest.param({"Text": "abcdef", "title": "abcdef"}, {"Text": "abc", "title": "abcdef"}, id="its text alone"),
        pytest.param([1, 2, 3, 4], [1, 2, 3, 4], id="no text"),
    ],
)
def test_cut_documents(payload: Any, cut: Any) -> None:
    assert cut_payload(payload, 3) == cut
    assert orjson.dumps(cut_payload(payload, 10)) == orjson.dumps(payload)


def test_a_cut_bounds_every_long_text_of_a_document() -> None:
    record = {"title": "Bees", "headings": "Dances\n" * 99, "segment": "Bees dance. " * 99, "Body": "b" * 99}
    assert cut_payload(record, 9) == {key: text[:9] for key, text in record.items()}
