"""Many run files together: threads check all of them, every fault is listed, and copies are found among all pairs."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import unicode_name
from keystone.indexing.types import Progress, silent
from keystone.runs.evaluation.bounds import Bounds, bound_measures, treat_otherwise
from keystone.runs.evaluation.cautions import caution_about_order
from keystone.runs.evaluation.evaluate import Evaluation, check_run, evaluate_file
from keystone.runs.evaluation.measures import Measure
from keystone.runs.trec.arrays import Floats
from keystone.runs.trec.collections import find_qrels_file
from keystone.runs.trec.kernels import kernel, map_ahead
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.run_files import drop_own_documents, read_qrels, read_unsorted_run, sort_as_trec_eval
from keystone.runs.trec.scan import LF, RUN_COLUMNS
from keystone.runs.trec.types import Qrels, Run
from keystone.runs.wording import plural

COPY_DEPTH = 50
"""The ranks of each topic at which copies are looked for: 99.5 % of the weight of RBO with its p of 0.9."""
COPY_PERSISTENCE = 0.9
COPY_RBO = 0.98
"""The mean RBO over topics from which two runs are near-copies."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left out of runs and judgments before anything is measured."""

    skip_own: bool = False
    """Leave out each topic's document with the same id."""
    condensed: bool = False
    """Leave out rows without a judgment."""
    topics: Set[str] = frozenset()
    """Keep these topics; all, if it is empty."""
    depth: int = 0
    """Keep this many rows of each topic, in trec_eval's order, like its -M; all, if it is 0."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The evaluations of the good files, for each file of judgments, and what was found in all files."""

    judges: tuple[Path, ...]
    evaluations: tuple[list[Evaluation], ...]
    """For each file of judgments, the evaluations of the same runs in the order of their files."""
    paths: tuple[Path, ...]
    tags: tuple[str, ...]
    faults: tuple[str, ...]
    """One for each bad file."""
    cautions: tuple[str, ...]
    """About tags, and about copies."""
    bounds: tuple[Bounds, ...] = ()
    """The bounds of each run by the first file of judgments, if they were asked for."""

    @property
    def tags_by_name(self) -> dict[str, str]:
        """The tag of each run, by the name of its evaluation."""
        return {one.name: tag for one, tag in zip(self.evaluations[0], self.tags, strict=True)}


def evaluate_batch(
    paths: Sequence[Path],
    qrels_paths: Sequence[Path],
    measures: Sequence[Measure],
    cut: Cut = Cut(),
    *,
    skip_bad: bool = False,
    bounds: bool = False,
    compared: bool = False,
    progress: Progress = silent,
) -> Batch:
    """Check all run files, and measure them by each file of judgments.

    If they are to be `compared`, runs also have the means of other treatments of documents without a judgment. Files
    are read in threads, a few ahead of the one that is measured, so memory does not grow with their number. `UserError`
    lists the faults of all bad files; if `skip_bad`, only if no good file is left.
    """
    judges = [read_judge(path, cut.topics) for path in qrels_paths]
    measured: list[list[Evaluation]] = [[] for _ in judges]
    good, tags, heads, faults, found, limits = [], list[str](), list[_Head](), list[str](), list[str](), list[Bounds]()
    numbers: dict[str, int] = {}
    with progress("Measuring", len(paths)) as tick:
        for path, read in zip(paths, map_ahead(partial(_read, judges, cut), paths), strict=True):
            tick(1)
            if isinstance(read, UserError):
                faults.append(str(read))
                continue
            if faults and not skip_bad:
                continue  # the other files are only checked
            run, top, cautions = read
            found += cautions + _caution_about_tags(path, run)
            for own, (qrels_path, qrels) in zip(measured, judges, strict=True):
                measured_run = evaluate_file(path, run, qrels_path, qrels, measures, cut.condensed)
                own.append(treat_otherwise(measured_run, run, qrels, measures) if compared else measured_run)
            if bounds:
                limits.append(bound_measures(measured[0][-1], run, judges[0][1], measures))
            good.append(path)
            tags.append(run.tag)
            heads.append(_number_documents(top, numbers))
    if faults and (not skip_bad or not good):
        raise UserError("\n".join(faults))
    found += caution_about_shared_tags(good, tags) + _caution_about_copies(measured[0], heads)
    return Batch(
        tuple(qrels_paths), tuple(measured), tuple(good), tuple(tags), tuple(faults), tuple(found), tuple(limits)
    )


def read_judge(path: Path, topics: Set[str]) -> tuple[Path, Qrels]:
    """Read judgments of the wanted topics, or of all; also returns their file. `UserError` for topics without any."""
    file = find_qrels_file(path)
    qrels = read_qrels(file)
    if not topics:
        return file, qrels
    if missing := sorted(topics - set(qrels.query_ids)):
        raise UserError(f"{path}: {plural(len(missing), 'topic')} of --topics without a judgment, such as {missing[0]}")
    return file, qrels.select([topic for topic in qrels.query_ids if topic in topics])


_Read = tuple[Run, Run, list[str]] | UserError
"""A run, its first rows in trec_eval's order, and cautions about the rows before the cut; or the fault of the file."""


def _read(judges: Sequence[tuple[Path, Qrels]], cut: Cut, path: Path) -> _Read:
    try:
        run = _take_topics(path, read_unsorted_run(path), cut.topics)
        for judge in judges:
            check_run(path, run, *judge)
    except UserError as error:
        return error
    run, topics = drop_own_documents(run) if cut.skip_own else run, sorted(judges[0][1].query_ids)
    cautions = caution_about_order(unicode_name(path), run.select(topics)) if cut.depth else []
    run = sort_as_trec_eval(run).top(cut.depth) if cut.depth else run
    return run, sort_as_trec_eval(run.select(topics)).top(COPY_DEPTH), cautions


