"""Reading and writing run files, beside ranx and polars; ids and scores are like those of MS MARCO V2.1 segments.

What reading ends in: here a `Run` (ids as places in the file's bytes, each query in trec_eval's order, a repeated
document refused); with ranx its `Run` (typed dictionaries, sorted by score); with polars a frame of strings, one row a
query, each in trec_eval's order, repeated documents not looked for. None of them codes ids as integers.
What is written are queries, documents and scores in order, with ranks; it is on disk (fsync) with all of them. Here
scores also decrease strictly in float32. A last row, without a target, gives polars the ranks and all columns.
"""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars
import ranx

from benchmarks.table import Row, faster, take_turns
from runs.trec.doc_ids import encode_ids
from runs.trec.run_files import read_run, write_run
from runs.trec.types import Run

Job = Callable[[], object]

DEPTH = 1000
SIZES = {105: 3, 771: 1}
"""Queries, and how many turns ranx is given; one more is not measured."""
TURNS = 9
COLUMNS = {
    "query": polars.String,
    "second": polars.String,
    "doc": polars.String,
    "rank": polars.Int32,
    "score": polars.Float32,
    "tag": polars.String,
}
RANK = polars.int_range(1, polars.len() + 1).over("query").alias("rank")


def rows() -> list[Row]:
    """Two sizes, read and written, against two peers."""
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for queries, turns in SIZES.items():
            path, copy = Path(folder) / f"{queries}.trec", Path(folder) / "copy.trec"
            write_run(path, made_up(queries))
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
                speed = f"{path.stat().st_size / seconds['ours'] / 1e9:.2f} GB/s, {BOUND[name.split()[0]]}"
                found.append(
                    faster(f"{queries} x {DEPTH} rows: {name}", seconds["ours"], seconds["peer"], target, speed)
                )
    return found


BOUND = {"read": "the processor, over bytes", "write": "the processor, then the disk"}


def made_up(queries: int) -> Run:
    """A run of 1000 documents a query out of 30,000."""
    rng = np.random.default_rng(queries)
    shards, places, numbers = (rng.integers(low, high, 30_000) for low, high in ((10, 60), (10**8, 10**9), (0, 10)))
    ids = [
        f"msmarco_v2.1_doc_{shard}_{place}#{number}_{place * 2 - 1}"
        for shard, place, number in zip(shards, places, numbers, strict=True)
    ]
    docs = np.concatenate([rng.permutation(len(ids))[:DEPTH] for _ in range(queries)])
    scores = -np.sort(-rng.gamma(4, 3, (queries, DEPTH)), axis=1).ravel()
    return Run(
        "keystone", tuple(map(str, range(queries))), np.arange(queries + 1) * DEPTH, encode_ids(ids)[docs], scores
    )


def read_by_polars(path: Path) -> polars.DataFrame:
    """One row a query: its documents and scores in trec_eval's order. The fastest of five forms that were tried."""
    by_score = polars.all().sort_by("score", "doc", descending=True)
    return _read_frame(path, [0, 2, 4]).group_by("query", maintain_order=True).agg(by_score)


def write_by_polars(path: Path, frame: polars.DataFrame) -> None:
    """A frame of queries, documents and scores, as a run file."""
    second, tag = polars.lit("Q0").alias("second"), polars.lit("keystone").alias("tag")
    _write_frame(path, frame.select("query", second, "doc", RANK, "score", tag))


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
