"""Questions, topics and variants of all narratives by rules, in one batch over their corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from keystone.generation.context.topic import Sources
from keystone.generation.rules.queries import (
    Facets,
    Frequencies,
    decompose,
    expand_topic,
    extract_topic,
    join_neighbours,
)
from keystone.generation.types import Understanding
from keystone.retrieval.backends import open_sparse
from keystone.retrieval.types import Topic

FEEDBACK_DOCUMENTS = 10
"""The number of documents whose words may become variants of a topic."""

TopicBy = Literal["lead", "phrase"]
"""The rules that choose a topic."""

TOPIC_RULES: Mapping[TopicBy | None, Callable[[str, Frequencies, int], str]] = {
    "phrase": extract_topic,
    "lead": lambda narrative, _frequencies, _documents: decompose(narrative, "sentences")[0],
    None: lambda _narrative, _frequencies, _documents: "",
}
"""The rules by name. Each takes a narrative, the frequencies of words, and the number of documents."""


@dataclass(frozen=True, slots=True)
class UnderstandingRules:
    """The rules: `facets` become questions, `topic` is chosen, and `variants` words expand it.

    The topic is the narrative's first sentence (`lead`), a `phrase` extracted from it, or nothing (None).
    """

    facets: Facets = "sentences"
    topic: TopicBy | None = "lead"
    variants: int = 0
    questions: int = 30
    """The most questions of a narrative. Neighbours are joined if there would be more."""


def understand_by_rules(topics: Sequence[Topic], sources: Sources, rules: UnderstandingRules) -> list[Understanding]:
    """Find the questions, the topic and its variants for every narrative.

    The first 10 documents of BM25 for topic and narrative together are the feedback for the expansion.
    """
    store = sources.store
    searcher = open_sparse(sources.index, store)
    frequencies = searcher.document_frequencies
    phrases = [TOPIC_RULES[rules.topic](topic.narrative, frequencies, len(store)) for topic in topics]
    texts = [f"{phrase} {topic.narrative}".strip() for phrase, topic in zip(phrases, topics, strict=True)]
    feedback: list[list[str]] = [[] for _ in topics]
    if rules.variants:
        found = searcher.search([topic.id for topic in topics], texts, FEEDBACK_DOCUMENTS, sources.threads)
        feedback = [[document.contents for document in store.get(found.of(i))] for i in range(len(topics))]
    return [
        Understanding(
            topic_id=topic.id,
            questions=join_neighbours(decompose(topic.narrative, rules.facets), rules.questions),
            topic=phrases[i],
            variants=expand_topic(texts[i], feedback[i], frequencies, len(store), rules.variants),
        )
        for i, topic in enumerate(topics)
    ]
