"""What a model adds to queries: passages that answer them, translations, and new texts if no document answers them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from keystone.generation.answers.sentences import read_line, tidy
from keystone.generation.context.texts import delimit
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import queries as prompts
from keystone.generation.queries.compose import is_narrative_query
from keystone.generation.replies import read_strings
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.languages import LANGUAGES
from keystone.indexing.types import Document
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
    prompt = prompts.PASSAGE_OF_NARRATIVE if is_narrative_query(query) else prompts.PASSAGE
    return prompt.request(narrative=narrative, question=query.question)


def read_passage(reply: Reply) -> str:
    """Read a passage on one line, also one that was cut. `Unusable` if it is empty."""
    return read_line(reply, "passage")


async def translate_queries(
    model: Model, queries: Sequence[Query], codes: Sequence[str]
) -> tuple[list[Query], list[Fallback]]:
    """Translate the question of each query into each language, by a request each, unless it is there already.

    Returns the queries with their translations, and the fallbacks. Without a usable translation, a query searches the
    documents of that language by its own words.
    """
    wanted = [(query, code) for query in queries for code in codes if code not in dict(query.translations)]
    read = partial(read_line, wanted="translation")
    found = await ask_all(model, [(request_translation(query.question, code), read) for query, code in wanted])
    made: dict[str, list[tuple[str, str]]] = {}
    fallbacks = []
    for (query, code), value in zip(wanted, found, strict=True):
        if isinstance(value, Failure):
            reason = f"no translation of {query.id} into {LANGUAGES[code]}: {value.reason}"
            fallbacks.append(Fallback(query.topic_id, "translate", reason))
        else:
            made.setdefault(query.id, []).append((code, value))
    return [replace(query, translations=(*query.translations, *made.get(query.id, ()))) for query in queries], fallbacks


def request_translation(text: str, code: str) -> Request:
    """Make a request for the translation of a text into a language."""
    return prompts.TRANSLATE.request(language=LANGUAGES[code], text=delimit("text", text))


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
    return prompts.SEARCH_AGAIN.request(
        narrative=one.narrative,
        question=one.query.question,
        searches="\n".join(f"- {text}" for text in one.searches),
        documents="\n".join(shown) or "none",
    )


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
    return tuple(found.values())[: prompts.MOST_TEXTS]
