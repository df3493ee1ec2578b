"""The section of narratives: each from its queries to its answer, in each run.

The script of the page makes the table and the chart of the documents when a reader opens the narrative.
"""

from collections.abc import Iterator, Mapping, Sequence

from keystone.runs.report.html.markup import Html, element, isolate, join
from keystone.runs.report.html.measures import Measures, render_plots, render_use
from keystone.runs.report.html.read_run import AnswerView, PlacedDocument, RunView, StepView, TopicView
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.report.story import COVERING_GRADE
from keystone.runs.wording import plural

Judged = Mapping[str, int]
"""The judged grades of a topic's documents."""


def list_topic_ids(views: Sequence[RunView]) -> list[str]:
    """List the narratives of all runs, each once, in the order of the runs."""
    return list(dict.fromkeys(topic_id for view in views for topic_id in view.topics))


def render_narratives(views: Sequence[RunView], measures: Measures, topic_ids: Sequence[str]) -> Html:
    """Render the section, with the plots of measures. The last run of each narrative is open, the others are closed.

    If narratives have values of measures, a reader can sort by them.
    """
    topics = [
        _render_topic(number, topic_id, views, measures.grades.get(topic_id, {}))
        for number, topic_id in enumerate(topic_ids)
    ]
    orders = [element("option", "in order", value="topic")]
    orders += [element("option", "lowest value first", value="value")] if measures.evaluations else []
    return element(
        "section",
        element("h2", "Narratives"),
        render_plots(measures, [view.label for view in views], topic_ids),
        element(
            "p",
            element("input", type="search", id="search", placeholder="Search in all texts", aria_label="Search"),
            element("label", element("select", *orders, id="sort", aria_label="Order of the narratives")),
            element("button", "Open all", type="button", id="open"),
            element("button", "Close all", type="button", id="close"),
            element("output", plural(len(topics), "narrative"), id="count"),
            class_="controls",
        ),
        element("div", *topics, id="topics"),
        id="narratives",
    )


def _render_topic(number: int, topic_id: str, views: Sequence[RunView], judged: Judged) -> Html:
    own = [(n, view, view.topics[topic_id]) for n, view in enumerate(views) if topic_id in view.topics]
    narrative = next((topic.narrative for _, _, topic in own if topic.narrative), "")
    fell_back = [view.label for _, view, _ in own if _list_fallbacks(view, topic_id)]
    badge = element("small", f"fallback in {', '.join(fell_back)}", class_="badge") if fell_back else Html("")
    return element(
        "details",
        element(
            "summary",
            element("b", element("bdi", topic_id)),
            " ",
            isolate(narrative, "span", class_="narrative"),
            badge,
        ),
        *(_render_run(n, view, topic, judged, view is own[-1][1]) for n, view, topic in own),
        id=f"n{number}",
        class_="topic",
    )


def _list_fallbacks(view: RunView, topic_id: str) -> list[Mapping[str, str]]:
    return [one for one in view.manifest.get("fallbacks", ()) if one["topic_id"] == topic_id]


def _render_fallbacks(fallbacks: Sequence[Mapping[str, str]]) -> Html:
    """Render the steps of a narrative in which a rule replaced the model's reply or dropped a citation."""
    items = [element("li", f"{one['step']}: ", isolate(one["reason"])) for one in fallbacks]
    text = "In these steps a rule replaced the model's reply or dropped a citation:"
    return element("div", element("p", text), element("ul", *items), class_="warning") if items else Html("")


def _render_depth(view: RunView, topic_id: str) -> Html:
    """Render how many rows of a narrative are submitted and why, if the run chose them."""
    for one in view.manifest.get("depths", ()):
        if one["topic_id"] == topic_id:
            text = f"Rows submitted: {one['rows']:,} of {one['ranked']:,}. Why: "
            return element("p", text, isolate(one["why"]), class_="note")
    return Html("")


def _render_run(number: int, view: RunView, topic: TopicView, judged: Judged, is_open: bool) -> Html:
    chosen = sum(document.chosen > 0 for document in topic.documents)
    counts = [plural(len(topic.queries), "query", "queries")] if topic.queries else []
    counts += [plural(len(topic.documents), "document")]
    counts += [f"{chosen} chosen"] if chosen else []
    counts += [plural(len(topic.answer.sentences), "sentence")] if topic.answer else []
    return element(
        "details",
        element("summary", render_run_name(view.label, number), element("small", ", ".join(counts))),
        _render_fallbacks(_list_fallbacks(view, topic.id)),
        _render_depth(view, topic.id),
        _render_queries(topic) if topic.queries else Html(""),
        _render_documents(topic, view.config.list_systems() if view.config else (), judged),
        _render_answer(topic.answer) if topic.answer else Html(""),
        render_use(topic.use) if topic.use else Html(""),
        _render_path(topic.path) if topic.path else Html(""),
        _render_steps(topic.steps) if topic.steps else Html(""),
        class_="run",
        open=is_open,
    )


