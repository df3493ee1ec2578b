"""What judges say, on the terminal and as JSON: agreement, intervals, pools, battles, and leaderboards of these."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from keystone.generation.llm.usage import compute_cost
from keystone.runs.report.leaderboard import Rows, print_rows
from keystone.runs.report.say import say
from keystone.runs.report.terminal import format_mean, format_p_value, print_columns
from keystone.runs.wording import escape_controls, plural

if TYPE_CHECKING:
    from keystone.generation.llm.usage import Prices
    from keystone.runs.evaluation.agreement import Agreement
    from keystone.runs.evaluation.arena.tournament import Leaderboard
    from keystone.runs.evaluation.battles import Interval, Pair, Summary
    from keystone.runs.evaluation.judging.judge import Comparison
    from keystone.runs.evaluation.judging.redraw import JudgeInterval, NoisyMeans
    from keystone.runs.evaluation.pooling import LeftOutRun, PoolStatistics
    from keystone.runs.pipeline.foresight import Foreseen


def print_comparison(comparison: "Comparison", against: Path, relevant_from: int, measure: str) -> None:
    """Print the confusion matrix, Cohen's kappa of grades and of relevance, and Kendall's tau-b of several runs."""
    agreement = comparison.agreement
    say(f"\nAgreement with {against} on {plural(int(agreement.counts.sum()), 'document')} (rows: its grades):")
    rows = _list_confusion(agreement)
    print_columns(next(rows), rows, left=range(len(agreement.grades) + 1))
    say(f"\nCohen's kappa: {format_mean(agreement.compute_kappa())}")
    binary = format_mean(agreement.compute_binary_kappa(relevant_from))
    say(f"Cohen's kappa of relevance (from grade {relevant_from}): {binary}")
    if len(comparison.own_means) > 1:
        say(f"Kendall's tau-b of {len(comparison.own_means)} runs by {measure}: {format_mean(comparison.tau)}")


def _list_confusion(agreement: "Agreement") -> Iterator[list[str]]:
    yield ["", *map(str, agreement.grades)]
    for grade, counts in zip(agreement.grades, agreement.counts.tolist(), strict=True):
        yield [str(grade), *(f"{count:,}" for count in counts)]


def list_comparison(comparison: "Comparison", relevant_from: int) -> dict[str, Any]:
    """List the numbers of `print_comparison` for JSON. A number that cannot be computed is NaN."""
    agreement = comparison.agreement
    numbers = {
        "kappa": agreement.compute_kappa(),
        "kappa_of_relevance": agreement.compute_binary_kappa(relevant_from),
        "tau": comparison.tau if len(comparison.own_means) > 1 else math.nan,
    }
    return {"grades": agreement.grades, "counts": agreement.counts.tolist(), **numbers}


def format_judge_intervals(found: "Sequence[NoisyMeans]") -> str:
    """Format each mean, and each difference from the first run, with its interval over topics and judges."""
    lines = ["", "With the judge's noise (mean, 95 % interval over topics and judges):"]
    first = escape_controls(found[0].name)
    for one in found:
        name = escape_controls(one.name)
        lines += [f"{name}: {measure} {_format_interval(own, '.4f')}" for measure, own in one.means.items()]
        lines += [
            f"{name} against {first}: {measure} {_format_interval(own, '+.4f')}"
            for measure, own in one.differences.items()
        ]
    return "\n".join(lines)


def _format_interval(found: "JudgeInterval", form: str) -> str:
    numbers = f"{found.mean:{form}}, {found.low:{form}} to {found.high:{form}}"
    return "-" if "nan" in numbers else numbers


def print_pair(pair: "Pair", summary: "Summary") -> None:
    """Print a heading with the files and the judge, then a row for each number with its interval or its test."""
    say(f"{pair.first} against {pair.second}: {plural(len(pair.fights), 'narrative')}, judged by {pair.judge}")
    print_columns(("", "", ""), _list_rows(summary), left=range(3))


def describe_summary(pair: "Pair", summary: "Summary") -> dict[str, Any]:
    """List the numbers of a pair for JSON. A number that cannot be computed is NaN, and an interval None."""
    numbers = asdict(summary).items()
    known = {name: None if isinstance(value, tuple) and math.isnan(value[0]) else value for name, value in numbers}
    return {"first": pair.first, "second": pair.second, "judge": pair.judge, **known}


def _list_rows(found: "Summary") -> list[tuple[str, str, str]]:
    rows = [
        ("won, lost, tied", f"{found.won}, {found.lost}, {found.tied}", f"sign test: p {format_p_value(found.p_sign)}"),
        ("share won", _format_number(found.win_share), _format_bounds(found.win_interval)),
        ("marks", f"{_format_number(found.mark)} : {_format_number(found.other_mark)}", ""),
        (
            "difference of marks",
            _format_number(found.mark_difference, "+.2f"),
            _format_bounds(found.mark_interval, "+.2f"),
        ),
        ("both orders agree", f"{found.agreeing} of {found.judged}", ""),
        ("share of the first slot", _format_number(found.first_slot_share), _format_bounds(found.first_slot_interval)),
    ]
    return rows + ([("without a verdict", str(found.unjudged), "")] if found.unjudged else [])


def _format_number(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _format_bounds(interval: "Interval", form: str = ".2f") -> str:
    low, high = interval
    return "" if math.isnan(low) else f"95 % interval {low:{form}} to {high:{form}}"


HEAD = ("rank", "run", "rating", "95 % interval", "battles", "won", "lost", "tied")


def print_leaderboard(board: "Leaderboard") -> None:
    """Print a heading with the judge, a row for each run by rank, and below it what the ratings rest on."""
    say(f"{count_battles(board)}, judged by {board.judge}")
    rows = []
    for one in board.standings:
        numbers = one.battles, one.wins, one.losses, one.ties
        rows.append([str(one.rank), one.run_id, f"{one.rating:.0f}", format_interval(one.interval), *map(str, numbers)])
    print_columns(HEAD, rows, left=[HEAD.index("run")])
    for line in tell_notes(board):
        say(line)


def count_battles(board: "Leaderboard") -> str:
    """Count the battles of a leaderboard in words, with their narratives if these are known."""
    on = f" on {plural(board.narratives, 'narrative')}" if board.narratives else ""
    return f"{plural(board.judged, 'battle')}{on}"


def format_interval(interval: tuple[float, float], form: str = ".0f") -> str:
    """Format an interval; a dash where there is none."""
    low, high = interval
    return "-" if math.isnan(low) or math.isnan(high) else f"{low:{form}} to {high:{form}}"


def tell_notes(board: "Leaderboard") -> Iterator[str]:
    """Tell what the first slot is worth, and whether a ridge was needed."""
    slots = board.slots
    if not math.isnan(slots.share):
        interval = format_interval(slots.interval, ".2f")
        yield f"share of the first slot: {slots.share:.2f} (95 % interval {interval}); .50 without bias"
    if slots.gamma is not None:
        worth, interval = f"{slots.gamma:+.2f}", format_interval(slots.gamma_interval, "+.2f")
        yield f"first-slot term: {worth} (95 % interval {interval}), p {format_p_value(slots.p)}"
    if board.ridge and board.judged:
        groups = [", ".join(map(escape_controls, group)) for group in board.groups]
        reason = "no battle bounds the first-slot term"
        if len(groups) > 1:
            reason = f"wins and ties do not lead from each run to each other one. Groups that do: {'; '.join(groups)}"
        yield f"ratings with a ridge of {board.ridge:g}: {reason}"


def tell_foreseen(number: int, foreseen: "Foreseen | None", prices: "Prices | None") -> Iterator[str]:
    """Tell the battles of a tournament, and what their calls can cost, before any is judged."""
    yield f"{plural(number, 'battle')} at most; nothing is written, no model is asked"
    if foreseen is not None:
        for name, usage in (("at most", foreseen.most), ("likely", foreseen.likely)):
            cost = "" if prices is None else f", ${compute_cost(usage, prices):,.2f}"
            tokens = f"{usage.prompt_tokens:,} tokens of prompts and {usage.completion_tokens:,} of replies"
            yield f"{name}: {plural(usage.calls, 'call')}, {tokens}{cost}"


def print_pool(found: "PoolStatistics") -> None:
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


def print_left_out(found: "Sequence[LeftOutRun]", measure: str) -> None:
    """Print the figures of each run with and without the judgments that only its team brought."""
    rows: Rows = [["team", "run", "judgments", "mean", "without", "rank", "without", "tau-b of all runs"]]
    for one in found:
        ranks = str(one.rank), str(one.rank_without)
        rows.append([one.team, one.run, f"{one.judgments:,}", one.mean, one.mean_without, *ranks, one.tau])
    print_rows(rows, "text", f"{measure} without the judgments that only the team brought:")


def list_kappas(agreement: "Agreement") -> dict[str, float]:
    """List Cohen's kappa, plain and weighted."""
    return {
        "kappa": agreement.compute_kappa(),
        "kappa_linear": agreement.compute_kappa("linear"),
        "kappa_quadratic": agreement.compute_kappa("quadratic"),
    }


def print_agreement(first: Path, second: Path, agreement: "Agreement", noun: str = "document") -> None:
    """Print the confusion of two judges, and Cohen's kappa. `noun` names what they judged."""
    documents = plural(int(agreement.counts.sum()), noun, "criteria" if noun == "criterion" else "")
    say(f"{documents} of both (a row for each grade of {first}, a column for each of {second}):")
    print_rows([[*row] for row in _list_confusion(agreement)], "text")
    labels = ("Cohen's kappa", "with linear weights", "with quadratic weights")
    for label, kappa in zip(labels, list_kappas(agreement).values(), strict=True):
        say(f"{label}: {format_mean(kappa)}")


def print_board_agreement(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the agreement of two leaderboards by each measure."""
    rows: Rows = [["measure", "runs of both", "tau", "tau-b", "tau_AP"]]
    rows += [[one["measure"], f"{one['runs']:,}", one["tau"], one["tau_b"], one["tau_ap"]] for one in found]
    print_rows(rows, "text")
