"""Reading the model's replies: facts, plan, first nodes, and the notebook and function call of a step.

A reply that cannot be used raises `Unusable`. No reply raises anything else, and the work grows with its length.
"""

import re
from typing import NamedTuple

from keystone.generation.context.texts import clip, convert_weight, neutralise, weigh_prefixes
from keystone.generation.replies import strip_thought
from keystone.generation.types import Reply
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import normalise_key, tidy_key

MOST_LINES = 300
"""How many lines of a list are read."""
LONGEST_LINE = 2000
"""The characters of a line, or of a function's arguments, that are read."""
MOST_KEYS = 20
"""How many key elements of a fact are read."""
PLAN_TOKENS = 300
"""The most tokens of a plan; a longer one is cut."""

Written = tuple[str, tuple[str, ...]]
"""A fact in words, and its keys as written."""

_SERIAL = re.compile(
    r"\s*+(?:[*#>\u2022-]++\s*+)?[*_]*+(?:\[\d{1,3}\]|(?:fact\s)?\[?\d{1,3}\]?[*_]*+\s?[.):,|])[*_]*+\s+"
    r"|\s*+[*#>\u2022-]++\s+",
    re.IGNORECASE,
)
"""What stands before a fact: a mark of a list, a number (also bold), or both. A longer number is a year of the fact."""
_FIELD = re.compile(r"\[([^\[\]]*)\]")
_SCORE = re.compile(r"score\W{0,9}(\d{1,3})(?!\d)", re.IGNORECASE)
_NODE = re.compile(r"node\W{0,9}[:=]\s*", re.IGNORECASE)
_HEADING = re.compile(
    r"^[^\w\n]{0,20}(?:\d{1,2}[.)]\s?)?(?:(updated notebook)|(rationale(?: for next action)?)|(chosen action))"
    r"[_ \t]*(?:\*+[ \t]*:?|:|$)[*_ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_UNCHANGED = frozenset(
    ("", "unchanged", "no change", "no changes", "same as before", "same as above", "none", "empty", "n/a", "no update")
)
"""What a model writes in the place of a notebook that it leaves as it is."""
_CALL = re.compile(
    r"\b(read_chunks?|stop_and_read_neighbou?r|search_more|read_previous_chunk|read_subsequent_chunk|termination"
    r"|read_neighbou?r_node)\s?(\()",
    re.IGNORECASE,
)
_CHUNK_ID = re.compile(r"(?<![^\W_])(?:C|ID-)?(\d{1,6})(?!\w)", re.IGNORECASE)


class Call(NamedTuple):
    """A function call of a step with the text between its parentheses."""

    name: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.name}({self.argument})"


def disarm(text: str) -> str:
    """Make calls of our functions in a document's text look unlike calls, and its delimiters harmless."""
    return _CALL.sub("\\1 \u27e8", neutralise(text))


def read_facts(reply: Reply) -> list[Written]:
    """Read the lines "n. fact | key | key", also as "[n], [fact], [key | key]". A line without keys is no fact."""
    lines = strip_thought(reply.text).split("\n")
    if reply.finish == "length":
        lines.pop()  # it may be half of a fact
    found: list[Written] = []
    for line in lines[:MOST_LINES]:
        text = line[:LONGEST_LINE].strip().strip("*`").strip("|")
        fields = [field for field in _FIELD.findall(text) if not field.strip().isdecimal()]
        if len(fields) == 2 and text.startswith("["):
            fact, keys = fields[0], fields[1].split("|")
        else:
            serial = _SERIAL.match(text)
            fact, *keys = text[serial.end() if serial else 0 :].split("|")
        kept = [key for key in map(tidy_key, keys[:MOST_KEYS]) if normalise_key(key)]
        if kept and (fact := " ".join(fact.split()).strip("*_` ")):
            found.append((fact, tuple(kept)))
    if not found:
        raise Unusable('it has no line of the form "1. fact | key element | key element"')
    return found


def read_plan(reply: Reply) -> str:
    """Read a plan: the reply on one line, cut to `PLAN_TOKENS`."""
    plan = " ".join(strip_thought(reply.text).split())
    if not plan:
        raise Unusable("it is empty")
    return clip(plan, PLAN_TOKENS)


def read_scores(reply: Reply) -> list[tuple[str, int]]:
    """Read the lines "Node: key, Score: 80" in order: the key as written, and the score from 0 to 100."""
    found = []
    for line in strip_thought(reply.text).split("\n")[:MOST_LINES]:
        for score in list(_SCORE.finditer(line[:LONGEST_LINE]))[-1:]:
            node = _NODE.search(line, 0, score.start())
            key = line[node.end() if node else 0 : score.start()].strip(" \t,;|([*-\u2013\u2014")
            if key:
                found.append((key, min(100, int(score[1]))))
    if not found:
        raise Unusable('it has no line of the form "Node: the node, Score: 80"')
    return found


def read_step(reply: Reply) -> tuple[str, Call]:
    """Read the notebook and the function call of a step; the notebook is empty if the reply has none.

    The call is the last one of the part "Chosen Action". Without such a part, it must be in the last line. `Unusable`
    if there is none.
    """
    text = strip_thought(reply.text)
    parts = {1: "", 2: "", 3: ""}
    headings = list(_HEADING.finditer(text))
    for place, heading in enumerate(headings):
        end = headings[place + 1].start() if place + 1 < len(headings) else len(text)
        part = next(number for number in parts if heading[number] is not None)
        parts[part] = text[heading.end() : end].strip()
    if parts[1].strip(" \t\n()[].*_-").casefold() in _UNCHANGED:
        parts[1] = ""
    last_line = text.rstrip().rpartition("\n")[2]
    call = find_last_call(parts[3] if any(heading[3] is not None for heading in headings) else last_line)
    if call is None:
        raise Unusable('its part "*Chosen Action*:" has no function call')
    return parts[1], call


def find_last_call(text: str) -> Call | None:
    """Find the last call of one of our functions; its parentheses may be nested."""
    calls = list(_CALL.finditer(text))
    if not calls:
        return None
    name = calls[-1][1].lower().replace("neighbour", "neighbor").replace("chunks", "chunk")
    start, depth = calls[-1].end(2), 1
    for end in range(start, min(len(text), start + LONGEST_LINE)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if not depth:
            return Call(name, text[start:end].strip())
    return Call(name, text[start : start + LONGEST_LINE].partition("\n")[0].strip())


def find_chunk_numbers(argument: str) -> list[int]:
    """Find the numbers of chunks in the argument of a call, in order, each once."""
    return list(dict.fromkeys(int(number) for number in _CHUNK_ID.findall(argument)))


def cap_notebook(text: str, tokens: int) -> str:
    """Cut a notebook to its last sentences, as many as have at most `tokens` tokens together, at least one."""
    weights = weigh_prefixes(text)
    starts = [start for start, _ in split_sentences(text)]
    fitting = [start for start in starts if convert_weight(weights[-1] - weights[start]) <= tokens]
    return clip(text[min(fitting, default=max(starts, default=0)) :], tokens).strip()
