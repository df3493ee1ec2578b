"""Leave-one-team-out: whether judgments are fair to a team whose runs were not in the pool.

Each team's runs are measured without the judgments of documents that only they brought to the pool (Zobel, SIGIR 1998).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.types import Progress, silent
from keystone.retrieval.types import offsets_of
from keystone.runs.evaluation.agreement import compute_tau
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import Measure
from keystone.runs.evaluation.pooling import Rankings, find_unique, join_teams, mark_documents
from keystone.runs.trec.types import Qrels, Run, SubtopicGrades


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
    """Leave out each team in turn, and measure all runs again.

    `rankings` has the documents of the same runs, and `teams` the team of each. A document counts as brought by a run
    that has it among its first `depth`. A topic that loses all of its judgments is not measured.
    """
    marks_of_runs = mark_documents(rankings, depth, {topic: [*qrels[topic]] for topic in qrels})
    unique = find_unique(join_teams(marks_of_runs, teams))
    means = _take_means(runs, qrels, measure)
    ranks = _rank(means)
    found = []
    with progress("Leaving out", len(unique)) as tick:
        for team, marks in unique.items():
            changed = _take_means(runs, keep_judgments(qrels, ~marks), measure) if marks.any() else means
            tau, changed_ranks = compute_tau(means, changed), _rank(changed)
            found += [
                LeftOutRun(team, run, int(marks.sum()), means[i], changed[i], ranks[i], changed_ranks[i], tau)
                for i, (run, own) in enumerate(zip(runs, teams, strict=True))
                if own == team
            ]
            tick(1)
    return found


def keep_judgments(qrels: Qrels, kept: NDArray[np.bool_]) -> Qrels:
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
    """Take the mean of each run; NaN if no topic has a relevant document."""
    if not len(qrels):
        return [float("nan")] * len(runs)
    try:
        return [evaluate(name, run, qrels, [measure]).mean(str(measure)) for name, run in runs.items()]
    except UserError:
        return [float("nan")] * len(runs)


def _rank(means: Sequence[float]) -> list[int]:
    return [1 + sum(other > mean for other in means) for mean in means]
