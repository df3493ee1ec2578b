"""The file that answers are appended to, and the note beside it about their origin."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.system import lock_file
from keystone.indexing.io.writing import append, reason_of
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.tracks.answer_files import get_metadata

FIRST_LINE_STARTS = (b'{"metadata"', b'{"run_id"')
"""The first line of an answer file begins with one of these."""
REMEDY = "name another file with --out, or remove this one to make all its answers anew"
"""The end of messages about a file that holds other answers."""


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file to which answers are appended, each on disk before the next, or standard output.

    Beside a file `NAME` there is the note `.NAME.made`. Its first line holds the settings. Each further line holds a
    topic and the digest of its narrative, and is written before the topic's answer.
    """

    name: Path | None
    content: IO[bytes]
    note: IO[bytes] | None = None
    done: dict[str, int] = field(default_factory=dict)
    """The number of the line of each topic that was answered before."""
    narratives: dict[str, str] = field(default_factory=dict)
    """The digests of these topics' narratives, as far as they are known."""

    def has_answer(self, topic: Topic) -> bool:
        """Return whether the file answers the topic. `UserError` if it answers another narrative of the same id."""
        if topic.id not in self.done:
            return False
        if self.narratives.get(topic.id, digest(topic.narrative)) != digest(topic.narrative):
            raise UserError(
                f"{self.name}:{self.done[topic.id]}: answers topic {topic.id!r} with another narrative than "
                f"{topic.place} has: {REMEDY}"
            )
        return True

    def append(self, topic: Topic, record: dict[str, Any]) -> None:
        """Add the answer to a topic."""
        try:
            if self.note is not None:
                _append(self.note, [topic.id, digest(topic.narrative)])
            _append(self.content, record)
        except OSError as error:
            raise NotWritten(self.name, reason_of(error)) if self.name else error from error


@contextmanager
def open_answer_file(out: Path | None, job: Job) -> Iterator[AnswerFile]:
    """Open the file of a job's answers, or standard output if `out` is None.

    The file is locked first, so that no other process appends to it. If it holds answers of another run, other settings
    or another index, `UserError` names the file and the line. Only then is a last line removed that was cut off.
    """
    if out is None:
        yield AnswerFile(None, sys.stdout.buffer)
        return
    if out.suffix in (".gz", ".zst"):
        raise UserError(f"{out}: answers are written as they come: expected a name without {out.suffix}")
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is no file, expected the name of a file to write or to continue")
    with _open(out) as content:
        try:
            lock_file(content.fileno())
        except OSError:
            raise UserError(f"{out}: another process is writing to it") from None
        content.seek(0)
        whole, cut = _split_lines(content.read())
        answered = [_read_answered_topic(out, number, line, job) for number, line in enumerate(whole, start=1)]
        if cut and (not cut.startswith(b"{") or (not whole and not cut.startswith(FIRST_LINE_STARTS))):
            raise UserError(
                f"{out}:{len(whole) + 1}: found no answer of a run of ours, expected a new file or one of this run"
            )
        beside = out.with_name(f".{out.name}.made")
        digests = {topic: narrative for topic, narrative in answered if narrative is not None}
        with _open(beside) as note:
            note.seek(0)
            noted, half = _split_lines(note.read())
            if whole and noted:
                digests |= _compare_note(out, beside, noted, describe_origin(job))
                note.truncate(note.tell() - len(half))
            else:
                note.truncate(0)
                try:
                    _append(note, describe_origin(job))
                except OSError as error:
                    raise NotWritten(out, reason_of(error)) from error
            content.truncate(content.tell() - len(cut))
            done = {topic: number for number, (topic, _) in enumerate(answered, start=1)}
            yield AnswerFile(out, content, note, done, digests)


def describe_origin(job: Job) -> dict[str, Any]:
    """Describe everything that answers depend on besides their narratives, by name, as values of JSON."""
    config = job.config
    sections = config.model_dump(mode="json", include={"queries", "retrieval", "fusion", "grading", "reader", "answer"})
    settings = {f"{section}.{key}": value for section, own in sections.items() for key, value in own.items()}
    made = {
        "index": job.index.key,
        "model": describe_model(config, config.list_model_steps()),
        **config.model_dump(mode="json", include={"track", "team_id", "run_id", "run_desc"}),
        **settings,
    }
    return dict(orjson.loads(orjson.dumps(made)))


def _compare_note(out: Path, note: Path, noted: list[bytes], made: dict[str, Any]) -> dict[str, str]:
    """Read the digests of narratives from a note. `UserError` if the note has other settings."""
    try:
        before: dict[str, Any] = orjson.loads(noted[0])
        other = sorted(name for name in before.keys() & made if before[name] != made[name])
        narratives = dict(map(orjson.loads, noted[1:]))
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"{note}: damaged: remove it to continue {out} as it is") from None
    if other:
        changes = "; ".join(_describe_change(name, before[name], made[name]) for name in other)
        raise UserError(f"{out}: its answers were made with {changes}: {REMEDY}")
    return narratives


def _describe_change(name: str, before: Any, now: Any) -> str:
    return f"another {name}" if name in ("index", "model") else f"{name} {before!r}, found {now!r} now"


def _read_answered_topic(path: Path, number: int, line: bytes, job: Job) -> tuple[str, str | None]:
    """Read the topic of a line of an answer file, and the digest of its narrative if the line holds that.

    `UserError` if the line is no answer of this run.
    """
    track, author = job.track, job.author
    try:
        metadata = get_metadata(orjson.loads(line), track)
        values = {key.holds: metadata[key.name] for key in track.keys}
        if (values["run"], values.get("team", author.team_id)) != (author.run_id, author.team_id):
            raise ValueError
        return str(values["topic"]), digest(values["narrative"]) if "narrative" in values else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path}:{number}: found no answer of run {author.run_id!r} for {track.name}, "
            "expected a new file or one of this run"
        ) from None


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error


def _append(file: IO[bytes], record: Any) -> None:
    append(file, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    file.flush()


def _split_lines(content: bytes) -> tuple[list[bytes], bytes]:
    """Split a file into its whole lines and the rest after them."""
    end = content.rfind(b"\n") + 1
    return content[:end].splitlines(), content[end:]
