"""What several systems gain: `python -m benchmarks.weights DATA WORK BGE SPLADE` prints a table for each collection.

DATA is that of `benchmarks.collections`. WORK keeps indexes, and what is there already is not made again. They hold
MiniLM, the set of vectors `bge` of the checkpoint BGE and the impacts `splade` of the checkpoint SPLADE. The query is
the whole narrative. The rows are each system, each pair, and all of them. The columns are nDCG@10 and R@100 by RRF, by
scores with equal weights, and with chosen weights. Each has the p-value of a paired t-test of nDCG@10 against RRF of
BM25 and MiniLM. Chosen weights are measured on topics that had no part in the choice.
"""

import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from benchmarks.collections import COLLECTIONS, Collection, keystone
from keystone.indexing.index import open_index
from keystone.runs.evaluation.compare import run_paired_test
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import parse_measures
from keystone.runs.evaluation.tune import Trials, draw_folds, take_from_folds
from keystone.runs.evaluation.weights import Weigher, ascend, open_weigher
from keystone.runs.report.terminal import format_p_value

SYSTEMS = {
    "bm25": {"kind": "bm25"},
    "minilm": {"kind": "dense"},
    "bge": {"kind": "dense", "vectors": "bge"},
    "splade": {"kind": "impact", "impacts": "splade"},
}
MEASURES = parse_measures(["nDCG@10", "R@100"])
FOLDS = 5


def compare_systems(collection: Collection, data: Path, work: Path, models: list[str]) -> Iterator[str]:
    """Index and search a collection, and yield the rows of its table."""
    folder, index = data / collection.folder, work / "indexes" / collection.folder
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        sets = ["--vectors", f"bge={models[0]}", "--impacts", f"splade={models[1]}"]
        keystone("index", next(folder.glob("corpus.jsonl*")), "--out", index, "--quiet", *sets)
    opened = open_index(index)
    held = {name: own for name, own in SYSTEMS.items() if own.get("vectors") in (None, *opened.vectors)}
    config = work / f"{collection.name}.weights.yaml"
    values: dict[str, Any] = {"run_id": collection.name, "index": str(index), "topics": str(folder / collection.topics)}
    values |= {"queries": {"method": "narrative"}, "retrieval": {"systems": held}}
    config.write_text(yaml.safe_dump(values, sort_keys=False))
    trials = Trials(folder / collection.qrels, MEASURES, folds=FOLDS, skip_own=collection.own)
    measure = open_weigher(config, [], trials)
    two = _measure_equal(measure, "rrf", ("bm25", "minilm"))
    for size in sorted({1, 2, len(held)}):
        for chosen in combinations(held, size):
            ranked = {method: _measure_equal(measure, method, chosen) for method in ("rrf", "scores")}
            if size > 1:
                own = [f"retrieval.systems={yaml.safe_dump({name: SYSTEMS[name] for name in chosen}).strip()}"]
                ranked["chosen"] = _choose(open_weigher(config, own, trials))
            yield f"| {', '.join(chosen)} | {' | '.join(_show(one, two) for one in ranked.values())} |"


def _measure_equal(measure: Weigher, method: str, chosen: tuple[str, ...]) -> Evaluation:
    return measure(measure.settle(method, [float(name in chosen) for name in measure.names]))


def _choose(measure: Weigher) -> Evaluation:
    """Measure each fold with the weights that are chosen on the others."""
    fold = draw_folds(len(measure(None)), FOLDS)
    chosen = [measure(ascend(measure, fold != number)) for number in range(FOLDS)]
    for one in chosen:
        print(f"<!-- {one.name} -->")
    return take_from_folds(chosen, fold)


def _show(found: Evaluation, two: Evaluation) -> str:
    p = run_paired_test(two, found)["nDCG@10"]
    change = found.mean("nDCG@10") - two.mean("nDCG@10")
    return f"{found.mean('nDCG@10'):.3f} ({change:+.3f}, p {format_p_value(p)}), {found.mean('R@100'):.3f}"


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: python -m benchmarks.weights DATA WORK BGE SPLADE [COLLECTION ...] (see docs/index.md)")
    for collection in COLLECTIONS:
        if collection.name in sys.argv[5:] or not sys.argv[5:]:
            print(f"\n{collection.name}\n\n| systems | RRF | scores | chosen weights |\n|---|---|---|---|")
            for row in compare_systems(collection, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:5]):
                print(row, flush=True)
