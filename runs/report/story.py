"""One narrative of a graded run, told for a person: its queries, the documents chosen for it, and its cited answer."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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


def tell_story(folder: Path, topic_id: str, store: Store) -> Iterator[str]:
    """Tell a topic from the directory of a run that graded documents and answered the topic.

    Yields lines of at most `WIDTH_COLUMNS`, unless a word is longer. Citations number the documents. For those of the
    first sentences, the last lines have what the cited segments say.
    """
    understood, graded, answered = (_find_record(folder / name, topic_id) for name in (QUERIES, GRADES, ANSWERS))
    questions, sentences = {query["id"]: query["question"] for query in understood["queries"]}, answered["sentences"]
    cited = [list(map(document_id, sentence["citations"])) for sentence in sentences]
    ids = list(dict.fromkeys([*graded["selected"], *chain.from_iterable(cited)]))
    grades = dict(zip(graded["documents"], zip(*graded["grades"], strict=True), strict=True))
    chosen = {document.id: document for document in store.get(store.rows(ids))}
    yield from fill_lines(questions[topic_id])
    yield from ("", "Queries:")
    for number, query_id in enumerate(graded["queries"], 1):
        yield from fill_lines(questions[query_id], f"{number:>4}. ")
    yield from ("", "Documents chosen, and the queries that each covers:")
    for number, one in enumerate(chosen.values(), 1):
        covered = [str(i) for i, grade in enumerate(grades.get(one.id, ()), 1) if (grade or 0) >= COVERING_GRADE]
        yield from fill_lines(f"{one.title or one.id}: {', '.join(covered) or 'none'}", f"{f'[{number}]':>5} ")
    yield from ("", "Answer:")
    numbers = [sorted({ids.index(doc_id) + 1 for doc_id in own}) for own in cited]
    marks = ("".join(f" [{number}]" for number in own) for own in numbers)
    yield from fill_lines(" ".join(f"{one['text']}{own}" for one, own in zip(sentences, marks, strict=True)))
    if opened := list(_open_citations(sentences[:OPENED_SENTENCES], ids, chosen)):
        yield from ("", "Citations of the first sentences, opened:")
    for number, quote in opened:
        yield from fill_lines(quote, f"{f'[{number}]':>5} ")


def _open_citations(
    sentences: Sequence[Mapping[str, Any]], ids: Sequence[str], documents: Mapping[str, Document]
) -> Iterator[tuple[int, str]]:
    """Open the citations of sentences: the number of the document of each, and what the cited segment says."""
    for sentence in sentences:
        for cited in sentence["citations"]:
            doc_id = document_id(cited)
            document = cut_segments(documents[doc_id])
            if quote := find_quote(sentence["text"], document, cited):
                yield ids.index(doc_id) + 1, document.text[quote.start : quote.end]


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
