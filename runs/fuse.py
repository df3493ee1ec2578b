"""Fusion of run files, of whatever system: `keystone fuse`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fusion.fuse import fuse
from fusion.methods import METHODS, impossible
from indexing.errors import UserError
from indexing.types import is_id
from retrieval.types import Rankings, offsets_of
from runs.render import strictly_decreasing
from runs.trec import Run, read_run, run_of

Scored = Mapping[str, Sequence[tuple[str, float]]]


def fuse_files(
    paths: Sequence[Path],
    tag: str,
    method: str = "rrf",
    depth: int = 1000,
    weights: Sequence[float] | None = None,
    norm: str | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Run:
    """One run from several, topics in the order of their ids; a topic that a run lacks is an empty list in it.

    `UserError` with the option's name for what the method cannot do. The order of the files does not matter.
    """
    heavy = list(weights) if weights is not None else [1.0] * len(paths)
    if len(heavy) != len(paths):
        raise UserError(f"--weights: found {len(heavy)} for {len(paths)} runs, expected one a run")
    if not all(0 <= weight <= 1e6 for weight in heavy) or not any(heavy):
        raise UserError(f"--weights: found {','.join(f'{w:g}' for w in heavy)}, expected 0 to 1e6 and not all 0")
    used = {weight for weight in heavy if weight}
    if found := impossible(method, norm, parameters or {}, uneven=len(used) > 1):
        key, why = found
        raise UserError(f"--{'set ' if key in (parameters or {}) else ''}{key}: {why}")
    if METHODS[method].several and sum(map(bool, heavy)) < 2:
        raise UserError(f"--method: found {method!r}, which compares runs, with one run; expected two or more")
    if not is_id(tag):
        raise UserError(f"--tag: found {tag!r}, expected one word")
    runs = [read_run(path).hits() for path in paths]
    topics = sorted({topic for run in runs for topic in run})
    ids = sorted({doc_id for run in runs for hits in run.values() for doc_id, _ in hits})
    row = {doc_id: number for number, doc_id in enumerate(ids)}
    ascending = norm == "min-max-inverted"
    rankings = [_rankings(path, run, topics, row, ascending) for path, run in zip(paths, runs, strict=True)]
    members = [[(run, topic) for run in range(len(runs))] for topic in range(len(topics))]
    fused = fuse(rankings, members, topics, method, depth, [heavy] * len(topics), norm, parameters)
    try:
        strictly_decreasing(fused.scores, fused.offsets)
    except ValueError as error:
        message = f"{method}: a fused score is too large for a run file; name a normalisation with --norm"
        raise UserError(message) from error
    hits = {
        topic: [(ids[doc], score) for doc, score in zip(fused.of(i), fused.scores_of(i).tolist(), strict=True)]
        for i, topic in enumerate(topics)
    }
    return run_of(tag, hits)


def _rankings(path: Path, run: Scored, topics: Sequence[str], row: Mapping[str, int], ascending: bool) -> Rankings:
    """A run as trec_eval reads it: scores in float32, down, or up where they are distances; then ids down."""
    lists = [run.get(topic, []) for topic in topics]
    docs = np.array([row[doc_id] for hits in lists for doc_id, _ in hits], dtype=np.int32)
    with np.errstate(over="ignore"):
        scores = np.array([score for hits in lists for _, score in hits], dtype=np.float64).astype(np.float32)
    if not np.all(np.isfinite(scores)):
        raise UserError(f"{path}: a score is too large for float32, in which runs are compared")
    lengths = [len(hits) for hits in lists]
    order = np.lexsort((-docs, scores if ascending else -scores, np.repeat(np.arange(len(lists)), lengths)))
    return Rankings(tuple(topics), offsets_of(lengths), docs[order], scores[order])


def numbers(option: str, texts: Sequence[str]) -> list[float]:
    """The values of an option; `UserError` with its name for one that is no number."""
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise UserError(f"{option}: found {', '.join(texts)!r}, expected numbers") from error
