"""The pool of a test collection: the documents that assessors are to judge, who brought them, and teams left out."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.types import Progress, silent
from keystone.retrieval.types import offsets_of
from keystone.runs.evaluation.agreement import compute_tau, rank_means
from keystone.runs.evaluation.evaluate import take_mean
from keystone.runs.evaluation.measures import Measure
from keystone.runs.trec.arrays import Flags, Floats
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import Qrels, Run, SubtopicGrades

Rankings = Mapping[str, Mapping[str, Sequence[str]]]
"""Run -> topic -> document ids, best first."""


def list_documents(run: Run, depth: int) -> dict[str, list[str]]:
    """List the first `depth` documents of each topic of a run, best first."""
    return {topic: [doc for doc, _ in hits] for topic, hits in run.top(depth).list_hits().items()}


def list_judged(path: Path) -> list[tuple[str, str]]:
    """List topic and document of each judgment of a file, or of each line of a pool, which has these two columns alone.

    `UserError` as from `read_qrels`, and for another line in a pool.
    """
    found = list[tuple[str, str]]()
    for number, line in read_text_lines(path) if path.is_file() else ():
        if len(columns := line.split()) == 2 and columns[0][0] not in "{[":
            found.append((columns[0], columns[1]))
        elif columns and not found:
            break
        elif columns:
            raise UserError(
                f"{path}:{number}: found {line!r:.100}, expected a topic and a document as on the lines above"
            )
    return found or [(topic, doc) for topic, doc, _ in read_qrels(path).list_rows()]


def pool_documents(
    rankings: Rankings, depth: int, judged: Mapping[str, Collection[str]] | None = None, seed: int = 0
) -> dict[str, list[str]]:
    """Pool the first `depth` documents of each run.

    Documents that `judged` has for a topic are left out. The order is random, so that it tells an assessor nothing of
    ranks or runs. It depends only on the seed, the topic and the documents. A depth below 1 raises a ValueError.
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}, expected at least 1")
    pool: dict[str, list[str]] = {}
    for topic in sorted({topic for topics in rankings.values() for topic in topics}):
        found = {doc for topics in rankings.values() for doc in topics.get(topic, ())[:depth]}
        pool[topic] = sorted(found - set((judged or {}).get(topic, ())))
        random.Random(f"{seed} {topic}").shuffle(pool[topic])
    return pool


def mark_documents(rankings: Rankings, depth: int, documents: Mapping[str, Sequence[str]]) -> Flags:
    """Mark which of the documents of each topic each run has among its first `depth`: bool[runs, documents]."""
    pairs = ((topic, doc) for topic, docs in documents.items() for doc in docs)
    places = {pair: place for place, pair in enumerate(pairs)}
    marks = np.zeros((len(rankings), len(places)), dtype=bool)
    for own, topics in zip(marks, rankings.values(), strict=True):
        found = (places.get((topic, doc), -1) for topic, docs in topics.items() for doc in docs[:depth])
        own[[place for place in found if place >= 0]] = True
    return marks


def join_teams(marks: Flags, teams: Sequence[str]) -> dict[str, Flags]:
    """Join the marks of each team's runs: bool[documents] by team. `teams` has one for each run."""
    own = np.array(teams)
    return {team: marks[own == team].any(axis=0) for team in dict.fromkeys(teams)}


def find_unique(marks: Mapping[str, Flags]) -> dict[str, Flags]:
    """Find the documents that only one run or team has: bool[documents] by its name."""
    counts = np.sum([*marks.values()], axis=0)
    return {name: own & (counts == 1) for name, own in marks.items()}


def compute_overlaps(marks: Flags) -> Floats:
    """Compute Jaccard's overlap of each pair of runs: the share of their documents that both have: float64[runs, runs].

    It is NaN for two runs without a marked document.
    """
    numbers = marks.astype(np.float64)
    both, sizes = numbers @ numbers.T, numbers.sum(axis=1)
    either = sizes[:, None] + sizes - both
    overlaps: Floats = np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0)
    return overlaps


@dataclass(frozen=True, slots=True)
class PooledRun:
    """What a run brought to a pool."""

    run: str
    team: str
    documents: int
    unique: int
    """The documents that no other run brought."""
    overlap: float
    """The mean overlap with the other runs, by `compute_overlaps`; NaN if there is no other run."""


