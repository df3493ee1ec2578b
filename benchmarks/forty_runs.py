"""A shared task made from a seed: runs of several teams, pooled judgments of two judges, and the evaluation's speed.

Each system ranks documents by a noisy view of their relevance, so better systems find more. The measured command and
ir_measures take the means of the same seven measures. Each runs in a process of its own, in turn, and the best round
counts. Twice as much memory traffic or a busy machine slows both down, so the ratio is the result. The last line of
output is JSON: the ratio, the seconds of both, and the memory of the command in MB.

    python -m benchmarks.forty_runs FOLDER
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from keystone.indexing.io.writing import write_whole

RUNS, TOPICS, DEPTH = 40, 60, 1_000
TEAMS = 14
CORPUS = 20_000
"""The documents of a topic that systems choose from."""
POOLED_RUNS, POOL_DEPTH = 25, 20
MEASURES = ("nDCG@10", "nDCG@100", "AP", "RR", "P@10", "R@100", "R@1000")
ROUNDS = 5
SEED = 39
GRADE_SHARES = (0.994, 0.997, 0.999)
"""The quantiles of relevance from which a document has the grade 1, 2 and 3."""


def make_collection(
    folder: Path, runs: int = RUNS, topics: int = TOPICS, depth: int = DEPTH, corpus: int = CORPUS, seed: int = SEED
) -> tuple[list[Path], Path, Path]:
    """Write run files, the judgments of the pool, and those of a second judge who errs at a tenth of the documents.

    The first of every five run files is compressed. Returns the paths of runs, judgments and second judgments.
    """
    draw = np.random.default_rng(seed)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    skills = np.sort(draw.uniform(0.6, 2.2, runs))[::-1]
    lines: list[list[str]] = [[] for _ in range(runs)]
    judged: list[list[str]] = [[], []]
    tags = [f"team{chr(65 + i % TEAMS)}-run{i // TEAMS + 1}" for i in range(runs)]
    for topic in range(101, 101 + topics):
        relevance = draw.standard_normal(corpus)
        grades = np.searchsorted(np.quantile(relevance, GRADE_SHARES), relevance)
        ease, pool = draw.uniform(0.5, 1.5), set[int]()
        for number in range(runs):
            scores = relevance * skills[number] * ease + draw.standard_normal(corpus)
            top = np.argpartition(-scores, depth)[:depth]
            top = top[np.argsort(-scores[top], kind="stable")]
            if number < POOLED_RUNS:
                pool |= set(top[:POOL_DEPTH].tolist())
            lines[number] += [
                f"{topic} Q0 doc{doc:06d} {rank} {score:.4f} {tags[number]}"
                for rank, (doc, score) in enumerate(zip(top.tolist(), scores[top].tolist(), strict=True), 1)
            ]
        documents = sorted(pool)
        errs = draw.random(len(documents)) < 0.1
        others = draw.integers(0, 4, len(documents))
        for doc, wrong, other in zip(documents, errs.tolist(), others.tolist(), strict=True):
            judged[0].append(f"{topic} 0 doc{doc:06d} {grades[doc]}")
            judged[1].append(f"{topic} 0 doc{doc:06d} {other if wrong else grades[doc]}")
    paths = []
    for number, (tag, own) in enumerate(zip(tags, lines, strict=True)):
        path = folder / "runs" / f"{tag}.trec{'.gz' if number % 5 == 0 else ''}"
        _write(path, ("\n".join(own) + "\n").encode())
        paths.append(path)
    for name, own in zip(("qrels.txt", "second.qrels"), judged, strict=True):
        _write(folder / name, ("\n".join(own) + "\n").encode())
    return paths, folder / "qrels.txt", folder / "second.qrels"


def _write(path: Path, content: bytes) -> None:
    """Write a file, compressed if its name says so."""
    with write_whole(path) as file:
        file.write(content)


_THEIRS = """
import gzip, sys, ir_measures
names, qrels, *runs = sys.argv[1:]
measures = [ir_measures.parse_measure(name) for name in names.split()]
evaluator = ir_measures.evaluator(measures, ir_measures.read_trec_qrels(qrels))
for run in runs:
    with (gzip.open(run, "rt") if run.endswith(".gz") else open(run)) as file:
        found = evaluator.calc_aggregate(ir_measures.read_trec_run(file.read()))
    print(run, *(f"{found[measure]:.4f}" for measure in measures))
"""


def _time(command: list[str]) -> tuple[float, float]:
    """Run a command; returns its seconds and its peak of memory in MB."""
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Make the collection in the folder that the command line names, unless it is there, and measure both."""
    folder = Path(sys.argv[1])
    runs, qrels = sorted((folder / "runs").glob("*.trec*")), folder / "qrels.txt"
    if not qrels.is_file():
        runs, qrels, _ = make_collection(folder)
    names = list(map(str, runs))
    chosen = [part for name in MEASURES for part in ("-m", name)]
    ours = [
        sys.executable,
        "-m",
        "keystone.runs.cli.main",
        "evaluate",
        *names,
        "--qrels",
        str(qrels),
        *chosen,
        "--only-table",
    ]
    theirs = [sys.executable, "-c", _THEIRS, " ".join(MEASURES), str(qrels), *names]
    times = [(_time(ours), _time(theirs)) for _ in range(ROUNDS)]
    own, other = (min(one[side][0] for one in times) for side in (0, 1))
    memory = max(one[0][1] for one in times)
    print(json.dumps({"ratio": own / other, "seconds": own, "ir_measures": other, "memory_mb": memory}))


if __name__ == "__main__":
    main()
