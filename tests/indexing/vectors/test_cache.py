"""The cache of vectors: the vectors of each group of texts are made once, with any content of the file."""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.io import kept as kept_module
from keystone.indexing.types import MINILM, WORDS
from keystone.indexing.vectors.of_segments import open_cache

DIMENSION = 384
GROUPS = st.lists(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3), max_size=12)


def fill(path: Path, groups: Sequence[Sequence[str]]) -> tuple[list[Vectors], list[list[str]]]:
    """The vectors of the groups, which encode their letters, and the groups whose vectors were made."""
    made: list[list[str]] = []

    def make(missing: Sequence[int]) -> list[Vectors]:
        made.extend(list(groups[number]) for number in missing)
        return [vectors_of(groups[number]) for number in missing]

    with open_cache(path, MINILM) as cache:
        return cache.fill(groups, make), made


def vectors_of(texts: Sequence[str]) -> Vectors:
    return np.array([[float(ord(text))] * DIMENSION for text in texts], np.float32)


@pytest.mark.slow
@given(GROUPS, GROUPS)
def test_a_group_is_made_once_and_comes_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, first: list[list[str]], second: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("cache") / "v.sqlite"
    seen: set[tuple[str, ...]] = set()
    for groups in (first, second):
        found, made = fill(path, groups)
        assert [vectors.tolist() for vectors in found] == [vectors_of(texts).tolist() for texts in groups]
        assert list(map(tuple, made)) == [key for key in dict.fromkeys(map(tuple, groups)) if key not in seen]
        seen |= set(map(tuple, groups))


def test_threads_that_need_the_same_group_at_once_make_it_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make(missing: Sequence[int]) -> list[Vectors]:
        made.extend(missing)
        sleep(0.1)  # in which the others would begin
        return [vectors_of("a") for _ in missing]

    def use(_: int) -> list[Vectors]:
        with open_cache(tmp_path / "v.sqlite", MINILM) as cache:
            return cache.fill(["a"], make)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(use, range(4)))
    assert made == [0]
    assert all(np.array_equal(vectors, vectors_of("a")) for (vectors,) in found)


def test_a_model_that_asks_another_one_does_not_wait_for_itself(tmp_path: Path) -> None:
    """A bundle's stand-in for a model finds its vectors by the model of the index, in a thread of its own."""
    pool = ThreadPoolExecutor(1)

    def ask(_missing: Sequence[int]) -> list[Vectors]:
        return pool.submit(fill, tmp_path / "v.sqlite", [["a"]]).result(timeout=2)[0]

    with open_cache(tmp_path / "w.sqlite", WORDS) as cache:
        (found,) = cache.fill([["a"]], ask)
    pool.shutdown()
    assert np.array_equal(found, vectors_of("a"))


def test_more_keys_than_one_statement_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST_KEYS", 3)
    groups = [[letter] for letter in "abcdefgh"]
    fill(tmp_path / "v.sqlite", groups)
    found, made = fill(tmp_path / "v.sqlite", groups)
    assert made == []
    assert [vectors[0, 0] for vectors in found] == [float(ord(letter)) for letter in "abcdefgh"]


@pytest.mark.parametrize("change", ["content = zeroblob(length(content))", "content = x'00', sum = x'00'"])
def test_damaged_vectors_are_made_again(tmp_path: Path, change: str) -> None:
    path = tmp_path / "v.sqlite"
    fill(path, [["a"], ["b"]])
    with sqlite3.connect(path) as file:
        file.execute(f"UPDATE by_text SET {change}")
    found, made = fill(path, [["a"], ["b"]])
    assert made == [["a"], ["b"]]
    assert found[1].tolist() == vectors_of(["b"]).tolist()
    assert fill(path, [["a"], ["b"]])[1] == []


def test_a_file_that_is_no_cache_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(UserError, match=r"v\.sqlite: damaged: delete it"):
        fill(path, [["a"]])


def test_if_the_cache_cannot_be_written_vectors_are_made_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        assert fill(tmp_path / "missing" / "v.sqlite", [["a"]])[1] == [["a"]]
