"""The nuggets or relevant documents that a run should use."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.types import Span, Store, find_document_ids
from keystone.runs.evaluation.nuggets.files import NuggetBank
from keystone.runs.trec.run_files import read_qrels


@dataclass(frozen=True, slots=True)
class Wanted:
    """A nugget, or a relevant document (without a text), that the answer to a topic should use."""

    topic_id: str
    name: str
    doc_id: str
    text: str = ""
    span: Span | None = None
    """The nugget's place in its document, if it is known."""
    grade: int = 1
    """The grade of a relevant document."""


def read_relevant_documents(path: Path, relevant_from: int, store: Store) -> list[Wanted]:
    """Read the documents of TREC judgments that have at least the grade `relevant_from`, each once for its topic.

    If the store has no document with a judged id, the id is that of a segment, and stands for its document. The
    document has the highest of its grades.
    """
    relevant = list(read_qrels(path).list_rows(relevant_from))
    ids = [name for _, name, _ in relevant]
    grades: dict[tuple[str, str], int] = {}
    for (topic, _, grade), doc_id in zip(relevant, find_document_ids(ids, store), strict=True):
        grades[topic, doc_id] = max(grade, grades.get((topic, doc_id), 0))
    return [Wanted(topic, doc_id, doc_id, grade=grade) for (topic, doc_id), grade in grades.items()]


def list_nuggets(banks: Sequence[NuggetBank]) -> list[Wanted]:
    """List nuggets, each once for every document that says it. `UserError` for a nugget without a document."""
    found = []
    for bank in banks:
        for nugget in bank.nuggets:
            sources = nugget.list_sources()
            if not sources:
                raise UserError(
                    f"{nugget.place}: found a nugget without a document, expected an id under doc_id or references. "
                    "keystone nuggets create --to nuggetbank keeps the documents of its nuggets"
                )
            name = nugget.name or nugget.text
            found += [Wanted(bank.topic_id, name, one.doc_id, nugget.describe(), one.span) for one in sources]
    return found
