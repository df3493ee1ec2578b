"""Repairs of a retrieval run that keep its meaning: each topic keeps its best documents in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keystone.retrieval.ties import decrease_strictly
from keystone.runs.tracks.check_run import is_blank, is_comment, is_row, parse_score
from keystone.runs.tracks.rules import Track
from keystone.runs.tracks.violations import Lines, Repair, is_utf8, shorten_value
from keystone.runs.trec.rows import split_columns
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a run, with its columns as text."""

    line: int
    fields: tuple[str, ...]

    @property
    def document(self) -> str:
        """The id of the document or segment."""
        return self.fields[2]


def fix_run(content: Lines, track: Track, _topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair the lines of a run. Returns the new lines, and the repairs by line of the given file.

    * Blank lines and comments are dropped. Other lines that are no rows come last, unchanged.
    * Rows are grouped by topic, best first, with ranks from 1 and scores that strictly decrease in float32. The second
      column becomes Q0.
    * If a topic lists a document twice, the better row stays. Rows beyond the track's limit are dropped.

    Scores give the order. If scores are equal, ranks do; if ranks are equal, too, lines do. If a topic's ranks
    contradict its scores, or a score is unusable, its rows stay as they are.
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
        kept, done = _repair_topic(rows, track)
        if topic in apart:
            done.append(Repair(rows[0].line, f"its {len(rows)} rows put together"))
        repairs += [Repair(repair.line, f"topic {shorten_value(topic)}: {repair.message}") for repair in done]
        was = {row.line: row.fields for row in rows}
        lines += [given[row.line] if row.fields == was[row.line] else " ".join(row.fields) for row in kept]
    return lines + rest, sorted(repairs, key=lambda repair: repair.line)


def _repair_topic(rows: list[Row], track: Track) -> tuple[list[Row], list[Repair]]:
    """Repair the rows of a topic. Returns the new rows and the repairs."""
    done: list[Repair] = []
    rows = _set_column(rows, 1, ["Q0"] * len(rows), "second column", done)
    ordered = _sort_rows(rows)
    if ordered is None:
        return rows, done
    if ordered != rows:
        done.append(Repair(rows[0].line, "rows put in the order of their scores"))
    kept: dict[str, Row] = {}
    for row in ordered:
        best = kept.setdefault(row.document, row)
        if best is not row:
            done.append(Repair(row.line, f"{shorten_value(row.document)} dropped: line {best.line} ranks it higher"))
    rows = list(kept.values())
    if track.rows is not None and len(rows) > track.rows:
        done.append(
            Repair(
                rows[track.rows].line, f"{plural(len(rows) - track.rows, 'row')} beyond the {track.rows} best dropped"
            )
        )
        rows = rows[: track.rows]
    rows = _set_column(rows, 3, [str(rank) for rank in range(1, len(rows) + 1)], "rank", done)
    scores = np.array([parse_score(row.fields[4]) for row in rows], dtype=np.float64)
    try:
        decreasing = decrease_strictly(scores)
    except ValueError:
        return rows, done
    texts = [
        row.fields[4] if np.float32(score) == new else f"{new:.9g}"
        for row, score, new in zip(rows, scores, decreasing, strict=True)
    ]
    return _set_column(rows, 4, texts, "score", done), done


def _sort_rows(rows: Sequence[Row]) -> list[Row] | None:
    """Sort rows best first. None if a score is unusable, or if ranks that all differ contradict the scores."""
    scores = {row.line: parse_score(row.fields[4]) for row in rows}
    ranks = {row.line: int(row.fields[3]) for row in rows if row.fields[3].isdecimal() and len(row.fields[3]) < 19}
    if len(set(ranks.values())) < len(rows):
        ranks = {row.line: 0 for row in rows}
    order = [(-score, ranks[row.line], row.line) for row in rows if (score := scores[row.line]) is not None]
    found = sorted(range(len(order)), key=order.__getitem__)
    sorted_ranks = [order[i][1] for i in found]
    if len(order) < len(rows) or sorted_ranks != sorted(sorted_ranks):
        return None
    return [rows[i] for i in found]


def _set_column(rows: list[Row], column: int, values: list[str], name: str, done: list[Repair]) -> list[Row]:
    """Set a column of all rows. If values change, add one repair to `done`, on the line of the first change."""
    changed = [row.line for row, value in zip(rows, values, strict=True) if row.fields[column] != value]
    if changed:
        done.append(Repair(min(changed), f"{name} rewritten on {len(changed)} of its rows"))
    return [
        Row(row.line, (*row.fields[:column], value, *row.fields[column + 1 :]))
        for row, value in zip(rows, values, strict=True)
    ]
