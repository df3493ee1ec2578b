"""TREC's files: runs, judgments with and without nuggets, and topics."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.exchange.records import check_id
from keystone.runs.exchange.types import Candidate, Form, Handover, Request
from keystone.runs.track_rules import find_request
from keystone.runs.tracks.violations import shorten_value, write_lines
from keystone.runs.trec.collections import DOCUMENT_NAMES, GRADE_NAMES, QUERY_NAMES
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.run_files import read_qrels as read_trec_qrels
from keystone.runs.trec.run_files import read_run as read_trec_run
from keystone.runs.trec.run_files import write_qrels as write_trec_qrels
from keystone.runs.trec.run_files import write_run as write_trec_run
from keystone.runs.trec.topics import ID_KEYS, NARRATIVE_KEYS, TURN_KEYS
from keystone.runs.trec.topics import read_topics as read_trec_topics
from keystone.runs.trec.types import make_qrels, make_run

DEFAULT_TAG = "keystone"
"""The tag of a run that has no name."""
NUGGET_QRELS_COLUMNS = ("topic", "nugget", "document", "grade")
GRADE = re.compile(r"[+-]?[0-9]{1,15}")


def read_run(path: Path) -> Handover:
    """Read a run in trec_eval's order. Errors are those of `keystone.runs.trec.run_files.read_run`."""
    run = read_trec_run(path)
    requests = (
        Request(name, candidates=tuple(Candidate(doc, score) for doc, score in hits), run_id=run.tag, place=str(path))
        for name, hits in run.list_hits().items()
    )
    return Handover(tuple(requests))


def write_run(path: Path, content: Handover) -> None:
    """Write a run with strictly decreasing scores. `UserError` for a candidate without score, and for a bad id.

    A candidate that repeats a document is left out.
    """
    hits: dict[str, dict[str, float]] = {}
    for request, each in _list_candidates(content):
        if each.score is None:
            place = request.place or "the input"
            raise UserError(f"{place}: expected a score of {each.doc_id}, found none; a run orders documents by scores")
        hits.setdefault(request.topic_id, {}).setdefault(each.doc_id, each.score)
    if not hits:
        raise UserError(f"{path}: expected candidates, found none")
    tag = next((one.run_id for one in content.requests if one.run_id), DEFAULT_TAG)
    check_id(tag, "run_id", str(path))
    ordered = {name: sorted(own.items(), key=lambda hit: -hit[1]) for name, own in hits.items()}
    try:
        write_trec_run(path, make_run(tag, ordered))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def read_qrels(path: Path) -> Handover:
    """Read judgments. If the second column differs between rows, it names nuggets or subtopics.

    Errors are those of `keystone.runs.trec.run_files.read_qrels`.
    """
    qrels = read_trec_qrels(path)
    named: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for topic, subtopic, doc, grade in qrels.subtopics.list_rows() if qrels.subtopics else []:
        named.setdefault((topic, doc), []).append((subtopic, grade))
    bounds, docs, grades = qrels.offsets.tolist(), qrels.docs.decode_ids(), qrels.grades.tolist()
    requests = []
    for name, first, last in zip(qrels.query_ids, bounds, bounds[1:], strict=False):
        own = zip(docs[first:last], grades[first:last], strict=True)
        found = (Candidate(doc, None, grade, subtopics=tuple(named.get((name, doc), ()))) for doc, grade in own)
        requests.append(Request(name, candidates=tuple(found), place=str(path)))
    return Handover(tuple(requests))


def write_qrels(path: Path, content: Handover) -> None:
    """Write the grades of candidates, the highest of a repeated one. `UserError` if none has a grade."""
    grades: dict[str, dict[str, int]] = {}
    for request, each in _list_candidates(content):
        if each.grade is not None:
            own = grades.setdefault(request.topic_id, {})
            own[each.doc_id] = max(each.grade, own.get(each.doc_id, each.grade))
    if not grades:
        raise UserError(f"{path}: expected grades of candidates, found none")
    write_trec_qrels(path, make_qrels(grades))


