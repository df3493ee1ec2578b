"""Files: written whole or not at all, and read by numbered lines; and values of JSON, digested and in replies."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io.json_values import digest, parse_reply
from keystone.indexing.io.reading import (
    hash_file,
    open_binary,
    read_byte_lines,
    read_bytes,
    read_json_lines,
    read_text_lines,
)
from keystone.indexing.io.writing import write_whole

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ENDS = st.sampled_from(["\n", "\r\n"])
MANY = b"".join(b'{"a":%d}\n' % i for i in range(50_000))
ZIPPED = gzip.compress(MANY)
ZSTANDARD = zstandard.compress(MANY)


def in_order(value: Any, down: bool = False) -> Any:
    """The same value, with the keys of each object in ascending or descending order."""
    match value:
        case dict():
            return {key: in_order(value[key], down) for key in sorted(value, reverse=down)}
        case list():
            return [in_order(inner, down) for inner in value]
        case _:
            return value


@pytest.mark.parametrize("old", [pytest.param(None, id="no file before"), pytest.param(b"old", id="a file before")])
def test_a_written_file_appears_only_when_the_block_ends(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "out.txt"
    if old is not None:
        path.write_bytes(old)
    with write_whole(path) as file:
        file.write(b"new")
        file.flush()
        assert (path.read_bytes() if path.exists() else None) == old
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["out.txt", "out.gz", "out.ZST", "out.bz2", "out.XZ"])
def test_a_written_file_is_compressed_as_its_name_says(tmp_path: Path, name: str) -> None:
    for parts in ([], [b"new\n"] * 10_000):
        with write_whole(tmp_path / name) as file:
            for part in parts:
                file.write(part)
        assert read_bytes(tmp_path / name).tobytes() == b"".join(parts)
        assert not parts or ((tmp_path / name).stat().st_size < 1000) == (name != "out.txt")


@pytest.mark.parametrize("name", ["pipe", "link", "/dev/fd/1"])
def test_a_pipe_or_a_device_is_no_file_to_write_and_stays(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(UserError, match=f"{name}: is a pipe or a device"), write_whole(tmp_path / name):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_of_compress_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found \.Z, which Keystone only reads"), write_whole(tmp_path / "out.Z"):
        pass


@pytest.mark.parametrize("old", [pytest.param(None, id="no file before"), pytest.param(b"old", id="a file before")])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, UserError])
def test_an_error_in_the_block_leaves_the_old_file(
    tmp_path: Path, old: bytes | None, error: type[BaseException]
) -> None:
    path = tmp_path / "out.txt"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(error, match="halfway"), write_whole(path) as file:  # noqa: PT012
        file.write(b"new")
        raise error("halfway")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({} if old is None else {"out.txt": old})


@pytest.mark.parametrize("parent", [pytest.param("missing", id="missing"), pytest.param("file", id="a file")])
def test_a_file_whose_folder_is_not_there_is_a_user_error(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"out\.txt: cannot be written"), write_whole(tmp_path / parent / "out.txt"):
        pass


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"))), ENDS)
def test_lines_are_numbered_from_1_and_have_no_ends(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], end: str
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    raw = "".join(text + end for text in texts).encode()
    (folder / "a.txt").write_bytes(raw)
    (folder / "a.gz").write_bytes(gzip.compress(raw))
    assert (
        list(read_text_lines(folder / "a.txt"))
        == list(read_text_lines(folder / "a.gz"))
        == list(enumerate(texts, start=1))
    )


@pytest.mark.parametrize("name", ["a", "a.jsonl", "a.zst"])
@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress, bz2.compress, lzma.compress])
def test_the_content_tells_the_compression(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / name).write_bytes(compress(b"a\n"))
    assert list(read_text_lines(tmp_path / name)) == [(1, "a")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"", [], id="empty file"),
        pytest.param(b'{"a":1}', [(1, {"a": 1})], id="no newline at the end"),
        pytest.param(
            b'\n{"a":1}\n \t\n{"b":2}\n\n', [(2, {"a": 1}), (4, {"b": 2})], id="blank lines keep their number"
        ),
        pytest.param(b'\xef\xbb\xbf{"a":1}\r\n', [(1, {"a": 1})], id="byte order mark and CRLF"),
    ],
)
def test_json_lines_skips_blank_lines_and_keeps_numbers(
    tmp_path: Path, raw: bytes, expected: list[tuple[int, dict[str, Any]]]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(raw)
    assert list(read_json_lines(path)) == expected


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        pytest.param("a.jsonl", b'{"a":1}\n{"a":"\xff"}\n', ":2: not UTF-8: .* at byte 6 of the line", id="not UTF-8"),
        pytest.param("a.jsonl", b'{"a":1}\n\n{"a":\n', ":3: not JSON", id="not JSON"),
        pytest.param("a.jsonl", b'{"a": NaN}\n', ":1: not JSON", id="not a JSON number"),
        pytest.param("a.jsonl", b'{"a":1}\n[1]\n', ":2: expected a JSON object, found list", id="not an object"),
        pytest.param("a.jsonl.gz", ZIPPED[:-20], r": cannot be read beyond line \d{4,5}: ", id="truncated gzip"),
        pytest.param("a.jsonl.gz", ZIPPED[:12] + b"\xff" * 60, ": cannot be read beyond line 0: ", id="broken gzip"),
        pytest.param("a.jsonl.gz", b'{"a":1}\n', ": cannot be read beyond line 0: Not a gzip", id="not gzip"),
        pytest.param("a.jsonl.zst", ZSTANDARD[:-20], r": cannot be read beyond line \d{4,5}: ", id="truncated zst"),
        pytest.param("a.zst", ZSTANDARD[:3], ": cannot be read beyond line 0: .* ended before", id="a piece of zst"),
        pytest.param("a.ZST", b"\xff" * 60, ": cannot be read beyond line 0: Not a Zstandard file", id="not zst"),
        pytest.param("a.zst", ZSTANDARD + b"x" * 9, r": cannot be read beyond line 50000: ", id="more behind zst"),
        pytest.param("a.jsonl.gz", b"", ": cannot be read beyond line 0: the file is empty", id="empty gzip"),
        pytest.param("a.jsonl", '{"a":1}\n{}\n'.encode("utf-16"), ":1: found UTF-16, expected UTF-8", id="UTF-16"),
        pytest.param(
            "a.jsonl", b"\xef\xbb\xbf" + "{}\n".encode("utf-16"), ":1: found UTF-16, expected UTF-8", id="both marks"
        ),
        pytest.param("a.jsonl", b' \n[\n{"a":1}]', ":2: expected a JSON object a line, found a JSON array", id="array"),
        pytest.param("a.jsonl.zst", None, ": cannot be read: No such file", id="missing zst"),
        pytest.param("a.jsonl", None, ": cannot be read: No such file", id="missing"),
        pytest.param("a.jsonl.gz", None, ": cannot be read: No such file", id="missing gzip"),
    ],
)
def test_a_broken_file_is_a_user_error_with_file_and_line(
    tmp_path: Path, name: str, raw: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(UserError, match=name + message):
        list(read_json_lines(path))


@given(st.binary(max_size=50_000), st.integers(1, 40_000), st.sampled_from([1, 3, 19]))
def test_several_zstandard_frames_are_one_file(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, size: int, level: int
) -> None:
    path = tmp_path_factory.mktemp("frames") / "a.zst"
    frames = [zstandard.compress(raw[start : start + size], level) for start in range(0, len(raw), size)]
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    path.write_bytes(skipped.join([b"", *frames, b""]))
    with open_binary(path) as file:
        assert file.read() == raw
    with open_binary(path) as file:
        assert file.read(7) + b"".join(file) == raw


@pytest.mark.slow
@given(st.integers(1, len(ZSTANDARD) - 1), st.sampled_from([".gz", ".zst"]))
def test_a_truncated_file_gives_its_first_lines_and_then_an_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int, ending: str
) -> None:
    path = tmp_path_factory.mktemp("cut") / f"a{ending}"
    path.write_bytes((ZIPPED if ending == ".gz" else ZSTANDARD)[:-cut])
    errors: list[BadRecord] = []
    found = [line for _, line in read_byte_lines(path, errors.append)]
    assert b"".join(found) == MANY[: sum(map(len, found))]
    assert [error.kind for error in errors] == (["unreadable file"] if path.stat().st_size else [])


def test_a_name_that_no_file_can_have_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read: (stat: )?embedded null"):
        open_binary(tmp_path / "a\0b")


@given(JSON)
def test_the_digest_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    assert digest(in_order(value)) == digest(in_order(value, down=True)) == digest(value)


@given(JSON, JSON)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert (digest(one) == digest(other)) == (repr(in_order(one)) == repr(in_order(other)))


def test_sha256_is_that_of_the_bytes_and_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert hash_file(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(UserError, match="b: cannot be read: No such file"):
        hash_file(tmp_path / "b")


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
