"""JSON of a server's reply: numbers that JSON does not have, byte order marks, and texts that are cut off."""

from typing import Any

import pytest

from keystone.indexing.io.json_values import parse_reply


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b"[NaN, Infinity, -Infinity, 1]", [None, None, None, 1]),
        (b'{"NaN": "-Infinity", "\\"NaN": NaN}', {"NaN": "-Infinity", '"NaN': None}),
    ],
)
def test_numbers_that_json_lacks_become_null_outside_strings(body: bytes, expected: Any) -> None:
    assert parse_reply(body) == expected


@pytest.mark.parametrize("end", [b"", b"\\", b"NaN"])
def test_a_reply_that_ends_within_a_long_string_is_an_error(end: bytes) -> None:
    """A search that begins again at each of the quotes would need minutes."""
    with pytest.raises(ValueError, match="unexpected end of data"):
        parse_reply(b'{"a": "' + b'\\"' * 100_000 + end)
