"""Passages that a model writes as answers to queries, so that documents like them are found (HyDE, Query2Doc)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from keystone.generation.answers.sentences import read_line
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import passage as prompt
from keystone.generation.queries.compose import is_narrative_query
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.retrieval.types import Query


async def write_passages(
    model: Model, queries: Sequence[Query], narratives: Mapping[str, str]
) -> tuple[list[Query], list[Fallback]]:
    """Write a passage for each query; `narratives` are keyed by topic id.

    Returns the queries with their passages, and the fallbacks. If the model gives no usable passage, the query has
    none.
    """
    requests = [(request_passage(query, narratives[query.topic_id]), read_passage) for query in queries]
    found = await ask_all(model, requests)
    fallbacks = [
        Fallback(query.topic_id, "passage", f"no passage for {query.id}: {value.reason}")
        for query, value in zip(queries, found, strict=True)
        if isinstance(value, Failure)
    ]
    return [
        query if isinstance(value, Failure) else replace(query, passage=value)
        for query, value in zip(queries, found, strict=True)
    ], fallbacks


def request_passage(query: Query, narrative: str) -> Request:
    """Make a request for a query's passage. The narrative tells the model about the query's subject."""
    template = prompt.WHOLE if is_narrative_query(query) else prompt.USER
    user = template.format(narrative=narrative, question=query.question)
    return Request("passage", (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS)


def read_passage(reply: Reply) -> str:
    """Read a passage on one line, also one that was cut. `Unusable` if it is empty."""
    return read_line(reply, "passage")
