"""Checks of a retrieval run: columns, topics, ids, ranks, scores that all tools can use, rows and the run tag."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from keystone.indexing.types import describe_id, is_id
from keystone.runs.track_rules import Track
from keystone.runs.tracks.violations import (
    Lines,
    Severity,
    Violation,
    is_utf8,
    make_error,
    make_warning,
    put_on_line,
    shorten_value,
    tell_expected,
)
from keystone.runs.trec.rows import CONTROL, split_columns
from keystone.runs.trec.scan import RUN_COLUMNS
from keystone.runs.wording import plural

_SCORE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_run(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """Find the violations of a retrieval run. `topics` maps topic ids to narratives."""
    tags = dict[str, list[int]]()
    rows, foreign = dict[str, int](), dict[str, int]()
    last = dict[str, tuple[int, float]]()
    seen = dict[tuple[str, str], int]()
    previous = ""
    for number, line in content:
        if not is_row(line):
            yield from put_on_line(number, [_find_fault(line)])
            continue
        topic, second, name, rank, score, tag = split_columns(line)
        if second != "Q0":
            yield make_warning("second column", tell_expected("second column", "Q0", second), number)
        if topic not in topics:
            yield make_error("unknown topic", f"topic {shorten_value(topic)} is not in the topics file", number)
        if topic != previous and topic in rows:
            yield make_warning("rows apart", f"topic {shorten_value(topic)}: its rows do not stand together", number)
        previous = topic
        if not is_id(name):
            yield make_error("document id", tell_expected("document id", describe_id(name), name), number)
        elif not track.owns(name):
            foreign.setdefault(name, number)
        first = seen.setdefault((topic, name), number)
        if first != number:
            message = f"{shorten_value(name)} is already listed for topic {shorten_value(topic)} on line {first}"
            yield make_error("repeated document", message, number)
        rows[topic] = rows.get(topic, 0) + 1
        if rank != str(rows[topic]):
            yield make_error("rank", tell_expected("rank", str(rows[topic]), rank), number)
        if track.rows is not None and rows[topic] == track.rows + 1:
            yield make_error("too many rows", f"topic {shorten_value(topic)}: more than {track.rows} rows", number)
        yield from _check_score(number, topic, score, last)
        tags.setdefault(tag, []).append(number)
    for tag, found in tags.items():
        if not track.takes_run_id(tag):
            yield make_error("run id form", tell_expected("run tag", track.describe_run_ids(), tag), found[0])
    for tag, found in list(tags.items())[1:]:
        message = tell_expected("run tag", f"{shorten_value(next(iter(tags)))} on every line", tag)
        yield make_error("run tag", f"{message} on {plural(len(found), 'line')}", found[0])
    yield from check_ids(foreign, track)
    if not rows:
        yield make_error("no row", f"holds no row, expected rows for {plural(len(topics), 'topic')}")
    for topic in topics if rows else ():
        if topic not in rows:
            yield make_warning("missing topic", f"topic {shorten_value(topic)}: no row")


def describe_run(content: Lines, _track: Track, topics: Mapping[str, str]) -> str:
    """Describe the size of a run: its topics and rows."""
    rows = Counter(split_columns(line)[0] for _, line in content if is_row(line))
    size = f"{len(rows.keys() & topics):,} of {plural(len(topics), 'topic')}, {plural(rows.total(), 'row')}"
    if not rows:
        return size
    low, high = min(rows.values()), max(rows.values())
    return f"{size}, {f'{low:,} to ' * (low < high)}{high:,} a topic"


def is_row(line: str) -> bool:
    """Whether a line has the six columns of a row. The columns may hold any values."""
    return (
        is_utf8(line) and not is_comment(line) and not CONTROL.search(line) and len(split_columns(line)) == RUN_COLUMNS
    )


def is_blank(line: str) -> bool:
    """Whether a line holds no column."""
    return not line.strip(" \t")


def is_comment(line: str) -> bool:
    """Whether a line is a comment, such as some tools write at the head of a run."""
    return line.lstrip(" \t").startswith("#")


def _find_fault(line: str) -> Violation:
    if not is_utf8(line):
        return make_error("not UTF-8", f"not UTF-8: {shorten_value(line)}")
    if is_blank(line):
        return make_warning("blank line", "blank line")
    if is_comment(line):
        return make_error("comment", "a comment: expected a row of 6 columns, and no comment in the file")
    if control := CONTROL.search(line):
        return make_error("control character", f"holds the control character {control[0]!r}")
    return make_error("columns", f"expected {RUN_COLUMNS} columns, found {len(split_columns(line))}")


def check_ids(foreign: Mapping[str, int], track: Track, severity: Severity = "warning") -> Iterator[Violation]:
    """Report foreign ids: one violation for all ids of another corpus, one error for all that name no official segment.

    `foreign` maps each id that is not an id of the track's corpus to its first line.
    """
    missed = {name: number for name, number in foreign.items() if track.misses(name)}
    if missed:
        name, number = next(iter(missed.items()))
        message = f"{shorten_value(name)}: a document of the track's corpus, but none of its official segments"
        yield make_error("no official segment", f"{message}; found {plural(len(missed), 'such id')}", number)
    if others := {name: number for name, number in foreign.items() if name not in missed}:
        name, number = next(iter(others.items()))
        message = f"{shorten_value(name)}: not an id of the track's corpus; found {plural(len(others), 'such id')}"
        yield Violation(number, severity, "id of another corpus", message)


def parse_score(text: str) -> float | None:
    """Parse the score of a column. None if it is no number, or not finite in float32, which some tools use."""
    score = float(text) if _SCORE.fullmatch(text) else math.nan
    with np.errstate(over="ignore"):
        return score if np.isfinite(np.float32(score)) else None


def _check_score(number: int, topic: str, text: str, last: dict[str, tuple[int, float]]) -> Iterator[Violation]:
    score = parse_score(text)
    if score is None:
        yield make_error("score", tell_expected("score", "a number that float32 can hold", text), number)
        return
    if topic in last:
        above, before = last[topic]
        if score > before:
            yield make_error("score order", f"score {score:.9g} is above that of line {above}", number)
        elif np.float32(score) == np.float32(before):
            message = f"score {score:.9g} equals that of line {above} in float32: tools may swap the two rows"
            yield make_warning("score tie", message, number)
    last[topic] = (number, score)
