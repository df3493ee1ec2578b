"""Repeats of logged calls, whose replies may have other bytes now, and scores of what their session found."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Segment, Span, Store, document_id, find_document_ids
from keystone.runs.evaluation.diagnosis.wanted import Wanted, list_nuggets
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.serving.call_log import FIRST_BYTES, Call, CallLog, Front, Reply
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.wording import plural

Stage = Literal["surfaced", "read", "cited"]
Unit = Literal["documents", "segments"]
STAGES: tuple[Stage, ...] = get_args(Stage)
ROW = "{:8}  {:9}  {:>5}  {:>8}  {:>9}  {:>6}  {:>7}  {:>6}"
"""The form of a line of the table of scores."""
LISTED_NAMES = 10
"""The most names that an error lists."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of the documents of a stage, and the segments by id."""

    documents: set[str] = field(default_factory=set)
    segments: dict[str, Segment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """The relevant documents and segments of one topic. A nugget with several sources has a member for each."""

    documents: tuple[Wanted, ...]
    segments: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a stage: what it found, how much of that is relevant, and how much of what was wanted it covers.

    If the judgments are nuggets, `wanted` and `covered` count nuggets.
    """

    stage: Stage
    unit: Unit
    found: int
    relevant: int
    wanted: int
    covered: int

    @property
    def precision(self) -> float | None:
        """The share of relevant documents or segments among those found; None if none was found."""
        return self.relevant / self.found if self.found else None

    @property
    def recall(self) -> float:
        """The share of the wanted documents, segments or nuggets that were found."""
        return self.covered / self.wanted


def read_relevant(qrels: Path, topic: str | None, relevant_from: int, store: Store) -> Judged:
    """Read the documents and segments of a topic that have at least the grade `relevant_from` in TREC judgments.

    A judged id without a document in the store is the id of a segment, whose document is relevant too. If a document
    is judged, each of its segments has its grade. `UserError` if the topic has no relevant document.
    """
    judgments = read_qrels(qrels)
    topic = _choose_topic(judgments.query_ids, topic, qrels)
    own = judgments.select([topic])
    ids = own.docs[np.flatnonzero(own.grades >= relevant_from)].decode_ids()
    if not ids:
        raise UserError(f"{qrels}: found no document with grade {relevant_from} or more for topic {topic!r}")
    doc_ids = dict(zip(ids, find_document_ids(ids, store), strict=True))
    located = _cut_documents([doc_id for name, doc_id in doc_ids.items() if doc_id != name], store)
    places = {name: None if doc_id == name else _find(name, located) for name, doc_id in doc_ids.items()}
    documents = (Wanted(topic, doc_id, doc_id) for doc_id in dict.fromkeys(doc_ids.values()))
    segments = (Wanted(topic, name, doc_ids[name], span=places[name]) for name in ids)
    return Judged(tuple(documents), tuple(segments))


def read_wanted_nuggets(nuggets: Path, topic: str | None) -> Judged:
    """Read the nuggets of a topic with their documents and places. `UserError` if the file lacks the topic."""
    found = list_nuggets(read_nuggets(nuggets))
    topic = _choose_topic(tuple(dict.fromkeys(one.topic_id for one in found)), topic, nuggets)
    own = tuple(one for one in found if one.topic_id == topic)
    return Judged(own, own)


def locate(ids: Mapping[Stage, Collection[str]], store: Store) -> dict[Stage, Found]:
    """Locate the documents and segments of each stage by their ids. A document brings all of its segments.

    `UserError` for an id that the store lacks.
    """
    known = _cut_documents([one for own in ids.values() for name in own for one in (name, document_id(name))], store)
    found = {stage: Found() for stage in STAGES}
    for stage, name in ((stage, name) for stage, own in ids.items() for name in own):
        document = known.get(name) or known.get(document_id(name))
        if document is None:
            raise UserError(f"the log names {name!r}, which is no document and no segment of the index")
        found[stage].documents.add(document.id)
        parts = (part for part in document.segments if name in (part.id, document.id))
        found[stage].segments.update((part.id, part) for part in parts)
    return found


def score_session(found: Mapping[Stage, Found], judged: Judged) -> list[Score]:
    """Score each stage of a session by its documents and by its segments.

    A document is relevant if it is judged so, or holds a nugget. A judged segment is relevant by its id. A segment is
    relevant to a nugget if it shares a character with the nugget's place. If the nugget has no place, every segment of
    its document is relevant.
    """
    scores = []
    for stage, own in found.items():
        pairs = [(name, one) for name in sorted(own.documents) for one in judged.documents if one.doc_id == name]
        scores.append(_count(stage, "documents", len(own.documents), pairs, judged.documents))
        pairs = [(name, one) for name, part in own.segments.items() for one in judged.segments if _holds(part, one)]
        scores.append(_count(stage, "segments", len(own.segments), pairs, judged.segments))
    return scores


def format_scores(scores: Sequence[Score]) -> list[str]:
    """Format scores as the lines of a table."""
    lines = [ROW.format("stage", "unit", "found", "relevant", "precision", "wanted", "covered", "recall")]
    for one in scores:
        precision = "-" if one.precision is None else f"{one.precision:.4f}"
        recall = f"{one.recall:.4f}"
        lines.append(
            ROW.format(one.stage, one.unit, one.found, one.relevant, precision, one.wanted, one.covered, recall)
        )
    return lines


def list_some(names: Sequence[str]) -> str:
    """List the first names for a message."""
    return ", ".join(names[:LISTED_NAMES]) + (", …" if len(names) > LISTED_NAMES else "")


def _count(
    stage: Stage, unit: Unit, found: int, pairs: Sequence[tuple[str, Wanted]], wanted: Sequence[Wanted]
) -> Score:
    relevant = len({name for name, _ in pairs})
    return Score(stage, unit, found, relevant, len({one.name for one in wanted}), len({one.name for _, one in pairs}))


def _holds(segment: Segment, wanted: Wanted) -> bool:
    if wanted.span is None:
        return segment.span.doc_id == wanted.doc_id
    return segment.span.overlaps(wanted.span) if wanted.text else segment.span == wanted.span


def _choose_topic(topics: Collection[str], wanted: str | None, path: Path) -> str:
    if wanted is not None and wanted in topics:
        return wanted
    if wanted is None and len(topics) == 1:
        return next(iter(topics))
    said = "found none" if wanted is None else f"found {wanted!r}"
    raise UserError(f"--topic: {said}, expected a topic of {path}: {list_some(sorted(topics))}")


def _cut_documents(doc_ids: Iterable[str], store: Store) -> dict[str, Document]:
    """Read those of the documents that the store has, with their segments, by id."""
    rows = store.rows(list(dict.fromkeys(doc_ids)))
    return {document.id: cut_segments(document) for document in store.get(rows[rows >= 0])}


def _find(segment_id: str, documents: Mapping[str, Document]) -> Span:
    """Find the place of a segment. A segment that the documents lack gets an empty stretch, which matches nothing."""
    doc_id = document_id(segment_id)
    own = documents[doc_id].segments if doc_id in documents else ()
    return next((part.span for part in own if part.id == segment_id), Span(doc_id, 0, 0))


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


def read_calls(path: Path) -> tuple[dict[int, LoggedCall], list[str]]:
    """Read the calls of a log by their line numbers; returns them and a sentence about each line that is torn.

    A last line without its end is torn if it is no call: the server was stopped while it wrote. If the disk was full
    for a while, another process may have written a whole call after a part of one, and the rest stands further below.
    `UserError` for any other line that is no call.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    calls: dict[int, LoggedCall] = {}
    torn = list[str]()
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            calls[number] = _ADAPTER.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            is_rest = bool(torn) and not line.startswith(FIRST_BYTES)
            is_part = first["type"] == "json_invalid" and (is_rest or line.rfind(FIRST_BYTES) > 0)
            if not is_part and number < len(lines):
                place = ".".join(map(str, first["loc"]))
                raise UserError(f"{path}:{number}: not a logged call: {place or 'the line'}: {first['msg']}") from error
            part, start, rest = line.rpartition(FIRST_BYTES)
            try:
                calls[number] = _ADAPTER.validate_json(start + rest)
            except ValidationError:
                part = line
            torn.append(f"{path}:{number}: left out {plural(len(part), 'byte')} of a torn line")
    return calls, torn


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
