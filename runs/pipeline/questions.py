"""The questions of a narrative: how far documents answer each one, and what the writer of the answer read for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from keystone.generation.context.texts import count_tokens
from keystone.generation.queries.compose import find_places
from keystone.generation.types import Answered, EvidenceSet
from keystone.retrieval.types import Query


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """A question of a narrative, with what was read for it.

    A stretch of the evidence is read for the query that it names, and for a question whose answer is quoted from it.
    """

    query: Query
    found: Answered | None
    """How far the first evidence answers it; None if that was not checked."""
    again: Answered | None
    """How far the evidence answered it when it was checked again; None if it was not."""
    documents: int
    tokens: int

    @property
    def level(self) -> Answered | None:
        """How far documents answer it, by the last check."""
        return self.again or self.found

    @property
    def weight(self) -> int:
        """Its weight in the narrative; 1 if none is given."""
        return self.query.ask.weight if self.query.ask else 1


def list_read_questions(queries: Sequence[Query], evidence: EvidenceSet) -> list[ReadQuestion]:
    """List the questions of a topic with these queries. If it has none, the whole narrative is its only question."""
    first, last = ({check.query_id: check for check in own} for own in (evidence.checks, evidence.rechecks))
    found = []
    for place in find_places(queries[0].topic_id, queries):
        query = queries[place]
        checks = first.get(query.id), last.get(query.id)
        quotes = [check.quote for check in checks if check and check.quote]
        items = [one for one in evidence.items if one.query_id == query.id or any(map(one.span.overlaps, quotes))]
        before, again = (check.found if check else None for check in checks)
        tokens = sum(count_tokens(one.text) for one in items)
        found.append(ReadQuestion(query, before, again, len({one.span.doc_id for one in items}), tokens))
    return found
