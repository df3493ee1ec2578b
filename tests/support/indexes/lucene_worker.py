"""`python -m tests.support.indexes.lucene_worker FOLDER`: indexes and searches by the Lucene of ANSERINI_CLASSPATH.

The worker makes the index folders FOLDER/own, and last FOLDER/attached over an index of Anserini's. Then it reads a
line, which is a JSON list of index folders. It searches all of them and prints a report as JSON.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from keystone.indexing.attached.lucene_index import adopt_prebuilt
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.indexing.lucene.java import find_java_home, java_class
from keystone.retrieval.backends import open_sparse, open_store
from tests.support.indexes.lucene_indexes import build_anserini_index
from tests.support.places import ROOT

LINES = [line for page in sorted((ROOT / "docs").glob("*.md")) for line in page.read_text().splitlines() if line]
RECORDS = [{"id": f"d{number * 7919 % len(LINES)}x{number}", "contents": line} for number, line in enumerate(LINES)]
"""Each line of the documentation, some of them twice; the ids are not in order."""
QUERIES = ["the", "", "\u2744", *(line for line in LINES if line.startswith("#")), *LINES[:2000:40]]
WEIGHTED = [{"index": 0.25, "document": 1.5, "queri": 0.1}, {"rank": 1.0}, {}]
DEPTHS = (1, 10, 300)


def _search(folder: Path) -> dict[str, Any]:
    """Report all that a Lucene index says, its scores without loss. If Keystone refuses the index, report the error."""
    try:
        index = open_index(folder)
        store = open_store(index)
        sparse = open_sparse(index, store)
        found: dict[str, Any] = {"documents": [(document.id, document.text) for document in store]}
        for depth in DEPTHS:
            for queries in (QUERIES, WEIGHTED):
                names = [str(number) for number in range(len(queries))]
                rankings = sparse.search(names, queries, depth, threads=2)
                found[f"{type(queries[0]).__name__} at {depth}"] = [
                    list(zip(store.ids(rankings.of(i)), map(float.hex, rankings.scores_of(i).tolist()), strict=True))
                    for i in range(len(queries))
                ]
        found["stems"] = [sparse.stems(query) for query in QUERIES]
        found["frequencies"] = [sparse.document_frequencies(query.split()) for query in QUERIES]
    except UserError as error:
        return {"error": str(error)}
    return found


def _build(folder: Path) -> None:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    build_index(corpus, folder / "own", BuildSettings(embedding=None))
    shutil.rmtree(folder / "own/postings")  # so that Lucene searches
    half = len(RECORDS) // 2
    made = build_anserini_index(folder, "anserini", [RECORDS[:half], RECORDS[half:]], "-storeRaw")
    adopt_prebuilt(Path(f"pyserini:{made}"), folder / "attached")


if __name__ == "__main__":
    _build(Path(sys.argv[1]))
    report: dict[str, Any] = {folder: _search(Path(folder)) for folder in json.loads(input())}
    report["lucene"] = java_class("org.apache.lucene.util.Version").LATEST.toString()
    report["java"] = str(find_java_home())
    print(json.dumps(report))
