"""The queries of a narrative: each joins a question, the topic and the expanded topic (paper, section 2.1)."""

from collections import Counter
from collections.abc import Sequence

from keystone.generation.types import Understanding
from keystone.retrieval.types import Query, Topic


def compose_queries(understanding: Understanding, question_weight: int = 1, dense_topic: bool = True) -> list[Query]:
    """Compose the queries of one narrative, with the ids `topic#1`, `topic#2` and so on.

    BM25 gets the question `question_weight` times, then its terms, the topic and the topic's variants once. A word of
    theirs so counts 1 / `question_weight` of a question's word. The embedding model gets the question, its terms and,
    with `dense_topic`, the topic. The defaults are the paper's.
    """
    context = [part for part in (understanding.topic, *understanding.variants) if part]
    asks = understanding.asks or [None] * len(understanding.questions)
    queries = []
    for number, (question, ask) in enumerate(zip(understanding.questions, asks, strict=True), start=1):
        terms = ask.terms if ask else ()
        queries.append(
            Query(
                topic_id=understanding.topic_id,
                id=f"{understanding.topic_id}#{number}",
                question=question,
                sparse_text=" ".join([*[question] * question_weight, *terms, *context]),
                dense_text=" ".join([question, *terms, *([understanding.topic] if dense_topic else [])]).strip(),
                ask=ask,
            )
        )
    return queries


def make_narrative_query(topic: Topic) -> Query:
    """Make a query of the whole narrative: the paper's baseline run, or one more query beside the decomposed ones.

    Its id is the topic's own, so that its rankings can be evaluated as they are.
    """
    return Query(topic.id, topic.id, topic.narrative, topic.narrative, topic.narrative)


def is_narrative_query(query: Query) -> bool:
    """Return whether a query is its topic's whole narrative."""
    return query.id == query.topic_id


def find_places(topic_id: str, queries: Sequence[Query]) -> list[int]:
    """Find the places of a topic's decomposed queries. If it has none, find the place of its whole narrative."""
    own = [place for place, query in enumerate(queries) if query.topic_id == topic_id]
    return [place for place in own if not is_narrative_query(queries[place])] or own


def weigh_queries(queries: Sequence[Query], narrative_weight: float) -> list[float]:
    """Weigh each query for the fusion of its topic: `narrative_weight` for the whole narrative, 1 for others.

    If the narrative is the only query of its topic, its weight is 1.
    """
    counts = Counter(query.topic_id for query in queries)
    return [narrative_weight if is_narrative_query(query) and counts[query.topic_id] > 1 else 1 for query in queries]
