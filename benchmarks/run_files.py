"""Reading and writing run files, beside ranx and polars; ids and scores are like those of MS MARCO V2.1 segments.

Keystone reads a `Run`: ids are places in the file's bytes, queries are in trec_eval's order, and a repeated document is
an error. ranx reads its `Run`: typed dictionaries, sorted by score. polars reads a frame of strings with one row for
each query, in trec_eval's order, and ignores repeated documents. None of them codes ids as integers.

Each tool writes queries, documents and scores in order, with ranks, and waits until the disk has them (fsync).
Keystone's scores also decrease strictly in float32. The last row, without a target, gives polars the ranks and all
columns.
"""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars
import ranx

from benchmarks.table import Row, compare_costs, take_turns
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run

Job = Callable[[], object]

DEPTH_DOCUMENTS = 1000
RANX_TURNS_BY_QUERIES = {105: 3, 771: 1}
"""The number of queries, and the turns of ranx at this number. One more turn is not measured."""
TURNS = 9
COLUMNS = {
    "query": polars.String,
    "second": polars.String,
    "doc": polars.String,
    "rank": polars.Int32,
    "score": polars.Float32,
    "tag": polars.String,
}
RANK_COLUMN = polars.int_range(1, polars.len() + 1).over("query").alias("rank")


def rows() -> list[Row]:
    """The time of reading and of writing two sizes of run files, beside two peers."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for queries, turns in RANX_TURNS_BY_QUERIES.items():
            path, copy = Path(folder) / f"{queries}.trec", Path(folder) / "copy.trec"
            write_run(path, make_run(queries))
            run, frame = read_run(path), _read_frame(path)
            theirs = ranx.Run.from_file(str(path), kind="trec")
            read, write = partial(read_run, path), partial(write_run, copy, run)
            whole = partial(_write_frame, copy, frame)
            ranked = partial(write_by_polars, copy, frame.select("query", "doc", "score"))
            comparisons: list[tuple[str, Job, Job, int, float | None]] = [
                ("read / ranx", read, partial(ranx.Run.from_file, str(path), kind="trec"), turns, 5),
                ("read / polars", read, partial(read_by_polars, path), TURNS, 1),
                ("write / ranx", write, partial(_save, theirs, copy), turns, 5),
                ("write / polars", write, ranked, TURNS, 1),
                ("write / polars, columns given", write, whole, TURNS, None),
            ]
            for name, ours, peer, repeats, target in comparisons:
                seconds = take_turns({"ours": ours, "peer": peer}, repeats)
                speed = f"{path.stat().st_size / seconds['ours'] / 1e9:.2f} GB/s, {BOUND_BY_JOB[name.split()[0]]}"
                found.append(
                    compare_costs(
                        f"{queries} x {DEPTH_DOCUMENTS} rows: {name}", seconds["ours"], seconds["peer"], target, speed
                    )
                )
    return found


BOUND_BY_JOB = {"read": "the processor, over bytes", "write": "the processor, then the disk"}


def make_run(queries: int) -> Run:
    """A run of 1,000 documents for each query, out of 30,000."""
    rng = np.random.default_rng(queries)
    shards, places, numbers = (rng.integers(low, high, 30_000) for low, high in ((10, 60), (10**8, 10**9), (0, 10)))
    ids = [
        f"msmarco_v2.1_doc_{shard}_{place}#{number}_{place * 2 - 1}"
        for shard, place, number in zip(shards, places, numbers, strict=True)
    ]
    docs = np.concatenate([rng.permutation(len(ids))[:DEPTH_DOCUMENTS] for _ in range(queries)])
    scores = -np.sort(-rng.gamma(4, 3, (queries, DEPTH_DOCUMENTS)), axis=1).ravel()
    return Run(
        "keystone",
        tuple(map(str, range(queries))),
        np.arange(queries + 1) * DEPTH_DOCUMENTS,
        encode_ids(ids)[docs],
        scores,
    )


def read_by_polars(path: Path) -> polars.DataFrame:
    """A frame of each query's documents and scores in trec_eval's order. Of five expressions, this was the fastest."""
    by_score = polars.all().sort_by("score", "doc", descending=True)
    return _read_frame(path, [0, 2, 4]).group_by("query", maintain_order=True).agg(by_score)


def write_by_polars(path: Path, frame: polars.DataFrame) -> None:
    """Write a frame of queries, documents and scores as a run file."""
    second, tag = polars.lit("Q0").alias("second"), polars.lit("keystone").alias("tag")
    _write_frame(path, frame.select("query", second, "doc", RANK_COLUMN, "score", tag))


def _write_frame(path: Path, frame: polars.DataFrame) -> None:
    frame.write_csv(path, separator=" ", include_header=False, quote_style="never")
    _sync(path)


def _read_frame(path: Path, columns: list[int] | None = None) -> polars.DataFrame:
    return polars.read_csv(path, separator=" ", has_header=False, schema=COLUMNS, columns=columns, quote_char=None)


def _save(run: ranx.Run, path: Path) -> None:
    run.save(str(path), kind="trec")
    _sync(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
