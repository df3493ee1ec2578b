"""Parts of an index stand for the whole: the order of rows, the bits of vectors, and the place of a difference."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.types import Document
from keystone.indexing.vectors.types import Vectors, round_to_grid
from keystone.runs.exchange.bundle.parts import KnownVectors, PartStore, hash_text, load_vectors, save_vectors
from keystone.runs.exchange.bundle.reproduce import find_difference

IDS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


@given(IDS, st.data())
def test_rows_of_a_part_are_in_the_order_of_the_bytes_of_ids(ids: list[str], data: st.DataObject) -> None:
    store = PartStore(ids, lambda names: [Document(name, "") for name in names])
    wanted = data.draw(st.lists(st.sampled_from(ids)))
    rows = store.rows(wanted)
    assert store.ids(rows) == [document.id for document in store.get(rows)] == wanted
    assert [document.id for document in store] == sorted(ids, key=str.encode)
    assert store.rows(["unknown id"]).tolist() == [-1]
    for row in (-1, len(ids)):
        with pytest.raises(IndexError):
            store.get([row])


@given(st.lists(st.text(max_size=5), unique=True, max_size=6), st.integers(1, 8), st.integers(0, 99))
def test_vectors_keep_their_bits_in_a_file_and_are_found_once(texts: list[str], dimension: int, seed: int) -> None:
    made = round_to_grid(np.random.default_rng(seed).normal(size=(len(texts), dimension)))
    asked: list[str] = []

    def find(missing: Sequence[str]) -> list[Vectors]:
        asked.extend(missing)
        return [made[texts.index(text)] for text in missing]

    known = KnownVectors(dimension, find, {})
    for _ in range(2):
        assert known.embed(texts).tobytes() == made.tobytes()
    assert asked == texts
    with TemporaryDirectory() as folder:
        save_vectors(Path(folder, "vectors"), known.known)
        found = load_vectors(Path(folder, "vectors"))
    assert {key: one.tobytes() for key, one in found.items()} == {
        hash_text(text): one.tobytes() for text, one in zip(texts, made, strict=True)
    }


@pytest.mark.parametrize(
    ("made", "stored", "expected"),
    [
        (b"a\nb\n", b"a\nb\n", ""),
        (b"a\nb\n", b"a\nc\nd\n", "line 2: found 'b\\n', expected 'c\\n'"),
        (b"a\n", b"a\nb\n", "line 2: found no such line, expected 'b\\n'"),
        (b"", b"\xff", "line 1: found no such line, expected '\ufffd'"),
        (
            b"x" * 30 + b"made",
            b"x" * 30 + b"stored",
            f"line 1: found ...'{'x' * 20}made', expected ...'{'x' * 20}stored'",
        ),
    ],
)
def test_the_first_differing_line_is_named_and_its_difference_shown(
    made: bytes, stored: bytes, expected: str, tmp_path: Path
) -> None:
    for name, content in (("made", made), ("stored", stored)):
        (tmp_path / name).write_bytes(content)
    assert find_difference(tmp_path / "made", tmp_path / "stored") == expected
