"""A score sheet as rows of a table, and as the files `sheet.csv` and `sheet.json`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.sheet import Row, Sheet
from keystone.runs.report.leaderboard import Rows, format_rows

SHEET_CSV, SHEET_JSON, RAGDOLL_CSV = "sheet.csv", "sheet.json", "ragdoll.csv"
RAGDOLL_NAMES = {
    "run": "run_id",
    "V_strict": "strict_vital",
    "A_strict": "strict_all",
    "rubric": "ternary_score",
    "rubric_binary": "binary_score",
    "support_precision": "weighted_precision_first_citation",
    "support_recall": "weighted_recall_first_citation",
    "support_precision_hard": "hard_precision",
    "support_recall_hard": "hard_recall",
    "support_precision_all": "weighted_precision_all_judged_citations",
    "support_recall_all": "weighted_recall_all_judged_citations",
    "rating": "arena_score",
    "battles": "n_judgments",
    "wins": "wins",
    "losses": "losses",
    "ties": "ties",
}
"""The names of columns in the track's evaluator, RAGDoll at 1f06719, which has no others of the sheet."""


def list_rows(rows: Sequence[Row]) -> Rows:
    """List the head and the rows of a sheet. Counts are texts, so that only scores get decimals."""
    head: list[str | float] = [*rows[0]]
    return [head, *([_make_cell(value) for value in row.values()] for row in rows)]


def _make_cell(value: str | int | float | None) -> str | float:
    return math.nan if value is None else value if isinstance(value, float) else str(value)


def describe_sheet(sheet: Sheet) -> dict[str, Any]:
    """List a sheet as values of JSON. A score that a run lacks is null."""
    return {"runs": sheet.rows, "left_out": sheet.left_out, "warnings": sheet.cautions}


def write_sheet(folder: Path, sheet: Sheet) -> None:
    """Write a sheet to `sheet.csv`, with every digit, and `sheet.json`. Each appears when it is whole.

    `ragdoll.csv` has the columns that RAGDoll has, by its names.
    """
    theirs = [{RAGDOLL_NAMES[head]: row[head] for head in RAGDOLL_NAMES if head in row} for row in sheet.rows]
    for name, rows in ((SHEET_CSV, sheet.rows), (RAGDOLL_CSV, theirs)):
        with write_whole(folder / name) as out:
            out.write(f"{format_rows(list_rows(rows), 'csv')}\n".encode("utf-8", "surrogatepass"))
    with write_whole(folder / SHEET_JSON) as out:
        out.write(orjson.dumps(describe_sheet(sheet), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
