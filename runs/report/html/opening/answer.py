"""One answer of a report with its citations opened: beside each sentence, the text that supports it."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from keystone.generation.rules.support import find_quote
from keystone.indexing.corpora.segments import SHORT_LINE_CHARACTERS
from keystone.indexing.types import Document
from keystone.runs.report.html.markup import Html, element, isolate, join
from keystone.runs.report.html.read_run import AnswerView, CitedText, RunView, TopicView
from keystone.runs.report.html.settings import render_run_name
from keystone.runs.wording import plural

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
        known = [topic for topic in view.topics.values() if topic.answer and any(map(_has_text, topic.answer.cited))]
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


def _has_text(cited: CitedText) -> bool:
    return bool(cited.text)


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
