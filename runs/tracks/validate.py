"""Judging and repair of any team's submission files: each violation of a track's rules with its line.

The rules come from the tracks' guidelines and their organisers' validators. Keystone adds rules of the whole file:
missing, repeated and unknown topics, one run tag, exact narratives. docs/participant.md lists all rules.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from keystone.indexing.errors import UnclearTrack, UserError
from keystone.indexing.io.json_values import try_json
from keystone.indexing.io.reading import COMPRESSIONS
from keystone.indexing.types import Store, document_id, show_as_html
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import CONTRADICTED, SHARED_FORM, SUPPORTED, TRACKS, Track
from keystone.runs.tracks.answer_files import get_metadata, list_cited_ids, list_references
from keystone.runs.tracks.check_answers import check_answers, describe_answers, find_topic, list_sentences, read_id
from keystone.runs.tracks.check_nuggets import check_nuggets, describe_nuggets, fix_nuggets, holds_nuggets
from keystone.runs.tracks.check_nuggets import list_references as list_nugget_references
from keystone.runs.tracks.check_run import check_run, describe_run, is_row
from keystone.runs.tracks.fix import fix_answers, fix_run
from keystone.runs.tracks.grounded import check_grounded, describe_grounded, fix_grounded
from keystone.runs.tracks.violations import (
    Lines,
    Repair,
    Violation,
    make_error,
    make_warning,
    parse_object,
    read_lines,
    shorten_value,
    write_lines,
)
from keystone.runs.trec.rows import split_columns
from keystone.runs.wording import plural

BYTE_ORDER_MARK = "\ufeff"
"""The byte order mark. Inside a file, it is a trace of files that were concatenated."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The violations of a file in the order of its lines, and a description of its size."""

    violations: list[Violation]
    size: str

    def _repr_html_(self) -> str:
        places = (f"line {one.line}: " if one.line else "" for one in self.violations)
        found = zip(places, self.violations, strict=True)
        lines = (f"{place}{one.severity}: {one.message}" for place, one in found)
        return show_as_html("\n".join([self.size, *lines]))


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Find the files to judge. Of a folder, these are the files at any depth that have a track's file name.

    If a folder has no such file, they are all files directly in it. Hidden files are skipped. `UserError` for a folder
    without a file.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        visible = (file for file in sorted(path.rglob("*")) if "/." not in f"/{file.relative_to(path).as_posix()}")
        inner = [file for file in visible if file.is_file()]
        submissions = [file for file in inner if find_tracks_by_name(file)] or [
            file for file in inner if file.parent == path
        ]
        if not submissions:
            raise UserError(f"{path}: holds no file to judge")
        found += submissions
    return list(dict.fromkeys(found))


def validate(path: Path, track: Track, topics: Sequence[Topic]) -> list[Violation]:
    """Find the violations of a retrieval run, an answer file or a file of nuggets, in the order of its lines.

    A file is an answer file if its name has `.jsonl`, or one of its lines is a JSON object.
    """
    return judge(path, track, topics).violations


def judge(path: Path, track: Track, topics: Sequence[Topic]) -> Verdict:
    """Find the violations, as `validate` does, and the size of the file."""
    content = read_lines(path)
    return _judge_lines(content, holds_answers(path, content), track, topics)


def check_runs(path: Path, track: Track, seen: dict[tuple[str, bool], dict[str, Path]]) -> Iterator[Violation]:
    """If the track limits the number of runs, find whether another file has this one's run, or it is one too many.

    The run ids of a team should begin alike on such a track. `seen` has the files judged so far, by track, by whether
    they hold answers, and by run id. This file is added.
    """
    if track.runs is None:
        return
    content = read_lines(path)
    has_answers = holds_answers(path, content)
    files = seen.setdefault((track.name, has_answers), {})
    run_id = next(filter(None, (_find_run_id(line, has_answers, track) for _, line in content)), "")
    if not run_id:  # the file's own violations say so
        return
    if other := next((name for name in files if name[0] != run_id[0]), ""):
        message = f"run id {run_id!r}: expected a beginning that all runs of a team share, found the run {other!r}"
        yield make_warning("run prefix", message)
    if (first := files.setdefault(run_id, path)) != path:
        message = f"run id {run_id!r}: {first} has it, too; expected one file for a run"
        yield make_error("run of another file", message)
    if len(files) > track.runs:
        yield make_error("too many runs", f"found {len(files)} runs, expected at most {track.runs}")


def _find_run_id(line: str, has_answers: bool, track: Track) -> str:
    if not has_answers:
        return split_columns(line)[5] if is_row(line) else ""
    metadata = get_metadata(parse_object(line) or {}, track)
    return read_id(metadata.get(track.run_key)) if isinstance(metadata, dict) else ""


