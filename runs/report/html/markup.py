"""HTML out of text: every foreign text becomes markup in `element`, and nowhere else. The frame of all pages."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

_VOID = ("br", "input", "link", "meta")
"""Elements that have no content and no end tag."""
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, overrides of the direction of writing, and lone surrogates."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str | int, **attributes: str | int | bool | None) -> Html:
    """Make an element. Children and values that are no `Html` are text, which is escaped.

    The name of an attribute may end with an underscore (`class_`); any other underscore stands for a hyphen. An
    attribute is left out if its value is None or False, and stands alone if it is True.
    """
    head = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escape(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{head}>" if tag in _VOID else f"<{tag}{head}>{join(*children)}</{tag}>")


def join(*children: str | int) -> Html:
    """Join pieces of HTML and texts, which are escaped."""
    return Html("".join(child if isinstance(child, Html) else _escape(child) for child in children))


def isolate(text: str, tag: str = "bdi", **attributes: str | int | bool | None) -> Html:
    """Make an element of a foreign text. The letters of the text decide its direction of writing."""
    return element(tag, text, dir=None if tag == "bdi" else "auto", **attributes)


def render_numbers(columns: Sequence[str], rows: Iterable[Html], name: str) -> Html:
    """Render a table of numbers that scrolls by itself, with the names of its columns and a name for screen readers."""
    head = element("thead", element("tr", *(element("th", column, scope="col") for column in columns)))
    table = element("table", head, element("tbody", *rows), class_="numbers")
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def embed_numbers(value: Any, **attributes: str | int | bool | None) -> Html:
    """Embed lists of numbers as JSON for the page's script. `TypeError` for a text, which belongs in an element."""
    if _holds_text(value):
        raise TypeError("expected only numbers to embed, found a text")
    return element(
        "script", Html(json.dumps(value, separators=(",", ":"), allow_nan=False)), type="application/json", **attributes
    )


def _holds_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(_holds_text, value)))


def _escape(text: str | int) -> str:
    """Escape a text. Control characters and the like become Python's escapes."""
    shown = _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text).replace("\r\n", "\n"))
    return escape(shown)


def read_parts(package: str, names: Sequence[str]) -> str:
    """Read files of the folder `page` of a package, and join them in this order."""
    folder = files(package) / "page"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def make_policy(style: str, script: str) -> str:
    """Make a Content-Security-Policy: the page uses this style and this script, and loads and sends nothing."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def render_page_of(title: str, sections: Mapping[str, Html], styles: Sequence[str], scripts: Sequence[str]) -> Html:
    """Render a page of sections by their ids, with links to those that are not empty.

    `styles` and `scripts` are files of the folder `page`. All styles become one, and all scripts, in their order.
    """
    style, script = (Html(read_parts("keystone.runs.report.html", names)) for names in (styles, scripts))
    links = [element("a", name.capitalize(), href=f"#{name}") for name, section in sections.items() if section]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=make_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    scripted = [
        element("div", id="tip", role="status", hidden=True),
        element("noscript", element("p", "Further plots, the table of documents and the search need JavaScript.")),
        element("script", script),
    ]
    body = element(
        "body",
        element("header", element("p", "Keystone report"), element("nav", *links, aria_label="Sections")),
        element("main", *sections.values()),
        *(scripted if script else []),
    )
    return join(Html("<!doctype html>"), element("html", head, body, lang="en"))
