"""The analyzers of an index in OpenSearch, whose tokens are those of Anserini's analyzers for the same languages.

They are OpenSearch's own, and those of its plugins for Japanese, Korean and Ukrainian. Those for English and
Persian are put together from parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES, has_languages
from keystone.indexing.opensearch.cluster import Node, Request
from keystone.indexing.opensearch.requests import ask

CONTENTS = "contents"
"""The field with title and text for searches; if documents have languages of their own, it has a part for each."""
ANALYZER = "anserini"
ANALYSIS: dict[str, Any] = {
    "filter": {
        "possessive": {"type": "stemmer", "language": "possessive_english"},
        "stop_words": {"type": "stop", "stopwords": "_english_"},
        "porter": {"type": "stemmer", "language": "english"},
    },
    "analyzer": {
        ANALYZER: {
            "type": "custom",
            "tokenizer": "standard",
            "filter": ["possessive", "lowercase", "stop_words", "porter"],
        }
    },
}
"""Anserini's analyzer for English, as an OpenSearch setting."""
PERSIAN = "anserini_persian"
PERSIAN_ANALYSIS: dict[str, Any] = {
    "char_filter": {"zero_width_spaces": {"type": "mapping", "mappings": ["\\u200C=>\\u0020"]}},
    "filter": {"persian_stop_words": {"type": "stop", "stopwords": "_persian_"}},
    "analyzer": {
        PERSIAN: {
            "type": "custom",
            "char_filter": ["zero_width_spaces"],
            "tokenizer": "standard",
            "filter": [
                *("lowercase", "decimal_digit", "arabic_normalization"),
                *("persian_normalization", "persian_stop_words", "persian_stem"),
            ],
        }
    },
}
"""Lucene's analyzer for Persian, which also stems. `persian` of newer versions of OpenSearch does not."""
ANALYZERS = {
    "ar": "arabic", "bn": "bengali", "da": "danish", "de": "german", "en": ANALYZER, "es": "spanish", "fa": PERSIAN,
    "fi": "finnish", "fr": "french", "hi": "hindi", "hu": "hungarian", "id": "indonesian", "it": "italian",
    "ja": "kuromoji", "ko": "nori", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ru": "russian",
    "sv": "swedish", "sw": "whitespace", "th": "thai", "tr": "turkish", "uk": "ukrainian", "zh": "cjk",
}  # fmt: skip
"""The analyzers by the codes of languages. OpenSearch has none with Anserini's tokens for Polish and Telugu."""
PLUGINS = {"ja": "analysis-kuromoji", "ko": "analysis-nori", "uk": "analysis-ukrainian"}
"""The plugins that have an analyzer, by the code of its language."""


def list_codes(meta: Mapping[str, Any]) -> list[str]:
    """List the languages that the description of an index names; English if it names none."""
    return list(meta.get("languages") or [meta.get("language", DEFAULT_LANGUAGE)])


def check_language(language: str) -> None:
    """Raise `UserError` for a value of `--language` whose documents OpenSearch cannot analyze as Anserini does."""
    if has_languages(language) or language in ANALYZERS:
        return
    found = LANGUAGES.get(language, "word pieces")
    raise UserError(
        f"--language {language}: OpenSearch has no analyzer with Anserini's tokens for {found}; expected auto, "
        f"field:NAME or one of {', '.join(ANALYZERS)}, or an index without --opensearch"
    )


def check_analyzers(nodes: Sequence[Node], meta: Mapping[str, Any]) -> None:
    """Raise `UserError` if the cluster lacks the plugin for a language of an index with this description."""
    for code in list_codes(meta):
        if plugin := PLUGINS.get(code):
            asked = orjson.dumps({"analyzer": ANALYZERS[code], "text": ""})
            if (reply := ask(nodes, Request("POST", "/_analyze", asked))).status == 400:
                expected = f"the plugin {plugin} on each of its nodes, or an index without --opensearch"
                raise UserError(f"{reply.url}: cannot analyze {LANGUAGES[code]}: {reply.reason}; expected {expected}")


def make_analysis(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Make the settings of analyzers for an index with this description; for several languages, also for later ones."""
    parts = [ANALYSIS, *([PERSIAN_ANALYSIS] if "languages" in meta or "fa" in list_codes(meta) else [])]
    return {kind: {name: one for part in parts for name, one in part.get(kind, {}).items()} for kind in parts[-1]}


def make_contents_field(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Make the field of contents, with a part for each language, if several. `UserError` as `check_language`."""
    fields = {}
    for code in list_codes(meta):
        check_language(code)
        fields[code] = {"type": "text", "analyzer": ANALYZERS[code], "index_options": "freqs", "norms": True}
    return {"properties": fields} if "languages" in meta else next(iter(fields.values()))
