"""RAGDoll's ratings of citations: assembled by answer, and one judged pair a line.

Source: castorini/RAGDoll at 1f06719.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from keystone.generation.types import Support
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.evaluation.nuggets.cited import (
    Citation,
    CitedAnswer,
    CitedText,
    RatedAnswer,
    read_cited_answers,
    write_cited_answers,
)
from keystone.runs.exchange.forms.answers import DEFAULT_RUN
from keystone.runs.exchange.records import count_unread, drop_repeated, has, read_form, read_records
from keystone.runs.exchange.types import Form, Handover, get_text
from keystone.runs.parts import Id, Part
from keystone.runs.tracks.violations import shorten_value

LABELS: Mapping[str, Support] = {"FS": "full", "PS": "partial", "NS": "none"}


class _Metadata(Part):
    topic_id: Id = ""
    run_id: Id = ""
    sentence_index: int = 0
    citation_index: Any = None
    docid: Id = ""


class _Pair(Part):
    task_id: Id = ""
    statement: str = ""
    citation: str = ""
    support_label: Literal["FS", "PS", "NS"] | None = None
    status: Any = None
    raw_output: Any = None
    metadata: _Metadata = _Metadata()


def read_ratings(path: Path) -> Handover:
    """Read answers with rated citations. Errors are those of `read_records` and `read_cited_answers`."""
    records = list(read_records(path))
    unread = Counter[str]()
    for _, record in records:
        count_unread(record, RatedAnswer, unread)
    return Handover(answers=tuple(read_cited_answers(path, records)), unread=unread)


def write_ratings(path: Path, content: Handover) -> None:
    """Write answers with the support of each citation; -1 stands for no rating."""
    write_cited_answers(path, (replace(one, run_id=one.run_id or DEFAULT_RUN) for one in content.answers))


def read_pairs(path: Path) -> Handover:
    """Read a pair of sentence and citation from each object; pairs of a topic and a run are one answer.

    Pairs with the same statement and the same number of their sentence are one sentence. A pair that is not judged has
    no label. A pair without metadata has its `task_id` as topic and as document. `UserError` with file and line for
    another object.
    """

    def make(own: _Pair, place: str, record: dict[str, Any]) -> tuple[tuple[str, str], int, str, Citation, str, str]:
        topic_id, doc_id = own.metadata.topic_id or own.task_id, own.metadata.docid or own.task_id
        if not topic_id or not doc_id:
            found = shorten_value(record.get("metadata") or {})
            raise ValueError(f"metadata: expected topic_id and docid, or a task_id, found {found}")
        citation = Citation(doc_id, support=LABELS[own.support_label] if own.support_label else None)
        key, number = (topic_id, own.metadata.run_id), own.metadata.sentence_index
        return key, number, own.statement, citation, own.citation, place

    answers: dict[tuple[str, str], dict[tuple[int, str], list[Citation]]] = {}
    documents: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    places: dict[tuple[str, str], str] = {}
    rows, unread = read_form(path, _Pair, make)
    for key, number, statement, citation, text, place in rows:
        places.setdefault(key, place)
        answers.setdefault(key, {}).setdefault((number, statement), []).append(citation)
        documents.setdefault(key, {}).update({citation.doc_id: {"text": text}} if text else {})
    lost = Counter[str]()
    found = tuple(
        CitedAnswer(
            key[0],
            tuple(
                CitedText(statement, drop_repeated(cited, lost))
                for (_, statement), cited in sorted(own.items(), key=lambda sentence: sentence[0][0])
            ),
            run_id=key[1],
            documents=documents[key],
            place=places[key],
        )
        for key, own in answers.items()
    )
    return Handover(answers=found, unread=unread + lost)


def write_pairs(path: Path, content: Handover) -> None:
    """Write a pair of sentence and citation a line. One without a rating has the status failed."""
    write_json_lines(path, (pair for one in content.answers for pair in _list_pairs(one)))


def _list_pairs(one: CitedAnswer) -> Iterator[dict[str, Any]]:
    run_id = one.run_id or DEFAULT_RUN
    codes = {support: label for label, support in LABELS.items()}
    for number, sentence in enumerate(one.sentences):
        for place, cited in enumerate(sentence.citations):
            yield {
                "task_id": f"{run_id}:{one.topic_id}:s{number}:c{place}",
                "statement": sentence.text,
                "citation": get_text(one.documents.get(cited.doc_id, {})),
                **({"support_label": codes[cited.support]} if cited.support else {}),
                "status": "completed" if cited.support else "failed",
                "metadata": {
                    "topic_id": one.topic_id,
                    "run_id": run_id,
                    "sentence_index": number,
                    "citation_index": place,
                    "docid": cited.doc_id,
                },
            }


FORMS = (
    Form(
        "ragdoll-support",
        "answers",
        "RAGDoll's ratings of citations by answer",
        read_ratings,
        write_ratings,
        lambda r: isinstance(r.get("sentences"), list) and "run_id" in r,
    ),
    Form(
        "ragdoll-pairs",
        "answers",
        "RAGDoll's ratings of citations by pair",
        read_pairs,
        write_pairs,
        has("statement", "citation"),
    ),
)
