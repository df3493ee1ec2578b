"""Set F1 of a depth that is chosen for each topic, beside fixed depths: `python -m benchmarks.depth DATA WORK`.

DATA holds the collections of `benchmarks.collections`. Indexes, and rankings of `ROWS` documents by BM25 of the whole
narrative, stay in WORK. A calibration is fitted on the topics of four folds and tested on those of the fifth. `mixture`
needs no judgments.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.collections import COLLECTIONS, Collection, keystone
from keystone.fusion.depth import cut_by_f1, separate_scores
from keystone.runs.evaluation.depth import FIXED_DEPTHS, JudgedTopic, cross_calibrate, list_judged_topics

ROWS = 300
NAMES = ("cisi", "debates", "ibm-claims-wiki", "arguana")


def rank(collection: Collection, data: Path, work: Path) -> Path:
    """Index a collection and rank documents for each topic, as far as WORK lacks them."""
    folder, index = data / collection.folder, work / "indexes" / f"{collection.folder}.bm25"
    index.parent.mkdir(parents=True, exist_ok=True)
    keystone("index", next(folder.glob("corpus.jsonl*")), "--no-dense", "--out", index, "--quiet")
    config = work / f"{collection.name}.yaml"
    config.write_text(
        f"run_id: {collection.name}\nindex: {index}\ntopics: {folder / collection.topics}\n"
        f"out: {work / 'runs'}\ntrack: none\n"
    )
    keystone("run", config, "--set", f"fusion.depth={ROWS}", "--set", "queries.method=narrative", "--quiet")
    return work / "runs" / collection.name / "narrative.trec"


def measure_cuts(topics: list[JudgedTopic], cuts: list[int]) -> float:
    """The mean set F1 of topics that are cut after so many rows."""
    return float(np.mean([one.measure_f1(cut) for one, cut in zip(topics, cuts, strict=True)]))


def compare(name: str, topics: list[JudgedTopic]) -> str:
    """The row of a collection: set F1 of each fixed depth, of the mixture and of the calibration, and its error."""
    own: list[NDArray[np.float64] | None] = [separate_scores(one.scores) for one in topics]
    mixed = measure_cuts(topics, [100 if p is None else cut_by_f1(p) for p in own])
    found = cross_calibrate(topics)
    fixed, errors = list(found.fixed.values()), [found.reliability.error, found.top_error]
    cells = [*fixed, mixed, found.set_f1, found.set_f1 - max(fixed), *errors]
    return f"| {name} | {' | '.join(f'{value:.3f}' for value in cells)} | {found.rows:.1f} |"


def main(data: Path, work: Path) -> None:
    """Print the table."""
    print(
        "| collection |", " | ".join(map(str, FIXED_DEPTHS)), "| mixture | calibrated | gain | ECE | top ECE | rows |"
    )
    for collection in COLLECTIONS:
        if collection.name in NAMES:
            ranking = rank(collection, data, work)
            qrels = data / collection.folder / collection.qrels
            print(compare(collection.name, list_judged_topics(ranking, qrels, skip_own=collection.own)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
