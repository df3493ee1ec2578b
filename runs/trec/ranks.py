"""Ranks out of run files: the first documents of each topic, and the rank of given documents for each query."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from retrieval.types import offsets_of
from runs.trec.doc_ids import encode_ids, match_ids
from runs.trec.run_files import read_run
from runs.trec.types import pair_bounds


def list_first(path: Path, most: int) -> dict[str, list[str]]:
    """List the first documents of each query or topic, at most `most`. A missing file has none."""
    if not path.exists():
        return {}
    run = read_run(path)
    starts = run.offsets[:-1].tolist()
    ends = np.minimum(run.offsets[:-1] + most, run.offsets[1:]).tolist()
    bounds = zip(run.query_ids, starts, ends, strict=True)
    return {name: run.docs[start:end].decode_ids() for name, start, end in bounds}


def find_ranks(path: Path, asked: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Find the rank of each asked document of a query or topic, from 1. It is 0 if the list lacks the document."""
    if not path.exists():
        return {name: [0] * len(own) for name, own in asked.items()}
    run = read_run(path).select(list(asked))
    offsets = offsets_of([len(own) for own in asked.values()])
    docs = encode_ids([doc_id for own in asked.values() for doc_id in own])
    _, rows = match_ids(run.docs, pair_bounds(run.offsets), docs, pair_bounds(offsets))
    ranks = np.where(rows < 0, 0, rows - np.repeat(run.offsets[:-1], np.diff(offsets)) + 1)
    return {name: ranks[offsets[i] : offsets[i + 1]].tolist() for i, name in enumerate(asked)}
