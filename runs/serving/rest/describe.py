"""The page at `/docs`: the paths of the OpenAPI description as plain HTML, which loads nothing."""

from collections.abc import Mapping
from typing import Any

from keystone.runs.report.html.markup import Html, element, join, make_policy, read_parts

REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its style."""


def render_paths(description: Mapping[str, Any]) -> tuple[str, str]:
    """Render the paths of a description; returns the page, and the policy under which a browser has to show it."""
    title, style = description["info"]["title"], read_parts(REPORT, ["base.css"])
    server = description["servers"][0]["url"]
    links = [element("a", name, href=name) for name in ("openapi.json", "openapi.yaml")]
    paths = (
        _render_path(f"{method.upper()} {server}{path}", operation, description)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    )
    head = join(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: paths"),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style)),
    )
    about = element("p", description["info"]["description"], " For programs: ", links[0], ", ", links[1])
    body = element("body", element("h1", title), about, *paths)
    page = f"<!doctype html>{element('html', element('head', head), body, lang='en')}"
    return page, f"{make_policy(style, '')}; img-src data:; frame-ancestors 'none'"


def _render_path(name: str, operation: Mapping[str, Any], description: Mapping[str, Any]) -> Html:
    rows = [_render_parameter(_follow(one, description)) for one in operation.get("parameters", ())]
    head = element("tr", *(element("th", name) for name in ("parameter", "value", "meaning")))
    table = element("table", element("thead", head), element("tbody", *rows))
    summary = element("p", operation.get("summary", ""))
    return join(element("h2", element("code", name)), summary, *([table] if rows else ()))


def _render_parameter(parameter: Mapping[str, Any]) -> Html:
    schema = parameter.get("schema", {})
    kind = " or ".join(map(str, schema.get("enum", ()))) or schema.get("type", "")
    notes = [f"{key} {schema[key]}" for key in ("minimum", "maximum", "default") if key in schema]
    required = ["required"] if parameter.get("required") else []
    cells = (parameter["name"], ", ".join([kind, *required, *notes]), parameter.get("description", ""))
    return element("tr", *(element("td", cell) for cell in cells))


def _follow(one: Mapping[str, Any], description: Mapping[str, Any]) -> Any:
    """Follow a reference such as `#/components/parameters/index`."""
    found: Any = description
    for part in one["$ref"].split("/")[1:] if "$ref" in one else ():
        found = found[part]
    return found if "$ref" in one else one
