"""Recall and precision of the documents and segments that an agent's session surfaced, read and cited."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Segment, Span, Store, document_id
from keystone.runs.evaluation.diagnosis.wanted import Wanted, list_nuggets
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.trec.run_files import read_qrels

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
    """The score of a stage: how many it

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
    whole = {name for name, row in zip(ids, store.rows(ids).tolist(), strict=True) if row >= 0}
    doc_ids = {name: name if name in whole else document_id(name) for name in ids}
    located = _cut_documents([doc_ids[name] for name in ids if name not in whole], store)
    places = {name: None if name in whole else _find(name, located) for name in ids}
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
    relevant to a nugget if it shares a character with the nugget's place; without a place, if it is of its document.
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
    """Find the place of a segment. A segment that the documents lack is an empty stretch, which nothing finds."""
    doc_id = document_id(segment_id)
    own = documents[doc_id].segments if doc_id in documents else ()
    return next((part.span for part in own if part.id == segment_id), Span(doc_id, 0, 0))
