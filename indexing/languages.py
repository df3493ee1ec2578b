"""The languages of documents by Anserini's codes, and what `keystone index --language` may say of them."""

import re
from pathlib import Path

from keystone.indexing.errors import UserError

DEFAULT_LANGUAGE = "en"
AUTO = "auto"
"""The value of `--language` that guesses the language of each document."""
FIELD_PREFIX = "field:"
"""The beginning of a value of `--language` that names the field with each document's language."""
PIECES_PREFIX = "tokenizer:"
"""The beginning of a value of `--language` that names a `tokenizer.json`, or its folder, for word pieces."""

LANGUAGES = {
    "ar": "Arabic", "bn": "Bengali", "da": "Danish", "de": "German", "en": "English", "es": "Spanish", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese",
    "ru": "Russian", "sv": "Swedish", "sw": "Swahili", "te": "Telugu", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "zh": "Chinese",
}  # fmt: skip
"""The names of languages by Anserini's codes."""

_OF_THREE_LETTERS = {
    "ara": "ar", "arb": "ar", "ben": "bn", "dan": "da", "deu": "de", "ger": "de", "eng": "en", "spa": "es",
    "fas": "fa", "per": "fa", "pes": "fa", "fin": "fi", "fra": "fr", "fre": "fr", "hin": "hi", "hun": "hu",
    "ind": "id", "ita": "it", "jpn": "ja", "kor": "ko", "nld": "nl", "dut": "nl", "nor": "no", "nob": "no",
    "nno": "no", "pol": "pl", "por": "pt", "rus": "ru", "swe": "sv", "swa": "sw", "swh": "sw", "tel": "te",
    "tha": "th", "tur": "tr", "ukr": "uk", "zho": "zh", "chi": "zh", "cmn": "zh", "nb": "no", "nn": "no",
}  # fmt: skip
"""Codes of ISO 639 with three letters, which NeuCLIR and RAGTIME use, and those of the two forms of Norwegian."""
_CODES = {**{name.lower(): code for code, name in LANGUAGES.items()}, **_OF_THREE_LETTERS}


def find_code(named: str) -> str | None:
    """Find the code of a language by its code of two or three letters, also with a country, or by its name."""
    name = re.split("[-_]", named.strip().lower())[0]
    return name if name in LANGUAGES else _CODES.get(name)


def check_language(given: str) -> str:
    """Check a value of `--language`, and return it in its one form. `UserError` for any other value."""
    if given == AUTO or (given.startswith(FIELD_PREFIX) and given != FIELD_PREFIX):
        return given
    if given.startswith(PIECES_PREFIX):
        file = Path(given.removeprefix(PIECES_PREFIX))
        file = file / "tokenizer.json" if file.is_dir() else file
        if not file.is_file():
            raise UserError(f"--language {given}: expected tokenizer:FILE with a tokenizer.json, or its folder")
        return f"{PIECES_PREFIX}{file.absolute()}"
    if (code := find_code(given)) is None:
        raise UserError(f"--language: found {given!r}, expected {AUTO}, field:NAME, tokenizer:FILE or {list_codes()}")
    return code


def list_codes() -> str:
    """List the codes for an error."""
    return f"one of {', '.join(LANGUAGES)}"


def has_languages(language: str) -> bool:
    """Tell whether a value of `--language` lets each document have a language of its own."""
    return language == AUTO or language.startswith(FIELD_PREFIX)
