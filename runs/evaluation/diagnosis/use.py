"""The use of nuggets and documents in an answer: whether it says them, and whether it cites them where it does."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from keystone.generation.rules.support import find_added, rate_support
from keystone.generation.rules.terms import find_terms, make_weigher
from keystone.generation.types import Answer, EvidenceSet, Sentence
from keystone.indexing.types import Document, Span, document_id
from keystone.runs.evaluation.diagnosis.wanted import Wanted

SAID_SHARE = 0.8
"""The least share of a nugget's terms by which a text says the nugget."""


@dataclass(frozen=True, slots=True)
class Use:
    """What became of a nugget or document after its document was selected."""

    read: bool
    """Whether it is in the evidence of the answer."""
    used: bool
    cited: bool
    """Whether a sentence that uses it cites it."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A sentence of an answer, and the stretches that it cites with their texts. A cited document is one stretch."""

    sentence: Sentence
    sources: tuple[tuple[Span, str], ...]

    def join(self, doc_id: str | None = None) -> str:
        """Join the texts of all sources, or of those from one document."""
        return "\n".join(text for span, text in self.sources if doc_id in (None, span.doc_id))


def find_uses(
    wanted: Sequence[Wanted], answer: Answer, evidence: EvidenceSet, documents: Mapping[str, Document]
) -> Iterator[Use]:
    """Find the use of each nugget or document of a topic in the topic's answer and its evidence.

    `documents` are those that the answer cites and those of the nuggets, by id. Words decide, as in `rate_support`:
    they cannot tell a claim from its denial.
    """
    sentences = [Cited(sentence, tuple(_list_sources(sentence, documents))) for sentence in answer.sentences]
    for one in wanted:
        spans = [item.span for item in evidence.items if item.span.doc_id == one.doc_id]
        read = any(one.span is None or one.span.overlaps(span) for span in spans)
        texts = {one.text}
        if one.span and one.doc_id in documents:
            texts.add(documents[one.doc_id].text[one.span.start : one.span.end])
        found = _find_nugget(one, texts, sentences) if one.text else _find_document(one, sentences, evidence)
        yield Use(read, *found)


def _find_nugget(wanted: Wanted, texts: Collection[str], sentences: Sequence[Cited]) -> tuple[bool, bool]:
    """Find whether a sentence says a nugget, and whether one that does cites its place or another text that says it.

    `texts` are the nugget's wordings: its own, and that of its place.
    """

    def has(source: str) -> bool:
        return any(says(source, text) for text in texts)

    saying = [one for one in sentences if has(one.sentence.text)]
    cited = any(any(_holds(span, wanted) for span, _ in one.sources) or has(one.join()) for one in saying)
    return bool(saying), cited


def _find_document(wanted: Wanted, sentences: Sequence[Cited], evidence: EvidenceSet) -> tuple[bool, bool]:
    """Find whether a sentence uses a document, and whether one that does cites it.

    A sentence that cites the document uses it, and cites it rightly if its sources support it. A sentence that the
    evidence of the document supports uses it too, unless the sources that it cites support it as well.
    """
    rate = partial(rate_support, weigh=make_weigher([find_terms(item.text) for item in evidence.items]))
    own = "\n".join(item.text for item in evidence.items if item.span.doc_id == wanted.doc_id)
    used = False
    for one in sentences:
        text, supported = one.sentence.text, rate(one.sentence.text, one.join()) == "full"
        cites = any(span.doc_id == wanted.doc_id for span, _ in one.sources)
        if cites and supported and rate(text, one.join(wanted.doc_id)) != "none":
            return True, True
        used = used or cites or (not supported and rate(text, own) == "full")
    return used, False


def says(text: str, nugget: str) -> bool:
    """Tell whether a text says a nugget: it has its numbers and names, and `SAID_SHARE` of its terms."""
    terms = find_terms(nugget)
    return len(terms & find_terms(text)) >= SAID_SHARE * len(terms) and not find_added(nugget, text)


def _holds(span: Span, wanted: Wanted) -> bool:
    return span.overlaps(wanted.span) if wanted.span else span.doc_id == wanted.doc_id


def _list_sources(sentence: Sentence, documents: Mapping[str, Document]) -> Iterator[tuple[Span, str]]:
    """List the stretches that a sentence cites. A citation is a segment, or else a document; others are left out."""
    for citation in sentence.citations:
        of_segment = documents.get(document_id(citation))
        segment = next((one for one in of_segment.segments if one.id == citation), None) if of_segment else None
        if of_segment and segment:
            yield segment.span, of_segment.segment_text(segment)
        elif document := documents.get(citation):
            yield Span(document.id, 0, len(document.text)), document.text
