"""Impacts end to end: an index, a run, an update; rankings equal to those of Anserini's own searcher of impacts."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.indexing.encoders.sparse import open_sparse_encoder, quantise
from keystone.indexing.errors import UserError
from keystone.indexing.impacts import join_weights, settle_impacts
from keystone.indexing.index import hold_open, open_index
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.postings import open_postings
from keystone.retrieval.backends import open_impacts, open_sparse, open_store
from keystone.retrieval.impact import ImpactSystem
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.lucene_indexes import build_anserini_index
from tests.support.indexes.small_corpus import CORPUS, write_long_corpus, write_topics
from tests.support.models.checkpoints import find_splade, write_checkpoint
from tests.support.models.plain_model import say
from tests.support.processes import run_with_kills
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers.chat import serving

pytestmark = pytest.mark.slow

WORDS = sorted({word.strip(".,").lower() for _, text in CORPUS.values() for word in text.split()})


def write_texts(path: Path, count: int, seed: int = 0) -> Path:
    choose = random.Random(seed)
    lines = [{"id": f"d{n}", "text": " ".join(choose.choices(WORDS, k=choose.randint(1, 60)))} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 300 documents with the impacts of a trained SPLADE."""
    made = tmp_path_factory.mktemp("impacts")
    corpus = write_texts(made / "corpus.jsonl", 300)
    impacts = {"splade": settle_impacts(str(find_splade()))}
    build_index(corpus, made / "index", BuildSettings(embedding=None, impacts=impacts))
    return made


def search(folder: Path, queries: Mapping[str, str], depth: int = 1000, threads: int = 1) -> Rankings:
    index = open_index(folder)
    opened = OpenIndex(index, open_store(index), threads)
    system = ImpactSystem(impacts="splade", depth=depth)
    return system.search(opened, [Query(name, name, text, text, text) for name, text in queries.items()], None)


def test_the_ranking_is_that_of_anserini_to_the_last_tie(folder: Path, tmp_path: Path) -> None:
    encoder = open_sparse_encoder(str(find_splade()))
    texts = {one["id"]: one["text"] for one in map(json.loads, (folder / "corpus.jsonl").open())}

    def list_impacts(weighted: Any) -> dict[str, int]:
        pairs = zip(weighted[0], quantise(weighted[1]).tolist(), strict=True)
        return {encoder.vocabulary[entry]: impact for entry, impact in pairs if impact}

    documents = map(list_impacts, encoder.encode_documents(list(texts.values())))
    records = [{"id": name, "contents": "", "vector": own} for name, own in zip(texts, documents, strict=True)]
    made = build_anserini_index(
        tmp_path, "impacts", [records], "-impact", "-pretokenized", "-optimize", collection="JsonVectorCollection"
    )
    searcher = java_class("io.anserini.search.SimpleImpactSearcher")(str(made))
    choose = random.Random(1)
    queries = {f"q{n}": " ".join(choose.choices(WORDS, k=choose.randint(1, 12))) for n in range(40)}
    found, store = search(folder / "index", queries, 100), open_store(open_index(folder / "index"))
    for place, text in enumerate(queries.values()):
        asked = java_class("java.util.HashMap")()
        ((entries, weights),) = encoder.encode_queries([text])
        for token, impact in list_impacts((entries, weights)).items():
            asked.put(token, java_class("java.lang.Integer")(impact))
        hits = [(hit.docid, hit.score) for hit in searcher.search(asked, 100)]
        own = list(zip(store.ids(found.of(place)), found.scores_of(place).tolist(), strict=True))
        assert own == hits
    assert len(own) == 100


