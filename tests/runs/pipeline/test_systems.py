"""BM25 and two embedding models at once, by name: index, run, explain, diagnose, report, serve, tune and Python."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import keystone as api
from keystone.indexing.index import open_index
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.dense import DenseSystem
from keystone.runs.config.read import read_config
from keystone.runs.exchange.bundle.write import describe_run
from keystone.runs.pipeline.run import run
from keystone.runs.report.explain import explain
from keystone.runs.serving import service as operations
from keystone.runs.serving.call_log import CallLog
from keystone.runs.serving.service import open_service
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.runs.command_line import keystone
from tests.support.servers.embeddings import serving

pytestmark = pytest.mark.slow

SYSTEMS = {
    "bm25": {"kind": "bm25", "weight": 0.2},
    "minilm": {"kind": "dense", "weight": 0.5},
    "letters": {"kind": "dense", "vectors": "letters", "weight": 0.3},
    "close": {"kind": "dense", "vectors": "letters", "within": "bm25", "weight": 0.1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An index with two sets of vectors, and a run over it in `out/a`. Its embedding server stays up."""
    made = tmp_path_factory.mktemp("systems")
    corpus, topics = write_corpus(made / "corpus.jsonl"), write_topics(made / "topics.jsonl")
    with serving() as server:
        shown = keystone(
            "index",
            corpus,
            "--out",
            made / "index",
            "--vectors",
            f"letters={{model: letters, url: '{server.url}'}}",
            "-q",
        )
        assert shown.returncode == 0, shown.stderr
        values: dict[str, Any] = {
            "run_id": "a",
            "index": str(made / "index"),
            "topics": str(topics),
            "out": str(made / "out"),
        }
        values |= {"track": "none", "retrieval": {"systems": SYSTEMS, "depth": 9}, "fusion": {"depth": 9}}
        (made / "run.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        (made / "qrels.txt").write_text("1 0 beekeeping 1\n1 0 twin-a 1\n2 0 volcano 1\n2 0 weather 1\n")
        run(read_config(made / "run.yaml"))
        yield made


def test_an_index_holds_sets_of_vectors_by_name(folder: Path) -> None:
    index = open_index(folder / "index")
    assert sorted(path.name for path in (folder / "index" / "vectors").rglob("*")) == ["dense.faiss", "letters"]
    assert list(index.vectors) == ["letters"]
    assert "letters (letters)" in repr(index)
    own = index.with_vectors("letters")
    assert (own.embedding and own.embedding.model, own.dense) == (
        "letters",
        folder / "index/vectors/letters/dense.faiss",
    )
    assert index.with_vectors(None) == index
    again = keystone("index", folder / "corpus.jsonl", "--out", folder / "index", "-q")
    assert (again.returncode, "holds an index of another corpus or other settings" in again.stderr) == (1, True)


def test_each_system_has_a_run_file_of_its_name(folder: Path) -> None:
    made = folder / "out" / "a"
    assert {path.stem for path in made.glob("*.trec")} == {*SYSTEMS, "hybrid", "narrative"}
    rankings = {name: read_run(made / f"{name}.trec") for name in SYSTEMS}
    assert rankings["minilm"].docs.decode_ids() != rankings["letters"].docs.decode_ids()
    found = set(rankings["bm25"].docs.decode_ids())
    lines = [
        [line.split() for line in (made / f"{name}.trec").read_text().splitlines()] for name in ("letters", "close")
    ]
    whole, close = ([(row[0], row[2]) for row in rows] for rows in lines)
    assert close == [hit for hit in whole if hit[1] in found]
    assert 0 < len(close) < len(whole)


def test_a_weight_changes_no_search(folder: Path) -> None:
    made = folder / "out" / "a"
    before = {name: (made / f"{name}.trec").stat().st_mtime_ns for name in ("letters", "hybrid")}
    hybrid = (made / "hybrid.trec").read_bytes()
    run(read_config(folder / "run.yaml", ["retrieval.systems.letters.weight=3"]))
    assert (made / "letters.trec").stat().st_mtime_ns == before["letters"]
    assert (made / "hybrid.trec").read_bytes() != hybrid
    run(read_config(folder / "run.yaml"))
    assert (made / "hybrid.trec").read_bytes() == hybrid


def test_the_short_form_and_its_long_form_rank_alike(folder: Path) -> None:
    short = ["retrieval.systems=[bm25, dense]"]
    long = ["retrieval.systems={bm25: {kind: bm25}, dense: {kind: dense}}"]
    files = [run(read_config(folder / "run.yaml", [*form, f"run_id=b{n}"])) for n, form in enumerate((short, long))]
    for name in ("bm25", "dense", "hybrid"):
        one, other = (read_run(made / f"{name}.trec") for made in files)
        assert one.docs.decode_ids() == other.docs.decode_ids()
        assert one.scores.tolist() == other.scores.tolist()


def test_what_reads_a_run_follows_the_names(folder: Path) -> None:
    made = folder / "out" / "a"
    found = explain(made, "1", "beekeeping")
    assert list(found.without_engine) == list(SYSTEMS)
    commands: list[list[str | Path]] = [
        ["diagnose", made, "--qrels", folder / "qrels.txt"],
        ["report", made, "--qrels", folder / "qrels.txt", "--out", folder / "report.html"],
        ["tune", folder / "run.yaml", "--qrels", folder / "qrels.txt", "--folds", "2", "--try",
         "retrieval.systems.letters.weight=[0.1, 2]"],
    ]  # fmt: skip
    for command in commands:
        shown = keystone(*command)
        assert shown.returncode == 0, shown.stderr
    assert "letters" in (folder / "report.html").read_text()
    manifest = json.loads((made / "manifest.json").read_text())
    steps = describe_run(read_config(made / "config.yaml"), manifest)["method"]["retrieval"]
    assert [(step["name"], step.get("method")) for step in steps[:4]] == [
        ("bm25", "BM25"), ("minilm", "all-MiniLM-L6-v2"), ("letters", "letters"), ("close", "letters")
    ]  # fmt: skip
    assert steps[4]["weights"] == {name: one["weight"] for name, one in SYSTEMS.items()}


def test_a_server_searches_by_each_name(folder: Path) -> None:
    expected = {name: read_run(folder / "out" / "a" / f"{name}.trec") for name in SYSTEMS}
    text = json.loads((folder / "topics.jsonl").read_text().splitlines()[0])["title"]
    with open_service(read_config(folder / "run.yaml"), CallLog(None, "", "")) as service:
        assert service.methods == ["bm25", "dense", "minilm", "letters", "close", "hybrid", "decomposed"]
        for method in service.methods:
            hits = asyncio.run(operations.search(service, text, 9, method))
            if method in ("minilm", "letters"):  # the whole narrative is the first query of the run
                assert [doc_id for doc_id, _ in hits] == expected[method].docs.decode_ids()[: len(hits)]
            assert hits


def test_python_searches_by_each_name(folder: Path) -> None:
    config = read_config(folder / "run.yaml")
    index = api.open_index(folder / "index")
    queries = api.decompose(index, {"1": "How do honey bees live together?"}, config)
    runs = api.search(index, queries, config)
    assert list(runs) == list(SYSTEMS)
    assert len(api.fuse(runs, queries, config).docs.decode_ids())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("letters.vectors=other", "vectors: found 'other' for .*, expected one of letters"),
        ("close.within=close", "systems.close.within: found 'close', expected another system without within"),
        ("letters.kind=sparse", r"retrieval\.systems\.letters\.kind: found 'sparse'; expected one of bm25, dense"),
        ("letters=bm25", r"retrieval\.systems\.letters: found 'bm25'; expected the key kind: one of bm25, dense"),
        ("letters.k1=1", r"retrieval\.systems\.letters\.k1: unknown key \(value 1\); expected one of best_passages"),
        ("letters.weight=-1", r"retrieval\.systems\.letters\.weight: found -1; input should be greater than 0"),
        ("hybrid={kind: bm25}", "found the name 'hybrid', which another ranking has"),
        ("researched={kind: bm25}", "found the name 'researched', which another ranking has"),
        ("bm25.reads=passage", "retrieval.systems: bm25 with reads: passage needs a language model"),
    ],
)
def test_an_impossible_system_is_named(folder: Path, change: str, message: str) -> None:
    with pytest.raises(api.UserError, match=message):
        run(read_config(folder / "run.yaml", [f"retrieval.systems.{change}", "run_id=c"]))


def test_systems_take_the_settings_of_their_section() -> None:
    settings = [
        "run_id=a",
        "index=i",
        "topics=t",
        "retrieval.k1=1.2",
        "retrieval.depth=200",
        "retrieval.best_passages=3",
    ]
    config = read_config(None, [*settings, "retrieval.systems={a: {kind: bm25, b: 1}, b: {kind: dense, depth: 9}}"])
    assert config.make_systems() == {
        "a": Bm25System(k1=1.2, b=1.0, depth=200),
        "b": DenseSystem(depth=9, best_passages=3),
    }
