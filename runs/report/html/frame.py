"""The frame of each page of a report: one HTML file that may use its own style and script, and load nothing."""

from collections.abc import Mapping, Sequence

from keystone.runs.report.html.markup import Html, element, join, make_policy, read_parts


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
