"""A whole run through the command line: whole files, continuation after a kill, real collections."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.answer_files import read_answer_file
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, TRIAL_WARNINGS, write_corpus, write_topics
from tests.support.places import SHARED
from tests.support.processes import run_with_kills, start, wait
from tests.support.runs.answer_files import ANSWERED_TRACKS
from tests.support.runs.command_line import keystone
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

CONFIG = """
run_id: small
team_id: testers
index: {folder}/index
topics: {folder}/topics.jsonl
out: {folder}/{out}
retrieval: {{depth: 8}}
fusion: {{depth: 6}}
answer: {{documents: 5, words: 60}}
"""
PAPER = [
    "queries.narrative_weight=0",
    "queries.question_weight=1",
    "queries.variants=10",
    "queries.topic=phrase",
    "queries.dense_topic=true",
    "queries.facets=clauses",
    "fusion.k_narrative=60",
]
FILES = [
    "answers.jsonl",
    "bm25.trec",
    "config.yaml",
    "dense.trec",
    "evidence.jsonl",
    "hybrid.trec",
    "manifest.json",
    "narrative.trec",
    "queries.jsonl",
    "r_output_trec_rag_2025.tsv",
    "rag_output_trec_rag_2025.jsonl",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small index, its topics and an undisturbed run of them in `whole/small`."""
    made = tmp_path_factory.mktemp("main-job")
    write_topics(made / "topics.jsonl")
    assert keystone("index", write_corpus(made / "corpus.jsonl"), "--out", made / "index", "-q").returncode == 0
    shown = keystone("run", config(made, "whole"), "-q")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"{made / 'whole/small'}\n", "")
    return made


def config(folder: Path, out: str) -> Path:
    path = folder / f"{out}.yaml"
    path.write_text(CONFIG.format(folder=folder, out=out))
    return path


def content(run: Path) -> dict[str, bytes]:
    """Read every file of a run. The configuration lacks the line that names the output folder."""
    files = {path.name: path.read_bytes() for path in run.iterdir()}
    files["config.yaml"] = b"".join(x for x in files["config.yaml"].splitlines(True) if not x.startswith(b"out:"))
    manifest = json.loads(files["manifest.json"])
    del manifest["artifacts"]["config.yaml"]
    files["manifest.json"] = json.dumps(manifest).encode()
    return files


def test_a_run_writes_every_artifact_and_valid_submissions(folder: Path) -> None:
    run = folder / "whole/small"
    assert sorted(path.name for path in run.iterdir()) == FILES
    for name in FILES[-2:]:
        shown = keystone("validate", run / name, "--topics", folder / "topics.jsonl")
        assert shown.returncode == 0
        warning, seen, verdict = shown.stdout.splitlines()
        assert "not an id of the track's corpus" in warning
        assert verdict == f"{run / name}: valid for rag25: 0 errors, 1 warning"
        assert seen.startswith(f"{run / name}: 2 of 2 topics, ")
    manifest = json.loads((run / "manifest.json").read_bytes())
    assert manifest["methods"] == {"queries": "rules", "fusion": "rrf", "grading": "none", "answer": "rules"}
    assert manifest["index"]["documents"] == len(CORPUS)


@pytest.mark.parametrize("name", [name for name in ANSWERED_TRACKS if name != "rag25"])
def test_every_track_gets_valid_files(folder: Path, name: str) -> None:
    track = TRACKS[name]
    changes = ("--set", f"track={name}", "--set", f"run_id={name}", "--set", "answer.words=null")
    assert keystone("run", config(folder, "tracks"), "-q", *changes).returncode == 0
    run, topics = folder / "tracks" / name, read_topics(folder / "topics.jsonl")
    for file in (track.retrieval_file, track.answer_file):
        assert {v.kind for v in validate(run / file, track, topics)} <= TRIAL_WARNINGS
    ranked = read_run(run / track.retrieval_file).list_hits()["1"]
    assert len(ranked) == 6
    assert all((doc_id in CORPUS) != track.segments for doc_id, _ in ranked)
    for submitted in read_answer_file(run / track.answer_file, track):
        assert submitted.answer.sentences
        assert all((reference in CORPUS) != track.segments for reference in submitted.references)


def test_the_answers_match_their_topics(folder: Path) -> None:
    lines = (folder / "whole/small" / FILES[-1]).read_text().splitlines()
    bees, volcano = map(json.loads, lines)
    assert [r["metadata"]["narrative"] for r in (bees, volcano)] == list(NARRATIVES.values())
    assert {"bees#w0_0", "beekeeping#w0_0"} <= set(bees["references"])
    assert {"volcano#w0_0", "weather#w0_0"} <= set(volcano["references"])
    assert all(sentence["citations"] for record in (bees, volcano) for sentence in record["answer"])


@pytest.mark.parametrize("part", ["store/ids.npy", "postings/rows.npy", "dense.faiss", "segments.sqlite"])
def test_a_damaged_index_is_one_error(folder: Path, tmp_path: Path, part: str) -> None:
    shutil.copytree(folder / "index", tmp_path / "index")
    (tmp_path / "index" / part).write_bytes(b"not what it was" * 9)
    out, index = f"out={tmp_path / 'out'}", f"index={tmp_path / 'index'}"
    shown = keystone("run", config(folder, "whole"), "-q", "--set", out, "--set", index)
    assert (shown.returncode, shown.stderr.count("\n")) == (1, 1), shown.stderr
    assert shown.stderr.startswith(f"error: {tmp_path / 'index'}")


