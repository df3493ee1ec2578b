"""The commands `keystone pool` and `keystone agree`: pools for assessors, and the agreement of their judgments."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.leaderboard import list_files
from keystone.runs.cli.options import DEFAULT_MEASURE, Json, Quiet, check_outputs, read_measure
from keystone.runs.report.say import say, say_result, say_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keystone.runs.evaluation.agreement import Agreement, Board
    from keystone.runs.trec.types import Run


def pool(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run files, folders of them, or run directories."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The pool to write: a topic and a document on each line.", show_default=False)
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="How many documents of each run and topic are pooled.")] = 100,
    without: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Leave out the documents of this pool or judgments. Repeat for several files."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the random order.")] = 0,
    leave_out: Annotated[
        Path | None,
        typer.Option(
            metavar="QRELS", help="Measure all runs without the judgments that only one team brought, team by team."
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="The measure of --leave-out.", show_default=DEFAULT_MEASURE),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pool the first documents of runs for assessors, in random order, and say who brought them.

    Example: keystone pool runs/*.trec --depth 50 --without qrels.txt --out pool.txt
    """
    from keystone.indexing.io.writing import write_whole
    from keystone.runs.evaluation.batch import caution_about_shared_tags, list_teams
    from keystone.runs.evaluation.evaluate import check_run
    from keystone.runs.evaluation.pooling import (
        describe_pool,
        leave_teams_out,
        list_documents,
        list_judged,
        pool_documents,
    )
    from keystone.runs.report.judging import print_left_out, print_pool
    from keystone.runs.report.terminal import progress_bars
    from keystone.runs.trec.run_files import read_qrels

    if out is None and leave_out is None:
        raise UserError("expected --out with a pool to write, or --leave-out with judgments")
    files, wanted = list_files(runs), read_measure(measure)
    check_outputs([*files, *(without or ()), leave_out], {"--out": out})
    judged: dict[str, set[str]] = {}
    for topic, doc in (row for path in without or () for row in list_judged(path)):
        judged.setdefault(topic, set()).add(doc)
    judgments = None if leave_out is None else read_qrels(leave_out)
    with progress_bars(quiet) as progress:
        with progress("Reading", None):
            found = dict(zip(files, read_runs(files), strict=True))
        tags = [run.tag for run in found.values()]
        teams = list_teams(tags, [*found])
        named = {str(path): run for path, run in found.items()}
        rankings = {name: list_documents(run, depth) for name, run in named.items()}
        if judgments and leave_out:
            for path, run in found.items():
                check_run(path, run, leave_out, judgments)
        left_out = leave_teams_out(named, rankings, teams, judgments, depth, wanted, progress) if judgments else []
    say_warnings(caution_about_shared_tags([*found], tags))
    statistics = None
    if out is not None:
        documents = pool_documents(rankings, depth, judged, seed)
        with write_whole(out) as file:
            file.writelines(f"{topic} {doc}\n".encode() for topic, docs in documents.items() for doc in docs)
        statistics = describe_pool(documents, rankings, teams, depth)
    if json:
        told = {"out": out and str(out), **(asdict(statistics) if statistics else {})}
        say_result("pool", runs, told | ({"left_out": list(map(asdict, left_out))} if judgments else {}))
        return
    if statistics is not None:
        say(str(out))
        print_pool(statistics)
    if judgments:
        print_left_out(left_out, str(wanted))


def read_runs(files: "Sequence[Path]") -> "list[Run]":
    """Read run files in trec_eval's order. `UserError` has a line for each bad file."""
    from keystone.runs.trec.run_files import read_run, require_rows

    runs, faults = [], []
    for path in files:
        try:
            runs.append(require_rows(path, read_run(path)))
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return runs


def agree(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="Judgments, a leaderboard as CSV or JSON, as keystone evaluate writes it, or a file or folder of "
            "assigned nuggets, rated citations or graded rubrics.",
        ),
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="[B]", help="Another of the same kind. Not needed for two measures.")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", "-m", help="Two measures of leaderboards: the first in A, the second in B, or in A."),
    ] = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Compare two judges by kappa, and two leaderboards or two measures by Kendall's tau.

    Example: keystone agree first.qrels second.qrels
    """
    from keystone.runs.evaluation.agreement import compare_boards, compare_judgments, list_means, read_board
    from keystone.runs.evaluation.scored_answers import compare_labels, holds_scored_answers, judge_answers
    from keystone.runs.trec.run_files import read_qrels

    if second is None and not measure:
        raise UserError("expected two files, or two measures of one leaderboard by --measure")
    paths = [first, second or first]
    if measure and len(measure) != 2:
        raise UserError(f"--measure: found {len(measure)}, expected two measures to compare")
    if not measure and all(path.exists() and not (path / "qrels").exists() for path in paths):
        files = [list_files([path]) for path in paths]
        if all(any(map(holds_scored_answers, own)) for own in files):
            found = compare_labels(*files)
            judged = judge_answers([], dict(zip(paths, files, strict=True)))
            taus = compare_boards(*map(list_means, judged.evaluations))
            _tell_agreement(paths, found.agreement, taus, json, found.kind.noun)
            return
    boards = [read_board(path) for path in paths]
    if measure and None in boards:
        raise UserError(f"{paths[boards.index(None)]}: expected a leaderboard for --measure, as evaluate writes it")
    if (boards[0] is None) != (boards[1] is None):
        board, other = paths if boards[1] is None else paths[::-1]
        raise UserError(f"{board}: found a leaderboard, but judgments in {other}; expected two files of one kind")
    if boards[0] is None or boards[1] is None:
        agreement = compare_judgments(*map(read_qrels, paths))
        if not agreement.counts.sum():
            raise UserError(f"{second}: has judged no document of {first}; expected judgments of the same documents")
        _tell_agreement(paths, agreement, [], json)
        return
    _tell_agreement(paths, None, _compare_boards(paths, boards[0], boards[1], measure), json)


def _tell_agreement(
    paths: "Sequence[Path]",
    agreement: "Agreement | None",
    taus: "Sequence[dict[str, Any]]",
    json: bool,
    noun: str = "document",
) -> None:
    """Tell the agreement of two judges on what they judged, that of two leaderboards, or both."""
    from keystone.runs.report.judging import list_kappas, print_agreement, print_board_agreement

    if json:
        numbers: dict[str, Any] = {"measures": taus} if taus else {}
        if agreement:
            counts = {"grades": agreement.grades, "counts": agreement.counts.tolist()}
            numbers = {**counts, **list_kappas(agreement), **numbers}
        say_result("agree", [*paths], numbers)
        return
    if agreement:
        print_agreement(paths[0], paths[1], agreement, noun)
    if taus:
        print_board_agreement(taus)


def _compare_boards(
    paths: "Sequence[Path]", first: "Board", second: "Board", measures: "Sequence[str] | None"
) -> list[dict[str, Any]]:
    """Compare two leaderboards by each measure, or by one measure in each. `UserError` if they share no run."""
    from keystone.runs.evaluation.agreement import compare_boards

    if measures:
        for path, board, name in zip(paths, (first, second), measures, strict=True):
            if name not in board:
                raise UserError(f"{path}: has no {name}; expected one of {', '.join(board)}")
        name = f"{measures[0]}, {measures[1]}"
        first, second = {name: first[measures[0]]}, {name: second[measures[1]]}
    found = compare_boards(first, second)
    if not any(one["runs"] for one in found):
        raise UserError(f"{paths[1]}: has no run of {paths[0]} by the same measure; expected the same runs")
    return found
