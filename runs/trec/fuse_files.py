"""Fusion of run files, of whatever system: `keystone fuse`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusion.fuse import fuse
from fusion.methods import METHODS, impossible
from indexing.errors import UserError
from indexing.types import is_id
from retrieval.types import Rankings, offsets_of
from runs.trec.doc_ids import Names, joined, match
from runs.trec.render import strictly_decreasing
from runs.trec.run_files import Run, bounds_of, read_run
from runs.trec.trec_eval_order import best_first, places_by_name


@dataclass(frozen=True, slots=True)
class FileFusion:
    """How run files are fused: a method of `fusion.methods.METHODS`, `depth` documents a topic, a weight for each file.

    Without `weights` each file weighs 1. `norm` and `parameters` are those of the method.
    """

    method: str = "rrf"
    depth: int = 1000
    weights: Sequence[float] | None = None
    norm: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)


def fuse_files(paths: Sequence[Path], tag: str, settings: FileFusion = FileFusion()) -> Run:
    """One run from several, topics in the order of their ids; a topic that a run lacks is an empty list in it.

    The order of the files does not matter. `UserError` with the option's name for a setting that the method refuses.
    """
    method, weights, norm, parameters = settings.method, settings.weights, settings.norm, settings.parameters
    heavy = list(weights) if weights is not None else [1.0] * len(paths)
    if len(heavy) != len(paths):
        raise UserError(f"--weights: found {len(heavy)} for {len(paths)} runs, expected one a run")
    if not all(0 <= weight <= 1e6 for weight in heavy) or not any(heavy):
        raise UserError(f"--weights: found {','.join(f'{w:g}' for w in heavy)}, expected 0 to 1e6 and not all 0")
    used = {weight for weight in heavy if weight}
    if found := impossible(method, norm, parameters, uneven=len(used) > 1):
        key, why = found
        raise UserError(f"--{'set ' if key in parameters else ''}{key}: {why}")
    if METHODS[method].several and sum(map(bool, heavy)) < 2:
        raise UserError(f"--method: found {method!r}, which compares runs, with one run; expected two or more")
    if not is_id(tag):
        raise UserError(f"--tag: found {tag!r}, expected one word")
    runs = [read_run(path) for path in paths]
    topics = sorted({topic for run in runs for topic in run.query_ids})
    runs = [_compared(path, run.of(topics), norm == "min-max-inverted") for path, run in zip(paths, runs, strict=True)]
    docs, numbers = _numbered(runs)
    rankings = [Rankings(run.query_ids, run.offsets, own, run.scores) for run, own in zip(runs, numbers, strict=True)]
    members = [[(run, topic) for run in range(len(runs))] for topic in range(len(topics))]
    fused = fuse(rankings, members, topics, method, settings.depth, [heavy] * len(topics), norm, parameters)
    try:
        strictly_decreasing(fused.scores, fused.offsets)
    except ValueError as error:
        message = f"{method}: a fused score is too large for a run file; name a normalisation with --norm"
        raise UserError(message) from error
    return Run(tag, tuple(topics), fused.offsets, docs[fused.docs.astype(np.int64)], fused.scores)


def _compared(path: Path, run: Run, ascending: bool) -> Run:
    """A run as trec_eval compares it: scores in float32, down, or up where they are distances; then ids down."""
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    if not np.all(np.isfinite(scores)):
        raise UserError(f"{path}: a score is too large for float32, in which runs are compared")
    order = best_first(-scores, run.docs, run.offsets) if ascending else slice(None)
    return Run(run.tag, run.query_ids, run.offsets, run.docs[order], scores[order])


def _numbered(runs: Sequence[Run]) -> tuple[Names, list[NDArray[np.int32]]]:
    """The documents of each topic (the same topics in all runs), those of a topic by id, and their numbers in each run.

    Number n is that of `docs[n]`; a document of two topics has two numbers.
    """
    counts = np.array([np.diff(run.offsets) for run in runs])
    starts = offsets_of(counts.T.ravel())[:-1].reshape(-1, len(runs)).T
    rows = [
        np.arange(run.offsets[-1]) + np.repeat(start - run.offsets[:-1], count)
        for run, start, count in zip(runs, starts, counts, strict=True)
    ]
    by_topic = np.empty(sum(map(len, rows)), dtype=np.int64)
    by_topic[np.concatenate(rows)] = np.arange(len(by_topic))
    docs = joined([run.docs for run in runs])[by_topic]
    offsets = offsets_of(counts.sum(axis=0))
    bounds = bounds_of(offsets)
    first, _ = match(docs, bounds, docs[:0], np.zeros_like(bounds))
    own = first == np.arange(len(first))
    distinct = docs[own]
    places = places_by_name(distinct, offsets_of(own)[offsets])
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    numbers = places[(np.cumsum(own) - 1)[first]].astype(np.int32)
    return distinct[order], [numbers[of_run] for of_run in rows]


def numbers(option: str, texts: Sequence[str]) -> list[float]:
    """The values of an option; `UserError` with its name for one that is no number."""
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise UserError(f"{option}: found {', '.join(texts)!r}, expected numbers") from error
