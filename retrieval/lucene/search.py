"""BM25 over a Lucene index that Keystone, Pyserini or Anserini built, by Lucene's own `IndexSearcher`.

A batch of queries takes a few calls from Python to Java, none per query or hit. The threads are Java's, because only
one Python thread at a time may call Java. Keystone composes their work from method handles (`java.lang.invoke`). Java
compiles these like any code, so Keystone neither builds nor ships Java classes.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.java import (
    JAVA_LOCK,
    call,
    class_of,
    handle_of,
    handles,
    java_class,
    java_error,
    lookup,
    path_of,
    privileged_lookup,
    type_of,
)
from keystone.indexing.lucene.postings import open_postings
from keystone.indexing.lucene.read import LuceneRows
from keystone.indexing.lucene.write import CONTENTS_FIELD, explain_failure, make_analyzer, open_reader
from keystone.indexing.types import Store, Tick
from keystone.retrieval.backends import Sparse
from keystone.retrieval.languages import LanguageSearcher, LanguagesSearcher
from keystone.retrieval.lucene.postings import CHUNK_QUERIES, MOST_WORDS, PostingsSearcher, refuse_long_query
from keystone.retrieval.ties import SPARE_HITS, search_past_ties
from keystone.retrieval.types import BM25, Bm25, Columns, Queries, Rankings, offsets_of, ranked

KEPT_SEARCHERS = 8
"""The searchers, one for each index and each k1 and b, that stay open."""
KEPT_SEARCHES = 16
"""The handles of batches, one for each depth, that a searcher keeps."""


def open_sparse(index: Index, _store: Store, bm25: Bm25) -> Sparse:
    """Open the BM25 search of an index folder that holds its own postings. `UserError` if they are damaged.

    The mapped postings of the index are searched. Lucene searches an index of an older version, which has none. If the
    index has several languages, each is searched, and `LanguagesSearcher` fuses their rankings.
    """
    found = [_open_language(one, bm25) for one in index.list_languages()]
    return LanguagesSearcher(found) if index.languages and not index.language_part else found[0]


def _open_language(index: Index, bm25: Bm25) -> Sparse:
    """Open the search of an index in one language, or of the documents in one language of an index in several."""
    if index.parts is not None:
        searcher = _open_held(index, bm25)
    elif index.postings.is_dir():
        files = _describe_files(index.postings)
        searcher = _open_postings_searcher(index.postings.absolute(), files, bm25, index.language)
    else:
        searcher = open_searcher(index.lucene, bm25, index.language)
    if not index.language_part:
        return searcher
    return LanguageSearcher(searcher, index.take("rows", lambda: np.load(index.term_folder / "rows.npy")))


def _open_held(index: Index, bm25: Bm25) -> Sparse:
    """Open a search as `open_sparse` does, over postings or a reader of Lucene's that stay open with the index."""
    if index.take("has postings", index.postings.is_dir):
        postings = index.take("postings", lambda: open_postings(index.postings))
        make = partial(PostingsSearcher, postings, language=index.language)
        return index.take("postings searchers", lambda: lru_cache(KEPT_SEARCHERS)(make))(bm25)
    with JAVA_LOCK:
        reader = index.take("reader", lambda: open_reader(index.lucene))
        over = partial(LuceneSearcher, index.lucene, reader=reader, language=index.language)
        return index.take("searchers", lambda: lru_cache(KEPT_SEARCHERS)(over))(bm25)


