"""What the page says of the index before the first question: its name and size, and narratives to begin with."""

from typing import Any

from keystone.generation.rules.narratives import READ_CHARACTERS, make_narratives
from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.store import sample_documents
from keystone.runs.serving.service import Service

SAMPLED_DOCUMENTS = 120
"""The most documents, evenly spread over the index, by which its languages and its narratives are found."""
NARRATIVES = 3


def describe_index(service: Service) -> dict[str, Any]:
    """Describe the index of a service, as the JSON object of `/page/index`.

    An index whose documents are on another server may have no languages and no narratives, because nobody knows the ids
    of its documents.
    """
    documents = sample_documents(service.store, SAMPLED_DOCUMENTS)
    languages = guess_languages(document.text[:READ_CHARACTERS] for document in documents)
    model = service.config.model
    return {
        "name": service.name,
        "documents": service.index.documents,
        "languages": languages,
        "model": model and model.name,
        "answers": service.answers,
        "narratives": make_narratives(documents, NARRATIVES, not languages or languages[0] == "English"),
    }
