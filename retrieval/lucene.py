"""BM25 over a Lucene index, through Anserini's `SimpleSearcher`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from indexing.java import detach_thread, java_class
from indexing.lucene import open_reader
from indexing.types import Tick
from retrieval.types import Rankings, ranked

K1 = 0.9
B = 0.4
CHUNK = 32
MOST_WORDS = 65_536
"""Distinct words of a query; Lucene itself refuses more than 1,024."""


class LuceneSearcher:
    """A Lucene index opened for BM25 with k1=0.9, b=0.4 and Anserini's English analyzer."""

    def __init__(self, folder: Path) -> None:
        self._reader = open_reader(folder)
        self._searcher = java_class("io.anserini.search.SimpleSearcher")(str(folder))
        self._searcher.set_bm25(K1, B)
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_WORDS)
        self._analysis = java_class("io.anserini.analysis.AnalyzerUtils")
        self._analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()

    def search(
        self, query_ids: Sequence[str], texts: Sequence[str], depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """The top `depth` documents of each query by BM25; ties by document id."""
        array_list = java_class("java.util.ArrayList")
        docs, scores = [], []
        for start in range(0, len(texts), CHUNK):
            chunk = range(start, min(start + CHUNK, len(texts)))
            java_texts, java_ids = array_list(), array_list()
            for i in chunk:
                java_texts.add(texts[i])
                java_ids.add(str(i))
            found = self._searcher.batch_search(java_texts, java_ids, depth, threads)
            for i in chunk:
                hits = found.get(str(i)) or ()
                docs.append(np.array([int(hit.docid) for hit in hits], dtype=np.int32))
                scores.append(np.array([hit.score for hit in hits], dtype=np.float32))
            tick(len(chunk))
        detach_thread()
        return ranked(query_ids, docs, scores, depth)

    def document_frequency(self, word: str) -> int:
        """In how many documents the stem of a word occurs; 0 for a stop word."""
        stems = self._analysis.analyze(self._analyzer, word)
        if stems.size() != 1:
            return 0
        return int(self._reader.docFreq(java_class("org.apache.lucene.index.Term")("contents", stems.get(0))))