def test_an_impact_index_of_anserini_is_searched_by_its_model(folder: Path, tmp_path: Path) -> None:
    encoder = open_sparse_encoder(str(find_splade()))
    texts = {one["id"]: one["text"] for one in map(json.loads, (folder / "corpus.jsonl").open())}
    records = [
        {
            "id": name,
            "contents": text,
            "vector": {encoder.vocabulary[n]: w for n, w in zip(own[0], quantise(own[1]).tolist(), strict=True) if w},
        }
        for (name, text), own in zip(texts.items(), encoder.encode_documents(list(texts.values())), strict=True)
    ]
    made = build_anserini_index(
        tmp_path, "impacts", [records[100:], records[:100]], "-impact", "-pretokenized", "-optimize", "-storeRaw",
        collection="JsonVectorCollection",
    )  # fmt: skip
    given = ("index", f"pyserini:{made}", "--in-place", "--no-dense", "--out", tmp_path / "index", "-q")
    refused = keystone(*given)
    assert (refused.returncode, "which model made them: --impacts" in refused.stderr) == (1, True), refused.stderr
    shown = keystone(*given, "--impacts", f"splade={find_splade()}")
    assert shown.returncode == 0, shown.stderr
    queries = {f"q{n}": " ".join(WORDS[n : n + 7]) for n in range(20)}
    found, own = search(tmp_path / "index", queries), search(folder / "index", queries)
    stores = [open_store(open_index(one / "index")) for one in (tmp_path, folder)]
    assert stores[0].ids(found.docs) == stores[1].ids(own.docs)
    assert found.scores.tobytes() == own.scores.tobytes()
    assert stores[0].get(found.docs[:1])[0].text == texts[stores[0].ids(found.docs[:1])[0]]
    with pytest.raises(UserError, match=r"found impacts in place of the terms of BM25"):
        open_sparse(open_index(tmp_path / "index"), stores[0])
    topics = write_topics(tmp_path / "topics.jsonl")
    settings = [f"index={tmp_path / 'index'}", f"topics={topics}", f"out={tmp_path / 'out'}", "track=none"]
    settings += ["retrieval.systems={splade: {kind: impact, impacts: splade}}", "answer.method=none"]
    with serving(model=say) as server:
        settings += ["model.name=plain", f"model.urls=[{server.url}]", "model.window=4096"]
        for method in ("rules", "contract"):
            made = run(read_config(None, [*settings, f"run_id={method}", f"queries.method={method}"]))
            assert len(read_run(made / "splade.trec")) > 0


def test_threads_change_nothing(folder: Path) -> None:
    queries = {f"q{n}": " ".join(WORDS[n : n + 9]) for n in range(0, 90, 9)}
    one, three = (search(folder / "index", queries, threads=threads) for threads in (1, 3))
    assert [one.of(n).tolist() for n in range(10)] == [three.of(n).tolist() for n in range(10)]
    assert one.scores.tobytes() == three.scores.tobytes()


def test_a_run_fuses_impacts_with_bm25_and_explains_and_describes_them(folder: Path, tmp_path: Path) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    systems = {"bm25": {"kind": "bm25"}, "splade": {"kind": "impact", "impacts": "splade", "weight": 2.0}}
    values: dict[str, Any] = {"run_id": "a", "index": str(folder / "index"), "out": str(tmp_path / "out")}
    values |= {"topics": str(topics), "track": "none", "retrieval": {"systems": systems}}
    values |= {"fusion": {"systems": "rrf", "depth": 20}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values | {"answer": {"method": "none"}}))
    run(read_config(tmp_path / "run.yaml"))
    made = tmp_path / "out" / "a"
    assert len(read_run(made / "splade.trec")) > 0
    manifest = json.loads((made / "manifest.json").read_text())
    assert {"splade"} <= manifest["index"]["impacts"].keys()
    (topic, _, doc_id, *_) = (made / "narrative.trec").read_text().split()[:6]
    shown = keystone("explain", made, topic, doc_id)
    assert (shown.returncode, "splade" in shown.stdout) == (0, True), shown.stderr


