"""Lucene indexes of Pyserini as corpora: indexes by Anserini's indexer, and an archive that is fetched from disk."""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import guess_format, read_corpus
from keystone.indexing.errors import BadRecord
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document
from tests.support import programs
from tests.support.indexes.lucene_indexes import build_anserini_index, find_older_jars
from tests.support.places import ROOT

pytestmark = pytest.mark.slow

RECORDS = [
    {"id": "b", "title": "Bees", "contents": "Bees make honey."},
    {"id": "a", "contents": "Ice \u2744 melts."},
]


@pytest.fixture(scope="module")
def anserini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `raw`, an index that stores its documents, and `slim`, one that does not."""
    folder = tmp_path_factory.mktemp("anserini")
    for name, store in (("raw", ["-storeRaw"]), ("slim", [])):
        build_anserini_index(folder, name, [RECORDS], *store)
    return folder


def test_stored_documents_are_a_corpus(anserini: Path, tmp_path: Path) -> None:
    path = Path(f"pyserini:{anserini / 'raw'}")
    assert guess_format(path) == "pyserini"
    assert list(read_corpus(path)) == [
        Document("b", "Bees make honey.", "Bees"),
        Document("a", "Ice \u2744 melts."),
    ]
    made, built = build_index(path, tmp_path / "index", BuildSettings(embedding=None))
    assert built
    assert [document.id for document in DocumentStore(made.store)] == ["a", "b"]
    assert not build_index(path, tmp_path / "index", BuildSettings(embedding=None))[1]


PREBUILT = """
import json
import sys
from pathlib import Path
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.errors import UserError
from keystone.indexing.lucene.java import java_class
java_class("java.lang.Object")  # with Keystone's options, before Pyserini starts Java with its own
from pyserini import util
archive, md5 = Path(sys.argv[1]), sys.argv[2]
names = (("bees", md5), ("gone", "0"))
util.TF_INDEX_INFO = {name: {"md5": digest, "urls": [archive.as_uri()]} for name, digest in names}
def read(name):
    try:
        return [document.id for document in read_corpus(Path(f"pyserini:{name}"))]
    except UserError as error:
        return str(error)
found = [read("bees")]
archive.unlink()
print(json.dumps([*found, *map(read, ("bees", "gone", "no-such-index"))]))
"""


def test_a_prebuilt_index_is_fetched_once_by_its_name(tmp_path: Path) -> None:
    """A process of its own has Pyserini 1.6 with its Lucene 9. Pyserini 2 reads its list of indexes from a server."""
    jars = find_older_jars()
    index, archive = build_anserini_index(tmp_path, "raw", [RECORDS], "-storeRaw", jars=jars), tmp_path / "bees.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(index, "bees")
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    places = {"PYSERINI_CACHE": str(tmp_path / "cache"), "ANSERINI_CLASSPATH": str(jars)}
    command = [sys.executable, "-c", PREBUILT, str(archive), md5]
    shown = programs.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **places})
    first, again, gone, unknown = json.loads(shown.stdout.splitlines()[-1])
    assert first == again == ["b", "a"]
    assert gone.startswith("pyserini:gone: Pyserini could not fetch it")
    assert unknown.startswith("pyserini:no-such-index: neither a folder")


def test_an_index_without_raw_documents_is_an_error(anserini: Path) -> None:
    with pytest.raises(BadRecord, match="document 0: the index stores no raw documents"):
        list(read_corpus(Path(f"pyserini:{anserini / 'slim'}")))
