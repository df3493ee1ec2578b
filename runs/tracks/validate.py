"""Judging and mending submission files of any team: every violation of a track's rules with its line.

The rules are those of the tracks' guidelines and of their organisers' validators, and the whole-file rules that
those lack (missing, repeated and unknown topics, one run tag, exact narratives). docs/tracks.md lists them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexing.errors import UserError
from retrieval.types import Topic
from runs.tracks.answer_files import metadata_of
from runs.tracks.check_answers import check_answers, seen_in_answers, topic_of
from runs.tracks.check_run import check_run, is_row, seen_in_run
from runs.tracks.fix_answers import fix_answers
from runs.tracks.fix_run import fix_run
from runs.tracks.rules import TRACKS, Track
from runs.tracks.violations import Lines, Repair, Violation, error, json_of, object_of, read_lines, write_lines
from runs.trec.rows import split_columns
from runs.wording import plural

MARK = "\ufeff"
"""The byte order mark; inside a file it tells that files were put one after another."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is wrong in a file, in the order of its lines, and in a few words how much of it was seen."""

    violations: list[Violation]
    seen: str


def files_in(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: of a folder those at any depth that a track names, or else all that lie in it.

    Hidden files are left out. `UserError` for a folder without a file.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inner = [file for file in sorted(path.rglob("*")) if file.is_file() and not _hidden(file.relative_to(path))]
        meant = [file for file in inner if _named(file)] or [file for file in inner if file.parent == path]
        if not meant:
            raise UserError(f"{path}: holds no file to judge")
        found += meant
    return list(dict.fromkeys(found))


def validate(path: Path, track: Track, topics: Sequence[Topic]) -> list[Violation]:
    """The violations of a retrieval run, or of an answer file (`.jsonl`, or a line that is a JSON object), by line."""
    return judge(path, track, topics).violations


def judge(path: Path, track: Track, topics: Sequence[Topic]) -> Judged:
    """The violations that `validate` finds, and how much was seen."""
    content = read_lines(path)
    return _judged(content, _holds_answers(path, content), track, topics)


def fix(path: Path, out: Path, track: Track, topics: Sequence[Topic]) -> tuple[list[Repair], Judged]:
    """Write to `out` what the file says with all repaired that can be without changing its meaning.

    Returns what was repaired, by line of the file, and what is still wrong, by line of `out`.
    """
    marked = read_lines(path)
    content = [(number, line.lstrip(MARK)) for number, line in marked]
    holds_answers = _holds_answers(path, content)
    mend = fix_answers if holds_answers else fix_run
    lines, repairs = mend(content, track, {topic.id: topic.narrative for topic in topics})
    repairs += [Repair(number, "byte order mark dropped") for number, line in marked if line.startswith(MARK)]
    write_lines(out, lines)
    return sorted(repairs, key=lambda repair: repair.line), _judged(read_lines(out), holds_answers, track, topics)


def track_of(path: Path) -> Track:
    """The track whose file this is, by its name, or by its keys and the form of its ids; then by those of its topics.

    `UserError` where these fit no track, or several.
    """
    content = read_lines(path)
    if track := _named(path):
        return track
    if not _first(content)[1]:
        raise UserError(f"{path}: is empty, expected a run or answers")
    if array := _array(content):
        raise UserError(f"{path}:{array.line}: {array.message}")
    if _holds_answers(path, content):
        records = [record for _, line in content if (record := object_of(line)) is not None]
        if not records:
            raise UserError(f"{path}: no line of it is a JSON object, expected one a line")
        fits = {name: _fit(records[0], track) for name, track in TRACKS.items()}
        topics = {name: {topic_of(record, track) for record in records} for name, track in TRACKS.items()}
    else:
        rows = [split_columns(line) for _, line in content if is_row(line)]
        fits = {name: float(_are_of([row[2] for row in rows], track)) for name, track in TRACKS.items()}
        topics = {name: {row[0] for row in rows} for name in TRACKS}
    best = [track for name, track in TRACKS.items() if fits[name] == max(fits.values()) > 0]
    forms = {name: _have_form(topics[name], track) for name, track in TRACKS.items()}
    if len(best) != 1:
        told = [track for track in best or TRACKS.values() if forms[track.name]]
        best = told or [track for track in best if forms[track.name] is None]
    if len({track.answer_file for track in best}) == 1:
        return best[0]
    found = f"fits {' and '.join(track.name for track in best)}" if best else "tells no track"
    raise UserError(f"{path}: its form {found}: say --track, one of {', '.join(TRACKS)}")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _named(path: Path) -> Track | None:
    """The track whose file has this name."""
    bare = path.name.removesuffix(".gz").removesuffix(".zst")
    return next((track for track in TRACKS.values() if bare in (track.retrieval_file, track.answer_file)), None)


def _have_form(topics: Set[str], track: Track) -> bool | None:
    """Whether ids of topics have the form of a track's; None where the track has no form of its own."""
    if track.topic_form is None:
        return None
    return bool(topics) and all(re.fullmatch(track.topic_form, topic) for topic in topics)


def _fit(record: dict[str, Any], track: Track) -> float:
    """How much of a track's form an answer has: its share of the keys, and ids of the track's corpus."""
    metadata, references = metadata_of(record, track), record.get("references")
    if not isinstance(metadata, dict) or track.sentences not in record:
        return 0
    keys = sum(key.name in metadata for key in track.keys) / len(track.keys)
    return keys + _are_of(references if isinstance(references, list) else [], track)


def _are_of(ids: list[Any], track: Track) -> bool:
    return bool(track.id_form and ids) and all(isinstance(name, str) and track.owns(name) for name in ids)


def counted(violations: Sequence[Violation]) -> Iterator[str]:
    """A summary: how many violations there are of each kind, and on which line the first one is."""
    first: dict[tuple[str, str], Violation] = {}
    for violation in violations:
        first.setdefault((violation.severity, violation.kind), violation)
    counts = Counter((violation.severity, violation.kind) for violation in violations)
    for (severity, kind), number in counts.most_common():
        line = first[severity, kind].line
        yield f"{plural(number, severity)}: {kind}" + (f", first on line {line}" if line else "")


def capped(violations: Sequence[Violation], most: int) -> Iterator[tuple[Violation, bool]]:
    """The first `most` violations of each kind, and whether one is the last of them and more are left out."""
    seen: Counter[tuple[str, str]] = Counter()
    counts = Counter((violation.severity, violation.kind) for violation in violations)
    for violation in violations:
        kind = (violation.severity, violation.kind)
        seen[kind] += 1
        if seen[kind] <= most:
            yield violation, seen[kind] == most < counts[kind]


def _judged(content: Lines, holds_answers: bool, track: Track, topics: Sequence[Topic]) -> Judged:
    if array := _array(content):
        return Judged([array], "an array is not looked into")
    narratives = {topic.id: topic.narrative for topic in topics}
    check, seen = (check_answers, seen_in_answers) if holds_answers else (check_run, seen_in_run)
    found = sorted(check(content, track, narratives), key=lambda violation: violation.line)
    return Judged(found, seen(content, track, narratives))


def _holds_answers(path: Path, content: Lines) -> bool:
    objects = (line.lstrip() for _, line in content if line.lstrip().startswith("{"))
    if ".jsonl" in path.suffixes or _first(content)[1].strip() == "{":
        return True
    return any(line.startswith('{"') or object_of(line) is not None for line in objects)


def _first(content: Lines) -> tuple[int, str]:
    """The first line that is not blank."""
    return next(((number, line) for number, line in content if line.strip()), (0, ""))


def _array(content: Lines) -> Violation | None:
    """The one violation of a file that is a JSON array, as some programs write what should be JSONL."""
    number, line = _first(content)
    if not line.lstrip().startswith("["):
        return None
    whole = json_of("\n".join(line for _, line in content))
    if isinstance(whole, list) or (json_of(line) is None and not is_row(line)):
        return error(number, "JSON array", "a JSON array, expected a JSON object a line: jq -c '.[]' makes them")
    return None
