"""What commit ef5d269 made stays of use: its index ranks alike, its run is read, and made anew where steps changed.

The commit's own code makes both here, since no copy of them is kept. It comes from the history of this checkout.
"""

import os
import shutil
import sys
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import programs
from tests.support.indexes.small_corpus import read_contents, write_corpus, write_topics
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone_here

pytestmark = pytest.mark.slow

COMMIT = "ef5d26987ebd3475da3405fcb37a10e3ef0a9065"
COMMAND = "import sys; sys.argv[0] = 'keystone'; from runs.cli.main import main; sys.exit(main())"
"""The command line of that commit, whose folders were packages at the top."""
CONFIG = """
run_id: older
track: none
index: index
topics: topics.jsonl
queries: {method: narrative}
"""
RANKINGS = ("bm25.trec", "dense.trec", "hybrid.trec")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index and the run `out/older`, made by the code of the commit."""
    packed = programs.run(["git", "-C", ROOT, "archive", "--format=zip", COMMIT], capture_output=True)
    if packed.returncode:
        pytest.skip(f"the history of this checkout lacks {COMMIT}: {packed.stderr.decode()}")
    folder = tmp_path_factory.mktemp("older")
    ZipFile(BytesIO(packed.stdout)).extractall(folder / "code")
    write_topics(folder / "topics.jsonl")
    (folder / "run.yaml").write_text(CONFIG)
    environment = {**os.environ, "PYTHONPATH": str(folder / "code")}
    corpus = write_corpus(folder / "corpus.jsonl")
    for arguments in (["index", corpus, "--out", "index"], ["run", "run.yaml", "--set", "out=out"]):
        programs.run([sys.executable, "-c", COMMAND, *arguments], check=True, cwd=folder, env=environment)
    return folder


def test_an_index_of_an_older_version_opens_as_it_is_and_ranks_alike(older: Path) -> None:
    before = read_contents(older / "index")
    done = keystone_here("run", "run.yaml", "--set", "out=now", cwd=older)
    assert done.returncode == 0, done.stderr
    for name in RANKINGS:
        assert (older / "now/older" / name).read_bytes() == (older / "out/older" / name).read_bytes()
    assert read_contents(older / "index") == before


@pytest.mark.parametrize("command", ["report out/older --out report.html", "explain out/older 1 bees"])
def test_a_run_of_an_older_version_can_be_read(older: Path, command: str) -> None:
    done = keystone_here(*command.split(), cwd=older)
    assert done.returncode == 0, done.stderr


def test_a_run_of_an_older_version_is_made_anew_by_the_same_command_and_then_kept(older: Path) -> None:
    shutil.copytree(older / "out", older / "again")
    for done in ("made config, queries, search", "kept config, queries, search"):
        ran = keystone_here("run", "run.yaml", "--set", "out=again", cwd=older)
        assert (ran.returncode, done in ran.stderr) == (0, True), ran.stderr
