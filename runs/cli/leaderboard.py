"""What `keystone evaluate` makes of many runs, or of several judges: a leaderboard, and tables that options add."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keystone.indexing.errors import UserError
from keystone.runs.pipeline.file_names import COSTS_FILE, STAGE_COSTS, USAGE_FILE
from keystone.runs.report.say import say, say_result, say_warnings

if TYPE_CHECKING:
    from keystone.indexing.types import Progress
    from keystone.runs.evaluation.agreement import Agreement
    from keystone.runs.evaluation.batch import Batch, Cut
    from keystone.runs.evaluation.evaluate import Evaluation
    from keystone.runs.evaluation.measures import Measure
    from keystone.runs.evaluation.scored_answers import Judged, LabelAgreement
    from keystone.runs.report.leaderboard import Rows

BESIDE_RUNS = re.compile(rf"\.|\w+\.sqlite|({COSTS_FILE}|{STAGE_COSTS}|{USAGE_FILE})$")
"""The names of hidden files, and of what Keystone keeps beside run directories: replies, scores and costs."""
MOST_COMPARED = 8
"""More runs than this become a leaderboard, and are only tested if a baseline or all pairs are asked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `keystone evaluate` that make a leaderboard."""

    sort: str | None = None
    baseline: str | None = None
    only_table: bool = False
    pairs: bool = False
    by_topic: bool = False
    bounds: bool = False
    skip_bad: bool = False
    topics: str | None = None
    depth: int = 0


def find_topics_file(given: str) -> Path | None:
    """Find the file that `--topics` names; None for ids, which may be longer than any name of a file."""
    path = Path(given)
    try:
        return path if path.is_file() else None
    except OSError:
        return None


def read_topic_ids(given: str) -> frozenset[str]:
    """Read ids of topics: a file with one at the beginning of each line, or ids with commas between them."""
    from keystone.indexing.io.reading import read_text_lines

    path = find_topics_file(given)
    texts = (text for _, text in read_text_lines(path)) if path else given.split(",")
    lines = [line for text in texts for line in text.splitlines()]
    ids = frozenset(line.split()[0] for line in lines if line.split())
    if not ids:
        raise UserError(f"--topics {given}: holds no topic id")
    return ids


def list_files(paths: Sequence[Path]) -> list[Path]:
    """List the run files that paths name: files, run directories, and each file of folders but `BESIDE_RUNS`."""
    if any(path.is_dir() for path in paths):
        from keystone.runs.pipeline.table import find_ranking  # which loads the modules of all stages

        paths = [*map(find_ranking, paths)]
    found = list[Path]()
    for path in paths:
        inside = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        found += [file for file in inside if file is path or not BESIDE_RUNS.match(file.name)]
    if not found:
        raise UserError(f"{paths[0]}: holds no file, expected run files; name each run directory, as {paths[0]}/*/")
    return found


@dataclass(frozen=True, slots=True)
class Board:
    """All tables of a leaderboard by their titles, the runs by each judge, and the JSON of all numbers."""

    tables: "dict[str, Rows]"
    evaluations: "tuple[list[Evaluation], ...]"
    """For each judge, the evaluations of the same runs."""
    report: dict[str, Any]
    cautions: list[str]
    faults: tuple[str, ...]


def make_board(
    paths: Sequence[Path],
    qrels: Sequence[Path],
    measures: "Sequence[Measure]",
    cut: "Cut",
    asked: Asked,
    progress: "Progress",
) -> Board:
    """Measure all runs by all judges, and make the tables that are asked for. The first table is the leaderboard."""
    from keystone.runs.evaluation.agreement import compare_judgments
    from keystone.runs.evaluation.batch import evaluate_batch, name_by_tags, read_judge

    _check_sort([str(measure) for measure in measures], asked.sort)
    options = {"skip_bad": asked.skip_bad, "bounds": asked.bounds, "compared": 1 < len(paths) <= MOST_COMPARED}
    batch = name_by_tags(evaluate_batch(paths, qrels, measures, cut, **options, progress=progress))
    judgments = [read_judge(path, cut.topics)[1] for path in batch.judges] if len(qrels) > 1 else []
    return fill_board(batch, [compare_judgments(*pair) for pair in combinations(judgments, 2)], asked)


def make_board_of_answers(judged: "Judged", asked: Asked) -> Board:
    """Make the same tables of scored answers by all judges."""
    from keystone.runs.evaluation.batch import Batch

    names = tuple(one.name for one in judged.evaluations[0])
    files = tuple(judged.files.get(name, Path(name)) for name in names)
    batch = Batch(judged.judges, judged.evaluations, files, names, (), tuple(judged.cautions))
    return fill_board(batch, judged.agreements, asked)


def _check_sort(names: Sequence[str], sort: str | None) -> str:
    """Return the measure that sorts runs. `UserError` for one that is not among the measures."""
    if sort is not None and sort not in names:
        raise UserError(f"--sort {sort}: expected one of the measures, {', '.join(names)}")
    return sort or names[0]


def fill_board(batch: "Batch", agreements: "Sequence[Agreement]", asked: Asked) -> Board:
    """Make the tables of measured runs. `agreements` has one for each pair of judges."""
    from keystone.runs.evaluation import compare
    from keystone.runs.evaluation import leaderboard as boards
    from keystone.runs.report import leaderboard as rows

    measure = _check_sort(list(batch.evaluations[0][0].values), asked.sort)
    runs = boards.sort_runs(batch.evaluations[0], measure)
    known = {str(path): one.name for path, one in zip(batch.paths, batch.evaluations[0], strict=True)}
    compared = boards.put_first(runs, known, asked.baseline or boards.BEST)
    pairs = compare.compare_all_pairs(runs, measure) if asked.pairs and len(runs) > 1 else []
    tables = {"": rows.list_leaderboard(runs, batch.tags_by_name, measure, pairs)}
    if asked.by_topic:
        title = f"Topics, hardest first. {rows.summarise_variance(runs, measure)}"
        tables[title] = rows.list_topic_rows(runs, measure)
    if pairs:
        tables[f"All pairs by {measure}:"] = rows.list_pairs(pairs)
    if asked.bounds:
        tables["Without a judgment:"] = rows.list_bounds(batch.bounds)
    tested = asked.baseline is not None and len(runs) > 1 and not asked.only_table
    report = compare.build_report(compared, tested)
    if tested:
        tables[f"Against {compared[0].name}, corrected by Holm:"] = rows.list_differences(report["differences"])
    judges = [str(path) for path in batch.judges]
    if len(judges) > 1:
        tables[f"{measure} by each judge:"] = rows.list_judge_columns(batch, [one.name for one in runs], measure)
        tables["Agreement of judges:"] = rows.list_judge_pairs(batch.judges, batch.evaluations, agreements, measure)
    if len(judges) > 1 and len(runs) > 1 and not asked.only_table:
        judged = [{one.name: one for one in own} for own in batch.evaluations]
        found = [[one[measure] for one in compare.compare_runs([own[o.name] for o in compared])] for own in judged]
        later = [one.name for one in compared[1:]]
        tables[f"Against {compared[0].name} by {measure}:"] = rows.list_conclusions(later, found, judges)
    others = zip(judges[1:], batch.evaluations[1:], strict=True)
    of_later = [f"{judge}: {caution}" for judge, own in others for caution in compare.join_cautions(own)]
    of_pairs = compare.caution_about_all_pairs(runs, measure) if pairs else []
    cautions = list(dict.fromkeys([*batch.cautions, *compare.collect_cautions(compared), *of_later, *of_pairs]))
    report |= {
        "qrels": judges,
        "leaderboard": rows.make_objects(tables[""]),
        "pairs": list(map(asdict, pairs)),
        "tables": {title: rows.make_objects(own) for title, own in tables.items() if title},
        "faults": list(batch.faults),
        "warnings": cautions,
    }
    return Board(tables, batch.evaluations, report, cautions, batch.faults)


def say_as_json(command: str, files: Sequence[Path], report: dict[str, Any], form: str, json: bool) -> bool:
    """Print a report as JSON if `--json` or `--format json` asks for that; returns whether one does."""
    if json:
        say_result(command, files, report)
    elif form == "json":
        import orjson

        say(orjson.dumps(report).decode())
    return json or form == "json"


def print_board(board: Board, form: str, asked: Asked, quiet: bool) -> None:
    """Print the tables. CSV has one table: the first that is asked for beside the leaderboard, or the leaderboard."""
    from keystone.runs.report.leaderboard import print_rows

    tables = list(board.tables.items())
    if form == "csv":
        beside = (asked.by_topic or asked.pairs or asked.bounds) and len(tables) > 1
        tables = tables[1:2] if beside else tables[:1]
    for title, rows in tables[:1] if asked.only_table else tables:
        wide = form == "text" and title.startswith("Topics") and len(rows[0]) > 7 + MOST_COMPARED
        print_rows([row[:7] for row in rows] if wide else rows, form, title)  # no terminal shows more than eight runs
    for fault in board.faults:
        say(f"left out: {fault}", err=True)
    say_warnings(board.cautions)
    if not quiet:
        whole = sum(one.counts.answered_topics == one.counts.judged_topics for one in board.evaluations[0])
        say(f"{whole} of {len(board.evaluations[0])} runs answer every judged topic", err=True)


def write_leaderboard(
    paths: Sequence[Path],
    qrels: Path | None,
    names: Sequence[str] | None,
    topics: Path | None,
    out: Path,
    *,
    skip_bad: bool,
    progress: "Progress",
) -> None:
    """Write the report of many runs to one HTML file: of run files by judgments, or else of scored answers.

    The first of the measures `names` ranks runs. `topics` has the narratives; scored answers count all of them.
    """
    from keystone.runs.evaluation.batch import evaluate_batch, name_by_tags
    from keystone.runs.evaluation.compare import caution_about_all_pairs, collect_cautions
    from keystone.runs.evaluation.measures import DEFAULT_MEASURES, parse_measures
    from keystone.runs.evaluation.scored_answers import leave_out_bad, score_answers
    from keystone.runs.report.html.board import About, write_board
    from keystone.runs.trec.topics import read_topic_narratives

    titles = read_topic_narratives(topics) if topics else {}
    files, faults, found, tags = list_files(paths), list[str](), list[str](), dict[str, str]()
    if qrels is None:
        try:
            files, faults = leave_out_bad(files) if skip_bad else (files, faults)
            runs = score_answers(files, titles)
        except UserError as error:
            raise UserError(f"{error}; expected --qrels with run files, or scored answers without it") from error
        measures = list(names or list(runs[0].values)[:1])
        if unknown := [name for name in measures if name not in runs[0].values]:
            raise UserError(f"measure {unknown[0]!r}: unknown; expected one of {', '.join(runs[0].values)}")
    else:
        wanted = parse_measures(names) if names else DEFAULT_MEASURES
        batch = name_by_tags(evaluate_batch(files, [qrels], wanted, skip_bad=skip_bad, progress=progress))
        runs, measures, faults, found = batch.evaluations[0], [str(wanted[0])], [*batch.faults], [*batch.cautions]
        tags = batch.tags_by_name
    found += [*collect_cautions(runs), *caution_about_all_pairs(runs, measures[0])]
    write_board(out, runs, measures[0], About(titles, faults, list(dict.fromkeys(found)), tags))


def list_scored(paths: Sequence[Path], skip_bad: bool) -> list[Path]:
    """List the files of scored answers. With `skip_bad`, bad ones are left out, each with a message."""
    from keystone.runs.evaluation.scored_answers import leave_out_bad

    if not paths or not skip_bad:
        return list_files(paths) if paths else []
    good, faults = leave_out_bad(list_files(paths))
    for fault in faults:
        say(f"left out: {fault}", err=True)
    return good


def show_scores(
    command: str,
    files: Sequence[Path],
    judged: "Judged",
    asked: Asked,
    form: str,
    agreement: "LabelAgreement | None" = None,
    *,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print the scores of answers, and write them to `out`: each topic and the means, or a leaderboard.

    Many runs, several judges or an option for leaderboards ask for one. `agreement`, with another judge, is added.
    """
    from keystone.runs.evaluation.compare import build_report
    from keystone.runs.report.tables import TABLES
    from keystone.runs.report.terminal import print_cautions, print_differences, print_evaluations, print_topics

    evaluations = judged.evaluations[0]
    board = None
    if asked != Asked() or len(judged.judges) > 1 or len(evaluations) > MOST_COMPARED:
        board = make_board_of_answers(judged, asked)
    report = board.report if board else build_report(evaluations)
    if agreement:
        report["agreement"] = agreement.report()
    write_json(report, out)
    if not say_as_json(command, files, report, form, json):
        if board:
            print_board(board, form, asked, quiet)
        elif form != "text":
            say(TABLES[form](evaluations))
        if agreement and form == "text":
            say(agreement.describe())
        if form == "text" and not board:
            for evaluation in evaluations:
                print_topics(evaluation)
            if len(evaluations) > 1:
                print_evaluations(evaluations, compare=False)
                print_differences(evaluations)
    if not board:
        print_cautions(evaluations, quiet)


def write_json(report: dict[str, Any], out: Path | None) -> None:
    """Write a report to a file, if one is asked for."""
    import orjson

    from keystone.indexing.io.writing import write_whole

    if out:
        with write_whole(out) as file:
            file.write(orjson.dumps(report, option=orjson.OPT_INDENT_2))
