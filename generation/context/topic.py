"""The documents of a topic, with the vectors by which their segments and sentences are chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from keystone.fusion.closest import choose_closest_segments
from keystone.indexing.corpora.languages import guess_language
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Embedding, Span, Store
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import segment_vectors, sentence_vectors
from keystone.indexing.vectors.types import Vectors
from keystone.retrieval.types import Query


@dataclass(frozen=True, slots=True)
class Sources:
    """The index and the store that documents and vectors are read from."""

    index: Index
    store: Store
    threads: int = 1

    @property
    def embedding(self) -> Embedding:
        """The embedding by which texts are compared: that of the index, or of words if it has no model."""
        return self.index.compares_by


@dataclass(frozen=True, slots=True)
class TopicContext:
    """The documents of a topic by row, each with the vectors of its segments, and the topic's queries with theirs.

    `segments` has float32[segments, d] for each row of `documents`, in the same order; `query_vectors` is
    float32[queries, d].
    """

    documents: dict[int, Document]
    segments: dict[int, Vectors]
    queries: Sequence[Query]
    query_vectors: Vectors
    whole: bool = True
    """Whether the whole text of a document is evidence. Otherwise only its segments are."""
    openings: Vectors | None = None
    """The vectors of the titles and openings of the documents, float32[documents, d], if rules compare them."""

    @property
    def by_id(self) -> dict[str, tuple[Document, Vectors]]:
        """The documents and the vectors of their segments, by document id."""
        return {document.id: (document, self.segments[row]) for row, document in self.documents.items()}


def skip_blank(store: Store, rows: Sequence[int], number: int) -> list[int]:
    """Leave out documents without text, which no answer can cite, until `number` documents with a text are found."""
    kept, at = list[int](), 0
    while len(kept) < number and at < len(rows):
        piece = rows[at : at + number - len(kept)]
        kept += [row for row, document in zip(piece, store.get(piece), strict=True) if document.text.strip()]
        at += len(piece)
    return [*kept, *rows[at:]]


def read_context(sources: Sources, rows: Sequence[int], queries: Sequence[Query]) -> TopicContext:
    """Read the documents in these rows of the store, in this order."""
    vectors = segment_vectors(sources.index, sources.store, rows, sources.threads)
    return TopicContext(
        dict(zip(rows, sources.store.get(rows), strict=True)),
        {row: vectors[row] for row in rows},
        queries,
        embed_queries(sources.embedding, [query.dense_text for query in queries], sources.threads),
    )


def keep_language(context: TopicContext, language: str) -> TopicContext:
    """Keep the documents in a language, and those whose language no rule tells. An empty `language` keeps all."""
    if not language:
        return context
    kept = {row: one for row, one in context.documents.items() if guess_language(one.text) in ("", language)}
    return replace(context, documents=kept, segments={row: context.segments[row] for row in kept})


def keep_closest_segments(context: TopicContext, texts: Vectors, most: int) -> TopicContext:
    """Keep, as the only evidence, the `most` segments of each document closest to any text (float32[t, d])."""
    kept = {row: sorted(choose_closest_segments(texts, own, most)) for row, own in context.segments.items()}
    return replace(
        context,
        documents={
            row: replace(document, segments=tuple(document.segments[number] for number in kept[row]))
            for row, document in context.documents.items()
        },
        segments={row: own[kept[row]] for row, own in context.segments.items()},
        whole=False,
    )


def embed_spans(sources: Sources, context: TopicContext, spans: Sequence[Span]) -> Vectors:
    """Embed stretches of the topic's documents: float32[spans, d]. The index keeps the vectors by text."""
    texts = {document.id: document.text for document in context.documents.values()}
    return sentence_vectors(
        sources.index, [texts[span.doc_id][span.start : span.end] for span in spans], sources.threads
    )
