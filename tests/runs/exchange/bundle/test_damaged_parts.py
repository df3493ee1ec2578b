"""Headers of arrays are checked against the size of their file, and bundles against a limit, before memory is taken."""

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import map_array
from keystone.runs.exchange.bundle.parts import KEYS, SUMS, VECTORS, load_vectors, pack, save_vectors, unpack
from tests.support.mutation import mutate

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
