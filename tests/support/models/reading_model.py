"""A model for the tests' chat server that plays each structure-aware reader by rules, from the prompt alone."""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.support.models import plain_model

_PARAGRAPH = re.compile(r"(?m)^\t*(\d+): (?!=)")
_HEADING = re.compile(r"(?m)^\t*(\d+): =")
_SENTENCE = re.compile(r"[^.?!]+[.?!]")


def say(body: dict[str, Any]) -> str:
    """Reply to the body of a chat request in the form that its reader wants. The text depends on the request alone."""
    system, user = body["messages"][0]["content"], body["messages"][1]["content"]
    for beginning, reply in _READERS.items():
        if system.startswith(beginning):
            return reply(user)
    return plain_model.say(body)


def say_to(prompt: str) -> str:
    """Reply to a prompt that holds the system's text and then the user's."""
    system = next(text for text in (*plain_model.SYSTEMS, *_READERS) if prompt.startswith(text))
    return say({"messages": [{"content": system}, {"content": prompt.removeprefix(system)}]})


def _route(user: str) -> str:
    paragraphs, headings = _PARAGRAPH.findall(user), _HEADING.findall(user)
    lines = [f"[ANSWER] {paragraphs[-1]}"] if paragraphs else []
    return "\n".join([*lines, *(f"[EXPAND] {id}" for id in headings[-1:])]) or "[REFUSE]"


def _walk(user: str) -> str:
    (entry,) = re.findall(r"You are at node (\d+)", user)
    if "Written so far: no" in user:
        return f"Thought: this passage matters.\nAction: Write[{entry}]"
    if "RelationsFrom" not in user:
        return f"Thought: its neighbours may matter.\nAction: RelationsFrom[{entry}]"
    return "Thought: that is enough.\nAction: Finish[Done]"


def _analyse(user: str) -> str:
    units = [unit.strip() for unit in _SENTENCE.findall(user.partition("CHUNK")[2].partition("First cut")[0])]
    joints = [f"RELATION([1-{n}], [{n + 1}]): ELABORATION NS" for n in range(1, len(units))]
    return "\n".join(["EDUs:", *(f"[{n}] {unit}" for n, unit in enumerate(units, 1)), "RST ANALYSIS:", *joints])


_SHOWN = re.compile(r'<document id="(\d+)">\n(.*?)\n</document>', re.DOTALL)


def _research(user: str) -> str:
    number, text = _SHOWN.findall(user)[0]
    quote = next((one.strip() for one in _SENTENCE.findall(text) if 20 < len(one) < 200), text[:60])
    notes = [{"document": int(number), "quote": quote, "claim": " ".join(quote.split()[:20])}]
    return json.dumps({"notes": notes, "tool": "done", "text": "", "document": -1, "page": 1})


def _judge(user: str) -> str:
    questions = re.findall(r'(?m)^\{"id": (\d+), ', user)
    notes = [int(number) for number, _ in _SHOWN.findall(user)]
    items = [{"id": int(id), "found": "answered", "notes": notes, "searches": []} for id in questions]
    return json.dumps({"questions": items})


_READERS: dict[str, Callable[[str], str]] = {
    "You find the parts of a document": _route,
    "You search one document": _walk,
    "You analyse how a text is built": _analyse,
    "You find out how pieces": lambda _user: "CHUNK[1] -> CHUNK[2]: SEQUENCE",
    "You plan answers": lambda _user: "PLAN: Begin with CHUNK[1].",
    "You research one question": _research,
    "You judge whether notes": _judge,
    "You check whether passages": lambda _user: '{"queries": []}',
}
