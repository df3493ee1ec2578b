"""Searching OpenSearch beside a plain loop of `client.search`, and Keystone's fusion of ranks beside the cluster's.

Both fusions are compared with the exact answer: reciprocal rank fusion (k = 60) of the two whole rankings, of Lucene
and of all inner products. Up to version 3.4, the cluster's `score-ranker-processor` fuses the ranks of a document
within its shard, so its answer depends on the shards. Keystone fuses the ranks within the index.
"""

import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import opensearchpy
from numpy.typing import NDArray

from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.fusion.fuse import fuse_systems
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.index import Index
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.opensearch.analysis import CONTENTS
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import VECTOR, Target
from keystone.indexing.opensearch.load import Upload, load
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, Embedding
from keystone.indexing.vectors.shards import SHARD_DOCUMENTS, Shards
from keystone.retrieval.lucene.search import LuceneSearcher
from keystone.retrieval.opensearch.dense import QUERY_SCALE, OpenSearchDense
from keystone.retrieval.opensearch.sparse import OpenSearchSparse
from keystone.retrieval.types import Rankings, ranked
from tests.support.servers.opensearch import JARS, MAIN_VERSION, OLDER_VERSION, Cluster, call, start_cluster

PASSAGES, QUERIES, DEPTH = 20_000, 771, 1000
FUSED_QUERIES, DIMENSION = 100, 64
"""The queries of the comparison of fusions, and the dimension of its vectors."""
CUT_DEPTHS = (10, 100, 1000)
PIPELINE = "rrf"


def rows() -> list[Row]:
    """Time beside the loop, which has the target, and the share of the exact answer that each fusion finds."""
    if not (JARS / ".ready").exists():
        print("opensearch_search: OpenSearch is not set up: run `make test-opensearch`", file=sys.stderr)
        return []
    texts = read_passages(PASSAGES)
    query_texts = draw_questions(texts, QUERIES)
    with TemporaryDirectory() as folder:
        corpus = _Corpus(Path(folder), texts)
        return [*_compare_loop(corpus, query_texts), *_compare_fusions(corpus, query_texts[:FUSED_QUERIES])]


class _Corpus:
    """Passages as a store, as a Lucene index, and as vectors."""

    def __init__(self, folder: Path, texts: Sequence[str]) -> None:
        self.folder = folder
        build_store((Document(f"{row:07d}", text) for row, text in enumerate(texts)), folder / "store")
        self.store = DocumentStore(folder / "store")
        build_lucene(self.store, folder / "lucene")
        self.vectors = _make_vectors(texts)
        self.files = [folder / f"{start // SHARD_DOCUMENTS:08d}.npy" for start in range(0, len(texts), SHARD_DOCUMENTS)]
        for number, file in enumerate(self.files):
            np.save(file, self.vectors[number * SHARD_DOCUMENTS : (number + 1) * SHARD_DOCUMENTS])

    def loaded(self, server: Cluster, shards: int) -> Index:
        """Load the passages into an index of this number of shards."""
        name, meta = f"passages-{shards}", {"key": f"passages-{shards}", "faiss": "Flat"}
        place, note = place_of(f"{server.url}/{name}"), self.folder / f"{server.version}-{name}"
        load(Upload(Target(place, shards), meta, self.store, Shards(self.files, PASSAGES, 0), note))
        return Index(self.folder, name, Embedding(), PASSAGES, {}, 0, "Flat", place.at)


def _make_vectors(texts: Sequence[str]) -> Vectors:
    """A model that knows only words: random vectors of the stems, weighted by the square roots of their counts."""
    found = np.zeros((len(texts), DIMENSION))
    known: dict[str, NDArray[np.float64]] = {}
    for row, text in enumerate(texts):
        for stem, count in Counter(stems_of(text)).items():
            if stem not in known:
                known[stem] = np.random.default_rng(zlib.crc32(stem.encode())).normal(size=DIMENSION)
            found[row] += known[stem] * count**0.5
    return round_to_grid(found)