def fix(path: Path, out: Path, track: Track, topics: Sequence[Topic]) -> tuple[list[Repair], Verdict]:
    """Repair a file into `out`, as far as its meaning stays. Returns the repairs by line, and a verdict on `out`."""
    marked = read_lines(path)
    content = [(number, line.lstrip(BYTE_ORDER_MARK)) for number, line in marked]
    has_answers = holds_answers(path, content)
    repair = _choose_work(content, has_answers, track).fix
    lines, repairs = repair(content, track, {topic.id: topic.narrative for topic in topics})
    repairs += [
        Repair(number, "byte order mark dropped") for number, line in marked if line.startswith(BYTE_ORDER_MARK)
    ]
    write_lines(out, lines)
    return sorted(repairs, key=lambda done: done.line), _judge_lines(read_lines(out), has_answers, track, topics)


def detect_track(path: Path) -> Track:
    """Detect a file's track: by its name, else by its keys and the form of its ids, else by its topic ids.

    If the tracks that fit share their form, the result is `responses`, marked as guessed. `UnclearTrack` if these fit
    no track, or tracks of several forms.
    """
    content = read_lines(path)
    if named := find_tracks_by_name(path):
        return _choose_form(named[0])
    if not _find_first_line(content)[1]:
        raise UserError(f"{path}: is empty, expected a run or answers")
    if array := _find_array(content):
        raise UserError(f"{path}:{array.line}: {array.message}")
    if holds_nuggets(content):
        return next(track for track in TRACKS.values() if track.nugget_run_id_length is not None)
    if holds_answers(path, content):
        records = [record for _, line in content if (record := parse_object(line)) is not None]
        if not records:
            raise UserError(f"{path}: holds no JSON object, expected one on each line")
        fits = {name: _rate_fit(records[0], track) for name, track in TRACKS.items()}
        topics = {name: {find_topic(record, track) for record in records} for name, track in TRACKS.items()}
    else:
        rows = [split_columns(line) for _, line in content if is_row(line)]
        fits = {name: float(_belong_to_track([row[2] for row in rows], track)) for name, track in TRACKS.items()}
        topics = {name: {row[0] for row in rows} for name in TRACKS}
    best = [track for name, track in TRACKS.items() if fits[name] == max(fits.values()) > 0]
    forms = {name: _have_track_form(topics[name], track) for name, track in TRACKS.items()}
    if len(best) != 1:
        fitting = [track for track in best or TRACKS.values() if forms[track.name]]
        best = fitting or [track for track in best if forms[track.name] is None]
    if len({track.answer_file for track in best}) == 1:
        return _choose_form(best[0])
    found = " and ".join(track.name for track in best) or "no track"
    raise UnclearTrack(f"{path}: its format fits {found}, expected that of one of {', '.join(TRACKS)}")


def find_tracks_by_name(path: Path) -> list[Track]:
    """Find the tracks whose files have this name."""
    bare = path.stem if path.suffix.lower() in COMPRESSIONS else path.name
    return [track for track in TRACKS.values() if bare in (track.retrieval_file, track.answer_file)]


def _list_sharing(track: Track) -> list[str]:
    """List the names of the tracks whose files have the same form."""
    return [one.name for one in TRACKS.values() if one.answer_file == track.answer_file]


def _choose_form(track: Track) -> Track:
    """Choose the track itself. If several share its form, its limits are unknown, so only the form is checked."""
    return track if _list_sharing(track) == [track.name] else SHARED_FORM


def _have_track_form(topics: Set[str], track: Track) -> bool | None:
    """Whether topic ids have the form of a track's topic ids. None if the track has no form of its own."""
    if track.topic_form is None:
        return None
    return bool(topics) and all(re.fullmatch(track.topic_form, topic) for topic in topics)


def _rate_fit(record: dict[str, Any], track: Track) -> float:
    """Rate the fit of an answer to a track, 0 to 2.

    The fit is the answer's share of the keys. If all ids are of the corpus, the function adds 1 to it. A track whose
    answers have grounds shares most of its keys with others, so its topic's key must be there.
    """
    metadata, references = get_metadata(record, track), record.get("references")
    if not isinstance(metadata, dict) or track.sentences not in record:
        return 0
    if track.grounds and track.topic_key not in metadata:
        return 0
    keys = sum(key.name in metadata for key in track.keys) / len(track.keys)
    return keys + _belong_to_track(references if isinstance(references, list) else [], track)


def _belong_to_track(ids: list[Any], track: Track) -> bool:
    return bool(track.id_form and track.telling_ids and ids) and all(
        isinstance(name, str) and track.owns(name) for name in ids
    )


