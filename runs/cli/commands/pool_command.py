"""The commands `keystone pool` and `keystone agree`: pools for assessors, and the agreement of their judgments."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import Json, Quiet
from keystone.runs.report.say import say, say_report

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        Path | None, typer.Option(metavar="QRELS", help="Leave out the documents that are judged here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the random order.")] = 0,
    leave_out: Annotated[
        Path | None,
        typer.Option(
            metavar="QRELS", help="Measure all runs without the judgments that only one team brought, team by team."
        ),
    ] = None,
    measure: Annotated[str, typer.Option("--measure", "-m", help="The measure of --leave-out.")] = "nDCG@10",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pool the first documents of runs for assessors, in random order, and say who brought them.

    Example: keystone pool runs/*.trec --depth 50 --without qrels.txt --out pool.txt
    """
    from keystone.indexing.io.writing import write_whole
    from keystone.runs.cli.leaderboard import list_files
    from keystone.runs.cli.outputs import check_outputs
    from keystone.runs.evaluation.batch import find_team
    from keystone.runs.evaluation.evaluate import check_run
    from keystone.runs.evaluation.leave_out import leave_teams_out
    from keystone.runs.evaluation.measures import parse_measure
    from keystone.runs.evaluation.pooling import describe_pool, pool_documents
    from keystone.runs.report.pooling import print_left_out, print_pool
    from keystone.runs.report.terminal import progress_bars
    from keystone.runs.trec.run_files import read_qrels

    if out is None and leave_out is None:
        raise UserError("expected --out with a pool to write, or --leave-out with judgments")
    files, wanted = list_files(runs), parse_measure(measure)
    check_outputs([*files, without, leave_out], {"--out": out})
    known = None if without is None else read_qrels(without)
    judgments = None if leave_out is None else read_qrels(leave_out)
    with progress_bars(quiet) as progress:
        with progress("Reading", None):
            found = dict(zip(files, read_runs(files), strict=True))
        teams = [find_team(run.tag) or run.tag for run in found.values()]
        named = {str(path): run for path, run in found.items()}
        rankings = {name: _list_documents(run, depth) for name, run in named.items()}
        if judgments and leave_out:
            for path, run in found.items():
                check_run(path, run, leave_out, judgments)
        left_out = leave_teams_out(named, rankings, teams, judgments, depth, wanted, progress) if judgments else []
    statistics = None
    if out is not None:
        judged = {topic: known[topic] for topic in known} if known else {}
        documents = pool_documents(rankings, depth, judged, seed)
        with write_whole(out) as file:
            file.writelines(f"{topic} {doc}\n".encode() for topic, docs in documents.items() for doc in docs)
        statistics = describe_pool(documents, rankings, teams, depth)
    if json:
        told = {"out": out and str(out), **(asdict(statistics) if statistics else {})}
        say_report("pool", runs, told | ({"left_out": list(map(asdict, left_out))} if judgments else {}))
        return
    if statistics is not None:
        say(str(out))
        print_pool(statistics)
    if judgments:
        print_left_out(left_out, measure)


def _list_documents(run: "Run", depth: int) -> dict[str, list[str]]:
    return {topic: [doc for doc, _ in hits] for topic, hits in run.top(depth).list_hits().items()}


def read_runs(files: "Sequence[Path]") -> "list[Run]":
    """Read run files in trec_eval's order. `UserError` has a line for each bad file."""
    from keystone.runs.trec.run_files import read_run

    runs, faults = [], []
    for path in files:
        try:
            runs.append(read_run(path))
            if not runs[-1].query_ids:
                faults.append(f"{path}: holds no row, expected a run")
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return runs


def agree(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", help="Judgments, or a leaderboard as CSV or JSON, as keystone evaluate writes it."),
    ],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another file of the same kind.")],
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Compare two files of judgments by kappa, or two leaderboards by Kendall's tau.

    Example: keystone agree first.qrels second.qrels
    """
    from keystone.runs.evaluation.agreement import compare_judgments
    from keystone.runs.evaluation.board_files import compare_boards, read_board
    from keystone.runs.report.pooling import list_kappas, print_agreement, print_board_agreement
    from keystone.runs.trec.run_files import read_qrels

    boards = read_board(first), read_board(second)
    if (boards[0] is None) != (boards[1] is None):
        board, other = (first, second) if boards[1] is None else (second, first)
        raise UserError(f"{board}: found a leaderboard, but judgments in {other}; expected two files of one kind")
    if boards[0] is None or boards[1] is None:
        agreement = compare_judgments(*map(read_qrels, (first, second)))
        if not agreement.counts.sum():
            raise UserError(f"{second}: has judged no document of {first}; expected judgments of the same documents")
        if json:
            numbers = {"grades": agreement.grades, "counts": agreement.counts.tolist(), **list_kappas(agreement)}
            say_report("agree", [first, second], numbers)
        else:
            print_agreement(first, second, agreement)
        return
    found = compare_boards(boards[0], boards[1])
    if not any(one.runs for one in found):
        raise UserError(f"{second}: has no run of {first} by the same measure; expected the same runs")
    if json:
        say_report("agree", [first, second], {"measures": list(map(asdict, found))})
    else:
        print_board_agreement(found)