def _take_topics(path: Path, run: Run, topics: Set[str]) -> Run:
    """Take the rows of the wanted topics, or all. `UserError` for a run without any of them."""
    own = [topic for topic in run.query_ids if topic in topics or not topics]
    if run.query_ids and not own:
        raise UserError(f"{path}: has none of --topics; its topics look like {run.query_ids[0]!r}")
    return run.select(own) if topics else run


def find_other_tag(run: Run) -> tuple[str, int] | None:
    """Find the first tag in a run file that differs from that of its first row, and its line; None if all agree."""
    data, rows = run.docs.data.tobytes(), int(np.count_nonzero(run.docs.data == LF))
    if rows in (data.count(gap + run.tag.encode() + end) for gap in (b" ", b"\t") for end in (b"\n", b"\r\n")):
        return None
    tag = split_columns(run.tag)
    for number, line in enumerate(data.decode().split("\n"), 1):
        columns = split_columns(line.rstrip("\r"))
        if columns and not columns[0].startswith("#"):
            own = columns[RUN_COLUMNS - 1 :]
            if own != tag:
                return " ".join(own), number
    return None


def _caution_about_tags(path: Path, run: Run) -> list[str]:
    if not (other := find_other_tag(run)):
        return []
    tag, line = other
    return [f"{path}:{line}: found the run tag {tag!r}, after {run.tag!r} in the lines before: two runs in one file?"]


def caution_about_shared_tags(paths: Sequence[Path], tags: Sequence[str]) -> list[str]:
    """Caution about each tag that several files share."""
    shared: dict[str, list[Path]] = {}
    for path, tag in zip(paths, tags, strict=True):
        shared.setdefault(tag, []).append(path)
    return [
        f"the run tag {tag!r} is that of {plural(len(own), 'file')}: {', '.join(map(str, own))}"
        for tag, own in shared.items()
        if len(own) > 1
    ]


_Head = NDArray[np.int32]


def _number_documents(top: Run, numbers: dict[str, int]) -> _Head:
    """Number the first documents of each topic, best first: int32[topics, ranks], -1 for none."""
    head = np.full((len(top.query_ids), COPY_DEPTH), -1, dtype=np.int32)
    places = np.arange(COPY_DEPTH) < np.diff(top.offsets)[:, None]
    head[places] = [numbers.setdefault(name, len(numbers)) for name in top.docs.decode_ids()]
    return head


def _caution_about_copies(evaluations: Sequence[Evaluation], heads: Sequence[_Head]) -> list[str]:
    """Caution about each pair of runs whose rankings are the same, or nearly so."""
    found = []
    for i, j in combinations(range(len(heads)), 2):
        names = f"{evaluations[i].name} and {evaluations[j].name}"
        if np.array_equal(heads[i], heads[j]):
            found.append(f"{names}: the same first {COPY_DEPTH} documents of each topic, in the same order")
        elif (rbo := compute_rbo(heads[i], heads[j])) >= COPY_RBO:
            found.append(f"{names}: nearly the same rankings (mean RBO {rbo:.3f}, p {COPY_PERSISTENCE})")
    return found


def compute_rbo(first: _Head, second: _Head, p: float = COPY_PERSISTENCE) -> float:
    """Compute the mean over topics of extrapolated RBO (Webber, Moffat and Zobel, TOIS 2010, equation 23).

    Both are int32[topics, ranks], with -1 after the last document. Of two lists of unequal length, only the ranks of
    the shorter one count. A topic that both lack does not count; a topic that one lacks counts 0.
    """
    values = np.empty(len(first))
    _fill_rbo(np.ascontiguousarray(first), np.ascontiguousarray(second), p, values)
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


@kernel
def _fill_rbo(first: _Head, second: _Head, p: float, values: Floats) -> None:
    for topic in range(len(first)):
        a, b = first[topic], second[topic]
        overlap, total, weight, depth = 0, 0.0, 1.0, 0
        for rank in range(len(a)):
            if a[rank] < 0 or b[rank] < 0:
                break
            depth = rank + 1
            overlap += a[rank] == b[rank]
            for above in range(rank):
                overlap += (a[above] == b[rank]) + (b[above] == a[rank])
            weight *= p
            total += overlap / depth * weight
        if depth:
            values[topic] = overlap / depth * weight + (1 - p) / p * total
        else:
            values[topic] = np.nan if a[0] < 0 and b[0] < 0 else 0.0


def name_runs(tags: Sequence[str], paths: Sequence[Path | str]) -> list[str]:
    """Name each run by its tag; if several runs share a tag, also by its file."""
    return [tag if tags.count(tag) == 1 else f"{tag} ({path})" for tag, path in zip(tags, paths, strict=True)]


def name_by_tags(batch: Batch) -> Batch:
    """Name each evaluation as `name_runs` does."""
    names = name_runs(batch.tags, batch.paths)
    renamed = ([replace(one, name=name) for one, name in zip(own, names, strict=True)] for own in batch.evaluations)
    bounds = tuple(replace(one, name=name) for one, name in zip(batch.bounds, names, strict=False))
    return replace(batch, evaluations=tuple(renamed), bounds=bounds)


def find_team(tag: str) -> str:
    """Find the team in a run tag: what stands before its first `-` or `_`, as in `teamA-run1`; empty without one."""
    team, found, _ = tag.replace("_", "-").partition("-")
    return team if found else ""


def list_teams(tags: Sequence[str], paths: Sequence[Path | str]) -> list[str]:
    """List the team of each run. Unless all tags name a team, each run is a team of its own."""
    found = [find_team(tag) for tag in tags]
    return found if all(found) else name_runs(tags, paths)
