"""Parts of an index stand for the whole, and damaged ones are refused before they take memory."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.writing import map_array
from keystone.indexing.types import Document
from keystone.runs.exchange.bundle.parts import (
    KEYS,
    SUMS,
    VECTORS,
    KnownVectors,
    PartStore,
    describe_index,
    hash_text,
    load_vectors,
    open_sealed_index,
    pack,
    save_vectors,
    unpack,
)
from keystone.runs.exchange.bundle.reproduce import find_difference
from keystone.runs.pipeline.job import name_task
from tests.support.mutation import mutate

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


@pytest.mark.parametrize("languages", [{}, {"eng": 7}, {"deu": 5, "eng": 2}])
def test_the_description_of_an_index_tells_its_languages(languages: dict[str, int], tmp_path: Path) -> None:
    index = Index(tmp_path, "k", None, 7, {}, 0, None, language="auto" if languages else "deu", languages=languages)
    found = open_sealed_index(describe_index(index), tmp_path)
    assert (found.language, found.languages) == (index.language, languages)
    assert name_task(found) == name_task(index)
    assert describe_index(Index(tmp_path, "k", None, 7, {}, 0, None)) == {"key": "k", "documents": 7, "prefixes": None}


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


KNOWN = {bytes([number]) * 32: np.zeros(4, np.float32) for number in range(3)}


def write_header(path: Path, shape: str, kind: str = "<i2") -> None:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(24))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        pytest.param("(3, 1000000000000)", "<i2", id="more than any memory"),
        pytest.param("(3, 18446744073709551616)", "<i2", id="more than 64 bits"),
        pytest.param("(4294967296, 4294967296, 4294967296)", "<i2", id="a product of 0 in 64 bits"),
        pytest.param("(3, -4)", "<i2", id="below 0"),
        pytest.param("(3, 'x')", "<i2", id="a text"),
        pytest.param("(3, 5)", "<i2", id="a little more"),
        pytest.param("(3, 3)", "<i2", id="a little less"),
        pytest.param("(3, 1)", "<f8", id="another kind of number"),
        pytest.param("(3,)", "|O", id="objects"),
        pytest.param("(" * 60, "<i2", id="no header"),
    ],
)
def test_an_array_of_another_shape_than_its_file_is_refused(shape: str, kind: str, tmp_path: Path) -> None:
    save_vectors(tmp_path / "vectors", KNOWN)
    assert load_vectors(tmp_path / "vectors").keys() == KNOWN.keys()
    write_header(tmp_path / "vectors" / VECTORS, shape, kind)
    with pytest.raises(ValueError, match=VECTORS):
        load_vectors(tmp_path / "vectors")


def test_damaged_vectors_are_values_or_one_kind_of_error(tmp_path: Path) -> None:
    """A few of many: a longer run of it is made by hand."""
    save_vectors(tmp_path / "vectors", KNOWN)
    for seed in range(100):
        chance = Random(seed)
        damaged = tmp_path / "damaged"
        shutil.copytree(tmp_path / "vectors", damaged, dirs_exist_ok=True)
        file = damaged / chance.choice([KEYS, VECTORS])
        file.write_bytes(mutate(file.read_bytes(), chance))
        with suppress(ValueError):
            load_vectors(damaged)


def test_a_mapped_array_is_the_array(tmp_path: Path) -> None:
    for array in (np.arange(6).reshape(2, 3), np.empty((0, 4), np.int16), np.array([b"a", b"bc"])):
        np.save(tmp_path / "a.npy", array)
        assert np.array_equal(map_array(tmp_path / "a.npy"), array)


def test_a_bundle_that_unpacks_to_more_than_its_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "zeros").write_bytes(bytes(10**6))
    pack(tmp_path / "made", tmp_path / "b.zip")
    assert (tmp_path / "b.zip").stat().st_size < 10**4
    size = 10**6 + (tmp_path / "made" / SUMS).stat().st_size
    with pytest.raises(UserError, match=rf"holds {size:,} bytes, expected at most {size - 1:,}, as --most-gb says"):
        unpack(tmp_path / "b.zip", tmp_path / "small", size - 1)
    unpack(tmp_path / "b.zip", tmp_path / "large", size)
    assert (tmp_path / "large" / "zeros").stat().st_size == 10**6
