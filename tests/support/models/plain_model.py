"""A model by rules for the tests' chat server. It does each step literally, from the prompt alone."""

import json
import re
from collections.abc import Callable
from typing import Any

from keystone.generation.prompts import answers, grading, queries, readers

_DOCUMENT = re.compile(r'<document id="([^"]*)">\n(.*?)\n</document>', re.DOTALL)
_SENTENCE = re.compile(r"[^.?!]+[.?!]")
_WORD = re.compile(r"[a-z]{3,}")


def say(body: dict[str, Any]) -> str:
    """The reply to the body of a chat request: JSON that satisfies its step's schema, or the text that it asks for.

    It writes in the words of the documents, whatever language the request names at its end.
    """
    system, user = (body["messages"][place]["content"] for place in (0, 1))
    system = system.partition("\nWrite in ")[0]
    if system in _TEXTS:
        return _TEXTS[system](user)
    return json.dumps(_STEPS[system](user))


def _decompose(user: str) -> Any:
    return {"questions": [sentence.strip() for sentence in _SENTENCE.findall(user.partition("\n")[2])]}


def _topic(user: str) -> Any:
    words = _WORD.findall(user.partition("\n")[2].lower())
    return {"topic": max((word for word in words if word != "together"), key=len)}


def _expand(user: str) -> Any:
    phrase, wanted = re.findall(r"Phrase: (.*)\nVariants wanted: exactly (\d+)", user)[0]
    return {"variants": [f"{phrase} {'abcdefghijklmnopqrstuvwxyz'[n]} kind" for n in range(min(int(wanted), 26))]}


def _contract(user: str) -> Any:
    questions = [
        {"question": question, "form": "list", "weight": 1, "terms": _WORD.findall(question.lower())[-1:]}
        for question in _decompose(user)["questions"]
    ]
    return {**_topic(user), "questions": questions}


def _overlap(query: str, text: str) -> int:
    asked = set(_WORD.findall(query.lower()))
    return min(3, len(asked & set(_WORD.findall(text.lower()))) // 2)


def _grade(user: str) -> Any:
    return {"grade": _overlap(user.rpartition("Query: ")[2], _DOCUMENT.findall(user)[0][1])}


def _grid(user: str) -> Any:
    passage = _DOCUMENT.findall(user)[0][1]
    queries = re.findall(r"(?m)^(\d+)\. (.*)$", user.rpartition("Queries:\n")[2])
    return {number: _overlap(query, passage) for number, query in queries}


def _rank(user: str) -> Any:
    asked, shown = user.partition("Passages:")[0], _DOCUMENT.findall(user)
    return {"ranking": [int(n) for n, _ in sorted(shown, key=lambda one: (-_overlap(asked, one[1]), one[1]))]}


def _answer(user: str) -> Any:
    shown = [(n, text) for n, text in _DOCUMENT.findall(user) if n != "notes"]
    documents = [(int(n), _SENTENCE.findall(text.replace("\n", " "))) for n, text in shown]
    return {"answer": [{"text": sentences[0].strip(), "citations": [n]} for n, sentences in documents if sentences]}


def _whole(user: str) -> Any:
    """Answer, or check what the documents answer. The last question is always open."""
    if '"found"' not in user:
        return {**_answer(user), "missing": "The sources do not tell what comes next."}
    number, text = _DOCUMENT.findall(user)[0]
    quote = {"document": int(number), "quote": _SENTENCE.findall(text)[0].strip()}
    asked = json.loads(re.findall(r"(?s)JSON list:\n(\[\{.*?\}\])\n", user)[0])
    states: list[tuple[str, list[str]]] = [("answered", [])] * (len(asked) - 1) + [("not", ["planet insects"])]
    checks = zip(asked, states, strict=True)
    return {"questions": [{"id": one["id"], "found": f, "searches": texts, **quote} for one, (f, texts) in checks]}


def _claims(user: str) -> Any:
    shown = [(int(n), text.rpartition("\n")[2]) for n, text in _DOCUMENT.findall(user) if n != "notes"]
    quotes = [(n, sentence.strip()) for n, text in shown for sentence in _SENTENCE.findall(text)[:1]]
    return {"claims": [{"text": quote, "document": n, "quote": quote} for n, quote in quotes if len(quote) > 20]}


def _write_claims(user: str) -> Any:
    return {"sentences": [{"claims": [item["id"]], "text": item["text"]} for item in _sentences(user)["sentences"]]}


def _sentences(user: str) -> Any:
    found = json.loads(re.findall(r"(?s)(\[\{.*\}\])", user)[0])
    return {"sentences": [{"id": item["id"], "text": item["text"]} for item in found]}


def _cite(user: str) -> Any:
    return {"sentences": [{"id": item["id"], "citations": [0]} for item in _sentences(user)["sentences"]]}


def _support(user: str) -> Any:
    listed = json.loads(re.findall(r"(?s)(\[\{.*?\}\])\n", user)[0])
    return {"sentences": [{**one, "support": "full" if one["citations"] else "none", "text": ""} for one in listed]}


def _resynthesise(user: str) -> Any:
    return {"sentences": [_SENTENCE.findall(text)[0].strip() for _, text in _DOCUMENT.findall(user)]}


def _search_again(user: str) -> Any:
    made = re.findall(r"(?m)^- (.*)$", user.partition("Searches that were made:")[2].partition("\n\n")[0])
    return {"searches": [f"{made[0]} {word}" for word in ("planet", "insects")[len(made) - 1 :] or ["sugar"]]}


def _graph_facts(user: str) -> str:
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(_DOCUMENT.findall(user)[0][1])]
    return "\n".join(f"{n}. {text} | {' | '.join(_WORD.findall(text))}" for n, text in enumerate(sentences, 1))


