"""All narratives understood by rule, in one batch over the corpus that they will be asked of."""

from collections.abc import Sequence
from typing import Literal

from generation.rules.queries import Facets, decompose, expand_topic, extract_topic
from generation.types import Understanding
from indexing.index import Index
from indexing.types import Store
from retrieval.backends import open_sparse
from retrieval.types import Topic

FEEDBACK = 10
"""Documents whose words may become variants of a topic."""


TopicBy = Literal["lead", "phrase", "none"]


def understand(
    topics: Sequence[Topic],
    index: Index,
    store: Store,
    facets: Facets,
    topic_by: TopicBy,
    variants: int,
    threads: int = 1,
) -> list[Understanding]:
    """Questions (the narrative's `facets`), topic and `variants` expanded topics of every narrative.

    The topic is the narrative's first sentence (`lead`), a `phrase` extracted from it, or nothing. Feedback for the
    expansion comes from the top 10 of BM25 for topic and narrative together.
    """
    searcher = open_sparse(index, store)
    frequencies = searcher.document_frequencies

    def topic_of(narrative: str) -> str:
        if topic_by == "phrase":
            return extract_topic(narrative, frequencies, len(store))
        return decompose(narrative, "sentences")[0] if topic_by == "lead" else ""

    phrases = [topic_of(topic.narrative) for topic in topics]
    texts = [f"{phrase} {topic.narrative}".strip() for phrase, topic in zip(phrases, topics, strict=True)]
    feedback: list[list[str]] = [[] for _ in topics]
    if variants:
        found = searcher.search([topic.id for topic in topics], texts, FEEDBACK, threads)
        feedback = [[document.contents for document in store.get(found.of(i))] for i in range(len(topics))]
    return [
        Understanding(
            topic_id=topic.id,
            questions=decompose(topic.narrative, facets),
            topic=phrases[i],
            variants=expand_topic(texts[i], feedback[i], frequencies, len(store), variants),
        )
        for i, topic in enumerate(topics)
    ]
