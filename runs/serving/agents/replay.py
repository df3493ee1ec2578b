"""Repeats of logged calls: which replies have other bytes than in the log, and in which way."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from keystone.indexing.errors import UserError
from keystone.runs.serving.agents.score import STAGES, Stage, list_some
from keystone.runs.serving.call_log import Call, CallLog, Reply
from keystone.runs.serving.front import Front
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A line of the log: the keys of the index and the settings, the call, and its reply in numbers and ids."""

    __pydantic_config__ = ConfigDict(strict=True)

    index: str
    settings: str
    front: str
    session: str
    operation: str
    arguments: Mapping[str, Any]
    status: int
    bytes: int
    sha256: str
    surfaced: Sequence[str]
    read: Sequence[str]
    cited: Sequence[str]

    @property
    def call(self) -> Call:
        """The call as its front can repeat it."""
        return Call(self.front, self.operation, self.arguments, self.session)


_ADAPTER = TypeAdapter(LoggedCall)


def read_calls(path: Path) -> tuple[dict[int, LoggedCall], str]:
    """Read the calls of a log by their line numbers; returns them and a sentence about a torn last line, or nothing.

    A last line without its end is torn if it is no call: the server was stopped while it wrote. `UserError` for any
    other line that is no call.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    calls: dict[int, LoggedCall] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            calls[number] = _ADAPTER.validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                length = plural(len(line), "byte")
                return calls, f"{path}:{number}: the last line is torn after {length}; it is left out"
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UserError(f"{path}:{number}: not a logged call: {place or 'the line'}: {first['msg']}") from error
    return calls, ""


def select_session(path: Path, calls: Mapping[int, LoggedCall], session: str) -> dict[int, LoggedCall]:
    """Select the calls of a session. `UserError` if the log has none."""
    found = {number: one for number, one in calls.items() if one.session == session}
    if not found:
        names = list(dict.fromkeys(one.session for one in calls.values() if one.session))
        raise UserError(f"--session: found {session!r}, expected a session of {path}: {list_some(names) or 'none'}")
    return found


def check_keys(path: Path, calls: Mapping[int, LoggedCall], log: CallLog) -> None:
    """Raise `UserError` at the first call of another index, or of other settings, than those of an open log."""
    for number, one in calls.items():
        for name, found, wanted in (("index", one.index, log.index_key), ("settings", one.settings, log.settings_key)):
            if found != wanted:
                raise UserError(
                    f"{path}:{number}: {name}: found the key {found}, expected {wanted}, that of the {name} given; "
                    "--allow-other repeats the calls nevertheless"
                )


async def repeat_calls(
    path: Path, calls: Mapping[int, LoggedCall], fronts: Mapping[str, Front]
) -> AsyncIterator[tuple[int, str]]:
    """Repeat the calls in order; yields each line number, and the difference of the reply, empty if there is none.

    `UserError` for a call of an unknown front, and for one that no server has logged.
    """
    for number, one in calls.items():
        if one.front not in fronts:
            raise UserError(f"{path}:{number}: front: found {one.front!r}, expected one of {', '.join(fronts)}")
        try:
            reply = await fronts[one.front].perform(one.call)
        except (LookupError, TypeError, AttributeError) as error:
            found = f"{type(error).__name__}: {error}"
            raise UserError(
                f"{path}:{number}: {one.front} {one.operation}: expected an operation and arguments as a server logs "
                f"them, found others: {found}"
            ) from error
        yield number, describe_difference(one, reply)


def describe_difference(logged: LoggedCall, reply: Reply) -> str:
    """Describe how a reply differs from the logged one: its bytes, and the first other id of each stage."""
    if (logged.status, logged.sha256) == (reply.status, sha256(reply.body).hexdigest()):
        return ""
    found = [f"status {logged.status} in the log, {reply.status} now"] if logged.status != reply.status else []
    found.append(f"{plural(logged.bytes, 'byte')} in the log, {len(reply.body):,} now")
    for stage in STAGES:
        before, after = list(getattr(logged, stage)), list(getattr(reply, stage))
        if before != after:
            place = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
            place = min(len(before), len(after)) if place is None else place
            was, now = (repr(own[place]) if place < len(own) else "none" for own in (before, after))
            found.append(f"{stage} {place + 1}: {was} in the log, {now} now")
    return "; ".join(found)


def collect_ids(calls: Mapping[int, LoggedCall]) -> dict[Stage, dict[str, None]]:
    """Collect the ids of each stage of a session, each once, in order."""
    return {stage: {name: None for one in calls.values() for name in getattr(one, stage)} for stage in STAGES}
