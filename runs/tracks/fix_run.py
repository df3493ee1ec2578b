"""Repairs of a retrieval run that keep its meaning: the documents of each topic in the order that tools read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runs.tracks.check_run import is_blank, is_comment, is_row, usable_score
from runs.tracks.rules import Track
from runs.tracks.violations import Lines, Repair, is_utf8, shown
from runs.trec.render import decrease_strictly
from runs.trec.rows import split_columns
from runs.wording import plural


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a run, with its columns as they were written."""

    line: int
    fields: tuple[str, ...]

    @property
    def document(self) -> str:
        """The id of the document or segment."""
        return self.fields[2]


def fix_run(content: Lines, track: Track, _topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """The lines of the repaired run, and what was done to those of the given one.

    Blank and comment lines go, and the second column becomes Q0; rows stand together by topic, best first, with
    ranks from 1 and scores that strictly decrease in float32; of a document that is listed twice the better row
    stays, and rows beyond the track's limit go. The order is that of the scores, and where these are equal that
    of the ranks, or of the lines if two ranks are equal. A topic whose ranks contradict its scores, or that has an
    unusable score, keeps its rows; so do lines that are no rows, which come last.
    """
    topics: dict[str, list[Row]] = {}
    apart: set[str] = set()
    repairs: list[Repair] = []
    rest: list[str] = []
    previous = ""
    for number, line in content:
        if is_row(line):
            row = Row(number, tuple(split_columns(line)))
            topic = row.fields[0]
            if topic != previous and topic in topics:
                apart.add(topic)
            topics.setdefault(topic, []).append(row)
            previous = topic
        elif is_blank(line) or (is_comment(line) and is_utf8(line)):
            repairs.append(Repair(number, "blank line dropped" if is_blank(line) else "comment dropped"))
        else:
            rest.append(line)
    given = dict(content)
    lines: list[str] = []
    for topic, rows in topics.items():
        kept, done = _mended(rows, track)
        if topic in apart:
            done.append(Repair(rows[0].line, f"its {len(rows)} rows put together"))
        repairs += [Repair(repair.line, f"topic {shown(topic)}: {repair.message}") for repair in done]
        was = {row.line: row.fields for row in rows}
        lines += [given[row.line] if row.fields == was[row.line] else " ".join(row.fields) for row in kept]
    return lines + rest, sorted(repairs, key=lambda repair: repair.line)


def _mended(rows: list[Row], track: Track) -> tuple[list[Row], list[Repair]]:
    """The rows of a topic as they should be, and what was done."""
    done: list[Repair] = []
    rows = _set(rows, 1, ["Q0"] * len(rows), "second column", done)
    ordered = _in_order(rows)
    if ordered is None:
        return rows, done
    if ordered != rows:
        done.append(Repair(rows[0].line, "rows put in the order of their scores"))
    kept: dict[str, Row] = {}
    for row in ordered:
        best = kept.setdefault(row.document, row)
        if best is not row:
            done.append(Repair(row.line, f"{shown(row.document)} dropped: line {best.line} ranks it higher"))
    rows = list(kept.values())
    if track.rows is not None and len(rows) > track.rows:
        done.append(
            Repair(
                rows[track.rows].line, f"{plural(len(rows) - track.rows, 'row')} beyond the {track.rows} best dropped"
            )
        )
        rows = rows[: track.rows]
    rows = _set(rows, 3, [str(rank) for rank in range(1, len(rows) + 1)], "rank", done)
    scores = np.array([usable_score(row.fields[4]) for row in rows], dtype=np.float64)
    try:
        decreasing = decrease_strictly(scores)
    except ValueError:
        return rows, done
    texts = [
        row.fields[4] if np.float32(score) == new else f"{new:.9g}"
        for row, score, new in zip(rows, scores, decreasing, strict=True)
    ]
    return _set(rows, 4, texts, "score", done), done


def _in_order(rows: Sequence[Row]) -> list[Row] | None:
    """The rows best first; None where a score is unusable, or ranks that all differ contradict the scores."""
    scores = {row.line: usable_score(row.fields[4]) for row in rows}
    ranks = {row.line: int(row.fields[3]) for row in rows if row.fields[3].isdecimal() and len(row.fields[3]) < 19}
    if len(set(ranks.values())) < len(rows):
        ranks = {row.line: 0 for row in rows}
    order = [(-score, ranks[row.line], row.line) for row in rows if (score := scores[row.line]) is not None]
    found = sorted(range(len(order)), key=order.__getitem__)
    told = [order[i][1] for i in found]
    if len(order) < len(rows) or told != sorted(told):
        return None
    return [rows[i] for i in found]


def _set(rows: list[Row], column: int, values: list[str], name: str, done: list[Repair]) -> list[Row]:
    """The rows with a column as given; notes in `done` how many differ and where the first of them is."""
    changed = [row.line for row, value in zip(rows, values, strict=True) if row.fields[column] != value]
    if changed:
        done.append(Repair(min(changed), f"{name} rewritten on {len(changed)} of its rows"))
    return [
        Row(row.line, (*row.fields[:column], value, *row.fields[column + 1 :]))
        for row, value in zip(rows, values, strict=True)
    ]
