"""The format of a document's headings, guessed from its text: a markup counts only where it is plain."""

import re

from keystone.indexing.structures.markup.wikitext import DEEPEST_HEADING
from keystone.indexing.types import Document

_WIKITEXT = re.compile(rf"^(={{2,{DEEPEST_HEADING}}})[ \t]*[^=\s][^\n]*\1[ \t]*$", re.MULTILINE)
_MARKDOWN = re.compile(r"\A\s*#{1,6}[ \t]+\S|^#{2,6}[ \t]+\S", re.MULTILINE)
_HTML = re.compile(r"\A\s*<(?:!doctype html|html)[\s>]|</(?:h[1-6]|p)>", re.IGNORECASE)


def detect_format(document: Document) -> str:
    """Find the format of a document, a name in `keystone.indexing.structures.sections.FORMATS`.

    A document that lists headings has the format `headings`, and so has a text without plain markup. Wikitext has a
    line such as `== History ==`. Markdown begins with a heading, or has one of level 2 to 6. HTML begins with its
    declaration, or closes a heading or a paragraph.
    """
    if document.headings.strip():
        return "headings"
    for format, sign in (("wikitext", _WIKITEXT), ("markdown", _MARKDOWN), ("html", _HTML)):
        if sign.search(document.text):
            return format
    return "headings"
