"""Building Lucene indexes with Anserini's own indexer."""

import gzip
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.lucene.java import find_anserini_jar, find_java_home
from tests.support import programs

Records = Sequence[dict[str, Any]]


def find_older_jars() -> Path:
    """The folder of the last jar with Lucene 9, which Pyserini 1.6 has. Tests that need it are skipped without it."""
    spec = importlib.util.find_spec("pyserini")
    jars = [found for place in (spec and spec.submodule_search_locations) or () for found in Path(place).rglob("*.jar")]
    if not any("anserini-1." in jar.name for jar in jars):
        pytest.skip("needs Pyserini 1.6, which `make test` installs")
    return jars[0].parent


def build_anserini_index(
    folder: Path,
    name: str,
    files: Sequence[Records],
    *options: str,
    collection: str = "JsonCollection",
    jars: Path | None = None,
) -> Path:
    """Build the index `folder/name` from files of records. Several threads each write their own Lucene segments.

    `jars` is the folder of an Anserini other than Keystone's.
    """
    texts = folder / f"{name}-texts"
    texts.mkdir()
    for number, records in enumerate(files):
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with gzip.open(texts / f"{number}.json.gz", "wt") as file:
            file.write(lines)
    command = [str(find_java_home() / "bin" / "java"), "-Xmx512m", "-cp"]
    command.append(f"{jars}/*" if jars else str(find_anserini_jar()))
    command += ["io.anserini.index.IndexCollection", "-generator", "DefaultLuceneDocumentGenerator"]
    command += ["-collection", collection, "-threads", str(len(files)), "-input", str(texts)]
    programs.run([*command, "-index", str(folder / name), *options], check=True, capture_output=True)
    return folder / name
