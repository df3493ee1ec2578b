"""PLAID as a first stage: what an index without fast-plaid says, and with it recall, updates and kills."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.indexing import plaid
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, PlaidSet, open_index
from keystone.indexing.opensearch.cluster import place_of
from keystone.indexing.opensearch.index import Target
from keystone.indexing.plaid import Hits, open_plaid, open_plaid_encoder, save_vectors, settle_plaid
from keystone.retrieval.backends import open_store
from keystone.retrieval.late import LateSystem, PlaidSystem, rank_texts
from keystone.retrieval.search import KINDS
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, write_corpus
from tests.support.models.late import write_minilm, write_pylate
from tests.support.models.plaid import add_plaid
from tests.support.pages import find_words, list_commands
from tests.support.places import SHARED
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone, keystone_here

SYSTEM = "retrieval.systems={plaid: {kind: plaid, plaid: c}}"


def list_found(folder: Path, words: str) -> list[str]:
    """The ids of the documents that a search by PLAID finds, best first."""
    shown = keystone("search", folder, words, "--set", SYSTEM, "--json", "-q", code=add_plaid())
    assert shown.returncode == 0, shown.stderr
    return [passage["document"] for passage in json.loads(shown.stdout)["passages"]]


def read_files(index: Index) -> dict[str, bytes]:
    """The files of the PLAID indexes of an index."""
    folder = index.folder / "plaid"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def add(folder: Path, model: Path, *options: str) -> Index:
    """Add the PLAID index `c` to an index, by the command of the page on indexes."""
    (command,) = list_commands("keystone index .*--plaid ")
    words = find_words(command)
    words[words.index("--plaid") + 1], words[words.index("--out") + 1] = f"c={model}", str(folder)
    done = keystone(*words, "-q", *options, code=add_plaid())
    assert done.returncode == 0, done.stderr
    return open_index(folder)


def test_without_fast_plaid_its_package_is_named(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_plaid", None)
    shown = keystone_here("index", "--add", "--plaid", f"c={tmp_path}", "--out", index.folder, "-q")
    assert shown.returncode == 1
    assert "fast-plaid is needed for PLAID: pip install 'keystone-rag[plaid]'" in shown.stderr
    with pytest.raises(UserError, match="fast-plaid is needed"):
        open_plaid(replace(index, plaid={"c": PlaidSet("m", "w")}), "c")


def test_a_set_that_the_index_lacks_is_named(index: Index) -> None:
    assert KINDS["plaid"] is PlaidSystem
    with pytest.raises(UserError, match=r"plaid: found 'c' for .*, expected a set .* it has none .*--plaid"):
        PlaidSystem(plaid="c").fits(index)


def test_a_cluster_holds_no_plaid_index(tmp_path: Path) -> None:
    target = Target(place_of("http://localhost:9/x"), 1, 0)
    settings = BuildSettings(embedding=None, opensearch=target, plaid={"c": PlaidSet("m", "w")})
    with pytest.raises(UserError, match="found --plaid with --opensearch"):
        build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", settings)


def test_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    vectors = np.ones((2, 8), np.float32)
    assert save_vectors(tmp_path / "0.npy", [vectors, vectors[:1]], "m") == [2, 1]
    vectors[1, 3] = np.nan
    with pytest.raises(UserError, match="m: found vectors that are not finite"):
        save_vectors(tmp_path / "0.npy", [vectors], "m")


def test_texts_are_found_until_they_are_those_of_enough_documents() -> None:
    """Of two books of 2,000 passages and 50 notes, the books come first."""
    offsets = np.array([0, 2_000, *range(4_000, 4_051)])
    texts = [[(text, float(5_000 - text)) for text in range(4_050)], [(4_001, 4.0), (0, 2.0), (3, 1.0)]]
    asked: list[tuple[list[int], int]] = []

    def find(places: Sequence[int], wanted: int) -> list[Hits]:
        asked.append((list(places), wanted))
        return [texts[place][:wanted] for place in places]

    (many, _), (few, scores) = rank_texts(find, [1, 2], offsets, 10)
    assert asked == [([0, 1], 1_024), ([0], 2_048), ([0], 4_096)]
    assert many.tolist() == list(range(52))
    assert (few.tolist(), scores.tolist()) == ([0, 3], [1.0, 2.0])
    (own,) = rank_texts(find, [1], None, 10)
    assert (own[0].tolist(), asked[3:]) == (list(range(10)), [([0], 10)])


@pytest.mark.slow
def test_only_an_index_that_was_made_with_prompts_is_searched_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plaid, "import_plaid", lambda: None)
    bare = write_pylate(tmp_path / "bare", dimension=16)
    folder = write_pylate(tmp_path / "prompts", dimension=16, prompts={"query": "q: ", "document": "d: "})
    older, made = PlaidSet(str(folder), read_checkpoint(str(folder)).compute_digest()), settle_plaid(str(folder))
    assert made == replace(older, prompted=True)
    assert not settle_plaid(str(bare)).prompted
    encoder = open_plaid_encoder(settle_plaid(str(bare)))
    for one, text in ((older, "coral"), (made, "q: coral")):
        assert np.array_equal(open_plaid_encoder(one).encode_query("coral"), encoder.encode_query(text))
        assert PlaidSet(**one.as_json()) == one
    assert older.as_json().keys() == {"model", "weights"}
    assert older.made_by == older.weights != made.made_by
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "MultiVectorEncoder"}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"document_length": 40}))
    made = settle_plaid(str(folder))
    older = replace(made, lengths="")
    assert (older.made_by, made.made_by) == (f"{made.weights} with prompts", f"{older.made_by}{made.lengths}")
    for one, length in ((older, 32), (PlaidSet(**made.as_json()), 7)):
        assert len(open_plaid_encoder(one).encode_query("coral")) == length


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)  # it encodes all documents twice
def test_recall_of_the_exact_first_hundred_of_all_documents(tmp_path: Path) -> None:
    collection = SHARED / "medline"
    if not collection.exists():
        pytest.skip("the real collections are not on this machine")
    model = write_minilm(tmp_path / "minilm")
    build_index(collection / "corpus.jsonl", tmp_path / "index", BuildSettings(embedding=None))
    index = add(tmp_path / "index", model)
    systems: dict[str, Any] = {"bm25": {"kind": "bm25"}, "plaid": {"kind": "plaid", "plaid": "c"}}
    topics_file = collection / "topics.jsonl"
    values: dict[str, Any] = {"run_id": "r", "index": str(index.folder), "topics": str(topics_file), "track": "none"}
    values |= {"out": str(tmp_path / "out"), "queries": {"method": "narrative"}, "retrieval": {"systems": systems}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    done = keystone("run", tmp_path / "run.yaml", "-q", code=add_plaid())
    assert done.returncode == 0, done.stderr
    found = list(read_run(tmp_path / "out/r/plaid.trec").top(100).list_hits().values())
    store, topics = open_store(index), read_topics(topics_file)
    queries = [Query(one.id, one.id, one.narrative, one.narrative, one.narrative) for one in topics]
    exact = LateSystem(model=str(model), within="", depth=100).search(
        OpenIndex(index, store, 2), queries, np.arange(len(store), dtype=np.int32)
    )
    shared = [
        len({*store.ids(exact.of(place))} & {name for name, _ in found[place]}) / 100 for place in range(len(topics))
    ]
    assert np.mean(shared) > 0.95


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("passages", [False, True])
def test_an_updated_set_is_that_of_a_new_build_and_dropping_it_leaves_the_first_index(
    passages: bool, tmp_path: Path
) -> None:
    model, corpus = write_pylate(tmp_path / "colbert", dimension=16), write_corpus(tmp_path / "corpus.jsonl")
    settings = BuildSettings(passages=passages)
    first, _ = build_index(corpus, tmp_path / "index", settings)
    before = (first.folder / "index.json").read_bytes()
    add(tmp_path / "index", model, "--threads", "1")
    assert sorted(list_found(tmp_path / "index", "honey bees")) == sorted(CORPUS)
    new = {"id": "new", "text": "Bees dance. " + "Glaciers move slowly, and ash cools the weather. " * 40}
    (tmp_path / "new.jsonl").write_text(json.dumps(new) + "\n")
    done = keystone("index", "--update", tmp_path / "new.jsonl", "--out", tmp_path / "index", "-q", code=add_plaid())
    assert done.returncode == 0, done.stderr
    both = tmp_path / "both.jsonl"
    both.write_bytes(corpus.read_bytes() + (tmp_path / "new.jsonl").read_bytes())
    options = ["--dense", "passages" if passages else "all", "--plaid", f"c={model}", "--threads", "2"]
    done = keystone("index", both, *options, "--out", tmp_path / "fresh", "-q", code=add_plaid())
    assert done.returncode == 0, done.stderr
    fresh = open_index(tmp_path / "fresh")
    index = open_index(tmp_path / "index")
    assert read_files(index) == read_files(fresh)
    assert sorted(list_found(tmp_path / "index", "honey bees")) == sorted([*CORPUS, "new"])
    (tmp_path / "gone").write_text("new\n")
    done = keystone("index", "--delete", tmp_path / "gone", "--out", tmp_path / "index", "-q", code=add_plaid())
    assert done.returncode == 0, done.stderr
    (tmp_path / "index/plaid/c/merged_residuals.npy").write_bytes(b"")
    shown = keystone("search", tmp_path / "index", "bees", "--set", SYSTEM, "-q", code=add_plaid())
    assert (shown.returncode, "damaged: drop the set and add it again" in shown.stderr) == (1, True), shown.stderr
    dropped = keystone("index", "--drop", "c", "--out", tmp_path / "index", "-q")
    assert dropped.returncode == 0, dropped.stderr
    assert not (tmp_path / "index/plaid").exists()
    assert {**json.loads((tmp_path / "index/index.json").read_bytes()), "key": ""} == {**json.loads(before), "key": ""}


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_command_leaves_the_older_index_and_goes_on(tmp_path: Path) -> None:
    model, index = write_pylate(tmp_path / "colbert", dimension=16), tmp_path / "index"
    first, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "first", BuildSettings(embedding=None))
    shutil.copytree(first.folder, index)
    expected = read_files(add(index, model))

    def begin() -> None:
        shutil.rmtree(index)
        shutil.copytree(first.folder, index)

    def compare() -> None:
        assert read_files(open_index(index)) == expected
        assert not list(tmp_path.glob(".index*"))
        begin()

    begin()
    command = ("index", "--add", "--plaid", f"c={model}", "--out", index, "-q")
    run_with_kills(*command, times=8, kills=4, done=compare, code=add_plaid())
