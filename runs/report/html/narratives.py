"""The section of narratives, each from its queries to its answer in each run, and that of one answer with its sources.

The script of the page makes the table and the chart of the documents when a reader opens the narrative.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from keystone.generation.rules.words import find_quote
from keystone.generation.types import Step
from keystone.indexing.corpora.segments import SHORT_LINE_CHARACTERS
from keystone.indexing.types import Document
from keystone.runs.report.html.markup import Html, element, isolate, join
from keystone.runs.report.html.measures import Measures, render_plots, render_use
from keystone.runs.report.html.read_run import AnswerView, CitedText, PlacedDocument, RunView, TopicView
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.report.story import COVERING_GRADE
from keystone.runs.wording import plural

Judged = Mapping[str, int]
"""The judged grades of a topic's documents."""


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

    0 means that there is no grade. Any other number is 1 more than the grade, or than ten times the grade of a model.
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


def _render_steps(steps: Sequence[Step]) -> Html:
    items = []
    for one in steps:
        about = one.query_id, one.doc_id, f"{one.prompt_tokens + one.reply_tokens:,} tokens"
        texts = [isolate(text, "p") for text in (one.action, one.observation) if text]
        ended = element("p", f"ended: {one.stop}", class_="note") if one.stop else Html("")
        small = element("small", ", ".join(filter(None, about)))
        items.append(element("li", element("b", one.purpose), small, *texts, ended))
    return element(
        "details",
        element("summary", f"Reader: {plural(len(steps), 'step')}"),
        element("ol", *items),
        class_="steps",
    )


OPEN_SENTENCES = 4
"""How many sentences of the answer are shown at once. The further ones are folded."""
AROUND_CHARACTERS = 160
"""How many characters of a cited text are shown before and after the sentence that supports."""


def choose_answer(views: Sequence[RunView], values: Mapping[str, Mapping[str, float]]) -> tuple[int, TopicView] | None:
    """Choose the run and the narrative whose answer is shown: the middle one by value, of the best run with answers.

    `values` has the value of each narrative by run, the best run first. Without values, it is the first narrative of
    the last run. Narratives in which a step fell back come last. None if no run has an answer whose sources are known.
    """
    labels = [*values, *(view.label for view in reversed(views))]
    for label in dict.fromkeys(labels):
        number = next(n for n, view in enumerate(views) if view.label == label)
        view, own = views[number], values.get(label, {})
        fell_back = {one["topic_id"] for one in view.manifest.get("fallbacks", ())}
        topics = view.topics.values()
        known = [one for one in topics if one.answer and any(cited.text for cited in one.answer.cited)]
        if not known:
            continue
        middle = float(np.median([own[topic.id] for topic in known if topic.id in own] or [0]))
        return number, min(known, key=lambda topic: (topic.id in fell_back, abs(own.get(topic.id, middle) - middle)))
    return None


def render_answer(views: Sequence[RunView], values: Mapping[str, Mapping[str, float]], measure: str) -> Html:
    """Render the section of one answer; empty if no run has one."""
    chosen = choose_answer(views, values)
    if chosen is None:
        return Html("")
    number, topic = chosen
    label = views[number].label
    assert topic.answer is not None
    pairs = [_render_sentence(text, cited, topic.answer) for text, cited in topic.answer.sentences]
    rest = pairs[OPEN_SENTENCES:]
    why = f"It is the answer in the middle by {measure}." if topic.id in values.get(label, {}) else ""
    note = "Beside each sentence: what it cites, with the words that are closest to it marked. "
    return element(
        "section",
        element("h2", "One answer and its sources"),
        element("p", render_run_name(label, number), " on narrative ", element("bdi", topic.id), ":", class_="asked"),
        isolate(topic.narrative, "blockquote"),
        element("p", note, why, class_="note"),
        element("ol", *pairs[:OPEN_SENTENCES], class_="pairs"),
        element(
            "details",
            element("summary", f"Show {plural(len(rest), 'more sentence')}"),
            element("ol", *rest, class_="pairs", start=OPEN_SENTENCES + 1),
        )
        if rest
        else Html(""),
        id="answer",
    )


def _render_sentence(text: str, cited: Sequence[int], answer: AnswerView) -> Html:
    sources = [_render_source(text, place + 1, answer.cited[place]) for place in cited]
    beside = element("div", *sources) if sources else element("p", "This sentence cites nothing.", class_="note")
    return element("li", element("div", isolate(text, "p", class_="claim"), beside, class_="pair"))


def _render_source(sentence: str, number: int, cited: CitedText) -> Html:
    title = join(isolate(cited.title), " ", element("small", cited.id)) if cited.title else isolate(cited.id)
    return element(
        "div",
        element("p", element("b", f"[{number}] "), title, class_="title"),
        element("p", *_quote(sentence, cited), dir="auto"),
        class_="source",
    )


def _quote(sentence: str, cited: CitedText) -> list[Html | str]:
    """Quote the sentence of a cited text that supports, with the text around it; else the beginning of the text."""
    text = cited.text
    if not text:
        return ["No text of this id is at hand."]
    found = find_quote(sentence, Document(cited.id, text), cited.id)
    if found is None:
        return [_close_gaps(_cut_after(text, 0))]
    mark = element("mark", _close_gaps(text[found.start : found.end]))
    return [_close_gaps(_cut_before(text, found.start)), mark, _close_gaps(_cut_after(text, found.end))]


def _close_gaps(text: str) -> str:
    """Join the lines of a paragraph, which are long, and make one end of a line of several."""
    joined = re.sub(rf"([^\n]{{{SHORT_LINE_CHARACTERS},}})\n(?=\S)", r"\1 ", text)
    return re.sub(r"\s*\n\s*", "\n", joined)


def _cut_before(text: str, end: int) -> str:
    start = max(0, end - AROUND_CHARACTERS)
    return text[start:end].lstrip() if start == 0 else f"\u2026 {text[start:end].partition(' ')[2].lstrip()}"


def _cut_after(text: str, start: int) -> str:
    end = start + AROUND_CHARACTERS
    return text[start:].rstrip() if end >= len(text) else f"{text[start:end].rpartition(' ')[0].rstrip()} \u2026"
