"""The commands of the pages that download run as they stand: a server has small files under the published names."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs
from tests.support.indexes.lucene_indexes import build_anserini_index, find_older_jars
from tests.support.models.checkpoints import write_checkpoint
from tests.support.pages import find_words, list_commands
from tests.support.places import ROOT
from tests.support.runs.beir_folders import write_folder
from tests.support.servers.files import serve_files
from tests.support.servers.hub import hub_server

pytestmark = pytest.mark.slow

SCIFACT = """
import json, pkgutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any
listed = json.loads(Path(find_spec("ir_datasets").origin).with_name("etc").joinpath("downloads.json").read_text())
listed["beir"]["scifact"].update(url={url!r}, expected_md5={md5!r})
read, changed = pkgutil.get_data, json.dumps(listed).encode()
pkgutil.get_data = lambda package, name: changed if name == "etc/downloads.json" else read(package, name)
"""
"""The published list of ir_datasets, with the address and the sum of another archive."""
PREBUILT = """
from keystone.indexing.lucene.java import java_class
java_class("java.lang.Object")  # with Keystone's options, before Pyserini starts Java with its own
from pyserini import util
for table in (util.TF_INDEX_INFO, util.IMPACT_INDEX_INFO):
    table.update((name, table[name] | own) for name, own in {archives!r}.items() if name in table)
"""
"""The published lists of Pyserini, with the addresses and the sums of other archives."""
SEGMENT = {"url": "u", "title": "Bees", "headings": "H", "segment": "Bees dance.", "start_char": 0, "end_char": 11}
DOCUMENT = {"docid": "msmarco_v2.1_doc_00_1", "url": "u", "title": "Bees", "headings": "H", "body": "Bees dance."}
MARCO = "MsMarcoV2DocCollection"
INDEXES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "msmarco-v2.1-doc": (MARCO, DOCUMENT, ()),
    "msmarco-v2.1-doc-segmented": (MARCO, SEGMENT | {"docid": f"{DOCUMENT['docid']}#0_0"}, ()),
    "msmarco-v1-passage.splade-v3-text": (
        "JsonVectorCollection",
        {"id": "0", "contents": "Bees dance.", "vector": {"bees": 90, "dance": 80}},
        ("-impact", "-pretokenized"),
    ),
}
"""The collection, the document and the options of indexes under the names of prebuilt ones."""


def run_command(command: str, code: str, folder: Path, **environment: str) -> str:
    """Run a command of a page in a new process, after some code; returns what it printed."""
    code += "\nfrom keystone.runs.cli.main import main\nmain()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    words = [sys.executable, "-c", code, *find_words(command)]
    done = programs.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return str(done.stdout)


def measure_md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_a_data_set_of_ir_datasets_is_a_corpus_and_has_judgments(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "scifact")
    archive = Path(shutil.make_archive(str(tmp_path / "served/scifact"), "zip", tmp_path, "scifact"))
    (index,) = list_commands("keystone index ir_datasets:")
    (run,) = list_commands("keystone run .*topics=scifact")
    (evaluate,) = list_commands("keystone evaluate .*ir_datasets:")
    with serve_files(archive.parent) as url:
        code = SCIFACT.format(url=f"{url}/{archive.name}", md5=measure_md5(archive))
        for command in (index, run, evaluate):
            printed = run_command(command, code, tmp_path, IR_DATASETS_HOME=str(tmp_path / "home"))
    documents = len((folder / "corpus.jsonl").read_text().splitlines())
    assert json.loads((tmp_path / "index/index.json").read_text())["documents"] == documents
    assert "nDCG@10" in printed


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    """What Pyserini knows of each index: the name, address, sum and size of its archive."""
    folder, jars = tmp_path_factory.mktemp("prebuilt"), find_older_jars()
    (folder / "served").mkdir()
    with serve_files(folder / "served") as url:
        known: dict[str, dict[str, object]] = {}
        for name, (collection, record, options) in INDEXES.items():
            made = build_anserini_index(
                folder, name, [[record]], "-storeRaw", *options, collection=collection, jars=jars
            )
            archive = folder / "served" / f"{name}.tar.gz"
            with tarfile.open(archive, "w:gz") as tar:
                tar.add(made, name)
            known[name] = {
                "filename": archive.name,
                "urls": [f"{url}/{archive.name}"],
                "md5": measure_md5(archive),
                "size compressed (bytes)": archive.stat().st_size,
            }
        yield known


@pytest.mark.parametrize("command", list_commands("keystone index pyserini:"))
def test_a_prebuilt_index_is_searched_in_place(
    command: str, archives: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "splade", head="words")
    with hub_server({"models/naver/splade-v3": tmp_path / "splade"}) as hub:
        environment = {
            "PYSERINI_CACHE": str(tmp_path / "cache"),
            "ANSERINI_CLASSPATH": str(find_older_jars()),
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "",
        }
        run_command(command, PREBUILT.format(archives=archives), tmp_path, **environment)
    assert json.loads((tmp_path / "index/index.json").read_text())["documents"] == 1