def read_nugget_qrels(path: Path) -> Handover:
    """Read judgments by nugget: topic, nugget, document and grade. The grade of a document is its highest one.

    `UserError` with file and line for another line, and for a document with two grades for one nugget.
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    for number, line in read_text_lines(path):
        columns = split_columns(line)
        if not columns or columns[0].startswith("#"):
            continue
        if len(columns) != len(NUGGET_QRELS_COLUMNS):
            expected = ", ".join(NUGGET_QRELS_COLUMNS)
            raise UserError(f"{path}:{number}: expected the columns {expected}, found {len(columns)} columns")
        topic, nugget, doc, grade = columns
        if not GRADE.fullmatch(grade):
            raise UserError(f"{path}:{number}: grade: expected a whole number, found {shorten_value(grade)}")
        own = found.setdefault(topic, {}).setdefault(doc, {})
        if own.setdefault(nugget, int(grade)) != int(grade):
            raise UserError(
                f"{path}:{number}: document {shorten_value(doc)} has two grades for {shorten_value(nugget)}"
            )
    if not found:
        raise UserError(f"{path}: holds no judgment")
    requests = (
        Request(
            topic,
            candidates=tuple(
                Candidate(doc, grade=max(own.values()), subtopics=tuple(own.items())) for doc, own in docs.items()
            ),
            place=str(path),
        )
        for topic, docs in found.items()
    )
    return Handover(tuple(requests))


def write_nugget_qrels(path: Path, content: Handover) -> None:
    """Write the grades of candidates for nuggets, whose names are in the second column. `UserError` without any."""
    rows = [
        f"{request.topic_id} {check_id(name, 'nugget', request.place)} {each.doc_id} {grade}"
        for request, each in _list_candidates(content)
        for name, grade in each.subtopics
    ]
    if not rows:
        raise UserError(f"{path}: expected grades of candidates for nuggets, found none")
    write_lines(path, rows)


def read_topics(path: Path) -> Handover:
    """Read topics as JSONL, TSV or `<top>` files. Errors are those of `keystone.runs.trec.topics.read_topics`."""
    topics = read_trec_topics(path)
    requests = []
    for topic in topics:
        used = [find_field(topic.record, keys) for keys in (ID_KEYS, NARRATIVE_KEYS)]
        if find_request(topic.record):
            used = []
        extra = {key: value for key, value in topic.record.items() if key not in used}
        requests.append(Request(topic.id, topic.narrative, extra=extra, place=topic.place))
    return Handover(tuple(requests))


def write_topics(path: Path, content: Handover) -> None:
    """Write a topic a line as JSON, with all its keys. `UserError` for a request without an id or a query.

    A request in several parts keeps its own form. One of RAGTIME has its id under the names that rag-run-validator and
    autojudge-base read.
    """
    write_json_lines(path, (_encode_topic(*one) for one in _list_topics(content)))


def _encode_topic(name: str, text: str, extra: dict[str, Any]) -> dict[str, Any]:
    if request := find_request(extra):
        return {**extra, **dict.fromkeys(request[0].ids, name)}
    return {"id": name, "narrative": text, **{key: extra[key] for key in extra if key not in ("id", "narrative")}}


def write_topics_tsv(path: Path, content: Handover) -> None:
    """Write a topic a line: its id, a tab and its query. White space in a query becomes single spaces."""
    write_lines(path, (f"{name}\t{' '.join(text.split())}" for name, text, _ in _list_topics(content)))


def _list_topics(content: Handover) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for one in content.requests:
        name = _check_topic(one)
        if not one.query.strip():
            raise UserError(f"{one.place or 'the input'}: topic {name!r}: expected a query or narrative, found none")
        yield name, one.query, dict(one.extra)


def _list_candidates(content: Handover) -> Iterator[tuple[Request, Candidate]]:
    """List the candidates with their requests. `UserError` for an id that cannot stand in a column."""
    for one in content.requests:
        _check_topic(one)
        for each in one.candidates:
            check_id(each.doc_id, "document", one.place)
            yield one, each


def _check_topic(one: Request) -> str:
    """Return the id of a topic. `UserError` if it cannot begin a line of a TREC file, where # opens a comment."""
    name = check_id(one.topic_id, "topic", one.place)
    if name.startswith("#"):
        raise UserError(f"{one.place or 'the input'}: topic: expected an id without # at its beginning, found {name!r}")
    return name


FORMS = (
    Form(
        "topics",
        "requests",
        "topics as JSONL; also reads TSV and <top>",
        read_topics,
        write_topics,
        lambda r: find_field(r, NARRATIVE_KEYS) is not None or any(key in r for key in TURN_KEYS),
    ),
    Form("topics-tsv", "requests", "TREC topics as TSV", read_topics, write_topics_tsv),
    Form("run", "requests", "TREC runs, and rankings of our runs", read_run, write_run),
    Form(
        "qrels",
        "requests",
        "TREC judgments",
        read_qrels,
        write_qrels,
        lambda r: all(find_field(r, names) for names in (QUERY_NAMES, DOCUMENT_NAMES, GRADE_NAMES)),
    ),
    Form("nugget-qrels", "requests", "TREC judgments by nugget or subtopic", read_nugget_qrels, write_nugget_qrels),
)
