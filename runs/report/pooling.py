"""Tables of pools and of agreement on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from keystone.runs.evaluation.agreement import Agreement, BoardAgreement
from keystone.runs.evaluation.pooling import LeftOutRun, PoolStatistics
from keystone.runs.report.leaderboard import Rows, print_rows
from keystone.runs.report.say import say
from keystone.runs.report.terminal import format_mean
from keystone.runs.wording import plural


def print_pool(found: PoolStatistics) -> None:
    """Print the size of a pool, and what each run and each team brought."""
    sizes = list(found.topics.values())
    say(
        f"{plural(sum(sizes), 'document')} of {plural(len(sizes), 'topic')}: "
        f"{min(sizes):,} to {max(sizes):,} a topic, median {median(sizes):,.4g}"
    )
    runs: Rows = [["run", "team", "documents", "of no other run", "mean overlap"]]
    runs += [[one.run, one.team, f"{one.documents:,}", f"{one.unique:,}", one.overlap] for one in found.runs]
    print_rows(runs, "text", "Runs:")
    teams: Rows = [["team", "runs", "documents", "of no other team"]]
    teams += [[one.team, f"{one.runs:,}", f"{one.documents:,}", f"{one.unique:,}"] for one in found.teams]
    print_rows(teams, "text", "Teams:")


def print_left_out(found: Sequence[LeftOutRun], measure: str) -> None:
    """Print each run before and after the judgments are taken away that only its team brought."""
    rows: Rows = [["team", "run", "judgments", "mean", "without", "rank", "without", "tau-b of all runs"]]
    for one in found:
        ranks = str(one.rank), str(one.rank_without)
        rows.append([one.team, one.run, f"{one.judgments:,}", one.mean, one.mean_without, *ranks, one.tau])
    print_rows(rows, "text", f"{measure} without the judgments that only the team brought:")


def list_kappas(agreement: Agreement) -> dict[str, float]:
    """List Cohen's kappa, plain and weighted."""
    return {
        "kappa": agreement.compute_kappa(),
        "kappa_linear": agreement.compute_kappa("linear"),
        "kappa_quadratic": agreement.compute_kappa("quadratic"),
    }


def print_agreement(first: Path, second: Path, agreement: Agreement, noun: str = "document") -> None:
    """Print the confusion of two judges, and Cohen's kappa. `noun` names what they judged."""
    documents = plural(int(agreement.counts.sum()), noun, "criteria" if noun == "criterion" else "")
    title = f"{documents} of both (a row for each grade of {first}, a column for each of {second}):"
    say(title)
    rows: Rows = [["", *map(str, agreement.grades)]]
    for grade, counts in zip(agreement.grades, agreement.counts.tolist(), strict=True):
        rows.append([str(grade), *(f"{count:,}" for count in counts)])
    print_rows(rows, "text")
    labels = ("Cohen's kappa", "with linear weights", "with quadratic weights")
    for label, kappa in zip(labels, list_kappas(agreement).values(), strict=True):
        say(f"{label}: {format_mean(kappa)}")


def print_board_agreement(found: Sequence[BoardAgreement]) -> None:
    """Print the agreement of two leaderboards by each measure."""
    rows: Rows = [["measure", "runs of both", "tau", "tau-b", "tau_AP"]]
    rows += [[one.measure, f"{one.runs:,}", one.tau, one.tau_b, one.tau_ap] for one in found]
    print_rows(rows, "text")
