"""The rules of a retrieval run: columns, topics, ranks, scores that every tool can use, rows, one tag."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from indexing.types import is_id
from runs.tracks.rules import Track
from runs.tracks.violations import Lines, Violation, error, is_utf8, shown, warning
from runs.trec.rows import CONTROL, split_columns
from runs.trec.scan import RUN_COLUMNS
from runs.wording import plural

_SCORE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_run(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """The violations of a retrieval run; `topics` gives narratives by topic id."""
    tags: dict[str, list[int]] = {}
    rows: dict[str, int] = {}
    last: dict[str, tuple[int, float]] = {}
    seen: dict[tuple[str, str], int] = {}
    foreign: dict[str, int] = {}
    previous = ""
    for number, line in content:
        fault = _fault_of(number, line)
        if fault:
            yield fault
            continue
        topic, second, name, rank, score, tag = split_columns(line)
        if second != "Q0":
            yield warning(number, "second column", f"second column: expected Q0, found {shown(second)}")
        if topic not in topics:
            yield error(number, "unknown topic", f"topic {shown(topic)} is not in the topics file")
        if topic != previous and topic in rows:
            yield warning(number, "rows apart", f"topic {shown(topic)}: its rows do not stand together")
        previous = topic
        if not is_id(name):
            yield error(number, "document id", f"document id: expected an id without space, found {shown(name)}")
        elif not track.owns(name):
            foreign.setdefault(name, number)
        first = seen.setdefault((topic, name), number)
        if first != number:
            message = f"{shown(name)} is already listed for topic {shown(topic)} on line {first}"
            yield error(number, "repeated document", message)
        rows[topic] = rows.get(topic, 0) + 1
        if rank != str(rows[topic]):
            yield error(number, "rank", f"rank: expected {rows[topic]}, found {shown(rank)}")
        if track.rows is not None and rows[topic] == track.rows + 1:
            yield error(number, "too many rows", f"topic {shown(topic)}: more than {track.rows} rows")
        yield from _check_score(number, topic, score, last)
        tags.setdefault(tag, []).append(number)
    for tag, found in list(tags.items())[1:]:
        expected = f"expected {shown(next(iter(tags)))} on every line, found {shown(tag)}"
        yield error(found[0], "run tag", f"run tag: {expected} on {len(found)} of them")
    yield from check_ids(foreign, track)
    if not rows:
        yield error(0, "no row", f"holds no row, expected some for {plural(len(topics), 'topic')}")
    for topic in topics if rows else ():
        if topic not in rows:
            yield warning(0, "missing topic", f"topic {shown(topic)}: no row")


def seen_in_run(content: Lines, _track: Track, topics: Mapping[str, str]) -> str:
    """How much of a run there is to judge."""
    rows = Counter(split_columns(line)[0] for _, line in content if is_row(line))
    shown = f"{len(rows.keys() & topics):,} of {plural(len(topics), 'topic')}, {plural(rows.total(), 'row')}"
    if not rows:
        return shown
    low, high = min(rows.values()), max(rows.values())
    return f"{shown}, {f'{low:,} to ' * (low < high)}{high:,} a topic"


def is_row(line: str) -> bool:
    """Whether a line is one of a run's rows, whatever its columns hold."""
    return (
        is_utf8(line) and not is_comment(line) and not CONTROL.search(line) and len(split_columns(line)) == RUN_COLUMNS
    )


def is_blank(line: str) -> bool:
    """Whether a line holds no column."""
    return not line.strip(" \t")


def is_comment(line: str) -> bool:
    """Whether a line is a comment, as some tools write them at the head of a run."""
    return line.lstrip(" \t").startswith("#")


def _fault_of(number: int, line: str) -> Violation | None:
    if is_row(line):
        return None
    if not is_utf8(line):
        return error(number, "not UTF-8", f"not UTF-8: {shown(line)}")
    if is_blank(line):
        return warning(number, "blank line", "blank line")
    if is_comment(line):
        return error(number, "comment", "a comment: expected 6 columns, and comments in a file beside")
    if control := CONTROL.search(line):
        return error(number, "control character", f"holds the control character {control[0]!r}")
    return error(number, "columns", f"expected {RUN_COLUMNS} columns, found {len(split_columns(line))}")


def check_ids(foreign: Mapping[str, int], track: Track) -> Iterator[Violation]:
    """One warning for all ids of another corpus than the track's, one error for all that name none of its segments.

    `foreign` gives each id that is none of the track's with its first line.
    """
    missed = {name: number for name, number in foreign.items() if track.misses(name)}
    if missed:
        name, number = next(iter(missed.items()))
        message = f"{shown(name)}: a document of the track's corpus, but none of its official segments"
        yield error(number, "no official segment", f"{message}; found {plural(len(missed), 'such id')}")
    if others := {name: number for name, number in foreign.items() if name not in missed}:
        name, number = next(iter(others.items()))
        message = f"{shown(name)}: not an id of the track's corpus; found {plural(len(others), 'such id')}"
        yield warning(number, "id of another corpus", message)


def usable_score(text: str) -> float | None:
    """The score that a column holds; None where it is none, or not a finite one in float32, as some tools keep it."""
    score = float(text) if _SCORE.fullmatch(text) else math.nan
    with np.errstate(over="ignore"):
        return score if np.isfinite(np.float32(score)) else None


def _check_score(number: int, topic: str, text: str, last: dict[str, tuple[int, float]]) -> Iterator[Violation]:
    score = usable_score(text)
    if score is None:
        yield error(number, "score", f"score: expected a number that float32 can hold, found {shown(text)}")
        return
    if topic in last:
        above, before = last[topic]
        if score > before:
            yield error(number, "score order", f"score {score:.9g} is above the one of line {above}")
        elif np.float32(score) == np.float32(before):
            message = f"score {score:.9g} equals the one of line {above} in float32: tools may swap them"
            yield warning(number, "score tie", message)
    last[topic] = (number, score)
