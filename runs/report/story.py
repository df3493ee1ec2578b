"""One narrative of a graded run, told for a person: its queries, the documents chosen for it, and its cited answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from keystone.generation.rules.words import find_quote
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import Document, Store, document_id
from keystone.runs.pipeline.file_names import ANSWERS, GRADES, QUERIES

WIDTH_COLUMNS = 79
COVERING_GRADE = 2
"""From this grade of UMBRELA's scale of 0 to 3 on, a document answers a query at least in part."""
OPENED_SENTENCES = 3
"""The number of sentences, from the first one on, whose citations are opened."""


@dataclass(frozen=True, slots=True)
class ChosenDocument:
    """A document's title, and the numbers of the queries that it covers, from 1."""

    title: str
    covered: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """A narrative with its queries and documents, and the sentences of its answer.

    Each sentence has the numbers of the documents that it cites, from 1. `opened` are citations of the first sentences:
    the number of a document, and what the cited segment says.
    """

    narrative: str
    queries: tuple[str, ...]
    documents: tuple[ChosenDocument, ...]
    answer: tuple[tuple[str, tuple[int, ...]], ...]
    opened: tuple[tuple[int, str], ...] = ()


def read_story(folder: Path, topic_id: str, store: Store) -> Story:
    """Read the story of a topic from the directory of a run that graded documents and answered the topic."""
    understood, graded, answered = (_find_record(folder / name, topic_id) for name in (QUERIES, GRADES, ANSWERS))
    questions = {query["id"]: query["question"] for query in understood["queries"]}
    sentences = [(s["text"], list(map(document_id, s["citations"]))) for s in answered["sentences"]]
    ids = list(dict.fromkeys([*graded["selected"], *(cited for _, own in sentences for cited in own)]))
    grades = dict(zip(graded["documents"], zip(*graded["grades"], strict=True), strict=True))
    chosen = {document.id: document for document in store.get(store.rows(ids))}
    documents = (
        ChosenDocument(
            document.title or document.id,
            tuple(i for i, grade in enumerate(grades.get(document.id, ()), 1) if (grade or 0) >= COVERING_GRADE),
        )
        for document in chosen.values()
    )
    return Story(
        narrative=questions[topic_id],
        queries=tuple(questions[query_id] for query_id in graded["queries"]),
        documents=tuple(documents),
        answer=tuple((text, tuple(sorted({ids.index(cited) + 1 for cited in own}))) for text, own in sentences),
        opened=tuple(_open_citations(answered["sentences"][:OPENED_SENTENCES], ids, chosen)),
    )


def _open_citations(
    sentences: Sequence[Mapping[str, Any]], ids: Sequence[str], documents: Mapping[str, Document]
) -> Iterator[tuple[int, str]]:
    for sentence in sentences:
        for cited in sentence["citations"]:
            doc_id = document_id(cited)
            document = cut_segments(documents[doc_id])
            if quote := find_quote(sentence["text"], document, cited):
                yield ids.index(doc_id) + 1, document.text[quote.start : quote.end]


def format_story(story: Story) -> Iterator[str]:
    """Format a story as lines of at most `WIDTH_COLUMNS`, unless a word is longer. Citations number the documents."""
    yield from fill_lines(story.narrative)
    yield from ("", "Queries:")
    for number, query in enumerate(story.queries, 1):
        yield from fill_lines(query, f"{number:>4}. ")
    yield from ("", "Documents chosen, and the queries that each covers:")
    for number, document in enumerate(story.documents, 1):
        covered = ", ".join(map(str, document.covered)) or "none"
        yield from fill_lines(f"{document.title}: {covered}", f"{f'[{number}]':>5} ")
    yield from ("", "Answer:")
    yield from fill_lines(" ".join(f"{text}{''.join(f' [{cited}]' for cited in own)}" for text, own in story.answer))
    if story.opened:
        yield from ("", "Citations of the first sentences, opened:")
    for number, quote in story.opened:
        yield from fill_lines(quote, f"{f'[{number}]':>5} ")


def fill_lines(text: str, mark: str = "") -> list[str]:
    """Wrap a text after a mark into lines of at most `WIDTH_COLUMNS`, unless a word is longer."""
    return wrap(
        text,
        WIDTH_COLUMNS,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _find_record(path: Path, topic_id: str) -> Mapping[str, Any]:
    return next(record for _, record in read_json_lines(path) if record["topic_id"] == topic_id)
