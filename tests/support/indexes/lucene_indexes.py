"""Building Lucene indexes with Anserini's own indexer."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keystone.indexing.io.published import Published
from keystone.indexing.lucene.java import find_anserini_jar, find_java_home
from tests.support import programs

Records = Sequence[dict[str, Any]]

OLDER_ANSERINI = Published(
    "pyserini",
    "pyserini-1.6.0.tar.gz",
    "e34761d700b33613c26bc61113effc6d65598dee6ada28a33214f79350f833f4",
    ("pyserini-1.6.0/pyserini/resources/jars/anserini-1.7.1-fatjar.jar",),
)
"""The last jar with Lucene 9."""


def build_anserini_index(
    folder: Path, name: str, files: Sequence[Records], *options: str, collection: str = "JsonCollection"
) -> Path:
    """Build the index `folder/name` of files of records. Several threads each write their own Lucene segments."""
    texts = folder / f"{name}-texts"
    texts.mkdir()
    for number, records in enumerate(files):
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with gzip.open(texts / f"{number}.json.gz", "wt") as file:
            file.write(lines)
    command = [str(find_java_home() / "bin" / "java"), "-Xmx512m", "-cp", str(find_anserini_jar())]
    command += ["io.anserini.index.IndexCollection", "-generator", "DefaultLuceneDocumentGenerator"]
    command += ["-collection", collection, "-threads", str(len(files)), "-input", str(texts)]
    programs.run([*command, "-index", str(folder / name), *options], check=True, capture_output=True)
    return folder / name
