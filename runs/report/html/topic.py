"""The view of one narrative, out of the records of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keystone.indexing.types import Document, document_id
from keystone.runs.report.html.types import (
    AnswerView,
    CitedText,
    Place,
    PlacedDocument,
    QueryView,
    StepView,
    TopicView,
)

CITED_CHARACTERS = 1500
"""The longest cited text that is shown whole; a window of ten sentences has about as many characters."""
STEP_CHARACTERS = 300
"""The longest action or result of a reader's step that is shown whole."""

Ranks = Mapping[str, Sequence[int]]
"""For a query or topic, the rank of each document that the report shows; 0: the list lacks it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The records of a topic in the files of a run. Without grades or an answer, their record is None."""

    id: str
    narrative: str
    understood: Mapping[str, Any]
    graded: Mapping[str, Any] | None
    answered: Mapping[str, Any] | None
    steps: Sequence[Mapping[str, Any]]

    def list_documents(self, first: Sequence[str]) -> list[str]:
        """List the ids of the documents to show: the first ones of the ranking, those chosen, and those cited."""
        chosen = self.graded["selected"] if self.graded else ()
        return list(dict.fromkeys([*first, *chosen, *map(document_id, self.list_citations())]))

    def list_citations(self) -> list[str]:
        """List the ids that the answer cites, each once, in the order of its sentences."""
        sentences = self.answered["sentences"] if self.answered else ()
        return list(dict.fromkeys(citation for sentence in sentences for citation in sentence["citations"]))


def make_topic_view(
    found: Found, documents: Mapping[str, Document], by_query: Sequence[Ranks], by_topic: Sequence[Ranks]
) -> TopicView:
    """Make the view of a topic with these documents.

    `by_query` has the ranks of each system and of their fusion. `by_topic` has those in the fusion over queries and in
    the last ranking.
    """
    queries = [QueryView(query["id"], query["question"]) for query in found.understood["queries"]]
    graded = found.graded or {"queries": [], "documents": [], "grades": [], "selected": []}
    grade_of = {
        (query_id, doc_id): grade
        for query_id, row in zip(graded["queries"], graded["grades"], strict=True)
        for doc_id, grade in zip(graded["documents"], row, strict=True)
    }
    chosen = {doc_id: place for place, doc_id in enumerate(graded["selected"], 1)}
    placed = []
    for n, document in enumerate(documents.values()):
        places = []
        for query in queries:
            *systems, hybrid = (ranks[query.id][n] for ranks in by_query)
            places.append(Place(grade_of.get((query.id, document.id)), tuple(systems), hybrid))
        fused, last = (ranks[found.id][n] for ranks in by_topic)
        placed.append(
            PlacedDocument(document.id, document.title, fused, last, chosen.get(document.id, 0), tuple(places))
        )
    whole = next((query.question for query in queries if query.id == found.id), "")
    return TopicView(
        found.id,
        found.narrative or whole,
        found.understood["topic"],
        tuple(queries),
        tuple(placed),
        _make_answer(found, documents),
        tuple(map(_make_step, found.steps)),
    )


def _make_answer(found: Found, documents: Mapping[str, Document]) -> AnswerView | None:
    if found.answered is None:
        return None
    ids = found.list_citations()
    sentences = [
        (one["text"], tuple(dict.fromkeys(map(ids.index, one["citations"])))) for one in found.answered["sentences"]
    ]
    return AnswerView(tuple(sentences), tuple(_cite(citation, documents[document_id(citation)]) for citation in ids))


def _cite(citation: str, document: Document) -> CitedText:
    segment = next((segment for segment in document.segments if segment.id == citation), None)
    text = document.segment_text(segment) if segment else document.text
    return CitedText(citation, document.title, _shorten(text, CITED_CHARACTERS))


def _make_step(step: Mapping[str, Any]) -> StepView:
    action, result = (_shorten(step[key], STEP_CHARACTERS) for key in ("action", "observation"))
    tokens = step["prompt_tokens"] + step["reply_tokens"]
    return StepView(step["query_id"], step["doc_id"], step["purpose"], action, result, tokens, step["stop"])


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} …"