@dataclass(frozen=True, slots=True)
class PooledTeam:
    """What the runs of a team brought to a pool."""

    team: str
    runs: int
    documents: int
    unique: int
    """The documents that no other team brought."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Statistics of a pool. All of them count only the documents that are left to be judged."""

    topics: dict[str, int]
    """The number of documents of each topic."""
    runs: list[PooledRun]
    teams: list[PooledTeam]
    overlaps: list[list[float]]
    """The overlap of each pair of runs, in the order of `runs`."""


def describe_pool(
    pool: Mapping[str, Sequence[str]], rankings: Rankings, teams: Sequence[str], depth: int
) -> PoolStatistics:
    """Describe a pool of runs to a depth. `teams` has the team of each run."""
    marks = mark_documents(rankings, depth, pool)
    overlaps = compute_overlaps(marks)
    unique = find_unique(dict(zip(rankings, marks, strict=True)))
    runs = []
    for number, (run, team) in enumerate(zip(rankings, teams, strict=True)):
        others = np.delete(overlaps[number], number).tolist()
        overlap = mean(others) if others else float("nan")
        runs.append(PooledRun(run, team, int(marks[number].sum()), int(unique[run].sum()), overlap))
    of_teams = join_teams(marks, teams)
    only = find_unique(of_teams)
    return PoolStatistics(
        {topic: len(docs) for topic, docs in pool.items()},
        runs,
        [PooledTeam(team, teams.count(team), int(own.sum()), int(only[team].sum())) for team, own in of_teams.items()],
        overlaps.tolist(),
    )


@dataclass(frozen=True, slots=True)
class LeftOutRun:
    """A run before and after its team is left out: its mean, and its rank among all runs."""

    team: str
    run: str
    judgments: int
    """The judgments that are taken away: those of documents that no other team brought."""
    mean: float
    mean_without: float
    rank: int
    rank_without: int
    tau: float
    """Kendall's tau-b between all runs before and after."""


def leave_teams_out(
    runs: Mapping[str, Run],
    rankings: Rankings,
    teams: Sequence[str],
    qrels: Qrels,
    depth: int,
    measure: Measure,
    progress: Progress = silent,
) -> list[LeftOutRun]:
    """Leave out each team in turn, and measure all runs again (Zobel, SIGIR 1998).

    A team's runs are then measured without the judgments of documents that only the team brought. `rankings` has
    the documents of the same runs, and `teams` the team of each. A document counts as brought by a run that has it
    among its first `depth`. A topic that loses all of its judgments is not measured.
    """
    marks_of_runs = mark_documents(rankings, depth, {topic: [*qrels[topic]] for topic in qrels})
    unique = find_unique(join_teams(marks_of_runs, teams))
    means = _take_means(runs, qrels, measure)
    ranks = rank_means(means)
    found = []
    with progress("Leaving out", len(unique)) as tick:
        for team, marks in unique.items():
            changed = _take_means(runs, keep_judgments(qrels, ~marks), measure) if marks.any() else means
            tau, changed_ranks = compute_tau(means, changed), rank_means(changed)
            found += [
                LeftOutRun(team, run, int(marks.sum()), means[i], changed[i], ranks[i], changed_ranks[i], tau)
                for i, (run, own) in enumerate(zip(runs, teams, strict=True))
                if own == team
            ]
            tick(1)
    return found


def keep_judgments(qrels: Qrels, kept: Flags) -> Qrels:
    """Keep the judgments that `kept` (bool[rows]) marks, also by subtopic, and the topics that have one."""
    topics = np.repeat(qrels.query_ids, np.diff(qrels.offsets))[kept].tolist()
    subtopics = qrels.subtopics
    if subtopics is not None:
        pairs = set(zip(topics, qrels.docs[kept].decode_ids(), strict=True))
        own = np.array([(topic, doc) in pairs for topic, _, doc, _ in subtopics.list_rows()], dtype=bool)
        offsets = offsets_of(own)[subtopics.offsets]
        columns = subtopics.subtopics[own], subtopics.docs[own], subtopics.grades[own]
        subtopics = SubtopicGrades(subtopics.query_ids, offsets, *columns)
    rest = Qrels(qrels.query_ids, offsets_of(kept)[qrels.offsets], qrels.docs[kept], qrels.grades[kept], subtopics)
    return rest.select(list(dict.fromkeys(topics)))


def _take_means(runs: Mapping[str, Run], qrels: Qrels, measure: Measure) -> list[float]:
    return [take_mean(name, run, qrels, measure) for name, run in runs.items()]