def _compare_loop(corpus: _Corpus, query_texts: Sequence[str]) -> list[Row]:
    ids = [str(number) for number in range(len(query_texts))]
    with start_cluster(version=MAIN_VERSION) as server:
        index = corpus.loaded(server, 1)
        client = opensearchpy.OpenSearch(server.url, timeout=120)
        ours = OpenSearchSparse(index)
        found: dict[str, Any] = {}

        def loop() -> None:
            found["peer"] = [
                client.search(
                    index=index.at["name"],
                    body={"size": DEPTH, "_source": False, "query": {"match": {CONTENTS: text}}},
                )
                for text in query_texts
            ]

        def batch() -> None:
            found["ours"] = ours.search(ids, query_texts, DEPTH)

        seconds = take_turns({"ours": batch, "peer": loop}, repeats=3)
        processor = take_turns({"ours": batch, "peer": loop}, repeats=1, cpu=True)
    same = all(
        np.allclose(found["ours"].scores_of(i), [hit["_score"] for hit in answer["hits"]["hits"]], rtol=1e-5)
        for i, answer in enumerate(found["peer"])
    )
    name = f"OpenSearch {MAIN_VERSION}, {len(query_texts)} queries, top {DEPTH} of {PASSAGES:,}: client.search loop"
    scores = "same scores" if same else "OTHER SCORES"
    bound = f"the server's scoring and collecting of {DEPTH} hits; {scores}"
    return [
        compare_costs(name, seconds["ours"], seconds["peer"], 3.0 if same else float("inf"), bound),
        compare_costs(
            f"{name}, in the client", processor["ours"], processor["peer"], None, "Java finds the stems here", "CPU s"
        ),
    ]


def _compare_fusions(corpus: _Corpus, query_texts: Sequence[str]) -> list[Row]:
    ids, queries = [str(number) for number in range(len(query_texts))], _make_vectors(query_texts)
    every = [np.arange(PASSAGES, dtype=np.int32)] * len(query_texts)
    dense = ranked(ids, every, list(queries @ corpus.vectors.T), DEPTH)
    exact = fuse_systems([LuceneSearcher(corpus.folder / "lucene").search(ids, query_texts, DEPTH), dense], depth=DEPTH)
    found = []
    with start_cluster(version=OLDER_VERSION) as server:
        processor = {"score-ranker-processor": {"combination": {"technique": "rrf", "rank_constant": 60}}}
        call(server.url, "PUT", f"/_search/pipeline/{PIPELINE}", {"phase_results_processors": [processor]})
        for shards in (1, 3):
            index = corpus.loaded(server, shards)
            fused = _fuse_by_keystone(index, ids, query_texts, queries)
            ours = _measure_overlaps(exact, [_rows(fused, i) for i in range(len(ids))])
            native = [
                _fuse_by_cluster(server, index, text, query) for text, query in zip(query_texts, queries, strict=True)
            ]
            theirs = _measure_overlaps(exact, native)
            for cut in CUT_DEPTHS:
                name = f"RRF, {shards} shard{'s' * (shards > 1)}, exact answer's top {cut}: native in {OLDER_VERSION}"
                why = "ranks in each shard" if shards > 1 else "the same ranks"
                found.append(Row(name, ours[cut], theirs[cut], "share", ours[cut] / theirs[cut], None, why))
    return found


def _fuse_by_keystone(index: Index, ids: list[str], query_texts: Sequence[str], queries: Vectors) -> Rankings:
    bm25 = OpenSearchSparse(index).search(ids, query_texts, DEPTH)
    return fuse_systems([bm25, OpenSearchDense(index).search(ids, queries, DEPTH)], depth=DEPTH)


def _fuse_by_cluster(server: Cluster, index: Index, text: str, query: Vectors) -> list[int]:
    """The rows that the cluster's own fusion of the same two searches gives."""
    scaled = (query * np.float32(QUERY_SCALE)).tolist()
    parameters = {"field": VECTOR, "query_value": scaled, "space_type": "innerproduct"}
    script = {"source": "knn_score", "lang": "knn", "params": parameters}
    searches = [
        {"match": {CONTENTS: text}},
        {"script_score": {"query": {"match_all": {}}, "script": script}},
    ]
    body = {"size": DEPTH, "_source": False, "query": {"hybrid": {"pagination_depth": DEPTH, "queries": searches}}}
    answer = call(server.url, "POST", f"/{index.at['name']}/_search?search_pipeline={PIPELINE}", body)
    return [int(hit["_id"]) for hit in answer["hits"]["hits"]]


def _rows(rankings: Rankings, i: int) -> list[int]:
    rows: list[int] = rankings.of(i).tolist()
    return rows


def _measure_overlaps(exact: Rankings, found: Sequence[Sequence[int]]) -> dict[int, float]:
    """By depth: the mean share of the exact answer's first documents among the same number of first documents."""
    return {
        cut: float(np.mean([len(set(_rows(exact, i)[:cut]) & set(own[:cut])) / cut for i, own in enumerate(found)]))
        for cut in CUT_DEPTHS
    }
