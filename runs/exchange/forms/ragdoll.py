"""RAGDoll's ratings of citations: assembled by answer, and one judged pair a line.

Source: castorini/RAGDoll at 1f06719.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keystone.generation.types import Support
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.evaluation.nuggets.cited import (
    Citation,
    CitedAnswer,
    CitedText,
    read_cited_answers,
    write_cited_answers,
)
from keystone.runs.exchange.forms.answers import DEFAULT_RUN
from keystone.runs.exchange.records import Record, count_unread, drop_repeated, has, read_form, read_records
from keystone.runs.exchange.types import Form, Handover, get_text
from keystone.runs.tracks.violations import shorten_value

LABELS: Mapping[str, Support] = {"FS": "full", "PS": "partial", "NS": "none"}
KEPT = (
    *("topic_id", "topic", "qid", "narrative_id", "query_id", "run_id", "sentences[].sentenceID", "sentences[].text"),
    *(f"sentences[].citations[].{key}" for key in ("citationID", "reference", "support")),
)
KEPT_PAIRS = (
    *("task_id", "statement", "citation", "support_label", "status", "raw_output"),
    *(f"metadata.{key}" for key in ("topic_id", "run_id", "sentence_index", "citation_index", "docid")),
)


def read_ratings(path: Path) -> Handover:
    """Read answers with rated citations. Errors are those of `read_records` and `read_cited_answers`."""
    records = list(read_records(path))
    answers = tuple(read_cited_answers(path, records))
    return Handover(answers=answers, unread=count_unread((record for _, record in records), KEPT))


def write_ratings(path: Path, content: Handover) -> None:
    """Write answers with the support of each citation; -1 stands for no rating."""
    write_cited_answers(path, (replace(one, run_id=one.run_id or DEFAULT_RUN) for one in content.answers))


def read_pairs(path: Path) -> Handover:
    """Read a pair of sentence and citation from each object; pairs of a topic and a run are one answer.

    Pairs with the same statement and the same number of their sentence are one sentence. A pair that is not judged has
    no label. A pair without metadata has its `task_id` as topic and as document. `UserError` with file and line for
    another object.
    """

    def parse(record: Record, place: str) -> tuple[tuple[str, str], int, str, Citation, str, str]:
        metadata, task_id = record.get_object("metadata"), record.get_name("task_id")
        topic_id, doc_id = (metadata.get_name(key) or task_id for key in ("topic_id", "docid"))
        number = metadata.get_integer("sentence_index") or 0
        if not topic_id or not doc_id:
            raise ValueError(
                f"metadata: expected topic_id and docid, or a task_id, found {shorten_value(dict(metadata))}"
            )
        label = record.get("support_label")
        if label is not None and (not isinstance(label, str) or label not in LABELS):
            raise ValueError(f"support_label: expected one of {', '.join(LABELS)}, found {shorten_value(label)}")
        citation = Citation(doc_id, support=LABELS.get(label or ""))
        texts = record.get_string("statement"), record.get_string("citation")
        return (topic_id, metadata.get_name("run_id")), number, texts[0], citation, texts[1], place

    answers: dict[tuple[str, str], dict[tuple[int, str], list[Citation]]] = {}
    documents: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    places: dict[tuple[str, str], str] = {}
    rows, unread = read_form(path, parse, KEPT_PAIRS)
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
