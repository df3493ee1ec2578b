"""Damaging valid files: a seeded generator chooses changes of bytes, lines, columns and JSON values.

`make nightly` tries more damaged input, and kills more programs, than `make test`.
"""

import gzip
import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

import zstandard

FUZZ_CASES = int(os.environ.get("KEYSTONE_FUZZ") or 0)
"""The number of damaged files or replies of each kind that the environment asks for; 0 if it asks for none."""


TOKENS = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\t", b" ", b"#", b"\x1c", b"\x85", b"\x7f"),
    *(text.encode() for text in "\u00a0 \u0085 \u2028 \u200b \ufeff \u0661 \u00e9 \U0001d538".split(" ")),
    *(b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b'"', b"{", b"}", b"[", b"]", b":", b",", b"{}", b"[]", b"null"),
    *(b"nan", b"NaN", b"-inf", b"1e400", b"1e38", b"3.4028235e38", b"-3.4028235e+38", b"1e-50", b"0x1", b"1_0", b"-0"),
    *(b"9" * 30, b"9" * 5000, b"-1", b"+.5", b"5.", b"Q0", b"<DOC>", b"</DOC>\n", b"<DOCNO>", b"<top>", b"</top>"),
    *(b"<num>", b"<title>", b"<!--", b"-->", b"&#xd800;", b"&#" + b"9" * 30 + b";", b" = T = \n", b"<h1>"),
    *(b"*a", b"&a ", b"<<: ", b"!!int ", b"!!bool ", b"!!timestamp ", b"!!python/name:os ", b"- ", b"? ", b"---\n"),
    *(b"0x" + b"f" * 5000, b"[" * 1200, b'{"a":' * 300, b"x" * 70_000, b"x y " * 20_000, b"\x1f\x8b"),
]
"""Texts that changes insert: some reader takes each for a space, a number, an end, a tag or nothing."""

NESTED: Any = []
for _ in range(300):
    NESTED = [NESTED]

VALUES: list[Any] = [
    *(None, True, 0, -1, 7, 1.5, 2**53, 2**63, 2**64, 10**30, -(10**400), 1e300, float("nan"), float("inf")),
    *("", " ", "x", "1", "a b", "a#1", "#", "\0", "\ud800", "\ufeff1", "\u00a0", "\u0661", "x" * 2000, "w " * 2000),
    *([], [[]], [None], ["1", "1"], {}, {"a": 1}, {"a": "b"}, [0, 99, -1, True, 1.5, "x", None, {}], NESTED),
]


def mutate(data: bytes, chance: Random) -> bytes:
    """Make one to four changes to the data."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(WAYS)(data, chance)
    return data


def compress_and_damage(data: bytes, suffix: str, chance: Random) -> bytes:
    """Compress the data as the suffix says. In one of three cases, change a byte of the result or cut it off."""
    if suffix not in (".gz", ".zst"):
        return data
    data = gzip.compress(data, 1) if suffix == ".gz" else zstandard.compress(data)
    return chance.choice([_keep, _keep, _keep, _keep, _flip, _cut])(data, chance)


def _choose_place(data: bytes, chance: Random) -> int:
    return chance.randint(0, len(data))


def _keep(data: bytes, _chance: Random) -> bytes:
    return data


def _flip(data: bytes, chance: Random) -> bytes:
    at = _choose_place(data, chance)
    return data[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _delete(data: bytes, chance: Random) -> bytes:
    at = _choose_place(data, chance)
    return data[:at] + data[at + chance.choice([1, 1, 2, 5, 50]) :]


def _insert(data: bytes, chance: Random) -> bytes:
    at = _choose_place(data, chance)
    return data[:at] + chance.choice(TOKENS) + data[at:]


def _repeat(data: bytes, chance: Random) -> bytes:
    at, size = _choose_place(data, chance), chance.choice([1, 3, 20, 200])
    return data[:at] + data[at : at + size] * chance.choice([2, 2, 3]) + data[at + size :]


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: _choose_place(data, chance)]


def _ends(data: bytes, chance: Random) -> bytes:
    return data.replace(b"\n", chance.choice([b"\r\n", b"\r", b"\n\n", b"\n\r\n", b"\r\r\n", b"\n\xef\xbb\xbf"]))


def _mark(data: bytes, chance: Random) -> bytes:
    return chance.choice([b"\xef\xbb\xbf", b"\xef\xbb\xbf" * 2, b"\n", b"# by hand\n", b" # by hand\n", b"\0"]) + data


def _encoding(data: bytes, chance: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(chance.choice(["utf-16", "utf-16-le", "latin-1"]), "replace")


def _lines(data: bytes, chance: Random) -> bytes:
    """Drop a line, repeat it, move it, or join it with the next one."""
    lines = data.splitlines(keepends=True) or [b""]
    line = lines.pop(chance.randrange(len(lines)))
    match chance.randrange(4):
        case 0:
            return b"".join(lines)
        case 1:
            lines.insert(0, line)
        case 2:
            return line.rstrip() + b"".join(lines)
    lines.insert(chance.randint(0, len(lines)), line)
    return b"".join(lines)


def _column(data: bytes, chance: Random) -> bytes:
    """Replace, drop or add a column of a line, or the separator after it."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    by = chance.choice([b" ", b"\t"])
    columns = lines[at].split(by)
    place = chance.randrange(len(columns))
    others = [token for token in lines[chance.randrange(len(lines))].split(by) if token] or [b""]
    columns[place : place + chance.randint(0, 1)] = [chance.choice([chance.choice(TOKENS), chance.choice(others)])]
    lines[at] = chance.choice([by, by, by, b"\t", b"  ", "\u00a0".encode(), b"\x0b"]).join(columns)
    return b"\n".join(lines)


def _json(data: bytes, chance: Random) -> bytes:
    """Replace a value of a JSON line, or drop or rename its key; one line of YAML in braces counts as JSON."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        record = json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    inner, place = record, None
    while isinstance(inner, dict | list) and inner and (place is None or chance.random() < 0.6):
        outer, place = inner, chance.choice([*(inner if isinstance(inner, dict) else range(len(inner)))])
        inner = outer[place]
    if place is None:
        return data
    if (way := chance.randrange(4)) == 0:
        del outer[place]
    elif way == 1 and isinstance(outer, dict):
        outer[chance.choice(["id", "title", "text", "docid", "segment", "x", "", place.upper()])] = outer.pop(place)
    else:
        outer[place] = chance.choice(VALUES)
    lines[at] = json.dumps(record, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


WAYS: list[Callable[[bytes, Random], bytes]] = [
    *(_flip, _delete, _insert, _insert, _repeat, _cut, _ends, _mark, _encoding, _lines, _lines),
    *(_column, _column, _column, _json, _json, _json, _json),
]
