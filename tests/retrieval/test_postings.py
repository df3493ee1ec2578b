"""BM25 over mapped postings: Lucene's ranking to the last tie, and postings that are damaged."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.analyzer import _SEPARATORS, find_lucene_stems, find_stems, stems_of
from keystone.indexing.lucene.postings import Postings, open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.lucene.postings import RANGE_DOCUMENTS, PostingsSearcher, compile_loops
from keystone.retrieval.lucene.search import LuceneSearcher
from keystone.retrieval.types import BM25, Bm25, Rankings
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS

WORDS = ["bee", "hive", "honey", "queen", "worker", "wasp", "ice", "é", "x1"]


def assert_equal(ours: Rankings, theirs: Rankings) -> None:
    assert ours.offsets.tolist() == theirs.offsets.tolist()
    assert ours.docs.tolist() == theirs.docs.tolist()
    assert ours.scores.tobytes() == theirs.scores.tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Lucene index and its postings: texts of 0 to 700 words, many equal, one word more than 255 times in a text."""
    random, folder = np.random.default_rng(7), tmp_path_factory.mktemp("postings")
    counts = [*random.integers(0, 12, 900), 0, 1, 40, 41, 700, 700]
    texts = [" ".join(random.choice(WORDS, count)) for count in counts] + ["bee " * 300]
    build_lucene((Document(f"d{row:04d}", text) for row, text in enumerate(texts)), folder / "lucene")
    write_postings(folder / "lucene", folder / "postings")
    return folder


PARAMETERS = [
    *(BM25, Bm25(1.2, 0.75), Bm25(0.0, 0.4), Bm25(100.0, 1.0), Bm25(3.0, 0.0)),
    *(Bm25(2e7, 1.0), Bm25(1e9, 0.4)),  # some scores, and all of them, are 0 in single precision
]


