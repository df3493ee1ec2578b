"""Whether a Lucene index that another program made can be searched by BM25 with Anserini's English analyzer.

A Lucene index records neither its analyzer nor its similarity. So the fields, the lengths and the terms of some
documents show them.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.write import CONTENTS_FIELD

EXAMINED_DOCUMENTS = 20
"""The documents whose terms are examined, spread over the index."""
EXAMINED_LENGTHS = 1000
"""The documents whose lengths are examined, the first ones."""
EXAMINED_WORDS = 40
"""The words of a document that are examined, the first ones."""
MOST_OTHER_FORMS = 0.05
"""The most words that an index may hold in another form than their stems, as a share of those that have a stem."""
LEAST_STEMS = 0.5
"""The least share of the stems of its documents that an index holds. Stored markup need not be indexed."""
LEAST_STEMS_OF_MARKUP = 0.05

_WORD = re.compile(r"[^\W\d_]{2,}")


def check_field(reader: Any, where: str) -> None:
    """`UserError` if the field of texts is missing, or lacks the frequencies and lengths that BM25 needs."""
    infos = java_class("org.apache.lucene.index.FieldInfos").getMergedFieldInfos(reader)
    field = infos.fieldInfo(CONTENTS_FIELD)
    options = field.getIndexOptions().toString() if field else "NONE"
    if options == "NONE":
        names = ", ".join(sorted(_list_names(infos))) or "none"
        raise _report(where, f"no indexed field {CONTENTS_FIELD} (its fields: {names})")
    if options == "DOCS" or not field.hasNorms():
        missing = "frequencies of terms" if options == "DOCS" else "lengths of documents"
        raise _report(where, f"a field {CONTENTS_FIELD} without {missing}")
    terms = java_class("org.apache.lucene.index.MultiTerms").getTerms(reader, CONTENTS_FIELD)
    documents = int(terms.getDocCount()) if terms else 0
    if documents and terms.getSumTotalTermFreq() > documents and _are_all_one(reader):
        mean = terms.getSumTotalTermFreq() / documents
        raise _report(
            where,
            f"impacts (the weights of learned sparse retrieval): the terms of a document sum up to {mean:,.0f}, and "
            "each document has the length 1",
        )


def _list_names(infos: Any) -> Iterator[str]:
    names = infos.iterator()
    while names.hasNext():
        yield names.next().name


def _are_all_one(reader: Any) -> bool:
    """Whether the first documents with a length all have the length 1."""
    lengths = java_class("org.apache.lucene.index.MultiDocValues").getNormValues(reader, CONTENTS_FIELD)
    for _ in range(min(EXAMINED_LENGTHS, int(reader.maxDoc()))):
        if lengths.nextDoc() >= int(reader.maxDoc()):
            break
        if lengths.longValue() != 1:
            return False
    return True


def choose_documents(reader: Any) -> list[int]:
    """The numbers of some documents, spread over the index."""
    count = int(reader.maxDoc())
    chosen: list[int] = np.linspace(0, count - 1, min(EXAMINED_DOCUMENTS, count)).astype(int).tolist()
    return chosen


def check_terms(reader: Any, where: str, texts: dict[int, str], is_markup: bool) -> None:
    """`UserError` unless the index holds the English stems of the texts of these documents."""
    examined = held = inflected = 0
    others = list[tuple[str, str]]()
    for number, text in texts.items():
        for word in dict.fromkeys(_WORD.findall(text.lower()[: EXAMINED_WORDS * 20])[:EXAMINED_WORDS]):
            stems = stems_of(word)
            if not stems:
                continue
            examined += 1
            is_held = all(_holds(reader, number, stem) for stem in stems)
            held += is_held
            if stems != [word]:
                inflected += 1
                if not is_held and _holds(reader, number, word):
                    others.append((word, stems[0]))
    if len(others) > MOST_OTHER_FORMS * inflected:
        word, stem = others[0]
        raise _report(where, f"terms of another analyzer, such as {word!r} in place of {stem!r}")
    if held < examined * (LEAST_STEMS_OF_MARKUP if is_markup else LEAST_STEMS):
        raise _report(where, f"terms of another analyzer: {held:,} of {examined:,} English stems of its documents")


def _holds(reader: Any, number: int, term: str) -> bool:
    """Whether the index has a term for a document."""
    ref = java_class("org.apache.lucene.util.BytesRef")(term.encode())
    postings = java_class("org.apache.lucene.index.MultiTerms").getTermPostingsEnum(reader, CONTENTS_FIELD, ref, 0)
    return postings is not None and int(postings.advance(number)) == number


def _report(where: str, found: str) -> UserError:
    return UserError(
        f"{where}: expected an index for BM25 with Anserini's English analyzer, found {found}: search it where it was "
        "made, and name its run files under retrieval.runs; or index its documents anew, without --in-place"
    )
