"""Building a Lucene index with Anserini: Porter-stemmed English, without positions, text or vectors.

The Lucene id of a document is its row in the document store, in ten digits, so that Lucene's order of ids is
the store's.
"""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from indexing.errors import UserError
from indexing.java import anserini_jar, java_class, java_error, java_home
from indexing.types import Document, Progress, silent

LONGEST = 20_000_000
"""Characters of a document that Anserini's JSON reader takes; it drops the whole file of a longer one."""


def build_lucene(documents: Iterable[Document], folder: Path, threads: int, progress: Progress = silent) -> None:
    """Index documents, given by row, into a new folder. `UserError` with Anserini's last words where it fails."""
    expected = 0
    with tempfile.TemporaryDirectory(dir=folder.parent) as input_folder:
        shards = [(Path(input_folder) / f"{shard}.jsonl").open("wb") for shard in range(threads)]
        for row, document in enumerate(documents):
            if len(document.contents) > LONGEST:
                raise UserError(
                    f"document {document.id}: found {len(document.contents)} characters, expected at most {LONGEST}"
                )
            expected += bool(document.contents.strip())
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
    found = open_reader(folder).numDocs()
    if found != expected:
        raise UserError(f"Anserini indexed {found} of {expected} documents in {folder}: {done.stdout[-2000:]}")


def open_reader(folder: Path) -> Any:
    """A Lucene reader of an index. `UserError` if the folder holds none."""
    path = java_class("java.nio.file.Paths").get(str(folder))
    try:
        return java_class("org.apache.lucene.index.DirectoryReader").open(
            java_class("org.apache.lucene.store.FSDirectory").open(path)
        )
    except java_error() as error:
        raise UserError(f"{folder}: not a whole Lucene index: build it again") from error
