"""All narratives understood by rule, in one batch over the corpus that they will be asked of."""

from collections.abc import Sequence
from functools import cache

from generation.rules.queries import decompose, expand_topic, extract_topic
from generation.types import Understanding
from indexing.build import Index
from indexing.store import DocumentStore
from retrieval.lucene import LuceneSearcher
from retrieval.types import Topic

FEEDBACK = 10
"""Documents whose words may become variants of a topic."""


def understand(topics: Sequence[Topic], index: Index, variants: int, threads: int = 1) -> list[Understanding]:
    """Questions, topic and `variants` expanded topics of every narrative; feedback comes from BM25's top 10."""
    searcher = LuceneSearcher(index.lucene)
    store = DocumentStore(index.store)
    frequency = cache(searcher.document_frequency)
    found = searcher.search([t.id for t in topics], [t.narrative for t in topics], FEEDBACK, threads)
    return [
        Understanding(
            topic_id=topic.id,
            questions=decompose(topic.narrative),
            topic=extract_topic(topic.narrative, frequency, len(store)),
            variants=expand_topic(
                topic.narrative, [d.contents for d in store.get(found.of(i))], frequency, len(store), variants
            ),
        )
        for i, topic in enumerate(topics)
    ]
