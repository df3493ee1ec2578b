"""Searching OpenSearch: beside a plain loop of `client.search`, and our fusion of ranks beside the cluster's own.

The fusions are compared with the exact answer: reciprocal rank fusion (k = 60) of the two whole rankings, of Lucene and
of all inner products. Up to version 3.4 the cluster's `score-ranker-processor` fuses the ranks that a document has in
its shard, so that its answer depends on how the corpus was cut; ours fuses the ranks that it has in the index.
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

from benchmarks.table import Row, faster, take_turns
from benchmarks.texts import passages, questions
from fusion.rrf import fuse_systems
from indexing.index import Index
from indexing.lucene.write import build_lucene
from indexing.opensearch.cluster import place_of
from indexing.opensearch.index import CONTENTS, VECTOR, Target
from indexing.opensearch.load import Upload, load
from indexing.store import DocumentStore, build_store
from indexing.types import Document, Embedding
from indexing.vectors.shards import SHARD, Shards
from indexing.vectors.types import Vectors, on_grid
from retrieval.lucene.analyzer import stems_of
from retrieval.lucene.search import LuceneSearcher
from retrieval.opensearch.dense import QUERY_SCALE, OpenSearchDense
from retrieval.opensearch.sparse import OpenSearchSparse
from retrieval.types import Rankings, ranked
from tests.support.servers.opensearch import JARS, MAIN, OLDER, Cluster, call, cluster

PASSAGES, QUERIES, DEPTH = 20_000, 771, 1000
FUSED, DIMENSION = 100, 64
"""Queries of the comparison of fusions, and numbers of its vectors."""
CUTS = (10, 100, 1000)
PIPELINE = "rrf"


def rows() -> list[Row]:
    """The loop's row has the target; overlaps are shares of the exact answer's first documents."""
    if not (JARS / ".ready").exists():
        print("opensearch_search: left out: OpenSearch is not set up: make test-opensearch", file=sys.stderr)
        return []
    texts = passages(PASSAGES)
    asked = questions(texts, QUERIES)
    with TemporaryDirectory() as folder:
        corpus = _Corpus(Path(folder), texts)
        return [*_beside_a_loop(corpus, asked), *_fusions(corpus, asked[:FUSED])]


class _Corpus:
    """Passages as a store, as a Lucene index, and as vectors."""

    def __init__(self, folder: Path, texts: Sequence[str]) -> None:
        self.folder = folder
        build_store((Document(f"{row:07d}", text) for row, text in enumerate(texts)), folder / "store")
        self.store = DocumentStore(folder / "store")
        build_lucene(self.store, folder / "lucene")
        self.vectors = _vectors(texts)
        self.files = [folder / f"{start // SHARD:08d}.npy" for start in range(0, len(texts), SHARD)]
        for number, file in enumerate(self.files):
            np.save(file, self.vectors[number * SHARD : (number + 1) * SHARD])

    def loaded(self, server: Cluster, shards: int) -> Index:
        """The passages in an index of so many shards."""
        name, meta = f"passages-{shards}", {"key": f"passages-{shards}", "faiss": "Flat"}
        place, note = place_of(f"{server.url}/{name}"), self.folder / f"{server.version}-{name}"
        load(Upload(Target(place, shards), meta, self.store, Shards(self.files, PASSAGES, 0), note))
        return Index(self.folder, name, Embedding(), PASSAGES, {}, 0, "Flat", place.at)


def _vectors(texts: Sequence[str]) -> Vectors:
    """Random projections of the texts' stems, each by the root of its count: a model that only knows words."""
    found = np.zeros((len(texts), DIMENSION))
    known: dict[str, NDArray[np.float64]] = {}
    for row, text in enumerate(texts):
        for stem, count in Counter(stems_of(text)).items():
            if stem not in known:
                known[stem] = np.random.default_rng(zlib.crc32(stem.encode())).normal(size=DIMENSION)
            found[row] += known[stem] * count**0.5
    return on_grid(found)


def _beside_a_loop(corpus: _Corpus, asked: Sequence[str]) -> list[Row]:
    ids = [str(number) for number in range(len(asked))]
    with cluster(version=MAIN) as server:
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
                for text in asked
            ]

        def batch() -> None:
            found["ours"] = ours.search(ids, asked, DEPTH)

        seconds = take_turns({"ours": batch, "peer": loop}, repeats=3)
        processor = take_turns({"ours": batch, "peer": loop}, repeats=1, cpu=True)
    same = all(
        np.allclose(found["ours"].scores_of(i), [hit["_score"] for hit in answer["hits"]["hits"]], rtol=1e-5)
        for i, answer in enumerate(found["peer"])
    )
    name = f"OpenSearch {MAIN}, {len(asked)} queries, top {DEPTH} of {PASSAGES:,}: client.search loop"
    scores = "same scores" if same else "OTHER SCORES"
    bound = f"the server's scoring and collecting of {DEPTH} hits; {scores}"
    return [
        faster(name, seconds["ours"], seconds["peer"], 3.0 if same else float("inf"), bound),
        faster(
            f"{name}, in the client", processor["ours"], processor["peer"], None, "Java finds the stems here", "CPU s"
        ),
    ]


def _fusions(corpus: _Corpus, asked: Sequence[str]) -> list[Row]:
    ids, queries = [str(number) for number in range(len(asked))], _vectors(asked)
    every = [np.arange(PASSAGES, dtype=np.int32)] * len(asked)
    dense = ranked(ids, every, list(queries @ corpus.vectors.T), DEPTH)
    exact = fuse_systems([LuceneSearcher(corpus.folder / "lucene").search(ids, asked, DEPTH), dense], depth=DEPTH)
    found = []
    with cluster(version=OLDER) as server:
        processor = {"score-ranker-processor": {"combination": {"technique": "rrf", "rank_constant": 60}}}
        call(server.url, "PUT", f"/_search/pipeline/{PIPELINE}", {"phase_results_processors": [processor]})
        for shards in (1, 3):
            index = corpus.loaded(server, shards)
            fused = _ours(index, ids, asked, queries)
            ours = _overlaps(exact, [_rows(fused, i) for i in range(len(ids))])
            native = [_native(server, index, text, query) for text, query in zip(asked, queries, strict=True)]
            theirs = _overlaps(exact, native)
            for cut in CUTS:
                name = f"RRF, {shards} shard{'s' * (shards > 1)}, exact answer's top {cut}: native in {OLDER}"
                why = "ranks in each shard" if shards > 1 else "the same ranks"
                found.append(Row(name, ours[cut], theirs[cut], "share", ours[cut] / theirs[cut], None, why))
    return found


def _ours(index: Index, ids: list[str], asked: Sequence[str], queries: Vectors) -> Rankings:
    bm25 = OpenSearchSparse(index).search(ids, asked, DEPTH)
    return fuse_systems([bm25, OpenSearchDense(index).search(ids, queries, DEPTH)], depth=DEPTH)


def _native(server: Cluster, index: Index, text: str, query: Vectors) -> list[int]:
    """The rows that the cluster's own fusion gives, from the same two searches."""
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


def _overlaps(exact: Rankings, found: Sequence[Sequence[int]]) -> dict[int, float]:
    """The mean share of the exact answer's first documents that are among as many first ones."""
    return {
        cut: float(np.mean([len(set(_rows(exact, i)[:cut]) & set(own[:cut])) / cut for i, own in enumerate(found)]))
        for cut in CUTS
    }