def _graph_nodes(user: str) -> str:
    return "\n".join(f"Node: {node}, Score: 50" for node in _DOCUMENT.findall(user)[0][1].split("\n"))


def _graph_step(user: str) -> str:
    functions = user.rpartition("\n\n")[2]
    chunks = re.findall(r"You can read: (.*)\.", functions)
    call = f"read_chunk({chunks[0]})" if chunks else "search_more()" if "search_more" in functions else "termination()"
    return f"*Updated Notebook*: {_DOCUMENT.findall(user)[0][1]}\n*Chosen Action*: {call}"


_TEXTS: dict[str, Callable[[str], str]] = {
    queries.PASSAGE.system: lambda user: f"It is known to all: {user.rpartition('Question:')[2].strip()}",
    answers.SUMMARISE.system: lambda user: str(_DOCUMENT.findall(user)[0][1])[:200],
    readers.GRAPH_FACTS.system: _graph_facts,
    readers.GRAPH_PLAN.system: lambda user: f"Find what this asks for: {user}",
    readers.GRAPH_NODES.system: _graph_nodes,
    readers.GRAPH_STEP.system: _graph_step,
}
_STEPS = {
    queries.DECOMPOSE.system: _decompose,
    queries.TOPIC.system: _topic,
    queries.EXPAND.system: _expand,
    queries.EXPAND_NARRATIVE.system: _expand,
    grading.UMBRELA.system: _grade,
    grading.UMBRELA_GRID.system: _grid,
    grading.RANK.system: _rank,
    answers.ANSWER.system: _answer,
    answers.WHOLE.system: _whole,
    answers.MEND.system: _sentences,
    queries.CONTRACT.system: _contract,
    answers.CLAIMS.system: _claims,
    answers.WRITE_CLAIMS.system: _write_claims,
    answers.SUB_ANSWER.system: _answer,
    answers.EDIT.system: _sentences,
    answers.SHORTEN.system: _sentences,
    answers.CHECK_SUPPORT.system: _support,
    answers.CITE.system: _cite,
    answers.RESYNTHESISE.system: _resynthesise,
    queries.SEARCH_AGAIN.system: _search_again,
}
SYSTEMS = (*_TEXTS, *_STEPS)
"""The system prompts that `say` knows."""