def test_a_long_document_has_the_greatest_impacts_of_its_passages(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", head="words")
    settings = BuildSettings(embedding=None, passages=True, impacts={"a": settle_impacts(str(model))})
    corpus = write_long_corpus(tmp_path / "corpus.jsonl")
    index, _ = build_index(corpus, tmp_path / "index", settings)
    store, encoder = open_store(index), open_sparse_encoder(str(model))
    postings = open_postings(index.folder / "impacts/a")
    found: dict[int, dict[str, int]] = {row: {} for row in range(len(store))}
    ends = postings.term_ends.tolist()
    for place in range(len(ends) - 1):
        term = postings.terms[ends[place] : ends[place + 1]].tobytes().decode()
        for at in range(int(postings.offsets[place]), int(postings.offsets[place + 1])):
            found[int(postings.rows[at])][term] = int(postings.frequencies[at])
    for row, document in enumerate(store):
        expected: dict[str, int] = {}
        for segment in document.segments:
            ((entries, weights),) = encoder.encode_documents([document.segment_text(segment)])
            for entry, impact in zip(entries, quantise(weights).tolist(), strict=True):
                token = encoder.vocabulary[entry]
                if impact:
                    expected[token] = max(impact, expected.get(token, 0))
        assert found[row] == expected


def test_the_greatest_impact_of_each_owner_counts_and_zeros_do_not() -> None:
    weighted = [
        (np.array([1, 4], np.int32), np.array([1.0, 0.001], np.float32)),
        (np.array([1, 2], np.int32), np.array([2.0, 0.5], np.float32)),
        (np.array([], np.int32), np.array([], np.float32)),
        (np.array([3], np.int32), np.array([5.0], np.float32)),
    ]
    rows, entries, impacts = join_weights(np.array([7, 7, 8, 9], np.int32), weighted)
    assert list(zip(rows.tolist(), entries.tolist(), impacts.tolist(), strict=True)) == [
        (7, 1, 102),
        (7, 2, 26),
        (9, 3, 256),
    ]


@pytest.mark.parametrize("passages", [False, True])
def test_an_update_ends_in_the_impacts_of_a_new_build(tmp_path: Path, passages: bool) -> None:
    model = settle_impacts(str(write_checkpoint(tmp_path / "model", head="words")))
    settings = BuildSettings(embedding=None, passages=passages, impacts={"a": model})
    build_index(write_texts(tmp_path / "old.jsonl", 40), tmp_path / "index", settings)
    lines = (tmp_path / "old.jsonl").read_text().splitlines(keepends=True)
    changed = write_texts(tmp_path / "new.jsonl", 8, seed=5).read_text().splitlines(keepends=True)
    added = [line.replace('"id": "d', '"id": "new') for line in changed[:4]]
    (tmp_path / "change.jsonl").write_text("".join([*changed[4:], *added]))
    (tmp_path / "delete").write_text("d20\nd21\n")
    update_index(tmp_path / "index", [tmp_path / "change.jsonl"], tmp_path / "delete")
    kept = [line for n, line in enumerate(lines) if n not in (4, 5, 6, 7, 20, 21)]
    (tmp_path / "whole.jsonl").write_text("".join([*kept, *changed[4:], *added]))
    build_index(tmp_path / "whole.jsonl", tmp_path / "fresh", settings)
    names = sorted(path.name for path in (tmp_path / "fresh/impacts/a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "index/impacts/a").iterdir())
    for name in names:
        assert (tmp_path / "index/impacts/a" / name).read_bytes() == (tmp_path / "fresh/impacts/a" / name).read_bytes()


def test_a_killed_build_goes_on_and_ends_with_the_same_impacts(folder: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "index", ("rows.npy", "frequencies.npy", "terms", "offsets.npy")
    whole = {name: (folder / "index/impacts/splade" / name).read_bytes() for name in names}

    def compare() -> None:
        assert {name: (out / "impacts/splade" / name).read_bytes() for name in names} == whole
        shutil.rmtree(out)

    model = f"splade={find_splade()}"
    run_with_kills(
        "index", folder / "corpus.jsonl", "--no-dense", "--impacts", model, "--out", out, "-q",
        times=8, kills=4, done=compare,
    )  # fmt: skip


def test_a_set_that_the_index_lacks_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match=r"impacts: found 'other' for .*index, expected one of splade"):
        open_impacts(open_index(folder / "index"), "other")


def test_impacts_that_a_server_holds_open_stay_when_another_index_takes_the_folder(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "index", tmp_path / "index")
    index = hold_open(open_index(tmp_path / "index"))
    opened, system = OpenIndex(index, open_store(index)), ImpactSystem(impacts="splade", depth=20)
    system.open_parts(opened)
    shutil.rmtree(tmp_path / "index")
    text = " ".join(WORDS[:5])
    found = system.search(opened, [Query("1", "1", text, text, text)], None)
    assert found.docs.tolist() == search(folder / "index", {"1": text}, 20).docs.tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("splade", "--impacts splade: expected NAME=MODEL"),
        ("S=/nowhere", "found the name 'S', expected a new one of lower-case letters"),
        ("a=nowhere", "found no such folder"),
    ],
)
def test_an_option_that_names_no_model_is_refused(given: str, message: str, folder: Path, tmp_path: Path) -> None:
    shown = keystone_here("index", folder / "corpus.jsonl", "--out", tmp_path / "index", "--impacts", given, "-q")
    assert (shown.returncode, message in shown.stderr) == (1, True), shown.stderr
    assert not (tmp_path / "index").exists()
