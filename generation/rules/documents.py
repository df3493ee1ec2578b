"""The documents that an answer by rules is made from."""

from collections.abc import Sequence

import numpy as np

from keystone.generation.context.topic import Sources
from keystone.generation.rules.requests import split_into_questions
from keystone.generation.rules.sentences import embed_openings, embed_questions
from keystone.indexing.vectors.embed import embed_queries
from keystone.retrieval.types import Query

SEARCHED_TIMES = 2
"""The number of documents to choose from, as a multiple of the number to choose."""


def choose_documents(sources: Sources, queries: Sequence[Query], rows: Sequence[int], number: int) -> list[int]:
    """Choose `number` documents for an answer by rules. `rows` of the store is their ranking, best first.

    A narrative's best documents may lack one of its questions. So each question's closest document comes first, by the
    embedding of its title and opening, among the `2 * number` best. Then come the others in their order. The chosen
    ones keep the ranking's order.
    """
    searched = rows[: SEARCHED_TIMES * number]
    if len(searched) <= number:
        return list(searched)
    documents = sources.store.get(searched)
    vectors = embed_openings(sources, documents)
    asked = embed_queries(sources.embedding, [query.dense_text for query in queries], sources.threads)
    questions = embed_questions(sources, split_into_questions(queries), asked)
    closest = np.argmax(questions @ vectors.T, axis=1).tolist()
    places = list(dict.fromkeys([*closest, *range(len(searched))]))
    return [searched[place] for place in sorted(places[:number])]
