"""The judgment after each round: which questions do the notes answer, and what is still to be searched for?

The model's word is checked by the program: without a note of its own, a question is never answered.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from keystone.generation.answers.sentences import make_messages, read_place, read_places, tidy
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import agent as prompt
from keystone.generation.readers.agent.tools import LONGEST_SEARCH, NoteTaken
from keystone.generation.readers.allowance import Allowance, Asked, ask_within
from keystone.generation.reply_types import read_parts
from keystone.generation.types import Answered, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.retrieval.types import Query

REPLY_TOKENS = 1024
"""The most tokens of a judgment."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """How far the notes answer a question, the places of the notes that do, and the texts to search for next."""

    found: Answered
    notes: tuple[int, ...] = ()
    searches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judging:
    """The narrative, the questions to judge by their places, all notes, and all texts that were searched."""

    narrative: str
    queries: Sequence[Query]
    places: Sequence[int]
    notes: Sequence[NoteTaken]
    searched: Sequence[str] = ()


def request_judgment(judging: Judging) -> Request:
    """Make the request for the judgment. Notes and questions are numbered from 0."""
    notes = "\n".join(
        delimit(number, f"Claim: {note.claim}\nQuote: {note.text}") for number, note in enumerate(judging.notes)
    )
    lines = (
        json.dumps({"id": number, "text": neutralise(judging.queries[place].question)}, ensure_ascii=False)
        for number, place in enumerate(judging.places)
    )
    user = prompt.JUDGE.format(
        narrative=judging.narrative,
        notes=notes or "(none)",
        questions="\n".join(lines),
        most=prompt.MOST_SEARCHES,
        searched=json.dumps([neutralise(text) for text in judging.searched], ensure_ascii=False),
    )
    return Request("agent_judge", make_messages(prompt.JUDGE_SYSTEM, user), REPLY_TOKENS, prompt.JUDGE_SCHEMA)


def read_judgment(reply: Reply, judging: Judging) -> dict[int, Judgment]:
    """Read the judgment of each question, by its place. A question without a note of its own counts as not answered.

    A question that the reply leaves out is open. `Unusable` if the reply has no list of objects.
    """
    found = dict.fromkeys(judging.places, Judgment("not"))
    for item in read_parts(reply, "questions", prompt.JudgedQuestion):
        number = read_place(item.id, len(judging.places))
        if number is None or item.found is None:
            raise Unusable(f"each item needs the id of a question, and {', '.join(get_args(Answered))} as found")
        place = judging.places[number]
        own = tuple(one for one in read_places(item.notes, len(judging.notes)) if judging.notes[one].place == place)
        texts = dict.fromkeys(tidy(text)[:LONGEST_SEARCH] for text in item.searches)
        new = [text for text in texts if any(map(str.isalnum, text)) and text not in judging.searched]
        level: Answered = item.found if own else "not"
        found[place] = Judgment(level, own, () if level == "answered" else tuple(new[: prompt.MOST_SEARCHES]))
    return found


async def ask_judge(model: Model, judging: Judging, allowance: Allowance) -> Asked[dict[int, Judgment]]:
    """Ask the model for the judgment of each question, within an allowance."""
    return await ask_within(model, request_judgment(judging), partial(read_judgment, judging=judging), allowance)


def judge_by_notes(judging: Judging) -> dict[int, Judgment]:
    """Judge without a model's reply: a question with notes is partly answered, and any other one is not."""
    noted = {note.place for note in judging.notes}
    return {place: Judgment("partly" if place in noted else "not") for place in judging.places}
