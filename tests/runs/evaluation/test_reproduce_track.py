"""Published baselines of a track: their list, and runs over a small index under the name of a prebuilt one."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from typer.testing import CliRunner

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.lucene.java import java_class
from keystone.runs.cli.main import app
from keystone.runs.config.read import PRESETS
from keystone.runs.evaluation.measures import read_ir_measure
from keystone.runs.evaluation.reproduce_track import Figure, find_prebuilt, read_baselines
from tests.support.indexes.lucene_indexes import build_anserini_index
from tests.support.indexes.small_corpus import CORPUS, write_corpus
from tests.support.pages import find_words, list_commands
from tests.support.places import ROOT, SHARED
from tests.support.runs.command_line import keystone_here

WORDS = ["bees", "honey", "queen", "volcano", "ash", "weather", "ice", "sugar", "rivers", "pollen", "glacier", "hive"]
NAME = "msmarco-v2.1-doc-segmented"
TOPICS = {"2024-1": "how do bees make honey", "2024-2": "ash of a volcano and the weather", "2024-3": "ice in rivers"}
BASELINES = [(track, one) for track, own in read_baselines().items() for one in own.baselines]


def type_in(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["reproduce-track", *map(str, words)], env={"COLUMNS": "300", "NO_COLOR": "1"})


@pytest.mark.parametrize(("track", "baseline"), BASELINES, ids=lambda one: str(getattr(one, "name", one)))
def test_each_baseline_has_a_source_and_a_way(track: str, baseline: Any) -> None:
    own = read_baselines()[track]
    assert baseline.source
    assert bool(baseline.left_out) != bool(baseline.index)
    assert baseline.preset in PRESETS or baseline.left_out
    assert baseline.left_out or set(baseline.expected) <= set(own.judgments)
    for figures in baseline.expected.values():
        assert all(figure is None or 0 < figure < 1 for figure in figures.values())


def test_the_page_has_the_published_figures() -> None:
    page = (ROOT / "docs/evaluate.md").read_text()
    for track, one in BASELINES:
        for judgments, figures in one.expected.items():
            told = ", ".join(f"{name} {f'{value:.4f}'[1:]}" for name, value in figures.items() if value is not None)
            assert f"| {track} | {one.name} | {judgments} | {told or 'not published'} | {one.source} |\n" in page


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("lucene-inverted.msmarco-v2.1-doc-segmented.20240418.4f9675.0123abcd", True),
        ("lucene-index.msmarco-v2.1-doc-segmented.20240418.4f9675.0123abcd", True),
        ("lucene-inverted.msmarco-v2.1-doc-segmented-slim.20240418.4f9675.0123abcd", False),
        ("lucene-inverted.msmarco-v2.1-doc-segmented.splade-v3.20250707.4039c3.0123abcd", False),
        ("lucene-hnsw.msmarco-v2.1-doc-segmented.20240418.4f9675.0123abcd", False),
    ],
)
@pytest.mark.parametrize(("variable", "below"), [("PYSERINI_CACHE", "indexes"), ("ANSERINI_INDEX_CACHE", "")])
def test_a_prebuilt_index_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, found: bool, variable: str, below: str
) -> None:
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / below / folder).mkdir(parents=True)
    assert (find_prebuilt(NAME) is not None) == found


@pytest.mark.parametrize(
    ("expected", "found", "differs"),
    [(0.5, 0.5009, False), (0.5, 0.5011, True), (None, 0.5, False), (0.5, None, False)],
)
def test_a_figure_differs_beyond_a_thousandth(expected: float | None, found: float | None, differs: bool) -> None:
    assert Figure("NIST", "nDCG@20", expected, found).differs == differs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rag23"], "rag23: has no published baselines; expected one of rag24, rag25, rag26-dev"),
        (["rag24", "--index", "x"], "--index x: expected NAME=FOLDER"),
        (["rag24", "--index", "x=y"], "--index x: no baseline of rag24 uses it; expected one of msmarco"),
        (["rag24", "--index", f"{NAME}=no-folder"], "no-folder: found no folder; expected an index of"),
        (["rag24", "--data", "no-folder"], "--data no-folder: found no folder"),
    ],
)
def test_the_error_names_what_is_wrong(words: list[str], message: str) -> None:
    shown = type_in(*words)
    assert shown.exit_code == 1
    assert message in str(shown.exception)


@pytest.mark.parametrize("track", read_baselines())
def test_without_any_index_each_baseline_says_what_it_lacks(
    track: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path))
    shown = type_in(track, "--out", tmp_path / "out", "--data", tmp_path, "--json")
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)["result"]["baselines"]
    assert [one["name"] for one in told] == [one.name for one in read_baselines()[track].baselines]
    assert all(one["lacks"] and not one["error"] for one in told)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text", ['{"runs": [', '{"runs": [{}]}', '{"runs": [{"name": "a", "mean": {"nDCG@10": "x"}}]}']
)
def test_a_damaged_file_of_figures_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rag26-dev-BM25.Qwen.json"
    path.write_text(text)
    shown = type_in("rag26-dev", "--out", tmp_path, "--data", tmp_path, "--dry-run")
    assert shown.exit_code == 1
    assert str(path) in str(shown.exception)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with topics and NIST's judgments of RAG 2024 under their published names, for the small index."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(3)
    (folder / "topics").mkdir()
    (folder / "topics/topics.rag24.test.txt").write_text("".join(f"{id}\t{text}\n" for id, text in TOPICS.items()))
    rows = [
        f"{topic} 1 {one['docid']} {chance.choice([0, 0, 1, 2, 3])}\n" for topic in TOPICS for one in make_segments()
    ]
    (folder / "qrels.rag24.test.txt").write_text("".join(rows))
    return folder


def make_segments() -> list[dict[str, Any]]:
    """Segments with the keys and ids of MS MARCO V2.1."""
    chance = random.Random(1)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(5, 25))) for _ in range(200)]
    keys = {"url": "u", "title": "", "headings": "", "start_char": 0, "end_char": 9}
    return [
        {"docid": f"msmarco_v2.1_doc_00_{n // 4}#{n % 4}_{n}", "segment": text, **keys} for n, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of Pyserini with a small index under the name of the prebuilt one."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "indexes").mkdir()
    made = build_anserini_index(folder, "made", [make_segments()], "-storeRaw", collection="MsMarcoV2DocCollection")
    made.rename(folder / "indexes" / f"lucene-inverted.{NAME}.20240418.4f9675.0123456789abcdef0123456789abcdef")
    return folder


@pytest.mark.slow
def test_baselines_of_an_index_in_the_cache_have_the_figures_of_anserini(
    cache: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSERINI_CACHE", str(cache))
    words = ("rag24", "--out", tmp_path / "out", "--data", data)
    shown = type_in(*words, "--json", "-q")
    assert shown.exit_code == 1, "the figures of a stand-in differ from the published ones"
    told = {one["name"]: one for one in json.loads(shown.stdout)["result"]["baselines"]}
    assert [one["error"] for one in told.values()] == [""] * len(told)
    assert "found no index msmarco-v2.1-doc-segmented.splade-v3" in told["SPLADE-v3"]["lacks"][0]
    for name in ("BM25", "BM25+RM3", "BM25+Rocchio"):
        (lack,) = told[name]["lacks"]
        assert "found no qrels.rag24.test-umbrela-all.txt*" in lack
        found = {one["judgments"]: one["found"] is not None for one in told[name]["figures"]}
        assert found == {"NIST": True, "UMBRELA": False}
    (index,) = (cache / "indexes").iterdir()
    peer = java_class("io.anserini.search.SimpleSearcher")(str(index))
    peer.set_bm25(0.9, 0.4)
    rows = [
        ir_measures.ScoredDoc(topic, hit.docid, hit.score)
        for topic, text in TOPICS.items()
        for hit in peer.search(text, 1000)
    ]
    judged = list(ir_measures.read_trec_qrels(str(data / "qrels.rag24.test.txt")))
    own = [one for one in told["BM25"]["figures"] if one["judgments"] == "NIST"]
    measures = [read_ir_measure(one["measure"]) for one in own]
    expected = ir_measures.calc_aggregate(measures, judged, rows)
    assert [one["found"] for one in own] == pytest.approx([expected[one] for one in measures], abs=1e-4)
    text = type_in(*words, "--dry-run").stdout
    assert re.search(r"NIST: nDCG@20 0\.2809, found 0\.\d{4} \(differs\), nDCG@100", text)
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path))
    assert type_in(*words, "--index", f"{NAME}={index}", "--dry-run").stdout == text, "by its folder"


@pytest.mark.slow
def test_the_command_of_the_page_measures_the_baselines_that_its_files_allow(
    cache: Path, data: Path, tmp_path: Path
) -> None:
    """A small index and few topics take the place of the real ones, so the figures differ."""
    (command,) = list_commands("keystone reproduce-track ")
    (index,) = (cache / "indexes").iterdir()
    own, published = read_baselines()["rag25"], tmp_path / "anserini-tools"
    published.mkdir()
    shutil.copy(data / "topics/topics.rag24.test.txt", published / own.topics.replace("*", "txt"))
    shutil.copy(data / "qrels.rag24.test.txt", published / own.judgments["NIST"].replace("*", ""))
    done = keystone_here(*find_words(command.replace("/data/lucene-index", str(index))), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    told = re.split(r"^(?=\S)", done.stdout, flags=re.MULTILINE)
    measured = [one.name for one in own.baselines if one.index == NAME and "NIST" in one.expected]
    assert measured
    for name in measured:
        (text,) = [text for text in told if text.startswith(f"{name} (")]
        assert re.search(r"NIST: .* found 0\.\d{4}", text), text


@pytest.mark.slow
def test_an_index_of_keystone_needs_no_first_command_and_an_error_names_its_command(tmp_path: Path) -> None:
    index = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(embedding=None))[0]
    (tmp_path / "rag25-topics-dev.tsv").write_text("1\thoney of bees\n")
    qrels = tmp_path / "rag25-climbmix-umbrela-qwen3.5-9b-v2.qrels"
    qrels.write_text(f"1 0 {next(iter(CORPUS))} 2\n")
    words = (
        "rag26-dev",
        "--out",
        tmp_path / "out",
        "--data",
        tmp_path,
        "-q",
        "--index",
        f"climbmix-400b={index.folder}",
    )
    shown = type_in(*words)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"Qwen: nDCG@10 not published, found 0\.\d{4}, R@1000 not published, found 1\.0000", shown.stdout)
    assert "keystone index" not in shown.stdout
    qrels.write_text("7 0 x 1\n")
    failed = type_in(*words)
    assert failed.exit_code == 1
    assert "failed: keystone evaluate: " in failed.stderr
    assert "none of its topics is judged" in failed.stderr


@pytest.mark.skipif(not SHARED.exists(), reason="the track's files are not on this machine")
@pytest.mark.parametrize(("track", "judgments"), [("rag24", ["NIST"]), ("rag25", ["NIST", "UMBRELA"])])
def test_the_published_names_find_the_real_files(track: str, judgments: list[str]) -> None:
    own = read_baselines()[track]
    folder = SHARED / "trec-rag-material"
    assert len(list(folder.rglob(own.topics))) == 1
    assert [name for name, pattern in own.judgments.items() if list(folder.rglob(pattern))] == judgments
