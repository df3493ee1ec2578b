"""BM25 over a Lucene index, by Lucene's own `IndexSearcher`."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from indexing.java import detach_thread, java_class
from indexing.lucene import CONTENTS, analyzer, open_reader
from indexing.types import Tick
from retrieval.top_docs import columns
from retrieval.types import Rankings, offsets_of

K1 = 0.9
B = 0.4
MOST_WORDS = 65_536
"""Distinct words of a query; Lucene itself refuses more than 1,024."""


class LuceneSearcher:
    """A Lucene index made by `build_lucene`, opened for BM25 with k1=0.9, b=0.4 and Anserini's English analyzer."""

    def __init__(self, folder: Path) -> None:
        self._reader = open_reader(folder)
        self._searcher = java_class("org.apache.lucene.search.IndexSearcher")(self._reader)
        self._searcher.setSimilarity(java_class("org.apache.lucene.search.similarities.BM25Similarity")(K1, B))
        self._searcher.setQueryCache(None)
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        self._analyzer = analyzer()
        self._generator = java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self._analysis = java_class("io.anserini.analysis.AnalyzerUtils")

    def search(
        self, query_ids: Sequence[str], texts: Sequence[str], depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """The top `depth` documents of each query by BM25; ties by document id."""
        docs, scores = [np.empty(0, np.int32)] * len(texts), [np.empty(0, np.float32)] * len(texts)

        def work(first: int) -> None:
            for i in range(first, len(texts), threads):
                query = self._generator.buildQuery(CONTENTS, self._analyzer, texts[i])
                docs[i], scores[i] = columns(self._searcher.search(query, depth))
                tick(1)
            detach_thread()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        return Rankings(
            tuple(query_ids),
            offsets_of([len(found) for found in docs]),
            np.concatenate([*docs, np.empty(0, np.int32)]),
            np.concatenate([*scores, np.empty(0, np.float32)]),
        )

    def document_frequency(self, word: str) -> int:
        """In how many documents the stem of a word occurs; 0 for a stop word."""
        stems = self._analysis.analyze(self._analyzer, word)
        if stems.size() != 1:
            return 0
        return int(self._reader.docFreq(java_class("org.apache.lucene.index.Term")(CONTENTS, stems.get(0))))