@pytest.fixture(params=["compiled", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search with compiled loops, or as a process does that has not loaded Numba."""
    compile_loops()
    if request.param == "plain":
        monkeypatch.delitem(sys.modules, "numba")


@pytest.mark.slow
@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("bm25", PARAMETERS, ids=str)
def test_the_ranking_is_lucenes_to_the_last_tie(folder: Path, bm25: Bm25) -> None:
    random = np.random.default_rng(3)
    ours = PostingsSearcher(open_postings(folder / "postings"), bm25)
    theirs = LuceneSearcher(folder / "lucene", bm25)
    texts = [" ".join(random.choice([*WORDS, "unknown"], random.integers(0, 9))) for _ in range(200)]
    weighted = [{word: float(random.random()) + 1e-3 for word in random.choice(WORDS, 4).tolist()} for _ in range(200)]
    ids = [str(number) for number in range(200)]
    for depth in (1, 10, 1000):
        for queries in (texts, weighted, texts):  # at last, the weights of postings are kept
            assert_equal(ours.search(ids, queries, depth, threads=2), theirs.search(ids, queries, depth, threads=2))


@pytest.mark.slow
def test_an_index_of_several_ranges_has_lucenes_ranking(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    words = [f"w{number}" for number in range(300)]
    chosen = random.zipf(1.3, (2 * RANGE_DOCUMENTS + 999, 8)) % 300
    texts = (" ".join(words[place] for place in places) for places in chosen.tolist())
    build_lucene((Document(f"{row:07d}", text) for row, text in enumerate(texts)), tmp_path / "lucene")
    write_postings(tmp_path / "lucene", tmp_path / "postings")
    queries = [" ".join(random.choice(words, count)) for count in range(1, 41)]
    ours, theirs = PostingsSearcher(open_postings(tmp_path / "postings")), LuceneSearcher(tmp_path / "lucene")
    for depth in (1, 100, 1000, 70_000):
        assert_equal(ours.search(queries, queries, depth), theirs.search(queries, queries, depth, threads=2))


def test_a_guess_of_the_least_score_loses_no_document_of_a_later_range() -> None:
    """Five documents of the first range are found before the best ones, all of which are in the sample."""
    compile_loops()
    best, next_best = RANGE_DOCUMENTS + 128 * np.arange(8), RANGE_DOCUMENTS + 1001 + 2 * np.arange(100)
    rows = np.concatenate([np.arange(5), best, next_best]).astype(np.int32)
    frequencies = np.repeat(np.array([1, 5, 3], np.uint8), [5, 8, 100])
    lengths, ends = np.full(2 * RANGE_DOCUMENTS, 10, np.uint8), np.array([0, 3])
    postings = Postings(
        Path(), np.frombuffer(b"bee", np.uint8), ends, np.array([0, len(rows)]), rows, frequencies, lengths,
        len(lengths), 10 * len(lengths),
    )  # fmt: skip
    for array in (ends, postings.offsets, rows, frequencies, lengths):
        array.flags.writeable = False  # as mapped files are
    found = PostingsSearcher(postings).search(["1"], [{"bee": 1.0}], 10)
    assert found.docs.tolist() == [*best, *next_best[:2]]


@pytest.mark.usefixtures("loops")
def test_words_are_counted_as_lucene_counts_them(index: Index) -> None:
    ours, theirs = PostingsSearcher(open_postings(index.postings)), LuceneSearcher(index.lucene)
    words = ["", "the", *{word for _, text in CORPUS.values() for word in text.split()}, "zebra", "two words"]
    assert ours.document_frequencies(words) == theirs.document_frequencies(words)
    stems = [stem for word in words for stem in stems_of(word)]
    assert ours.stem_frequencies(stems) == theirs.stem_frequencies(stems)
    assert ours.stem_frequencies([]) == []


def test_an_index_without_postings_is_searched_by_lucene(index: Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "old")
    shutil.rmtree(tmp_path / "old/postings")
    old = replace(index, folder=tmp_path / "old")
    searchers = open_sparse(index, open_store(index)), open_sparse(old, open_store(old))
    assert [type(searcher) for searcher in searchers] == [PostingsSearcher, LuceneSearcher]
    ours, theirs = (searcher.search(["1"], ["honey bees"], 5) for searcher in searchers)
    assert_equal(ours, theirs)


def test_a_score_is_0_only_for_long_documents_or_a_large_k1(folder: Path) -> None:
    postings = open_postings(folder / "postings")
    longest = replace(postings, lengths=np.full_like(postings.lengths, 175))
    parameters = [Bm25(0.9, 1.0), Bm25(100.0, 0.0), Bm25(100.0, 1.0), Bm25(1e9, 0.0)]
    assert [PostingsSearcher(longest, one).ranks_all for one in parameters] == [True, True, False, False]


def test_neither_java_nor_numba_is_loaded_for_a_search(index: Index) -> None:
    code = (
        "import sys; from pathlib import Path; from keystone.indexing.index import open_index; "
        "from keystone.retrieval.backends import open_sparse, open_store; "
        f"index = open_index(Path({str(index.folder)!r})); "
        "found = open_sparse(index, open_store(index)).search(['1'], ['Honey bees’ dances — where?'], 5); "
        "assert len(found.docs); assert not {'jnius', 'numba'} & set(sys.modules)"
    )
    programs.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["terms", "term_ends.npy", "offsets.npy", "rows.npy", "lengths.npy", "counts.json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "changed"])
def test_damaged_postings_are_named(folder: Path, tmp_path: Path, name: str, damage: str) -> None:
    shutil.copytree(folder / "postings", tmp_path / "postings")
    file = tmp_path / "postings" / name
    content = file.read_bytes()
    file.unlink()
    if damage != "gone":
        changed = {"empty": b"", "cut": content[:-1], "changed": content[:-1] + bytes([content[-1] ^ 1])}
        file.write_bytes(changed[damage])
    with pytest.raises(UserError, match=r"postings.*: build the index again"):
        open_postings(tmp_path / "postings")


@pytest.mark.usefixtures("loops")
def test_rows_out_of_range_are_noticed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder / "postings", tmp_path / "postings")
    rows = np.load(tmp_path / "postings/rows.npy")
    monkeypatch.setattr("keystone.indexing.lucene.postings.CHECKED_BYTES", 0)
    for damaged in (rows + 10_000, rows - 10_000, np.full_like(rows, -1)):
        np.save(tmp_path / "postings/rows.npy", damaged)
        for queries, bm25 in ((["honey bee"], BM25), (["honey bee"] * 900, BM25), (["honey bee"], Bm25(1e9, 0.4))):
            with pytest.raises(UserError, match="not in order: build the index again"):
                PostingsSearcher(open_postings(tmp_path / "postings"), bm25).search(queries, queries, 10)


PIECES = st.one_of(
    st.sampled_from(
        ["'s", "’s", "ing", "ed", "ies", "ational", "bli", "logi", "ement", "_", ".", ":", ",", ";", "-", " "]
    ),
    st.text("abeioyszlnt0189' ’:.,;_-/@ÀéßªºµSA\t\n“”–—…", max_size=8),
    st.text("x1_'\xa0\u2003\u2011•‥‰※€₿←↓∀⋿─▩", max_size=8),
    st.text(max_size=3),
)


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_stems_are_those_of_lucenes_analyzer(text: str) -> None:
    assert find_stems(text) in (None, find_lucene_stems(text))


def test_marks_separate_words_as_in_lucene() -> None:
    marks = re.findall(f"[{_SEPARATORS}]", "".join(map(chr, range(0xA0, 0x3000))))
    assert len(marks) > 500
    form = "{0} x{0}y 1{0}2 x{0}1 x{0}{0}y _x{0}_y 1{0}x {0}x{0}"
    text = " ".join(map(form.format, marks))
    assert find_stems(text) == find_lucene_stems(text) == "x y 1 2 x 1 x y _x _y 1 x x".split() * len(marks)


def test_an_index_without_a_word_has_postings(tmp_path: Path) -> None:
    build_lucene([Document("a", "the"), Document("b", "")], tmp_path / "lucene")
    write_postings(tmp_path / "lucene", tmp_path / "postings")
    found = PostingsSearcher(open_postings(tmp_path / "postings")).search(["1"], ["the honey"], 5)
    assert found.docs.tolist() == []
