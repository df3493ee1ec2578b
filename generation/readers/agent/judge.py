"""The judgment after each round: which questions do the notes answer, and what is still to be searched for?

The model's word is checked by the program: without a note of its own, a question never counts as answered. Without a
model, a fixed policy searches, reads and notes, and vectors judge whether that suffices.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from keystone.generation.answers.sentences import read_place, read_places, tidy
from keystone.generation.context.texts import delimit, neutralise
from keystone.generation.prompts import readers as prompts
from keystone.generation.readers.agent.tools import LONGEST_SEARCH, Desk, NoteTaken, State, World, search_text
from keystone.generation.readers.loop import Walk
from keystone.generation.replies import read_parts
from keystone.generation.types import Answered, Reply, Request, Step
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Span
from keystone.indexing.vectors.of_segments import sentence_vectors
from keystone.retrieval.types import Query


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
    return prompts.AGENT_JUDGE.request(
        narrative=judging.narrative,
        notes=notes or "(none)",
        questions="\n".join(lines),
        most=prompts.MOST_SEARCHES,
        searched=json.dumps([neutralise(text) for text in judging.searched], ensure_ascii=False),
    )


def read_judgment(reply: Reply, judging: Judging) -> dict[int, Judgment]:
    """Read the judgment of each question, by its place. A question without a note of its own counts as not answered.

    A question that the reply leaves out is open. `Unusable` if the reply has no list of objects.
    """
    found = dict.fromkeys(judging.places, Judgment("not"))
    for item in read_parts(reply, "questions", prompts.JudgedQuestion):
        number = read_place(item.id, len(judging.places))
        if number is None or item.found is None:
            raise Unusable(f"each item needs the id of a question, and {', '.join(get_args(Answered))} as found")
        place = judging.places[number]
        own = tuple(one for one in read_places(item.notes, len(judging.notes)) if judging.notes[one].place == place)
        texts = dict.fromkeys(tidy(text)[:LONGEST_SEARCH] for text in item.searches)
        new = [text for text in texts if any(map(str.isalnum, text)) and text not in judging.searched]
        level: Answered = item.found if own else "not"
        found[place] = Judgment(level, own, () if level == "answered" else tuple(new[: prompts.MOST_SEARCHES]))
    return found


def judge_by_notes(judging: Judging) -> dict[int, Judgment]:
    """Judge without a model's reply: a question with notes is partly answered, and any other one is not."""
    noted = {note.place for note in judging.notes}
    return {place: Judgment("partly" if place in noted else "not") for place in judging.places}


NOTES_A_ROUND = 2
"""The most sentences that are noted for a question in one round, each from a different document."""


async def walk_by_rules(world: World, begin: Sequence[str]) -> Walk[State]:
    """Search by each text, read the best segments of the hits, and note the sentences closest to the question."""
    state, steps = State(), list[Step]()
    for text in begin:
        state, observation = await search_text(world, state, text)
        steps.append(Step(world.query.id, "", 0, len(steps), "agent", "", "", f"search {text}", observation))
    state = await _note_closest(world, state)
    steps[-1] = replace(steps[-1], added=tuple(note.quote for note in state.notes))
    for step in steps:
        world.desk.tools.tell(step)
    return Walk(state, "done", tuple(steps))


async def _note_closest(world: World, state: State) -> State:
    desk = world.desk
    vector = await desk.embed(world.query.question)
    taken = {note.row for note in world.taken if note.place == world.place}
    spans = [(row, span) for row in state.rows if row not in taken for span in _list_sentences(desk, state, row)]
    texts = [desk.documents[row].text[span.start : span.end] for row, span in spans]
    vectors = await asyncio.to_thread(sentence_vectors, desk.tools.sources.index, texts, desk.tools.sources.threads)
    best: dict[int, tuple[float, NoteTaken]] = {}
    for (row, span), text, cosine in zip(spans, texts, (vectors @ vector).tolist(), strict=True):
        if row not in best or cosine > best[row][0]:
            best[row] = cosine, NoteTaken(world.place, row, span, text, text)
    order = sorted(best.values(), key=lambda one: -one[0])  # stable: equals stay in the order of the search
    return replace(state, notes=tuple(note for _, note in order[:NOTES_A_ROUND]))


def _list_sentences(desk: Desk, state: State, row: int) -> Iterator[Span]:
    document = desk.documents[row]
    for span in state.spans:
        if span.doc_id == document.id:
            for start, end in split_sentences(document.text[span.start : span.end]):
                yield Span(document.id, span.start + start, span.start + end)


async def judge_by_rules(desk: Desk, judging: Judging, least_cosine: float) -> dict[int, Judgment]:
    """Judge by cosines: a question is answered if its cosine with one of its notes is at least `least_cosine`.

    An open question is searched next together with each new note, which may name what the question leaves unsaid.
    """
    found = {}
    for place in judging.places:
        own = [number for number, note in enumerate(judging.notes) if note.place == place]
        texts = [judging.notes[number].text for number in own]
        sources = desk.tools.sources
        vectors = await asyncio.to_thread(sentence_vectors, sources.index, texts, sources.threads)
        question = judging.queries[place].question
        cosines = vectors @ await desk.embed(question)
        if own and float(cosines.max()) >= least_cosine:
            found[place] = Judgment("answered", (own[int(cosines.argmax())],))
        else:
            again = [f"{question} {text[:LONGEST_SEARCH]}" for text in texts]
            new = [text for text in dict.fromkeys(again) if text not in judging.searched]
            found[place] = Judgment("partly" if own else "not", tuple(own), tuple(new[:NOTES_A_ROUND]))
    return found
