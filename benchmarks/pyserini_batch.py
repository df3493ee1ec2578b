"""Pyserini's batch search in a process of its own, since it has a Lucene of its own.

`python -m benchmarks.pyserini_batch FOLDER THREADS DEPTH` indexes the lines of `FOLDER/texts` and says so. For each
line that it reads then, it searches for the lines of `FOLDER/queries` and says so. `FOLDER/found.npz` has the rankings.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from keystone.retrieval.types import K1, B


@contextmanager
def open_pyserini(
    folder: Path, texts: list[str], query_texts: list[str], threads: int, depth: int
) -> Iterator[Callable[[], None]]:
    """A function that searches once for all queries. No text holds a line break."""
    (folder / "texts").write_text("\n".join(texts))
    (folder / "queries").write_text("\n".join(query_texts))
    command = [sys.executable, "-m", "benchmarks.pyserini_batch", str(folder), str(threads), str(depth)]
    jars = Path(find_package(), "resources", "jars")
    environment = {**os.environ, "ANSERINI_CLASSPATH": str(jars), "OPENAI_API_KEY": "none"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        answers, asked = process.stdout, process.stdin

        def wait() -> None:
            while (line := answers.readline()) != "done\n":  # Java prints lines of its own
                assert line, "Pyserini ended"

        def search() -> None:
            asked.write("\n")
            asked.flush()
            wait()

        wait()
        yield search
        asked.close()


def read_rankings(folder: Path) -> list[NDArray[np.int64]]:
    """The rows that the last search found for each query, best first."""
    found = np.load(folder / "found.npz")
    return np.split(found["rows"], np.cumsum(found["counts"])[:-1])


def find_package() -> str:
    """The folder of Pyserini's package."""
    spec = importlib.util.find_spec("pyserini")
    folders = spec.submodule_search_locations if spec else None
    assert folders, "needs Pyserini, which `make test` installs"
    return folders[0]


def main(folder: Path, threads: int, depth: int) -> None:
    """Index, then search as often as a line arrives."""
    texts = (Document(f"{row:07d}", text) for row, text in enumerate((folder / "texts").read_text().splitlines()))
    build_lucene(texts, folder / "pyserini")
    for name in ("encode", "encode.optional", "encode.optional._uniir"):  # they need PyTorch
        sys.modules[f"pyserini.{name}"] = MagicMock()
    from pyserini.search.lucene import LuceneSearcher

    searcher, queries = LuceneSearcher(str(folder / "pyserini")), (folder / "queries").read_text().splitlines()
    searcher.set_bm25(K1, B)
    ids = [str(number) for number in range(len(queries))]
    print("done", flush=True)
    for _ in sys.stdin:
        found: dict[str, list[Any]] = searcher.batch_search(queries, ids, k=depth, threads=threads)
        hits = [[(int(hit.docid), hit.score) for hit in found[name]] for name in ids]
        rows = np.array([row for own in hits for row, _ in own], np.int64)
        np.savez(folder / "found.npz", rows=rows, counts=[len(own) for own in hits])
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
