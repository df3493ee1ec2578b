"""Recognising the form of a file from its first record or its first lines."""

from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import choose_delimiter, name_columns
from keystone.indexing.io.reading import read_text_lines
from keystone.runs.exchange.records import read_records
from keystone.runs.exchange.table import FORMS, Form
from keystone.runs.trec.collections.named_rows import names_columns
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.topics import LAYOUT, names_collection

SHOWN_LINES = 1000
"""The lines of a run that are looked at."""
GRADES = frozenset(map(str, range(-2, 6)))
ITERATIONS = frozenset(("0", "1", "Q0"))
"""Second columns of judgments without nuggets. Any other word is one as well if all rows have it, as a judge's name."""


def recognise(path: Path) -> Form:
    """Recognise the form of a file. `UserError` if it has none that is known, or if several forms are possible."""
    if names_collection(path):
        raise UserError(f"{path}: holds topics and qrels; name one of them by --from")
    line = next((line for _, line in read_text_lines(path) if line.strip() and not line.startswith("#")), None)
    if line is None:
        raise UserError(f"{path}: holds no line; name the form by --from")
    if line.lstrip()[:1] in ("{", "["):
        record = next(record for _, record in read_records(path))
        form = _recognise_record(record)
        if form is None:
            keys = ", ".join(record) or "none"
            raise UserError(f"{path}: no form is known by the keys {keys}; name the form by --from, see --forms")
        return form
    if names_columns(line):
        return FORMS["qrels"]
    if line.lstrip().startswith("<"):
        return FORMS["topics"]
    is_header = name_columns(line.split(choose_delimiter(line)), LAYOUT) is not None
    if is_header or (line.count("\t") == 1 and len(line.split()) != 6):
        return FORMS["topics-tsv"]
    return FORMS[_recognise_columns(path)]


def _recognise_record(record: dict[str, Any]) -> Form | None:
    """The last of our forms that fits a record, else the first one of another package."""
    names = [*reversed(list(FORMS.own)), *FORMS.list_added()]
    return next((form for form in map(FORMS.__getitem__, names) if form.fits and form.fits(record)), None)


def _recognise_columns(path: Path) -> str:
    rows = []
    for number, line in read_text_lines(path):
        if line.strip() and not line.startswith("#"):
            rows.append(split_columns(line))
        if number >= SHOWN_LINES and len(rows[0]) != 4:
            break
    widths = {len(row) for row in rows}
    second, third, fourth, fifth = ({row[place] for row in rows if len(row) > place} for place in (1, 2, 3, 4))
    if min(widths) >= 6:
        ranked = len({(row[0], row[3]) for row in rows}) == len(rows)
        return "qrels" if fourth | fifth <= GRADES and not ranked else "run"
    if widths == {4}:
        if second == {"all"} or "all" in second - third or "query_id" in second:
            return "ir-measures"
        if "all" in third - second:
            return "leaderboard"
        if {grade.removesuffix(".0") for grade in fourth} <= GRADES and (second <= ITERATIONS or len(second) == 1):
            return "qrels"
        raise UserError(f"{path}: is nugget-qrels, leaderboard or ir-measures; name the form by --from")
    found = ", ".join(map(str, sorted(widths)))
    raise UserError(f"{path}: no form is known by lines of {found} columns; name the form by --from, see --forms")
