"""Postings of an updated index have the bytes of those that a new Lucene index has."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.lucene import changed_postings
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.changed_postings import encode_length, update_postings
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.postings import open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from tests.support.indexes.small_corpus import read_contents
from tests.support.mutation import FUZZ_CASES

WORDS = ["bee", "beehive", "hive", "Hives", "honey", "the", "Ωmega", "é", "日本", "🐝", "x1", "3.14", "zz", "a" * 300]


def draw(choose: random.Random) -> str:
    """A text, which may be empty, or hold a word so often that a byte does not count it."""
    often = choose.choice([0] * 20 + [254, 255, 256, 70_000])
    return " ".join(choose.choices(WORDS, k=choose.choice([0, 1, 2, 9, 60])) + ["bee"] * often)


def build(texts: Mapping[str, str], folder: Path) -> Path:
    """The postings of documents, by Lucene."""
    folder.mkdir()
    build_lucene((Document(name, texts[name]) for name in sorted(texts)), folder / "lucene")
    write_postings(folder / "lucene", folder / "postings")
    return folder / "postings"


def update(before: Mapping[str, str], after: Mapping[str, str], older: Path, folder: Path) -> Path:
    places = {name: row for row, name in enumerate(sorted(before))}
    names = sorted(after)
    stayed = [places[name] if before.get(name) == after[name] else -1 for name in names]
    rows = [row for row, place in enumerate(stayed) if place < 0]
    stems = (stems_of(Document(names[row], after[names[row]]).contents) for row in rows)
    update_postings(open_postings(older), np.array(stayed), np.array(rows, np.int64), stems, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100 if FUZZ_CASES else 16))
def test_any_sequence_of_changes_ends_in_lucenes_postings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    choose = random.Random(number)
    monkeypatch.setattr(changed_postings, "CHUNK_POSTINGS", choose.choice([1, 7, 1 << 20]))
    texts = {f"d{choose.randint(0, 99)}": draw(choose) for _ in range(choose.choice([1, 5, 30]))}
    made = build(texts, tmp_path / "first")
    for turn in range(3):
        names = choose.sample(sorted(texts), choose.randint(0, len(texts)))
        after = {name: text for name, text in texts.items() if name not in names[::2]}
        after |= {name: draw(choose) for name in names[1::2]}
        after |= {f"d{choose.randint(0, 99)}": draw(choose) for _ in range(choose.choice([1, 2, 9]))}
        made, texts = update(texts, after, made, tmp_path / f"updated-{turn}"), after
        expected = build(texts, tmp_path / f"fresh-{turn}")
        assert read_contents(made, ["."]) == read_contents(expected, ["."])


def test_lengths_have_lucenes_bytes() -> None:
    encode = java_class("org.apache.lucene.util.SmallFloat").intToByte4
    lengths = [*range(3_000), *(2**power + more for power in range(12, 31) for more in (-1, 0, 1, 12_345))]
    assert [encode_length(length) for length in lengths] == [encode(length) & 0xFF for length in lengths]


def test_rows_that_are_no_documents_are_damage(tmp_path: Path) -> None:
    older = open_postings(build({"a": "bee", "b": "hive"}, tmp_path / "first"))
    damaged = replace(older, rows=older.rows + 9)
    with pytest.raises(UserError, match="damaged postings: build the index again"):
        update_postings(damaged, np.array([0, 1]), np.array([], np.int64), [], tmp_path / "made")
