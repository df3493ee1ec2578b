"""BM25 over a Lucene index that Keystone built, by Lucene's own `IndexSearcher`."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.index import Index
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.java import JAVA_LOCK, java_class, java_error
from keystone.indexing.lucene.method_handles import handle_of
from keystone.indexing.lucene.postings import open_postings
from keystone.indexing.lucene.write import CONTENTS_FIELD, explain_failure, make_analyzer, open_reader
from keystone.indexing.types import Store, Tick
from keystone.retrieval.backends import Sparse
from keystone.retrieval.lucene.postings import CHUNK_QUERIES, MOST_WORDS, PostingsSearcher, refuse_long_query
from keystone.retrieval.lucene.top_docs import make_batch_search, search_columns
from keystone.retrieval.types import BM25, Bm25, Columns, Rankings, offsets_of

KEPT_SEARCHERS = 8
"""The searchers, one for each index and each k1 and b, that stay open."""
KEPT_SEARCHES = 16
"""The handles of batches, one for each depth, that a searcher keeps."""


def open_sparse(index: Index, _store: Store, bm25: Bm25) -> Sparse:
    """Open the BM25 search of an index folder that holds its own Lucene index. `UserError` if it is damaged.

    The mapped postings of the index are searched. Lucene searches an index without them, and a few others: those in
    which `bm25` gives no score above 0 to a document that holds a word of the query.
    """
    if index.postings.is_dir():
        searcher = _open_postings_searcher(index.postings.absolute(), _describe_files(index.postings), bm25)
        if searcher.ranks_all:
            return searcher
    return open_searcher(index.lucene, bm25)


class LuceneSearcher:
    """BM25 with Anserini's English analyzer over the Lucene index in a folder.

    Rankings hold Lucene's document numbers, which are rows if `build_lucene` made the index. `UserError` if Lucene
    cannot read the index.
    """

    def __init__(self, folder: Path, bm25: Bm25 = BM25) -> None:
        self._folder, self._reader = folder, open_reader(folder)
        self._searcher = java_class("org.apache.lucene.search.IndexSearcher")(self._reader)
        similarity = java_class("org.apache.lucene.search.similarities.BM25Similarity")(bm25.k1, bm25.b)
        self._searcher.setSimilarity(similarity)
        self._searcher.setQueryCache(None)
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        generator, query = "io.anserini.search.query.BagOfWordsQueryGenerator", "Lorg/apache/lucene/search/Query;"
        parse = f"(Ljava/lang/String;Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;){query}"
        self._parse = handle_of(
            generator, "buildQuery", parse, java_class(generator)(), CONTENTS_FIELD, make_analyzer()
        )
        find = f"({query}I)Lorg/apache/lucene/search/TopDocs;"
        self._find = handle_of("org.apache.lucene.search.IndexSearcher", "search", find, self._searcher)
        self._open_batch_search = lru_cache(KEPT_SEARCHES)(self._make_batch_search)

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """Rank the top `depth` documents of each query by BM25; ties by document number, ascending.

        A query is a text, or a mapping from stems to weights. `UserError` if the index is damaged, and for a query
        of more than `MOST_WORDS` distinct words.
        """
        found: list[Columns] = []
        for start in range(0, len(queries), CHUNK_QUERIES * threads):
            places = slice(start, start + CHUNK_QUERIES * threads)
            with JAVA_LOCK:
                found += self._search_chunk(query_ids[places], queries[places], depth, threads)
            tick(len(queries[places]))
        docs, scores = [own for own, _ in found], [own for _, own in found]
        return Rankings(
            tuple(query_ids),
            offsets_of([len(found) for found in docs]),
            np.concatenate([*docs, np.empty(0, np.int32)]),
            np.concatenate([*scores, np.empty(0, np.float32)]),
        )

    def _search_chunk(
        self, query_ids: Sequence[str], queries: Sequence[Any], depth: int, threads: int
    ) -> list[Columns]:
        are_texts = all(isinstance(query, str) for query in queries)
        asked = queries if are_texts else [self._weighted(query) for query in queries]
        try:
            return search_columns(self._open_batch_search(depth, are_texts), asked, threads)
        except java_error() as error:
            for query_id, query in zip(query_ids, queries, strict=True):
                refuse_long_query(query_id, {*stems_of(query)} if are_texts else query)
            if why := explain_failure(self._folder, error, self._reader):
                raise why from error
            raise

    def _make_batch_search(self, depth: int, are_texts: bool) -> Any:
        handles = java_class("java.lang.invoke.MethodHandles")
        find = handles.insertArguments(self._find, 1, java_class("java.lang.Integer")(depth))
        return make_batch_search(handles.filterReturnValue(self._parse, find) if are_texts else find)

    def _weighted(self, query: Mapping[str, float]) -> Any:
        either = java_class("org.apache.lucene.search.BooleanClause$Occur").SHOULD
        builder = java_class("org.apache.lucene.search.BooleanQuery$Builder")()
        for stem, weight in query.items():
            term = java_class("org.apache.lucene.search.TermQuery")(self._term(stem))
            builder.add(java_class("org.apache.lucene.search.BoostQuery")(term, weight), either)
        return builder.build()

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, as the index holds them."""
        return stems_of(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""
        with JAVA_LOCK:
            return [int(self._reader.docFreq(self._term(stem))) for stem in stems]

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Count the documents that hold the stem of each word; 0 for a stop word."""
        found = [stems_of(word) for word in words]
        return [self.stem_frequencies(stems)[0] if len(stems) == 1 else 0 for stems in found]

    def _term(self, stem: str) -> Any:
        return java_class("org.apache.lucene.index.Term")(CONTENTS_FIELD, stem)


def open_searcher(folder: Path, bm25: Bm25) -> LuceneSearcher:
    """Open the search of a Lucene index, or take the one that is open: for equal settings, unless a file has changed.

    `UserError` if Lucene cannot read the index.
    """
    with JAVA_LOCK:
        return _open_searcher(folder.absolute(), _describe_files(folder), bm25)


@lru_cache(KEPT_SEARCHERS)
def _open_postings_searcher(folder: Path, _files: tuple[tuple[str | int, ...], ...], bm25: Bm25) -> PostingsSearcher:
    return PostingsSearcher(open_postings(folder), bm25)


@lru_cache(KEPT_SEARCHERS)
def _open_searcher(folder: Path, _files: tuple[tuple[str | int, ...], ...], bm25: Bm25) -> LuceneSearcher:
    return LuceneSearcher(folder, bm25)


def _describe_files(folder: Path) -> tuple[tuple[str | int, ...], ...]:
    """Describe each file of an index: another index in the same place, or a damaged file, has another description."""
    with suppress(OSError), os.scandir(folder) as files:
        found = [(file.name, file.stat()) for file in files]
        return tuple(sorted((name, own.st_ino, own.st_size, own.st_mtime_ns) for name, own in found))
    return ()