def _render_queries(topic: TopicView) -> Html:
    """Render the queries, each with the number of chosen documents that cover it, and the topic behind them."""
    items = []
    for n, query in enumerate(topic.queries):
        whole = query.id == topic.id
        text = element("i", "the whole narrative") if whole else isolate(query.question, "span")
        items.append(element("li", text, " ", _render_coverage(n, topic.documents)))
    theme = element("p", "Topic: ", isolate(topic.theme), class_="note") if topic.theme else Html("")
    return join(element("h3", "Queries"), element("ol", *items, class_="queries"), theme)


def _render_coverage(query: int, documents: Sequence[PlacedDocument]) -> Html:
    grades = [document.places[query].grade for document in documents if document.chosen]
    if not any(grade is not None for grade in grades):
        return Html("")
    covering = sum(grade is not None and grade >= COVERING_GRADE for grade in grades)
    words = f"covered by {covering} of {len(grades)} chosen documents" if covering else "covered by no chosen document"
    return element("small", words, class_=None if covering else "none")


def _render_documents(topic: TopicView, systems: Sequence[str], judged: Judged) -> Html:
    """Render the table's column of titles. Its other columns are numbers beside them, which the script shows."""
    rows = [
        element(
            "tr",
            element("th", *_render_title(one.title, one.id)),
            data_n="".join(map(_spell, _list_numbers(one, judged.get(one.id)))),
        )
        for one in topic.documents
    ]
    return join(
        element("h3", "Documents"),
        element("div", class_="moves"),
        element(
            "div",
            element("table", element("tbody", *rows), class_="heat", data_systems=" ".join(systems)),
            class_="scroll",
        ),
    )


def _render_title(title: str, id: str) -> tuple[Html, ...]:
    return (isolate(title), element("small", id)) if title else (isolate(id),)


def _list_numbers(document: PlacedDocument, judged: int | None) -> Iterator[int]:
    """List the numbers of a document: three ranks and the judged grade, then for each query a grade and ranks.

    A grade is 0 if there is none, else 1 more than itself, or than ten times itself if a model gave it.
    """
    yield from (document.last, document.fused, document.chosen, 0 if judged is None else max(judged, 0) + 1)
    for place in document.places:
        yield from (0 if place.grade is None else round(place.grade * 10) + 1, place.hybrid, *place.systems)


def _spell(number: int) -> str:
    """Spell a number of 0 or more in letters as digits to base 26, the last one in lower case: shorter than JSON."""
    head, last = divmod(number, 26)
    return (_spell(head).upper() if head else "") + chr(ord("a") + last)


def _render_answer(answer: AnswerView) -> Html:
    sentences = [
        element(
            "span",
            isolate(text),
            *(element("sup", number + 1) for number in cited),
            " ",
            class_="sentence",
            tabindex=0,
            data_cited=" ".join(map(str, cited)),
        )
        for text, cited in answer.sentences
    ]
    texts = [
        element(
            "li",
            element("b", *_render_title(one.title, one.id)),
            isolate(one.text or "No text of this id is at hand.", "p"),
            value=number,
        )
        for number, one in enumerate(answer.cited, 1)
    ]
    return join(
        element("h3", "Answer"),
        element(
            "div",
            element("p", *sentences, class_="sentences"),
            element("ol", *texts, class_="cited"),
            class_="answer",
        ),
    )


def _render_path(path: Sequence[str]) -> Html:
    items = [element("li", isolate(line)) for line in path]
    return join(element("h3", "Research"), element("ol", *items, class_="path"))


def _render_steps(steps: Sequence[StepView]) -> Html:
    items = [
        element(
            "li",
            element("b", one.purpose),
            element("small", ", ".join(filter(None, (one.query_id, one.doc_id, f"{one.tokens:,} tokens")))),
            *(isolate(text, "p") for text in (one.action, one.result) if text),
            element("p", f"ended: {one.stop}", class_="note") if one.stop else Html(""),
        )
        for one in steps
    ]
    return element(
        "details",
        element("summary", f"Reader: {plural(len(steps), 'step')}"),
        element("ol", *items),
        class_="steps",
    )
