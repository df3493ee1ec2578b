"""The agent without a model: a fixed policy searches, reads and notes, and vectors judge whether that suffices."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from keystone.generation.readers.agent.desk import Desk
from keystone.generation.readers.agent.judge import Judging, Judgment
from keystone.generation.readers.agent.tools import LONGEST_SEARCH, NoteTaken, State, World, search_text
from keystone.generation.readers.loop import Walk
from keystone.generation.types import Step
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.types import Span
from keystone.indexing.vectors.of_segments import sentence_vectors

NOTES_A_ROUND = 2
"""The most sentences that are noted for a question in one round, each from another document."""


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
    """Judge by cosines: a question is answered if one of its notes has at least `least_cosine` with it.

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
            again = [f"{question} {text}"[:LONGEST_SEARCH] for text in texts]
            new = [text for text in dict.fromkeys(again) if text not in judging.searched]
            found[place] = Judgment("partly" if own else "not", tuple(own), tuple(new[:NOTES_A_ROUND]))
    return found
