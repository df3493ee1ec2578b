"""The trace of a reader as lines for a person: each step of reading or research with its action, cost and end."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import orjson
from pydantic import ValidationError

from keystone.generation.types import Step
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.runs.pipeline.evidence_files import TopicStep, decode_step
from keystone.runs.pipeline.file_names import TRACE
from keystone.runs.tracks.violations import shorten_value
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


INDENT = "  "
"""One level of the printed trace."""


def read_trace(path: Path) -> list[TopicStep]:
    """Read the steps of a trace file, or of a run directory. `UserError` names the file and the line of a bad step."""
    file = path / TRACE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file}: no such file, expected the trace of a run with a structure-aware reader")
    steps = []
    for number, record in read_json_lines(file):
        try:
            steps.append(decode_step(record))
        except (KeyError, ValidationError) as error:
            fault = f"{file}:{number}: expected a step of a trace: {_tell_fault(error)}"
            raise BadRecord(fault, "no step of a trace") from error
    return steps


def _tell_fault(error: KeyError | ValidationError) -> str:
    """Tell the first key that is missing or has a wrong value."""
    if isinstance(error, KeyError):
        return f"{error.args[0]}: missing"
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{place}: missing"
    return f"{place}: {first['msg']}, found {shorten_value(first['input'])}"


def format_trace(steps: Sequence[TopicStep], topic: str | None = None, brief: bool = False) -> Iterator[str]:
    """Format the steps of all topics or of one; if `brief`, without documents. `UserError` for an unknown topic."""
    known = dict.fromkeys(one.topic_id for one in steps)
    if topic is not None and topic not in known:
        why = f", expected one of {', '.join(known)}" if known else ", which is empty"
        raise UserError(f"topic {topic!r}: not in the trace{why}")
    for topic_id, of_topic in groupby(steps, key=lambda one: one.topic_id):
        if topic not in (None, topic_id):
            continue
        own = [one.step for one in of_topic]
        asked, answered = sum(step.prompt_tokens for step in own), sum(step.reply_tokens for step in own)
        yield f"topic {topic_id}: {plural(len(own), 'step')}, {asked:,} tokens asked, {answered:,} tokens answered"
        is_research = all(step.purpose in PURPOSES for step in own)
        for name, walk in name_walks(own) if is_research else _name_walks(own):
            yield f"{INDENT}{name}"
            for step in walk:
                yield from (f"{INDENT * 2}{line}" for line in _format_step(step, brief))


def _name_walks(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    for (query_id, doc_id, agent), walk in groupby(steps, key=lambda step: (step.query_id, step.doc_id, step.agent)):
        names = [f"query {query_id}" * bool(query_id), f"document {doc_id}" * bool(doc_id), f"walk {agent + 1}"]
        yield ", ".join(filter(None, names)), list(walk)


def _format_step(step: Step, brief: bool) -> Iterator[str]:
    cost = f", {step.prompt_tokens:,} tokens asked, {step.reply_tokens:,} answered" if step.prompt_tokens else ""
    yield f"step {step.number + 1}, {step.purpose}{cost}"
    is_told = step.purpose == "agent_judge" and not step.stop
    notes = list_notes(step) if step.purpose == "agent" else []
    for claim, quote in notes:
        yield f"{INDENT}note: {' '.join(claim.split())}"
        yield f"{INDENT * 2}| {' '.join(quote.split())}"
    reply = "" if is_told or notes or (step.purpose == "agent" and step.action) else step.reply
    shown = "\n".join(filter(SEARCHED.match, step.shown.splitlines())) if brief else step.shown
    for name, text in (("shown", shown), ("reply", reply)):
        if text:
            yield f"{INDENT}{name}:"
            yield from (f"{INDENT * 2}| {line.expandtabs(2)}" for line in text.splitlines())
    for name, text in (("action", step.action), ("result", step.observation)):
        if text:
            first, *others = text.splitlines()
            yield f"{INDENT}{name}: {first}"
            yield from (f"{INDENT * 2}{line.expandtabs(2)}" for line in others if not brief)
    if step.added and not brief:
        yield f"{INDENT}evidence: {', '.join(f'{one.doc_id}[{one.start}:{one.end}]' for one in step.added)}"
    if step.stop:
        yield f"{INDENT}ended: {step.stop}"