def summarise_violations(violations: Sequence[Violation]) -> Iterator[str]:
    """Summarise violations: their number for each kind, and the line of the first one."""
    first: dict[tuple[str, str], Violation] = {}
    for violation in violations:
        first.setdefault((violation.severity, violation.kind), violation)
    counts = Counter((violation.severity, violation.kind) for violation in violations)
    for (severity, kind), number in counts.most_common():
        line = first[severity, kind].line
        yield f"{plural(number, severity)}: {kind}" + (f", first on line {line}" if line else "")


def cap_violations(violations: Sequence[Violation], most: int) -> Iterator[tuple[Violation, bool]]:
    """Yield the first `most` violations of each kind, and whether more of the kind are left out after this one."""
    seen: Counter[tuple[str, str]] = Counter()
    counts = Counter((violation.severity, violation.kind) for violation in violations)
    for violation in violations:
        kind = (violation.severity, violation.kind)
        seen[kind] += 1
        if seen[kind] <= most:
            yield violation, seen[kind] == most < counts[kind]


def _judge_lines(content: Lines, has_answers: bool, track: Track, topics: Sequence[Topic]) -> Verdict:
    if array := _find_array(content):
        return Verdict([array], "Keystone does not judge the elements of an array")
    narratives = {topic.id: topic.narrative for topic in topics}
    work = _choose_work(content, has_answers, track)
    found = [
        replace(one, severity="warning") if one.kind in track.accepted else one
        for one in sorted(work.check(content, track, narratives), key=lambda violation: violation.line)
    ]
    if track.guessed:
        message = f"no limit was checked: its form is that of {', '.join(_list_sharing(track))}; --track names one"
        found.insert(0, make_warning("no limit checked", message))
    return Verdict(found, work.describe(content, track, narratives))


class _Work(NamedTuple):
    """What is done with the lines of a kind of file, by the rules of a track and the narratives by topic ids."""

    check: Callable[[Lines, Track, Mapping[str, str]], Iterator[Violation]]
    describe: Callable[[Lines, Track, Mapping[str, str]], str]
    fix: Callable[[Lines, Track, Mapping[str, str]], tuple[list[str], list[Repair]]]


def _choose_work(content: Lines, has_answers: bool, track: Track) -> _Work:
    if not has_answers:
        return _Work(check_run, describe_run, fix_run)
    if holds_nuggets(content):
        return _Work(check_nuggets, describe_nuggets, fix_nuggets)
    if track.grounds:
        return _Work(check_grounded, describe_grounded, fix_grounded)
    return _Work(check_answers, describe_answers, fix_answers)


def holds_answers(path: Path, content: Lines) -> bool:
    """Whether a file with these lines holds answers, and not the rows of a run."""
    objects = (line.lstrip() for _, line in content if line.lstrip().startswith("{"))
    if ".jsonl" in path.suffixes or _find_first_line(content)[1].strip() == "{":
        return True
    return any(line.startswith('{"') or parse_object(line) is not None for line in objects)


def _find_first_line(content: Lines) -> tuple[int, str]:
    """Find the first line that is not blank."""
    return next(((number, line) for number, line in content if line.strip()), (0, ""))


def _find_array(content: Lines) -> Violation | None:
    """Find the one violation of a file that is a JSON array, which some programs write in place of JSONL."""
    number, line = _find_first_line(content)
    if not line.lstrip().startswith("["):
        return None
    value = try_json("\n".join(line for _, line in content))
    if isinstance(value, list) or (try_json(line) is None and not is_row(line)):
        message = "found a JSON array, expected one JSON object on each line: jq -c '.[]' converts it"
        return make_error("JSON array", message, number)
    return None


def check_index(path: Path, track: Track, store: Store) -> Iterator[Violation]:
    """Find ids of a run, an answer file or a file of nuggets that the index lacks, each at its first line.

    The id of a segment may also stand for its document.
    """
    content = read_lines(path)
    named: dict[str, int] = {}
    listed = _list_cited(content, track)
    if not holds_answers(path, content):
        listed = ((number, split_columns(line)[2]) for number, line in content if is_row(line))
    elif holds_nuggets(content):
        listed = ((n, name) for n, line in content for name in list_nugget_references(parse_object(line) or {}))
    for number, name in listed:
        named.setdefault(name, number)
    own, documents = (store.rows(ids).tolist() for ids in (list(named), list(map(document_id, named))))
    for (name, number), *rows in zip(named.items(), own, documents, strict=True):
        if max(rows) < 0:
            yield make_error("not in the index", f"{shorten_value(name)}: no document of the index", number)


def _list_cited(content: Lines, track: Track) -> Iterator[tuple[int, str]]:
    for number, line in content:
        record = parse_object(line) or {}
        if track.grounds:
            lists = [one.get(key) for one in list_sentences(record, track) for key in (SUPPORTED, CONTRADICTED)]
        else:
            lists = [list_references(record, track), list_cited_ids(record, track)]
        listed = (read_id(name) for own in lists if isinstance(own, list) for name in own)
        yield from ((number, name) for name in listed if name)
