"""Do all measures equal those of ir_measures and trec_eval? `python -m benchmarks.measures DATA WORK` compares them.

It takes each measure that `keystone evaluate` computes itself. The runs are those of BM25, of dense search and of their
fusion, and a harder one. The values of each topic and the means are compared with `ir_measures` and with `pytrec_eval`,
which holds trec_eval's own code. Measures that Keystone delegates to `ir_measures` are compared on the first
collection. The program prints a row for each collection, and fails if a difference exceeds 1e-6. DATA and WORK are
those of `benchmarks.collections`.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Container, Sequence
from pathlib import Path

from benchmarks.collections import COLLECTIONS, Collection, search_collection
from benchmarks.peers_of_measures import (
    MEAN,
    Grades,
    Scores,
    Values,
    measure_by_ir_measures,
    measure_by_trec_eval,
    sort_documents,
)
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.measures import FAMILIES, Measure, parse_measure

MOST_DIFFERENCE = 1e-6
CUTOFFS = (1, 10, 100, 1000)
DELEGATED = "Rprec Bpref SetF Success@10 IPrec@0.1 infAP RBP(p=0.8) Compat alpha_nDCG@20 StRecall@10"
RUNS = ("bm25", "dense", "narrative")


def list_own_measures(qrels: Grades) -> list[Measure]:
    """List the measures that Keystone computes itself, with relevance from grade 1 on, and from 2 on if it occurs."""
    best = max(max(own.values()) for own in qrels.values())
    return [
        Measure(family, cutoff, level)
        for family in FAMILIES
        for cutoff in (CUTOFFS if FAMILIES[family].needs_cutoff else (0, *CUTOFFS))
        for level in ((1, 2) if best > 1 and not FAMILIES[family].of_grades else (1,))
    ]


def measure_by_keystone(run: Path, qrels: Path, measures: Sequence[Measure], skip_own: bool = False) -> Values:
    """Take measures as `keystone evaluate` does."""
    (found,) = evaluate_files([run], qrels, measures, skip_own)
    columns = {topic: [own[place] for own in found.values.values()] for place, topic in enumerate(found.topics)}
    columns[MEAN] = [found.mean(name) for name in found.values]
    return {
        topic: {name: None if math.isnan(value) else value for name, value in zip(found.values, own, strict=True)}
        for topic, own in columns.items()
    }


def find_largest_difference(ours: Values, peer: Values) -> float:
    """Find the largest difference over all values of a peer. It is infinite if only one side has a value."""
    pairs = [(ours[topic][name], value) for topic, own in peer.items() for name, value in own.items()]
    both = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    return max(both, default=0.0) if len(both) == sum(pair != (None, None) for pair in pairs) else math.inf


def harden(scores: Scores, qrels: Grades) -> tuple[Scores, Grades]:
    """Make a run and its judgments harder, by fixed rules.

    Scores are negative and tie by threes in float32. The run lacks every fifth topic, and has one without judgments.
    The first topic has no relevant document. Grades reach from -1 up. Every fourth judgment is left out.
    """
    numbered = enumerate(scores.items())
    run = {
        topic: {doc: -(n // 3) / 7 - n * 1e-12 for n, doc in enumerate(sort_documents(own))}
        for number, (topic, own) in numbered
        if number % 5 != 4
    }
    judged: dict[str, dict[str, int]] = {}
    for topic, own in qrels.items():
        found = {doc: -1 if n % 5 == 4 else grade + n % 3 for n, (doc, grade) in enumerate(own.items()) if n % 4 != 3}
        others = [doc for doc in list(run.get(topic, ()))[:20:2] if doc not in own]
        judged[topic] = found | {doc: -(n % 2) for n, doc in enumerate(others)}
    first = next(iter(judged))
    return run | {"unjudged": next(iter(run.values()))}, judged | {first: dict.fromkeys(judged[first], 0)}


def compare_measures(collection: Collection, data: Path, work: Path) -> tuple[str, float]:
    """Compare all measures on a collection; returns its row of the table and the largest difference."""
    made, judged = search_collection(collection, data, work, "default"), data / collection.folder / collection.qrels
    files = [made / f"{name}.trec" for name in RUNS]
    qrels = read_grades(judged)
    pairs = [(file, judged, read_scores(file, qrels, collection.own), qrels) for file in files]
    pairs.append(write_harder(work / f"{collection.name}.harder", *pairs[-1][2:]))
    differences, counts = [0.0, 0.0], set()
    for file, judgments, scores, grades in pairs:
        measures = list_own_measures(grades)
        counts.add(len(measures))
        ours = measure_by_keystone(file, judgments, measures, collection.own)
        for place, measure in enumerate((measure_by_ir_measures, measure_by_trec_eval)):
            found = find_largest_difference(ours, measure(scores, grades, measures))
            differences[place] = max(differences[place], found)
    cells = [collection.name, f"{len(qrels):,}", f"{max(counts)}", *(f"{one:.0e}" for one in differences)]
    return f"| {' | '.join(cells)} |", max(differences)


def compare_delegated(work: Path, collection: Collection) -> tuple[str, float]:
    """Compare the measures that Keystone delegates, on the harder run of a collection."""
    run, judged = (work / f"{collection.name}.harder.{kind}" for kind in ("trec", "qrels"))
    measures, grades = list(map(parse_measure, DELEGATED.split())), read_grades(judged)
    ours = measure_by_keystone(run, judged, measures)
    found = find_largest_difference(ours, measure_by_ir_measures(read_scores(run, grades), grades, measures))
    return f"\nDelegated, on the harder run of {collection.name}: {', '.join(map(str, measures))}: {found:.0e}", found


def write_harder(path: Path, scores: Scores, qrels: Grades) -> tuple[Path, Path, Scores, Grades]:
    """Write a harder run and its judgments, and return both."""
    run, judged = path.with_name(f"{path.name}.trec"), path.with_name(f"{path.name}.qrels")
    scores, qrels = harden(scores, qrels)
    run.write_text("".join(f"{t} Q0 {doc} 0 {s!r} harder\n" for t, own in scores.items() for doc, s in own.items()))
    judged.write_text("".join(f"{t} 0 {doc} {grade}\n" for t, own in qrels.items() for doc, grade in own.items()))
    return run, judged, scores, qrels


def read_grades(path: Path) -> Grades:
    """Read TREC judgments, without Keystone's reader."""
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for topic, _, doc, grade in map(str.split, path.read_text().splitlines()):
        grades[topic][doc] = int(grade)
    return grades


def read_scores(path: Path, topics: Container[str], skip_own: bool = False) -> Scores:
    """Read these topics of a run file, without Keystone's reader and, if `skip_own`, without documents of their ids."""
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open() as lines:
        for topic, _, doc, _, score, _ in map(str.split, lines):
            if topic in topics and not (skip_own and doc == topic):
                scores[topic][doc] = float(score)
    return scores


if __name__ == "__main__":
    data, work = map(Path, sys.argv[1:])
    print("| collection | topics | measures | from ir_measures | from trec_eval |\n|---|---|---|---|---|")
    found = []
    for collection in COLLECTIONS:
        row, difference = compare_measures(collection, data, work)
        print(row, flush=True)
        found.append(difference)
    row, difference = compare_delegated(work, COLLECTIONS[0])
    print(row)
    sys.exit(max(difference, *found) > MOST_DIFFERENCE)
