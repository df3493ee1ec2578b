"""The documents that an answer by rules is made from."""

from collections.abc import Sequence

import numpy as np

from keystone.generation.context.topic import Sources
from keystone.generation.rules.sentences import embed_questions, split_into_questions
from keystone.indexing.vectors.of_sentences import sentence_vectors
from keystone.retrieval.types import Query

SEARCHED_TIMES = 2
"""The number of documents to choose from, as a multiple of the number to choose."""
OPENING_CHARACTERS = 200
"""The characters of a document, after its title, that are compared with the questions. They name its subject."""


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
    openings = [f"{document.title} {' '.join(document.text[:OPENING_CHARACTERS].split())}" for document in documents]
    vectors = sentence_vectors(sources.index, openings, sources.threads)
    closest = np.argmax(embed_questions(sources, split_into_questions(queries)) @ vectors.T, axis=1).tolist()
    places = list(dict.fromkeys([*closest, *range(len(searched))]))
    return [searched[place] for place in sorted(places[:number])]
