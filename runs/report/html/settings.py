"""The last section: settings and costs in a column for each run, with the differences marked, then all details."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.table import list_steps
from keystone.runs.report.html.markup import Html, element, isolate, join
from keystone.runs.report.html.read_run import RunView

DIFFERS = "\u2260"
"""The mark of a setting that differs between the runs."""
MOST_FALLBACKS = 100
"""How many fallbacks of a run are listed. The manifest of the run has all of them."""


def render_settings(views: Sequence[RunView]) -> Html:
    """Render the section, folded: settings and costs, each setting that differs between runs, and details."""
    settings = [(name, [describe(view.config) if view.config else "" for view in views]) for name, describe in SETTINGS]
    costs = [(name, [describe(view) for view in views]) for name, describe in FACTS]
    rows = [_render_row(name, own, len(set(own)) > 1) for name, own in settings if any(own)]
    rows += [_render_row(name, own, False) for name, own in costs if any(own)]
    differing = [_render_row(key, own, False) for key, own in _list_differences(views)]
    legend = element("p", element("b", DIFFERS, class_="differs"), " differs between the runs.", class_="note")
    return element(
        "details",
        element("summary", element("h2", "Settings and costs")),
        element(
            "div",
            legend if len(views) > 1 else Html(""),
            _render_table("facts", views, rows),
            join(element("h3", "Each setting that differs"), _render_table("facts keys", views, differing))
            if differing
            else Html(""),
            *(_render_details(view, view.config) for view in views if view.config),
            id="settings",
        ),
        class_="settings",
    )


def _render_table(classes: str, views: Sequence[RunView], rows: Sequence[Html]) -> Html:
    heads = [element("th", render_run_name(view.label, n), scope="col") for n, view in enumerate(views)]
    head = element("thead", element("tr", element("td"), *heads))
    return element("div", element("table", head, element("tbody", *rows), class_=classes), class_="scroll")


def _render_row(name: str, values: Sequence[str], differs: bool) -> Html:
    mark = join(" ", element("b", DIFFERS, class_="differs", title="differs between the runs")) if differs else Html("")
    return element(
        "tr",
        element("th", name, mark, scope="row"),
        *(element("td", value or "\u2013") for value in values),
        class_="differing" if differs else None,
    )


def _list_differences(views: Sequence[RunView]) -> list[tuple[str, list[str]]]:
    """List each setting by its key with its value in each run, if the runs differ in it.

    If a run has no model, only the name of the others' model is listed, not each of its settings.
    """
    flat = [dict(_flatten(view.config.model_dump(mode="json"))) if view.config else {} for view in views]
    keys = dict.fromkeys(key for own in flat for key in own)
    found = [(key, [own.get(key, "") for own in flat]) for key in keys if key != "run_id"]
    known = [n for n, view in enumerate(views) if view.config]
    all_ask = all(view.config.model for view in views if view.config)
    shown = [(key, own) for key, own in found if all_ask or key == "model.name" or not key.startswith("model.")]
    return [(key, own) for key, own in shown if len({own[n] for n in known}) > 1]


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        elif value is not None:
            shown = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
            yield f"{prefix}{key}", shown.removesuffix("...\n").strip()


def render_run_name(label: str, number: int) -> Html:
    """Render the name of a run behind a mark in its colour."""
    return join(element("i", class_=f"mark run{number % 7}"), element("bdi", label))


def _render_details(view: RunView, config: RunConfig) -> Html:
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    fallbacks = [
        element("li", f"{one['step']}, narrative {one['topic_id']}: ", isolate(one["reason"]))
        for one in view.manifest.get("fallbacks", [])[:MOST_FALLBACKS]
    ]
    return element(
        "details",
        element("summary", "Costs, settings and versions of ", element("bdi", view.label)),
        _render_usage(view),
        element("ul", *fallbacks) if fallbacks else Html(""),
        element("pre", settings),
        element("p", "; ".join(f"{name} {value}" for name, value in view.made_from.items()), class_="note"),
    )


def _render_usage(view: RunView) -> Html:
    """Render a row for each purpose for which the model was asked, and their total."""
    if not view.usage:
        return element("p", "No language model was asked.", class_="note")
    columns = [name for name in COST_COLUMNS if any(name in row for row in view.usage.values())]
    head = [element("th", name, scope="col") for name in ("Purpose", *(COST_COLUMNS[name] for name in columns))]
    rows = [
        element(
            "tr", element("th", purpose, scope="row"), *(element("td", _format(row.get(name, 0))) for name in columns)
        )
        for purpose, row in view.usage.items()
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="numbers")
    return element("div", table, class_="scroll")


COST_COLUMNS = {
    "calls": "Calls",
    "cache_hits": "Kept replies used",
    "prompt_tokens": "Tokens asked",
    "cached_tokens": "of these cached",
    "completion_tokens": "Tokens answered",
    "retries": "Retries",
    "seconds": "Seconds waited",
    "cost": "US dollars",
}
"""The columns of `usage.json` and their headings."""


def _format(number: float | str) -> str:
    return f"{number:,.2f}" if isinstance(number, float) else f"{number:,}" if isinstance(number, int) else number


def sum_usage(*keys: str) -> Callable[[RunView], str]:
    """Return a function that describes the sum of these columns of a run's usage; empty if it has none of them."""

    def describe(view: RunView) -> str:
        own = [total[key] for key in keys if key in (total := view.usage.get("total", {}))]
        return _format(sum(own)) if own else ""

    return describe


