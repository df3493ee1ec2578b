"""The path of a research agent through a narrative, as lines for a person: its rounds, and why it ended."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import orjson

from keystone.generation.types import Step
from keystone.runs.wording import plural

PURPOSES = ("agent", "agent_judge")
"""The purposes of an agent's steps."""
SEARCHED = re.compile(r"^Search (['\"])(.*)\1: \d+ documents [^,]*, (\d+) new ones shown\.", re.MULTILINE)
"""The line that a search begins with: its text, and how many documents it showed."""


def name_walks(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Name the walks of a narrative's agents, by round and query, each with its steps."""
    rounds: Counter[str] = Counter()
    for (purpose, query_id, _), own in groupby(steps, key=lambda step: (step.purpose, step.query_id, step.agent)):
        walk = list(own)
        if walk[0].action.startswith("end: "):
            yield walk[0].action, walk
        elif purpose == "agent_judge":
            yield f"round {max(rounds.values(), default=1)}, the judge", walk
        else:
            rounds[query_id] += 1
            yield f"round {rounds[query_id]}, query {query_id}", walk


def tell_path(steps: Sequence[Step]) -> Iterator[str]:
    """Tell the path of an agent, a line for each walk: its searches, what it read and noted, and its end."""
    for name, walk in name_walks(steps):
        if name.startswith("end: "):
            yield f"Ended: {name.removeprefix('end: ')}"
        elif walk[0].purpose == "agent_judge":
            yield f"{name}: {walk[0].action}"
        else:
            yield f"{name}: {'; '.join(_tell_walk(walk))}"


def _tell_walk(walk: Sequence[Step]) -> Iterator[str]:
    searched = [one for step in walk for one in SEARCHED.findall(f"{step.shown}\n{step.observation}")]
    texts = [f"{mark}{text}{mark} ({new} new)" for mark, text, new in searched]
    yield f"searched for {', '.join(texts)}" if texts else "searched for nothing"
    used = Counter(step.action.partition(" ")[0] for step in walk)
    if looked := used["read"] + used["find"]:
        yield f"looked into documents {plural(looked, 'time')}"
    yield plural(sum(len(step.added) for step in walk), "note")
    if walk[-1].stop:
        yield walk[-1].stop


def list_notes(step: Step) -> list[tuple[str, str]]:
    """List the claim and the quote of each note in the reply of an agent's step; none if it cannot be read."""
    begin = step.reply.find("{")
    try:
        notes = orjson.loads(step.reply[begin:])["notes"] if begin >= 0 else []
        return [(str(note["claim"]), str(note["quote"])) for note in notes]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []
