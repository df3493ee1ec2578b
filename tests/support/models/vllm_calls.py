"""Requests like those of the steps, for a real vLLM."""

import pydoc_data.topics
from typing import Any

from keystone.generation.types import Request

DOCUMENTS = [text[:1500] for text in pydoc_data.topics.topics.values() if len(text) > 1500][:12]
QUERIES = ["How do generators work?", "What does a metaclass do?", "Which operators are there?"]


def object_of(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


STRINGS = {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 1, "maxItems": 4}
QUESTIONS = object_of(questions=STRINGS)
GRADES = object_of(
    grades={"type": "array", "items": {"type": "integer", "enum": [0, 1, 2, 3]}, "minItems": 3, "maxItems": 3}
)
SENTENCE = object_of(
    text={"type": "string", "maxLength": 40},
    citations={"type": "array", "items": {"type": "string", "enum": ["d1", "d2"]}, "minItems": 1, "maxItems": 2},
)
SENTENCES = object_of(sentences={"type": "array", "items": SENTENCE, "minItems": 1, "maxItems": 3})


def decomposition(narrative: str, temperature: float = 0.0) -> Request:
    messages = ("system", "Split what is asked into questions."), ("user", narrative)
    return Request("decompose", messages, 300, QUESTIONS, temperature)


def grading(document: str) -> Request:
    """All queries for one document, which comes first."""
    queries = "\n".join(QUERIES)
    return Request("grade", (("user", f"Document:\n{document}\n\nGrade each query 0 to 3:\n{queries}"),), 60, GRADES)


def pointwise(document: str, query: str) -> Request:
    """One query for one document, which comes first, with the probabilities of its grades."""
    said = f"Document:\n{document}\n\nQuery: {query}\nGrade, 0 to 3:"
    return Request("grade", (("user", said),), 2, {"type": "integer", "enum": [0, 1, 2, 3]}, top_logprobs=4)


def answering(narrative: str) -> Request:
    return Request("answer", (("user", f"Answer with citations: {narrative}"),), 400, SENTENCES)


def prose(number: int, max_tokens: int = 48) -> Request:
    return Request("summary", (("user", f"{number}: go on"),), max_tokens)


TOO_LONG = Request("grade", (("user", "far too much " * 20_000),), 8)
UNKNOWN_KEYWORD = Request("grade", (("user", "hi"),), 8, {"type": "array", "uniqueItems": True})


def mixed() -> list[Request]:
    """A few requests of every kind, and two that vLLM refuses."""
    kinds = [decomposition(query) for query in QUERIES]
    kinds += [answering(query) for query in QUERIES]
    kinds += [grading(document) for document in DOCUMENTS]
    kinds += [pointwise(document, query) for document in DOCUMENTS[:4] for query in QUERIES]
    kinds += [prose(number) for number in range(8)]
    return [*kinds[:7], TOO_LONG, UNKNOWN_KEYWORD, *kinds[7:]]
