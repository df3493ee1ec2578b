"""New search texts by a model for queries whose documents do not answer them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from keystone.generation.answers.sentences import tidy
from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import search_again as prompt
from keystone.generation.structured import read_strings
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document
from keystone.retrieval.types import Query

SNIPPET_CHARACTERS = 200
"""The most characters of a document's text that the model sees."""


@dataclass(frozen=True, slots=True)
class OpenQuery:
    """A query that no document answers yet."""

    query: Query
    narrative: str
    searches: tuple[str, ...]
    """The texts that were searched for so far."""
    found: Sequence[Document]
    """The first documents of its ranking, best first."""


async def write_search_texts(
    model: Model, queries: Sequence[OpenQuery]
) -> tuple[list[tuple[str, ...]], list[Fallback]]:
    """Write new search texts for each query, at most `MOST_TEXTS`; one call of the model a query.

    Returns them in the order of `queries`, and the fallbacks. If the model gives no usable text, the query has none.
    """
    found = await ask_all(
        model, [(request_search_texts(one), partial(read_search_texts, searches=one.searches)) for one in queries]
    )
    fallbacks = [
        Fallback(one.query.topic_id, "search_again", f"no new search for {one.query.id}: {texts.reason}")
        for one, texts in zip(queries, found, strict=True)
        if isinstance(texts, Failure)
    ]
    return [() if isinstance(texts, Failure) else texts for texts in found], fallbacks


def request_search_texts(one: OpenQuery) -> Request:
    """Make a request for new search texts. It shows titles and beginnings of the documents found."""
    shown = [
        delimit(number, document.text[:SNIPPET_CHARACTERS], document.title)
        for number, document in enumerate(one.found, 1)
    ]
    user = prompt.USER.format(
        narrative=one.narrative,
        question=one.query.question,
        searches="\n".join(f"- {text}" for text in one.searches),
        documents="\n".join(shown) or "none",
    )
    return Request("search_again", (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS, prompt.SCHEMA)


def read_search_texts(reply: Reply, searches: Sequence[str]) -> tuple[str, ...]:
    """Read the first `MOST_TEXTS` new texts, in order. `Unusable` if there is none.

    A new text has a letter or digit, and differs from `searches` and from the texts before it by more than case.
    """
    known = {text.casefold() for text in searches}
    found: dict[str, str] = {}
    for text in map(tidy, read_strings(reply, "searches")):
        if any(map(str.isalnum, text)) and text.casefold() not in known:
            found.setdefault(text.casefold(), text)
    if not found:
        raise Unusable("it holds no search that was not made before")
    return tuple(found.values())[: prompt.MOST_TEXTS]
