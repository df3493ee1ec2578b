"""Which queries a narrative makes: decomposed question, topic and expanded topic together (paper, section 2.1)."""

from collections import Counter
from collections.abc import Sequence

from generation.types import Understanding
from retrieval.types import Query, Topic


def compose_queries(understanding: Understanding, question_weight: int = 1, dense_topic: bool = True) -> list[Query]:
    """The queries of one narrative, with ids `topic#1`, `topic#2` and so on.

    BM25 gets the question, `question_weight` times, then the topic and its variants, so that each of those
    counts 1 / `question_weight` of a question's word; the embedding model gets the question and, with
    `dense_topic`, the topic. The defaults are the paper's.
    """
    context = [part for part in (understanding.topic, *understanding.variants) if part]
    return [
        Query(
            topic_id=understanding.topic_id,
            id=f"{understanding.topic_id}#{number}",
            question=question,
            sparse_text=" ".join([question] * question_weight + context),
            dense_text=f"{question} {understanding.topic}".strip() if dense_topic else question,
        )
        for number, question in enumerate(understanding.questions, start=1)
    ]


def make_narrative_query(topic: Topic) -> Query:
    """The narrative itself as a query: the paper's baseline run, or one more query beside the decomposed ones.

    It has the topic's own id, so that its rankings can be evaluated as they are.
    """
    return Query(topic.id, topic.id, topic.narrative, topic.narrative, topic.narrative)


def is_narrative_query(query: Query) -> bool:
    """Whether a query is its topic's whole narrative."""
    return query.id == query.topic_id


def find_places(topic_id: str, queries: Sequence[Query]) -> list[int]:
    """The places of a topic's decomposed queries; if it has none, the place of its whole narrative."""
    own = [place for place, query in enumerate(queries) if query.topic_id == topic_id]
    return [place for place in own if not is_narrative_query(queries[place])] or own


def weigh_queries(queries: Sequence[Query], narrative_weight: float) -> list[float]:
    """The weight of each query in the fusion of its topic: `narrative_weight` for the whole narrative, 1 for others.

    A narrative that is the only query of its topic has weight 1.
    """
    counts = Counter(query.topic_id for query in queries)
    return [narrative_weight if is_narrative_query(query) and counts[query.topic_id] > 1 else 1 for query in queries]
