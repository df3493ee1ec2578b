"""A day's work of one who knows Pyserini: index, BM25 runs, CombSUM, the measures of trec_eval, files to submit."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keystone.fusion.methods import METHODS, OF_PYSERINI, find_method
from keystone.runs.cli.main import app
from keystone.runs.config.read import read_config
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import NARRATIVES, write_corpus, write_topics


def type_in(*words: str | Path) -> Any:
    shown = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    return shown


def test_a_day_of_one_who_knows_pyserini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.jsonl")
    write_topics(tmp_path / "topics.jsonl")
    Path("qrels.txt").write_text("1 0 bees 1\n1 0 wasps 0\n2 0 volcano 2\n")
    type_in("index", "corpus.jsonl", "--no-dense", "--out", "index", "-q")
    runs = ("--preset", "bm25", "--index", "index", "--topics", "topics.jsonl", "-q", "--out", "runs")
    assert type_in("run", *runs).stdout == "runs/bm25\n"
    type_in("run", *runs, "--set", "retrieval.feedback=rm3", "--set", "run_id=rm3")
    ranked, found = (read_run(Path("runs/bm25") / f"{name}.trec") for name in ("narrative", "bm25"))
    assert ranked.scores.tolist() == found.scores.tolist(), "the scores of BM25"
    type_in("fuse", "runs/bm25", "runs/rm3", "--method", "CombSUM", "--out", "fused.trec")
    assert set(read_run(Path("fused.trec")).query_ids) == set(NARRATIVES)
    names = ("map", "ndcg_cut_10", "ndcg_cut.10", "recall_1000", "P_5", "recip_rank", "Rprec", "bpref")
    measures = [word for name in names for word in ("-m", name)]
    told = type_in("evaluate", "fused.trec", "runs/bm25", "--qrels", "qrels.txt", *measures, "--json").stdout
    assert [run["mean"]["RR"] for run in json.loads(told)["result"]["runs"]] == [1.0, 1.0]
    assert "valid for rag25: 0 errors" in type_in("validate", "runs/bm25", "--topics", "topics.jsonl").stdout


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((f"Comb{name.upper()}", name) for name in ("min", "med", "max", "sum", "anz", "mnz", "gmnz")),
        ("comb_mnz", "mnz"),
        ("RRF", "rrf"),
        ("reciprocal-rank fusion", "rrf"),
        ("BordaFuse", "bordafuse"),
        ("Borda count", "bordafuse"),
        ("logISR", "log_isr"),
        ("w-condorcet", "w_condorcet"),
        ("combsumx", "combsumx"),
        *((name, name) for name in METHODS),
    ],
)
def test_methods_have_the_names_of_the_literature(name: str, method: str) -> None:
    assert find_method(name) == method
    if method in METHODS and not METHODS[method].several:
        needed = ["run_id=r", "index=i", "topics=t", "queries.narrative_weight=1"]
        assert read_config(None, [*needed, f"fusion.method={name}"]).fusion.method == method


@pytest.mark.parametrize("name", OF_PYSERINI)
def test_the_error_for_a_method_of_pyserini_says_what_to_take(tmp_path: Path, name: str) -> None:
    (run := tmp_path / "a.trec").write_text("1 Q0 d 1 0.5 a\n")
    found = CliRunner().invoke(app, ["fuse", str(run), "--method", name, "--out", str(tmp_path / "f.trec")])
    assert f"for Pyserini's {name}, take {OF_PYSERINI[name]}" in str(found.exception)