def test_an_index_that_cannot_be_written_is_used_as_it_is(folder: Path, tmp_path: Path) -> None:
    """A folder at the cache's path replaces a missing right to write, which tests that run as root cannot have."""
    shutil.copytree(folder / "index", tmp_path / "index")
    (tmp_path / "index/segments.sqlite").unlink()
    (tmp_path / "index/segments.sqlite").mkdir()
    out, index = f"out={tmp_path / 'out'}", f"index={tmp_path / 'index'}"
    shown = keystone("run", config(folder, "whole"), "-q", "--set", out, "--set", index)
    assert (shown.returncode, shown.stderr) == (0, "")
    for name in FILES[-2:]:
        assert (tmp_path / "out/small" / name).read_bytes() == (folder / "whole/small" / name).read_bytes()


def test_the_same_bytes_on_any_number_of_threads(folder: Path) -> None:
    (folder / "index/segments.sqlite").unlink()
    assert keystone("run", config(folder, "threads"), "-q", "--threads", "5").returncode == 0
    assert content(folder / "threads/small") == content(folder / "whole/small")


def test_a_second_run_keeps_everything_and_a_change_remakes_its_dependents(folder: Path) -> None:
    arguments = ("run", config(folder, "whole"))
    again = keystone(*arguments)
    assert again.stderr.startswith("small: kept config, queries, search, hybrid")
    assert "made" not in again.stderr
    other = keystone(*arguments, "--set", "fusion.k_narrative=60")
    assert (
        "small: made config, narrative, segments, gather, answer, submission; kept queries, search, hybrid\n"
        in other.stderr
    )
    back = keystone(*arguments, "-q")
    assert back.returncode == 0


def test_a_run_that_is_killed_at_any_moment_ends_with_the_same_bytes(folder: Path) -> None:
    def compare() -> None:
        assert content(folder / "killed/small") == content(folder / "whole/small")
        shutil.rmtree(folder / "killed")
        (folder / "index/segments.sqlite").unlink()

    (folder / "index/segments.sqlite").unlink()
    run_with_kills("run", config(folder, "killed"), "-q", times=16, kills=8, done=compare)


def test_a_killed_indexing_leaves_no_index_and_can_be_repeated(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    endless = (
        "import time; from keystone.indexing.vectors import faiss_index; "
        "faiss_index.build_dense = lambda *_: time.sleep(600)"
    )
    pid = start("index", corpus, "--out", tmp_path / "i", "-q", code=endless)
    wait_until((tmp_path / ".i.partial").exists, "an index to be begun")
    os.kill(pid, signal.SIGKILL)
    assert wait(LIMIT_S) == -signal.SIGKILL
    assert not (tmp_path / "i").exists()
    assert keystone("index", corpus, "--out", tmp_path / "i", "-q").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "i"]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(["fusion.method=frequency", "queries.narrative_weight=0"], id="frequency"),
        pytest.param(
            ["fusion.method=wmnz", "fusion.norm=zmuv", "queries.narrative_weight=0.5"], id="negative scores, weighted"
        ),
        pytest.param(["queries.method=narrative"], id="whole narrative"),
        pytest.param(PAPER, id="paper"),
        pytest.param(["retrieval.systems=[bm25]"], id="one system"),
    ],
)
def test_the_strategies_of_the_paper_give_valid_submissions(folder: Path, settings: list[str]) -> None:
    arguments = [part for setting in settings for part in ("--set", setting)]
    shown = keystone("run", config(folder, "strategies"), "-q", *arguments)
    assert (shown.returncode, shown.stderr) == (0, "")
    for name in FILES[-2:]:
        run = folder / "strategies/small"
        assert keystone("validate", run / name, "--topics", folder / "topics.jsonl").returncode == 0


def mean(path: Path, qrels: Path, measure: str, tmp_path: Path) -> float:
    report = tmp_path / "report.json"
    assert keystone("evaluate", path, "--qrels", qrels, "--out", report).returncode == 0
    return float(json.loads(report.read_bytes())["runs"][0]["mean"][measure])


@pytest.mark.nightly
@pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")
def test_real_collections_reach_the_known_figures(tmp_path: Path) -> None:
    """BM25 is within 0.02 of the published figures. RRF is less than 0.01 below its better component."""
    for name, corpus, expected, dense in (
        ("scifact", "corpus.jsonl.gz", 0.671, False),
        ("time", "corpus.jsonl", 0.645, True),
    ):
        data, embedding = SHARED / name, ("--dense", "all") if dense else ("--no-dense",)
        made = keystone("index", data / corpus, "--out", tmp_path / name, "-q", *embedding)
        assert made.returncode == 0, made.stderr
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"run_id: {name}\nindex: {tmp_path / name}\ntopics: {data / 'topics.jsonl'}\n"
            f"out: {tmp_path / 'out'}\ntrack: none\nqueries: {{method: narrative}}\n"
            f"retrieval: {{systems: [{'bm25, dense' if dense else 'bm25'}]}}\n"
        )
        shown = keystone("run", path, "-q")
        assert shown.returncode == 0, shown.stderr

        def figure(system: str, name: str = name, data: Path = data) -> float:
            return mean(tmp_path / "out" / name / f"{system}.trec", data / "qrels.txt", "nDCG@10", tmp_path)

        assert figure("bm25") == pytest.approx(expected, abs=0.02)
        if dense:
            assert figure("narrative") >= max(figure("bm25"), figure("dense")) - 0.01
