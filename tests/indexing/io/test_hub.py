"""Data sets and checkpoints of the hub: read, pulled and pushed, against a stand-in of the hub."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.indexing.io.hub import push, to_local
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS, write_corpus, write_topics
from tests.support.models.checkpoints import write_checkpoint
from tests.support.servers.hub import HubServer, hub_server

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    data, new = tmp_path / "data", tmp_path / "new"
    (data / "qrels").mkdir(parents=True)
    new.mkdir()
    write_corpus(data / "corpus.jsonl")
    write_topics(data / "queries.jsonl")
    (data / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tbees\t1\n2\tvolcano\t1\n")
    folders = {
        "datasets/someone/bees": data,
        "datasets/someone/index": new,
        "datasets/someone/run": tmp_path / "run",
        "models/someone/encoder": write_checkpoint(tmp_path / "encoder", pooling="cls", prompts={"query": "q: "}),
    }
    with hub_server(folders) as server:
        yield server


def call(hub: HubServer, tmp_path: Path, *arguments: str | Path, **variables: str) -> Any:
    own = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    environment = {**own, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, **variables}
    command = [sys.executable, "-m", "keystone.runs.cli.main", *map(str, arguments)]
    return programs.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)


def test_a_data_set_is_a_corpus_topics_and_judgments_and_the_bundle_of_their_run_goes_there_and_back(
    hub: HubServer, tmp_path: Path
) -> None:
    shown = call(hub, tmp_path, "index", "hf:someone/bees/corpus.jsonl", "--no-dense", "--out", "index", "-q")
    assert shown.returncode == 0, shown.stderr
    assert open_index(tmp_path / "index").documents == len(CORPUS)
    settings = "run_id: a\nindex: index\ntopics: hf:someone/bees\nqueries: {method: narrative}\ntrack: none\n"
    (tmp_path / "run.yaml").write_text(settings)
    shown = call(hub, tmp_path, "run", "run.yaml", "-q")
    assert shown.returncode == 0, shown.stderr
    asked = len(hub.asked)
    judged = ("evaluate", "out/a", "--qrels", "hf:someone/bees:test", "-m", "MRR")
    shown = call(hub, tmp_path, *judged, HF_HUB_OFFLINE="1")
    assert shown.returncode == 0, shown.stderr
    assert "1.0000" in shown.stdout
    assert len(hub.asked) == asked, "what is here is not asked for again without network"
    assert call(hub, tmp_path, "bundle", "out/a").returncode == 0
    shown = call(hub, tmp_path, "push", "out/a.bundle.zip", "someone/run", "--dry-run")
    assert (shown.returncode, hub.tokens) == (0, set()), shown.stderr
    assert "a.bundle.zip: " in shown.stdout
    shown = call(hub, tmp_path, "push", "out/a.bundle.zip", "someone/run", "--dry-run", "--json")
    size = (tmp_path / "out/a.bundle.zip").stat().st_size
    assert json.loads(shown.stdout)["result"] == {"out": "out/a.bundle.zip", "files": {"a.bundle.zip": size}}
    shown = call(hub, tmp_path, "push", "out/a.bundle.zip", "someone/run", "--json")
    assert json.loads(shown.stdout)["result"]["url"].endswith("/datasets/someone/run"), shown.stderr
    assert call(hub, tmp_path, "pull", "someone/run", "--out", "pulled").returncode == 0
    shown = call(hub, tmp_path, "reproduce", "pulled/a.bundle.zip", "--out", "again")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "again/narrative.trec").read_bytes() == (tmp_path / "out/a/narrative.trec").read_bytes()


def test_an_index_goes_to_the_hub_and_comes_back(hub: HubServer, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.jsonl")
    assert call(hub, tmp_path, "index", "corpus.jsonl", "--no-dense", "--out", "index", "-q").returncode == 0
    (tmp_path / "index/losses.svg").write_text("<svg/>")
    shown = call(hub, tmp_path, "push", "index", "hf:someone/index", "--dry-run")
    assert (shown.returncode, hub.tokens) == (0, set()), shown.stderr
    assert "index.json: " in shown.stdout
    assert "would be sent to someone/index" in shown.stdout
    shown = call(hub, tmp_path, "push", "index", "hf:someone/index", HF_TOKEN="hf_of_the_test")
    assert shown.returncode == 0, shown.stderr
    assert hub.tokens == {"Bearer hf_of_the_test"}
    assert "hf_of_the_test" not in shown.stdout + shown.stderr
    shown = call(hub, tmp_path, "pull", "hf:someone/index", "--out", "again")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "again/losses.svg").read_text() == "<svg/>"
    assert not list((tmp_path / "home").glob("keystone/*")), "nothing else is fetched"
    assert open_index(tmp_path / "again").key == open_index(tmp_path / "index").key
    found, expected = (call(hub, tmp_path, "search", name, "honey bees", "-q").stdout for name in ("again", "index"))
    assert found == expected != ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:someone/nothing", "hf:someone/nothing: the hub does not give or take it: "),
        ("hf:someone/bees/no.jsonl", "hf:someone/bees/no.jsonl: the data set has no no.jsonl"),
    ],
)
def test_what_the_hub_does_not_have_is_named(hub: HubServer, name: str, said: str, tmp_path: Path) -> None:
    shown = call(hub, tmp_path, "index", name, "--out", "index")
    assert shown.returncode == 1
    assert said in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.stderr
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("name", ["corpus.jsonl", "hf:", "hf:one", "hf:a/b c", "a question about hf:a/b", "hf/a/b"])
def test_other_texts_are_no_names_of_the_hub(name: str) -> None:
    assert to_local(name) == name


def test_a_name_that_the_hub_cannot_have_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UserError, match=r"^no-user: expected the name of a data set of the hub, such as USER/NAME"):
        push(tmp_path, "no-user")
    with pytest.raises(UserError, match=r"nothing: holds no file"):
        push(tmp_path / "nothing", "a/b")


def embed(hub: HubServer, tmp_path: Path, model: str, out: str, **variables: str) -> Any:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    return call(hub, tmp_path, "index", corpus, "--out", out, "--embedding", model, "-q", **variables)


def test_a_checkpoint_is_fetched_once_and_then_found_without_network(hub: HubServer, tmp_path: Path) -> None:
    shown = embed(hub, tmp_path, "someone/encoder", "one")
    assert shown.returncode == 0, shown.stderr
    made = open_index(tmp_path / "one").embedding
    assert made is not None
    assert (made.model, made.query_prefix) == ("someone/encoder", "q: ")
    asked = len(hub.asked)
    shown = embed(hub, tmp_path, "someone/encoder", "two", HF_HUB_OFFLINE="1")
    assert (shown.returncode, len(hub.asked)) == (0, asked), shown.stderr
    assert open_index(tmp_path / "two").key == open_index(tmp_path / "one").key


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_checkpoint_that_cannot_be_had_is_an_error_with_the_remedy(
    hub: HubServer, offline: str, tmp_path: Path
) -> None:
    shown = embed(hub, tmp_path, "someone/other", "index", HF_HUB_OFFLINE=offline)
    assert shown.returncode == 1
    assert "model 'someone/other': could not be fetched from the hub:" in shown.stderr
    assert "put the checkpoint into a folder on this machine" in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.stderr
    assert not (tmp_path / "index").exists()
