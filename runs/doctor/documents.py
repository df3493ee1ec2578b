"""Checks of an index: whether its analyzers and its embedding model are for the languages of its documents."""

import re
from collections.abc import Iterator
from pathlib import Path

from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES
from keystone.indexing.store import sample_documents
from keystone.retrieval.backends import open_store
from keystone.runs.doctor.machine import Finding

SAMPLED_DOCUMENTS = 120
"""The most documents, evenly spread over the index, by which its languages are guessed."""
READ_CHARACTERS = 1000
"""The characters of a document, from its beginning, by which its language is guessed."""
MULTILINGUAL = re.compile(
    r"multilingual|bge-m3|labse|xlm|arctic-embed-[ml]-v2|jina-embeddings-v[3-9]|qwen3-embedding|embeddinggemma"
    r"|text-embedding-3|embed-v4|voyage-[3-9]",
    re.IGNORECASE,
)
"""Names of embedding models for many languages."""
ADVISED = "intfloat/multilingual-e5-small, or BAAI/bge-m3 for long documents"


def examine_index(folder: Path) -> Iterator[Finding]:
    """Check the languages of the documents of an index, and the analyzers and the embedding models for them."""
    try:
        index = open_index(folder)
        told = [LANGUAGES.get(code, "") for code in index.languages or [index.language]]
        guessed = not index.languages and index.language == DEFAULT_LANGUAGE
        languages = _guess_languages(index) if guessed else [name for name in told if name]
    except UserError as error:
        yield Finding("problem", "index", str(error))
        return
    named = ", ".join(languages) or "unknown"
    if guessed and set(languages) - {"English"}:
        advice = "BM25 reads them as English: make the index anew with --language auto, or --language field:NAME"
        yield Finding("note", "languages", f"{named}, guessed; {advice}")
    else:
        yield Finding("ok", "languages", f"{named}, guessed" if guessed else named)
    if others := [name for name in languages if name != "English"]:
        yield from _check_models(index, ", ".join(others))


def _guess_languages(index: Index) -> list[str]:
    documents = sample_documents(open_store(index), SAMPLED_DOCUMENTS)
    return guess_languages(document.contents[:READ_CHARACTERS] for document in documents)


def _check_models(index: Index, languages: str) -> Iterator[Finding]:
    models = [*([index.embedding] if index.embedding else []), *(one.embedding for one in index.vectors.values())]
    for label in [model.label for model in models] or ["none"]:
        if MULTILINGUAL.search(label):
            yield Finding("ok", "embedding model", label)
        else:
            advice = f"for questions in English about documents in {languages}, --embedding {ADVISED}"
            yield Finding("note", "embedding model", f"{label}, expected a multilingual one: {advice}")