class LuceneSearcher(Sparse):
    """BM25 with Anserini's analyzer for a language over the Lucene index in a folder.

    Rankings hold Lucene's document numbers, which are rows if `build_lucene` made the index. A `reader` of the index
    that is open already serves several searchers. `UserError` if Lucene cannot read the index.
    """

    def __init__(self, folder: Path, bm25: Bm25 = BM25, reader: Any = None, language: str = DEFAULT_LANGUAGE) -> None:
        self._language = language
        self._folder, self._reader = folder, open_reader(folder) if reader is None else reader
        self._searcher = java_class("org.apache.lucene.search.IndexSearcher")(self._reader)
        similarity = java_class("org.apache.lucene.search.similarities.BM25Similarity")(bm25.k1, bm25.b)
        self._searcher.setSimilarity(similarity)
        self._searcher.setQueryCache(None)
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        generator, query = "io.anserini.search.query.BagOfWordsQueryGenerator", "Lorg/apache/lucene/search/Query;"
        parse = f"(Ljava/lang/String;Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;){query}"
        self._parse = handle_of(
            generator, "buildQuery", parse, java_class(generator)(), CONTENTS_FIELD, make_analyzer(language)
        )
        find = f"({query}I)Lorg/apache/lucene/search/TopDocs;"
        self._find = handle_of("org.apache.lucene.search.IndexSearcher", "search", find, self._searcher)
        self._open_batch_search = lru_cache(KEPT_SEARCHES)(self._make_batch_search)

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` by BM25; ties by number. `UserError` for damage, and beyond `MOST_WORDS`."""
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
                refuse_long_query(query_id, {*self.stems(query)} if are_texts else query)
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
        return stems_of(text, self._language)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""
        with JAVA_LOCK:
            return [int(self._reader.docFreq(self._term(stem))) for stem in stems]

    def _term(self, stem: str) -> Any:
        return java_class("org.apache.lucene.index.Term")(CONTENTS_FIELD, stem)


def open_searcher(folder: Path, bm25: Bm25, language: str = DEFAULT_LANGUAGE) -> LuceneSearcher:
    """Open a Lucene search, or take the open one if no file has changed. `UserError` if Lucene cannot read it."""
    with JAVA_LOCK:
        return _open_searcher(folder.absolute(), _describe_files(folder), bm25, language)


def open_attached(index: Index, _store: Store, bm25: Bm25) -> Sparse:
    """Open BM25 over the Lucene index that a folder names. `UserError` if it has changed, or holds impacts."""
    from keystone.indexing.attached.lucene_index import ROWS, lucene_folder  # which imports all forms of corpora

    if index.impacts:
        name = next(iter(index.impacts))
        raise UserError(
            f"{index.folder}: found impacts in place of the terms of BM25, expected systems of the kind impact alone: "
            f"set retrieval.systems to {{{name}: {{kind: impact, impacts: {name}}}}}, "
            "queries.topic: lead and queries.variants: 0"
        )
    return PrebuiltSearcher(lucene_folder(index), LuceneRows(index.folder / ROWS), bm25)


class PrebuiltSearcher:
    """BM25 with Anserini's English analyzer over a Lucene index of others; `rows` translates its document numbers."""

    def __init__(self, folder: Path, rows: LuceneRows, bm25: Bm25 = BM25) -> None:
        self._rows, self._searcher = rows, open_searcher(folder, bm25)
        self.stems = self._searcher.stems
        self.stem_frequencies = self._searcher.stem_frequencies
        self.document_frequencies = self._searcher.document_frequencies

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` documents of each query by BM25; ties by document id."""

        def find(places: Sequence[int], wanted: int) -> list[Columns]:
            first_tick = tick if wanted == depth + SPARE_HITS else lambda _: None
            asked: Any = [queries[place] for place in places]
            with JAVA_LOCK:
                hits = self._searcher.search([query_ids[place] for place in places], asked, wanted, threads, first_tick)
            rows = self._rows.rows(hits.docs)
            return [(rows[start:end], hits.scores[start:end]) for start, end in pairwise(hits.offsets.tolist())]

        hits = search_past_ties(find, len(queries), depth)
        return ranked(query_ids, [rows for rows, _ in hits], [scores for _, scores in hits], depth)


@lru_cache(KEPT_SEARCHERS)
def _open_postings_searcher(
    folder: Path, _files: tuple[tuple[str | int, ...], ...], bm25: Bm25, language: str
) -> PostingsSearcher:
    return PostingsSearcher(open_postings(folder), bm25, language)


@lru_cache(KEPT_SEARCHERS)
def _open_searcher(
    folder: Path, _files: tuple[tuple[str | int, ...], ...], bm25: Bm25, language: str
) -> LuceneSearcher:
    return LuceneSearcher(folder, bm25, language=language)


def _describe_files(folder: Path) -> tuple[tuple[str | int, ...], ...]:
    """Describe each file of an index: another index in the same place, or a damaged file, has another description."""
    with suppress(OSError), os.scandir(folder) as files:
        found = [(file.name, file.stat()) for file in files]
        return tuple(sorted((name, own.st_ino, own.st_size, own.st_mtime_ns) for name, own in found))
    return ()


_LUCENE = "org.apache.lucene.search."
_OBJECT, _OBJECTS = "Ljava/lang/Object;", "[Ljava.lang.Object;"


def make_batch_search(find: Any) -> Any:
    """Make the handle `(list of queries) -> array of {docs, scores}`, which searches them in parallel.

    `find` is a handle from a query, which is a text or a Java object, to its `TopDocs`. Java compiles a handle after
    some calls, so a caller keeps it for further batches.
    """
    of, stream = handles(), "java.util.stream.Stream"
    function = _as_interface("java.util.function.Function").bindTo(of.filterReturnValue(find, _columns()))
    kept = java_class("java.util.concurrent.atomic.AtomicReference")()
    keep = handle_of("java.util.concurrent.atomic.AtomicReference", "set", f"({_OBJECT})V", kept)
    call(of.filterReturnValue(function, keep.asType(type_of("(Ljava/util/function/Function;)V"))))
    mapped = handle_of(stream, "map", f"(Ljava/util/function/Function;)L{path_of(stream)};")
    again = handle_of("java.util.concurrent.atomic.AtomicReference", "get", f"(){_OBJECT}", kept)
    again = again.asType(type_of("()Ljava/util/function/Function;"))
    mapped = of.collectArguments(mapped, 1, again)
    opened = handle_of("java.util.Collection", "parallelStream", f"()L{path_of(stream)};")
    gathered = handle_of(stream, "toArray", f"()[{_OBJECT}")
    return of.filterReturnValue(of.filterReturnValue(opened, mapped), gathered)


def search_columns(search: Any, queries: Sequence[Any], threads: int) -> list[Columns]:
    """Search in threads of Java by a handle of `make_batch_search`; best hits first. Java's errors pass through."""
    asked = java_class("java.util.Arrays").asList(*queries)
    hits = call(_submitted(), _pool(threads), handles().insertArguments(search, 0, asked)).get()
    return [(np.array(docs, dtype=np.int32), np.array(scores, dtype=np.float32)) for docs, scores in hits]


