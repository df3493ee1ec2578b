"""Effectiveness through the command line: `python -m benchmarks.collections DATA WORK` prints one row a collection.

DATA holds a folder for each collection, with `corpus.jsonl` (or `.gz`), topics and qrels. Indexes and runs stay in
WORK. The first columns are nDCG@10 of BM25, of dense search and of their RRF, with the whole narrative as the query.
The last columns are nDCG@10 and R@100 of the default settings, the difference to that RRF, and the p-value of a paired
t-test.
"""

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from keystone.runs.report.terminal import format_p_value


@dataclass(frozen=True, slots=True)
class Collection:
    """The files of a collection in DATA. If `own` is true, its topics are documents, which the measures leave out."""

    name: str
    folder: str
    topics: str = "topics.jsonl"
    qrels: str = "qrels.txt"
    own: bool = False


COLLECTIONS = (
    Collection("medline", "medline"),
    Collection("cisi", "cisi"),
    Collection("time", "time"),
    Collection("scifact", "scifact"),
    Collection("arguana", "arguana", own=True),
    Collection("debates", "arguana", "topics.debates.jsonl", "qrels.debates.txt"),
    Collection("ibm-claims-wiki", "ibm-claims-wiki"),
    Collection("multihop-mini", "multihop-mini"),
)
RUNS = {"whole": ["--set", "queries.method=narrative", "--set", "fusion.systems=rrf"], "default": []}


def run_collection(collection: Collection, data: Path, work: Path) -> str:
    """Index, search and evaluate a collection; returns its row of the table."""
    whole, default = (search_collection(collection, data, work, run) for run in RUNS)
    files = [run / "narrative.trec" for run in (whole, default)] + [whole / "bm25.trec", whole / "dense.trec"]
    out = work / f"{collection.name}.json"
    options = ["--skip-own"] if collection.own else []
    keystone("evaluate", *files, "--qrels", data / collection.folder / collection.qrels, "--json", out, *options)
    found = orjson.loads(out.read_bytes())
    rrf, ours, bm25, dense = (run["mean"] for run in found["runs"])
    p = {measure: math.nan if p is None else p for measure, p in found["paired_t_test"][0]["p"].items()}
    cells = [f"{run['nDCG@10']:.4f}" for run in (bm25, dense, rrf)]
    cells += [f"{ours[m]:.4f} ({ours[m] - rrf[m]:+.4f}, p {format_p_value(p[m])})" for m in ("nDCG@10", "R@100")]
    return f"| {' | '.join([collection.name, *cells])} |"


def search_collection(collection: Collection, data: Path, work: Path, run: str) -> Path:
    """Index a collection and make one of `RUNS`, unless WORK has them already; returns the run directory."""
    folder, index = data / collection.folder, work / "indexes" / collection.folder
    index.parent.mkdir(parents=True, exist_ok=True)
    keystone("index", next(folder.glob("corpus.jsonl*")), "--out", index, "--quiet")
    config = work / f"{collection.name}.{run}.yaml"
    config.write_text(
        f"run_id: {collection.name}.{run}\nindex: {index}\ntopics: {folder / collection.topics}\n"
        f"out: {work / 'runs'}\ntrack: none\n"
    )
    keystone("run", config, *RUNS[run], "--quiet")
    return work / "runs" / f"{collection.name}.{run}"


def keystone(*arguments: str | Path) -> None:
    """Run a command of Keystone without its tables. `CalledProcessError` if it fails."""
    subprocess.run(
        [sys.executable, "-m", "keystone.runs.cli.main", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.collections DATA WORK (see docs/methods.md)")
    print("| collection | BM25 | dense | RRF | default: nDCG@10 | default: R@100 |\n|---|---|---|---|---|---|")
    for collection in COLLECTIONS:
        print(run_collection(collection, Path(sys.argv[1]), Path(sys.argv[2])), flush=True)