def _count(fallbacks: Sequence[object] | None) -> str:
    return "" if fallbacks is None else f"{len(fallbacks):,}"


def _describe_grading(config: RunConfig) -> str:
    grading = config.grading
    if grading.method is None:
        return ""
    return f"{grading.method}, {grading.select}, {grading.documents} documents"


def _describe_saved(view: RunView) -> str:
    grading: dict[str, Any] = view.manifest.get("grading", {})
    return f"{grading['asked']:,} of {grading['pairs']:,}, {grading['saved']:.0%} saved" if grading else ""


def _describe_segments(view: RunView) -> str:
    counts: dict[str, int] = view.manifest.get("ranked_segments", {})
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def _describe_search(config: RunConfig) -> str:
    retrieval = config.retrieval
    feedback = f", {retrieval.feedback}" if retrieval.feedback else ""
    return f"{' and '.join(config.list_systems())}{feedback}, {retrieval.depth:,} documents"


SETTINGS: Sequence[tuple[str, Callable[[RunConfig], str]]] = (
    ("Queries by", lambda config: config.queries.method),
    ("Search", _describe_search),
    ("Steps of the ranking", lambda config: " \u2192 ".join(step["name"] for step in list_steps(config))),
    ("Fusion over queries", lambda config: config.fusion.method),
    ("Grades", _describe_grading),
    ("Answers by", lambda config: str(config.answer.method or "") if config.track else ""),
    ("Reader", lambda config: config.reader.name if config.track else ""),
    ("Track", lambda config: config.track or ""),
)
"""The rows of settings: a heading, and the description of a run, which is empty if the row does not concern it."""

FACTS: Sequence[tuple[str, Callable[[RunView], str]]] = (
    ("Narratives", lambda view: f"{len(view.topics):,}"),
    ("Queries", lambda view: _format(sum(len(topic.queries) for topic in view.topics.values()) or "")),
    ("Documents in the index", lambda view: _format(view.manifest.get("index", {}).get("documents") or "")),
    ("Model", lambda view: view.manifest.get("model") or ""),
    ("Calls", sum_usage("calls")),
    ("Kept replies used", sum_usage("cache_hits")),
    ("Tokens asked", sum_usage("prompt_tokens")),
    ("Tokens answered", sum_usage("completion_tokens")),
    ("Seconds waited for the model", sum_usage("seconds")),
    ("US dollars", sum_usage("cost")),
    ("Pairs graded", _describe_saved),
    ("Segments ranked", _describe_segments),
    ("Steps without a usable reply", lambda view: _count(view.manifest.get("fallbacks"))),
)
"""The rows of the outcome, in the same form."""
