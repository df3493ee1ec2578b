"""The steps of an answer as events: each has a name and a JSON object, in which every document has its title."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from keystone.generation.types import Sentence, Step
from keystone.indexing.types import Span
from keystone.retrieval.types import Query
from keystone.runs.pipeline.grading.grade_files import Judgment
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.serving.service import Titled

Titles: TypeAlias = Mapping[str, Titled]
"""The documents, each by its own id and by the ids of its cited segments."""
TITLED_HITS = 20
"""How many documents of the narrative's ranking have titles. To read a title, Keystone reads the document."""


def describe_queries(queries: Sequence[Query], _titles: Titles) -> dict[str, Any]:
    """Describe the queries of a narrative."""
    return {"queries": [{"id": query.id, "question": query.question} for query in queries]}


def describe_rankings(found: tuple[Mapping[str, Hits], Hits], titles: Titles) -> dict[str, Any]:
    """Describe the best documents of each query and of the narrative. The first ones of the narrative have titles."""
    rankings, fused = found
    ids = [doc_id for doc_id, _ in fused]
    return {
        "rankings": {name: [doc_id for doc_id, _ in hits] for name, hits in rankings.items()},
        "fused": ids,
        "documents": _name(ids[:TITLED_HITS], titles),
    }


def describe_grades(judgments: Sequence[Judgment], titles: Titles) -> dict[str, Any]:
    """Describe the grades of documents for queries."""
    grades = [{"query": one.query_id, "document": one.doc_id, "grade": one.grade} for one in judgments]
    return {"grades": grades, "documents": _name((one.doc_id for one in judgments), titles)}


def describe_chosen(doc_ids: Sequence[str], titles: Titles) -> dict[str, Any]:
    """Describe the documents that the answer is made from."""
    return {"documents": _name(doc_ids, titles)}


def describe_research(step: Step, _titles: Titles) -> dict[str, Any]:
    """Describe a step of the research agent: its query, its action, the first line of the result, and its notes."""
    return {
        "query": step.query_id,
        "action": step.action,
        "result": step.observation.partition("\n")[0],
        "notes": len(step.added),
    }


def describe_sentence(sentence: Sentence, titles: Titles) -> dict[str, Any]:
    """Describe a sentence with its citations, best support first: each a segment and its document."""
    citations = [
        {"id": cited, "document": titles[cited].id, "title": titles[cited].title} for cited in sentence.citations
    ]
    return {"text": sentence.text, "citations": citations}


def add_quotes(described: dict[str, Any], quotes: Sequence[tuple[Span, str] | None]) -> None:
    """Add to each citation of a described sentence the stretch of its document that supports the sentence, or null."""
    for citation, quote in zip(described["citations"], quotes, strict=True):
        citation["quote"] = quote and {"start": quote[0].start, "end": quote[0].end, "text": quote[1]}


def list_shown_ids(step: str, value: Any) -> list[str]:
    """List the ids of the documents and the cited segments whose titles an event shows, each once."""
    return list(dict.fromkeys(SHOWN_IDS[step](value))) if step in SHOWN_IDS else []


def _name(doc_ids: Iterable[str], titles: Titles) -> list[dict[str, str]]:
    return [{"id": doc_id, "title": titles[doc_id].title} for doc_id in dict.fromkeys(doc_ids)]


DESCRIPTIONS: Mapping[str, Callable[[Any, Titles], dict[str, Any]]] = {
    "queries": describe_queries,
    "rankings": describe_rankings,
    "grades": describe_grades,
    "chosen": describe_chosen,
    "research": describe_research,
    "sentence": describe_sentence,
}
"""The events before the last one by name, each with the function that makes its object."""
SHOWN_IDS: Mapping[str, Callable[[Any], Iterable[str]]] = {
    "rankings": lambda found: (doc_id for doc_id, _ in found[1][:TITLED_HITS]),
    "grades": lambda judgments: (one.doc_id for one in judgments),
    "chosen": lambda doc_ids: doc_ids,
    "sentence": lambda sentence: sentence.citations,
}
