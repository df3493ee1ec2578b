"""Queries in the languages of the documents, translated by a model."""

from collections.abc import Sequence
from dataclasses import replace

from keystone.generation.answers.sentences import read_line
from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import translate as prompt
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.languages import LANGUAGES
from keystone.retrieval.types import Query


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
    user = prompt.USER.format(language=LANGUAGES[code], text=delimit("text", text))
    return Request("translate", (("system", prompt.SYSTEM), ("user", user)), prompt.MAX_TOKENS)


def _read(reply: Reply) -> str:
    """Read a translation on one line. `Unusable` if it is empty, or was cut."""
    return read_line(reply, "translation")
