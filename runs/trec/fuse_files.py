"""Fusion of run files of any system, for `keystone fuse`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.fuse import FusionSettings, fuse
from keystone.fusion.lists import Groups, RankedLists
from keystone.fusion.methods import METHODS, find_impossible_setting
from keystone.indexing.errors import UserError
from keystone.indexing.types import document_id, is_id
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import offsets_of
from keystone.runs.trec.doc_ids import Ids, concatenate_ids, match_ids
from keystone.runs.trec.run_files import read_run, require_rows
from keystone.runs.trec.types import Run, pair_bounds, place_by_id, sort_best_first
from keystone.runs.wording import plural

HEAD_ROWS = 100
"""The number of rows of each topic by which Keystone tells whether a run ranks segments."""


def fuse_files(
    paths: Sequence[Path],
    tag: str,
    settings: FusionSettings | None = None,
    weights: Sequence[float] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Run:
    """Fuse run files into one run with this tag, topics in the order of their ids.

    `weights` has one number for each path (None: all 1). If a run lacks a topic, it counts as an empty list. The
    order of the files does not change the result. `note` is told of runs of segments beside runs of documents.
    `UserError` names the option whose value the method cannot use.
    """
    settings = settings or FusionSettings()
    weights = list(weights) if weights is not None else [1.0] * len(paths)
    _check_options(paths, tag, settings, weights)
    runs = [require_rows(path, read_run(path)) for path in paths]
    for caution in _caution_about_segments(paths, runs):
        note(caution)
    topics = sorted({topic for run in runs for topic in run.query_ids})
    inverted = settings.norm == "min-max-inverted"
    runs = [_sort_for_comparison(path, run.select(topics), inverted) for path, run in zip(paths, runs, strict=True)]
    docs, numbers = _number_documents(runs)
    lists = [RankedLists(run.offsets, own, run.scores) for run, own in zip(runs, numbers, strict=True)]
    members = [[(run, topic) for run in range(len(runs))] for topic in range(len(topics))]
    fused = fuse(lists, Groups(topics, members, [weights] * len(topics)), settings)
    try:
        decrease_strictly(fused.scores, fused.offsets)
    except ValueError as error:
        message = f"{settings.method}: a fused score is too large for a run file; name a normalisation with --norm"
        raise UserError(message) from error
    return Run(tag, tuple(topics), fused.offsets, docs[fused.docs.astype(np.int64)], fused.scores)


def _caution_about_segments(paths: Sequence[Path], runs: Sequence[Run]) -> Iterator[str]:
    """Caution about each run whose first rows are segments of documents that another run ranks.

    The first id of a run of segments holds a `#`. Only if runs differ by that, ids become text, which takes long.
    """
    kinds: dict[bool, dict[Path, Run]] = {True: {}, False: {}}
    for path, run in zip(paths, runs, strict=True):
        kinds[b"#" in run.docs.data[run.docs.starts[0] : run.docs.ends[0]].tobytes()][path] = run
    for (path, own), (other, run) in product(kinds[True].items(), kinds[False].items()):
        parents = {(topic, document_id(doc)) for topic, doc in _list_head(own)}
        if shared := parents.intersection(_list_head(run)):
            found = f"{path}: ranks segments, but {other} documents, such as {min(shared)[1]}"
            yield f"{found}; a segment and its document are fused as two documents"


def _list_head(run: Run) -> list[tuple[str, str]]:
    """List topic and document of the first rows of each topic."""
    return [(topic, doc) for topic, hits in run.top(HEAD_ROWS).list_hits().items() for doc, _ in hits]


def _check_options(paths: Sequence[Path], tag: str, settings: FusionSettings, weights: Sequence[float]) -> None:
    """Raise `UserError` for the first option with an impossible value."""
    if len(weights) != len(paths):
        found = f"found {plural(len(weights), 'number')} for {plural(len(paths), 'run')}"
        raise UserError(f"--weights: {found}, expected one number for each run")
    if not all(0 <= weight <= 1e6 for weight in weights) or not any(weights):
        found = ",".join(f"{weight:g}" for weight in weights)
        raise UserError(f"--weights: found {found}, expected numbers from 0 to 1e6, at least one above 0")
    uneven = len({weight for weight in weights if weight}) > 1
    if impossible := find_impossible_setting(settings.method, settings.norm, settings.parameters, uneven):
        key, why = impossible
        raise UserError(f"--{'set ' if key in settings.parameters else ''}{key}: {why}")
    if METHODS[settings.method].several and sum(map(bool, weights)) < 2:
        found = f"found {settings.method!r}, which compares runs, with one run"
        raise UserError(f"--method: {found}; expected two runs or more with a weight above 0")
    if not is_id(tag):
        raise UserError(f"--tag: found {tag!r}, expected one word")


def _sort_for_comparison(path: Path, run: Run, ascending: bool) -> Run:
    """Sort a run as trec_eval does: by score in float32 (down, or up if `ascending`), then by id down."""
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    if not np.all(np.isfinite(scores)):
        raise UserError(f"{path}: a score is too large for float32, in which trec_eval compares runs")
    order = sort_best_first(-scores, run.docs, run.offsets) if ascending else slice(None)
    return Run(run.tag, run.query_ids, run.offsets, run.docs[order], scores[order])


def _number_documents(runs: Sequence[Run]) -> tuple[Ids, list[NDArray[np.int32]]]:
    """Number the documents of all runs, topic by topic, by id. All runs have the same topics.

    Returns the documents by number, and for each run the numbers of its rows (int32[rows]). If two topics share a
    document, it has two numbers.
    """
    counts = np.array([np.diff(run.offsets) for run in runs])
    starts = offsets_of(counts.T.ravel())[:-1].reshape(-1, len(runs)).T
    rows = [
        np.arange(run.offsets[-1]) + np.repeat(start - run.offsets[:-1], count)
        for run, start, count in zip(runs, starts, counts, strict=True)
    ]
    by_topic = np.empty(sum(map(len, rows)), dtype=np.int64)
    by_topic[np.concatenate(rows)] = np.arange(len(by_topic))
    docs = concatenate_ids([run.docs for run in runs])[by_topic]
    offsets = offsets_of(counts.sum(axis=0))
    bounds = pair_bounds(offsets)
    first, _ = match_ids(docs, bounds, docs[:0], np.zeros_like(bounds))
    own = first == np.arange(len(first))
    distinct = docs[own]
    places = place_by_id(distinct, offsets_of(own)[offsets])
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    numbers = places[(np.cumsum(own) - 1)[first]].astype(np.int32)
    return distinct[order], [numbers[of_run] for of_run in rows]


def parse_numbers(option: str, texts: Sequence[str]) -> list[float]:
    """Parse the values of an option as numbers. `UserError` with the option's name if one is no number."""
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise UserError(f"{option}: found {', '.join(texts)!r}, expected numbers") from error