@cache
def _pool(threads: int) -> Any:
    return java_class("java.util.concurrent.ForkJoinPool")(threads)


def _as_interface(name: str) -> Any:
    """Make a handle that makes objects of an interface of handles, since Python has no class that Java knows."""
    made = privileged_lookup().findStatic(
        class_of("java.lang.invoke.MethodHandleProxies"),
        "asInterfaceInstance",
        type_of("(Ljava/lang/Class;Ljava/lang/invoke/MethodHandle;)Ljava/lang/Object;"),
    )
    return made.bindTo(class_of(name)).asType(type_of(f"(Ljava/lang/invoke/MethodHandle;)L{path_of(name)};"))


@cache
def _submitted() -> Any:
    """Make the handle `(pool, handle) -> task` that runs a handle in the pool."""
    task = "(Ljava/util/concurrent/Callable;)Ljava/util/concurrent/ForkJoinTask;"
    submitted = handle_of("java.util.concurrent.ForkJoinPool", "submit", task)
    return handles().filterArguments(submitted, 1, _as_interface("java.util.concurrent.Callable"))


@cache
def _columns() -> Any:
    """Make the handle `TopDocs -> {docs, scores}`."""
    pair = handles().identity(class_of(_OBJECTS)).asCollector(class_of(_OBJECTS), 2)
    pair = pair.asType(type_of("([I[F)[Ljava/lang/Object;"))
    both = handles().filterArguments(pair, 0, _column("doc", "Integer", "I"), _column("score", "Float", "F"))
    return handles().permuteArguments(both, type_of(f"(L{path_of(_LUCENE)}TopDocs;)[Ljava/lang/Object;"), 0, 0)


def _column(field: str, boxed: str, code: str) -> Any:
    """Make the handle `TopDocs -> array` of one field of its hits: `for i: array[i] = hits[i].field`."""
    of = handles()
    hit, hits, array = class_of(_LUCENE + "ScoreDoc"), class_of(f"[L{_LUCENE}ScoreDoc;"), class_of(f"[{code}")

    def body_type(result: str) -> Any:
        return type_of(f"([{code}I[L{path_of(_LUCENE)}ScoreDoc;){result}")

    primitive = java_class(f"java.lang.{boxed}").TYPE
    value = of.filterReturnValue(of.arrayElementGetter(hits), lookup().findGetter(hit, field, primitive))
    assign = of.collectArguments(of.arrayElementSetter(array), 2, value)
    same_array = of.permuteArguments(of.identity(array), body_type(f"[{code}"), 0)
    body = of.foldArguments(same_array, of.permuteArguments(assign, body_type("V"), 0, 1, 2, 1))
    length = of.arrayLength(hits)
    loop = of.countedLoop(length, of.filterReturnValue(length, of.arrayConstructor(array)), body)
    return of.filterReturnValue(lookup().findGetter(class_of(_LUCENE + "TopDocs"), "scoreDocs", hits), loop)
