"""Java in this process: a fork of it is one error, and a reader that nobody uses is closed."""

import gc
import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import keystone
from keystone.indexing.index import Index
from keystone.indexing.lucene.java import JAVA_LOCK, java_instance
from keystone.indexing.lucene.postings import write_postings
from keystone.indexing.lucene.write import build_lucene, open_reader
from keystone.indexing.types import Document, Tick
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.types import Bm25
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow


def count_hits(folder: Path, methods: tuple[str, ...] = ("search", "answer")) -> list[str]:
    """What each method says in this process: the number of its results, or its error."""
    index, config = keystone.open_index(folder), keystone.configure(retrieval={"systems": ["bm25"]})
    topics = [keystone.Topic("1", "Who makes honey?")]
    found = []
    for method in methods:
        try:
            if method == "search":
                found.append(str(len(keystone.search(index, keystone.decompose(index, topics, config), config))))
            else:
                found.append(str(len(keystone.answer(index, topics, config))))
        except keystone.UserError as error:
            found.append(str(error))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python 3.12 and newer, which hears of Java's threads
@pytest.mark.parametrize("engine", ["postings", "lucene"])
def test_a_search_by_java_after_a_fork_is_one_error_that_says_spawn(index: Index, tmp_path: Path, engine: str) -> None:
    shutil.copytree(index.folder, tmp_path / "index")
    if engine == "lucene":
        shutil.rmtree(tmp_path / "index/postings")
    open_reader(index.lucene)
    here = count_hits(tmp_path / "index")
    assert here == ["1", "1"]
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            there = pool.apply_async(count_hits, [tmp_path / "index"]).get(LIMIT_S)
        if method == "spawn" or engine == "postings":
            assert there == here
        else:
            assert all("forked after Java had started" in error and "spawn" in error for error in there)
            assert not any("\n" in error for error in there)


def is_java_free() -> bool:
    """Whether another thread may call Java now."""

    def try_once() -> bool:
        if is_free := JAVA_LOCK.acquire(blocking=False):
            JAVA_LOCK.release()
        return is_free

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(try_once).result(LIMIT_S)


def test_an_index_that_is_written_keeps_other_threads_from_java(tmp_path: Path) -> None:
    free: list[bool] = []

    @contextmanager
    def progress(_name: str, _total: int | None) -> Iterator[Tick]:
        free.append(is_java_free())
        yield lambda _done: None

    build_lucene([Document("1", "bees")], tmp_path / "lucene", progress)
    write_postings(tmp_path / "lucene", tmp_path / "postings", progress)
    assert free == [False, False]


def test_equal_searches_share_a_searcher(index: Index) -> None:
    searchers = [open_sparse(index, open_store(index), Bm25(b=b)) for b in (0.4, 0.4, 0.5)]
    assert searchers[0] is searchers[1]
    assert searchers[0] is not searchers[2]


def test_a_reader_without_a_user_is_closed_by_the_next_opening(index: Index) -> None:
    kept, dropped = open_reader(index.lucene), open_reader(index.lucene)
    java = java_instance("org.apache.lucene.index.IndexReader", dropped)
    del dropped
    gc.collect()
    assert java.getRefCount() == 1
    open_reader(index.lucene)
    assert (java.getRefCount(), kept.getRefCount()) == (0, 1)
