"""What a model adds to queries: passages that answer them (HyDE, Query2Doc), and translations for other languages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from keystone.generation.answers.sentences import read_line
from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import passage, translate
from keystone.generation.queries.compose import is_narrative_query
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.languages import LANGUAGES
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
    template = passage.WHOLE if is_narrative_query(query) else passage.USER
    user = template.format(narrative=narrative, question=query.question)
    return Request("passage", (("system", passage.SYSTEM), ("user", user)), passage.MAX_TOKENS)


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
    found = await ask_all(model, [(request_translation(query.question, code), _read) for query, code in wanted])
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
    user = translate.USER.format(language=LANGUAGES[code], text=delimit("text", text))
    return Request("translate", (("system", translate.SYSTEM), ("user", user)), translate.MAX_TOKENS)


def _read(reply: Reply) -> str:
    """Read a translation on one line. `Unusable` if it is empty, or was cut."""
    return read_line(reply, "translation")
