"""Judging and mending submission files of any team: every violation of a track's rules with its line.

The rules are those of the tracks' guidelines and of their organisers' validators, and the whole-file rules that
those lack (missing, repeated and unknown topics, one run tag, exact narratives). docs/tracks.md lists them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from indexing.errors import UserError
from retrieval.types import Topic
from runs.check_answers import check_answers
from runs.check_run import check_run, is_row
from runs.fix_answers import fix_answers
from runs.fix_run import fix_run
from runs.rag import metadata_of
from runs.rows import columns_of
from runs.tracks import TRACKS, Track
from runs.violations import Lines, Repair, Violation, object_of, read_lines, write_lines

MARK = "\ufeff"
"""The byte order mark; inside a file it tells that files were put one after another."""


def validate(path: Path, track: Track, topics: Sequence[Topic]) -> list[Violation]:
    """The violations of a retrieval run, or of an answer file (`.jsonl`, or a line that is a JSON object), by line."""
    content = read_lines(path)
    return _check(content, _holds_answers(path, content), track, topics)


def fix(path: Path, out: Path, track: Track, topics: Sequence[Topic]) -> tuple[list[Repair], list[Violation]]:
    """Write to `out` what the file says with all repaired that can be without changing its meaning.

    Returns what was repaired, by line of the file, and what is still wrong, by line of `out`. `UserError` where
    `out` is the file itself.
    """
    if out.exists() and path.exists() and out.samefile(path):
        raise UserError(f"--fix {out}: is the file to be repaired, which is left as it is; expected another name")
    marked = read_lines(path)
    content = [(number, line.lstrip(MARK)) for number, line in marked]
    holds_answers = _holds_answers(path, content)
    mend = fix_answers if holds_answers else fix_run
    lines, repairs = mend(content, track, {topic.id: topic.narrative for topic in topics})
    repairs += [Repair(number, "byte order mark dropped") for number, line in marked if line.startswith(MARK)]
    write_lines(out, lines)
    return sorted(repairs, key=lambda repair: repair.line), _check(read_lines(out), holds_answers, track, topics)


def track_of(path: Path) -> Track:
    """The track whose file this is, by its name, or by its keys and the form of its ids.

    `UserError` where these fit no track, or several.
    """
    content = read_lines(path)
    for track in TRACKS.values():
        if path.name.removesuffix(".gz").removesuffix(".zst") in (track.retrieval_file, track.answer_file):
            return track
    if _holds_answers(path, content):
        record = next(filter(None, (object_of(line) for _, line in content)), {})
        fits = {name: _fit(record, track) for name, track in TRACKS.items()}
    else:
        ids = [columns_of(line)[2] for _, line in content if is_row(line)]
        fits = {name: float(_are_of(ids, track)) for name, track in TRACKS.items()}
    best = [track for name, track in TRACKS.items() if fits[name] == max(fits.values()) > 0]
    if len({track.answer_file for track in best}) == 1:
        return best[0]
    found = f"fits {' and '.join(track.name for track in best)}" if best else "tells no track"
    raise UserError(f"{path}: its form {found}: say --track, one of {', '.join(TRACKS)}")


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
        yield f"{number} {severity}s: {kind}" + (f", first on line {line}" if line else "")


def _check(content: Lines, holds_answers: bool, track: Track, topics: Sequence[Topic]) -> list[Violation]:
    check = check_answers if holds_answers else check_run
    found = check(content, track, {topic.id: topic.narrative for topic in topics})
    return sorted(found, key=lambda violation: violation.line)


def _holds_answers(path: Path, content: Lines) -> bool:
    objects = (line.lstrip() for _, line in content if line.lstrip().startswith("{"))
    return ".jsonl" in path.suffixes or any(line.startswith('{"') or object_of(line) is not None for line in objects)
