"""Building a Lucene index with Anserini: Porter-stemmed English, without positions, text or vectors.

The Lucene id of a document is its row in the document store, in ten digits, so that Lucene's order of ids is
the store's.
"""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import orjson

from indexing.errors import UserError
from indexing.java import anserini_jar, java_home
from indexing.types import Document, Progress, silent


def build_lucene(documents: Iterable[Document], folder: Path, threads: int, progress: Progress = silent) -> None:
    """Index documents, given by row, into a new folder. `UserError` with Anserini's last words where it fails."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as input_folder:
        shards = [(Path(input_folder) / f"{shard}.jsonl").open("wb") for shard in range(threads)]
        for row, document in enumerate(documents):
            record = {"id": f"{row:010d}", "contents": document.contents}
            shards[row % threads].write(orjson.dumps(record) + b"\n")
        for shard in shards:
            shard.close()
        command = [str(java_home() / "bin" / "java"), "-cp", str(anserini_jar()), "io.anserini.index.IndexCollection"]
        command += ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator"]
        command += ["-input", input_folder, "-index", str(folder), "-threads", str(threads)]
        with progress("Building the BM25 index", None):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0 or not folder.is_dir():
        raise UserError(f"Anserini could not build {folder}: {done.stdout[-2000:]}")
