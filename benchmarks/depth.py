"""Set F1 of a depth that is chosen for each topic, beside fixed depths: `python -m benchmarks.depth DATA WORK`.

DATA holds the collections of `benchmarks.collections`. Indexes, and rankings of `ROWS` documents, stay in WORK.
Documents are ranked by BM25 of the whole narrative. With `--default`, the default settings rank them, and the
calibration also reads the list of each system. A calibration is fitted on the topics of four folds and tested on those
of the fifth. The figures are means over `DRAWS` draws of the folds. `mixture` needs no judgments.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.collections import COLLECTIONS, Collection, keystone
from keystone.fusion.depth import cut_by_f1, separate_scores
from keystone.runs.evaluation.depth import FIXED_DEPTHS, JudgedTopic, cross_calibrate, list_judged_topics
from keystone.runs.trec.run_files import read_run

ROWS, DRAWS = 300, 5
NAMES = ("cisi", "debates", "ibm-claims-wiki", "arguana")
SYSTEMS = ("bm25", "dense")
"""The default systems."""


def rank(collection: Collection, data: Path, work: Path, default: bool) -> Path:
    """Index a collection and rank documents for each topic, unless WORK has both; returns the run directory."""
    folder, kind = data / collection.folder, "default" if default else "bm25"
    index, name = work / "indexes" / f"{collection.folder}.{kind}", f"{collection.name}.{kind}"
    index.parent.mkdir(parents=True, exist_ok=True)
    indexing, ranking = ([], []) if default else (["--no-dense"], ["--set", "queries.method=narrative"])
    keystone("index", next(folder.glob("corpus.jsonl*")), *indexing, "--out", index, "--quiet")
    config = work / f"{name}.yaml"
    config.write_text(
        f"run_id: {name}\nindex: {index}\ntopics: {folder / collection.topics}\nout: {work / 'runs'}\ntrack: none\n"
    )
    keystone("run", config, "--set", f"fusion.depth={ROWS}", *ranking, "--quiet")
    return work / "runs" / name


def measure_cuts(topics: list[JudgedTopic], cuts: list[int]) -> float:
    """The mean set F1 of topics that are cut after so many rows."""
    return float(np.mean([one.measure_f1(cut) for one, cut in zip(topics, cuts, strict=True)]))


def compare(name: str, topics: list[JudgedTopic]) -> str:
    """The row of a collection: set F1 of each fixed depth, of the mixture and of the calibration, and its error."""
    own: list[NDArray[np.float64] | None] = [separate_scores(one.scores) for one in topics]
    mixed = measure_cuts(topics, [100 if p is None else cut_by_f1(p) for p in own])
    draws = [cross_calibrate(topics, seed=seed)["held_out"] for seed in range(DRAWS)]
    fixed, f1 = list(draws[0]["fixed_set_f1"].values()), np.array([one["set_f1"] for one in draws])
    errors = [float(np.mean([one[key] for one in draws])) for key in ("calibration_error", "top_calibration_error")]
    cells = [*fixed, mixed, f1.mean(), f1.mean() - max(fixed), f1.min() - max(fixed), *errors]
    rows = np.mean([one["rows"] for one in draws])
    return f"| {name} | {' | '.join(f'{value:.4f}' for value in cells)} | {rows:.1f} |"


def main(data: Path, work: Path, default: bool) -> None:
    """Print the table."""
    heads = ["collection", *map(str, FIXED_DEPTHS), "mixture", "calibrated", "gain", "least gain", "ECE", "top ECE"]
    print(f"| {' | '.join(heads)} | rows |")
    for collection in COLLECTIONS:
        if collection.name in NAMES:
            run = rank(collection, data, work, default)
            qrels = data / collection.folder / collection.qrels
            systems = [read_run(run / f"{name}.trec") for name in SYSTEMS] if default else []
            topics = list_judged_topics(run / "narrative.trec", qrels, skip_own=collection.own, systems=systems)
            print(compare(collection.name, topics), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "--default" in sys.argv[3:])
