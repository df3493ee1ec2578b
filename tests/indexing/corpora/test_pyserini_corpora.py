"""Lucene indexes of Pyserini as corpora: indexes by Anserini's indexer, and an archive that is fetched from disk."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.corpora.corpus import guess_format, read_corpus
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.lucene.java import find_anserini_jar, find_java_home
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Document
from tests.support import programs

pytestmark = pytest.mark.slow

RECORDS = [
    {"id": "b", "title": "Bees", "contents": "Bees make honey."},
    {"id": "a", "contents": "Ice \u2744 melts."},
]


@pytest.fixture(scope="module")
def anserini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `raw`, an index that stores its documents, and `slim`, one that does not."""
    folder = tmp_path_factory.mktemp("anserini")
    (folder / "texts").mkdir()
    (folder / "texts" / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    for name, store in (("raw", ["-storeRaw"]), ("slim", [])):
        command = [
            str(find_java_home() / "bin" / "java"),
            "-cp",
            str(find_anserini_jar()),
            "io.anserini.index.IndexCollection",
        ]
        command += ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1"]
        command += ["-input", str(folder / "texts"), "-index", str(folder / name), *store]
        programs.run(command, check=True, capture_output=True)
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


def test_a_prebuilt_index_is_fetched_once_by_its_name(
    anserini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^pyserini:no-such-index: neither a folder|: Pyserini could not fetch it"):
        list(read_corpus(Path("pyserini:no-such-index")))
    try:
        from pyserini import util
    except Exception as error:
        pytest.skip(f"Anserini 2 reads its list of indexes from a server: {error}")
    archive = tmp_path / "bees.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(anserini / "raw", "bees")
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "cache"))
    known = {name: {"md5": digest, "urls": [archive.as_uri()]} for name, digest in (("bees", md5), ("gone", "0"))}
    monkeypatch.setattr(util, "TF_INDEX_INFO", known)
    for _ in range(2):
        assert [document.id for document in read_corpus(Path("pyserini:bees"))] == ["b", "a"]
        archive.unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"^pyserini:gone: Pyserini could not fetch it"):
        list(read_corpus(Path("pyserini:gone")))


def test_an_index_without_raw_documents_is_an_error(anserini: Path) -> None:
    with pytest.raises(BadRecord, match="document 0: the index stores no raw documents"):
        list(read_corpus(Path(f"pyserini:{anserini / 'slim'}")))
