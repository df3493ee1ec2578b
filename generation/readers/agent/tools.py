"""The tools of an agent: each changes what the agent has seen, and says in words what it shows.

The first line of an observation is a summary: an older observation is shortened to it. Documents have numbers within a
walk, in the order in which they were first shown; an agent can name no other document.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keystone.generation.answers.quotes import find_quote
from keystone.generation.answers.sentences import read_place, tidy
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.tokens import clip, count_tokens
from keystone.generation.prompts.readers import Action, TakenNote
from keystone.generation.readers.agent.desk import Demands, Desk, read_demands
from keystone.generation.readers.graphreader.material import split_chunks
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Span
from keystone.indexing.words import find_stems
from keystone.retrieval.types import Query

SAME_COSINE = 0.97
"""Segments with at least this cosine are copies of each other: the later one is not shown."""
LONGEST_SEARCH = 200
"""The most characters of a search text. A longer text is cut."""
MOST_FOUND = 3
"""The most places that `find` shows."""
MOST_CLAIM_WORDS = 40
"""The most words of a claim; the prompt asks for about 25."""


@dataclass(frozen=True, slots=True)
class NoteTaken:
    """A claim for the query at `place`, and the stretch of the document in row `row` that says it word by word."""

    place: int
    row: int
    quote: Span
    text: str
    claim: str


@dataclass(frozen=True, slots=True)
class State:
    """What an agent has seen and kept: documents by number, stretches shown, its searches and its notes.

    `at` is the number of documents of the last search that were looked at, and `demands` are its demands.
    """

    rows: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    segments: tuple[tuple[int, int], ...] = ()
    read: tuple[int, ...] = ()
    searched: tuple[str, ...] = ()
    at: int = 0
    notes: tuple[NoteTaken, ...] = ()
    demands: Demands | None = None

    def show(self, row: int, span: Span) -> "State":
        """Add a stretch that is shown, and its document if it is new."""
        rows = self.rows if row in self.rows else (*self.rows, row)
        return replace(self, rows=rows, spans=self.spans if span in self.spans else (*self.spans, span))


@dataclass(frozen=True, slots=True)
class World:
    """The surroundings of an agent: desk, query and its place, sizes of observations, and the notes `taken` before."""

    desk: Desk
    query: Query
    place: int
    hits: int
    tokens: int
    taken: tuple[NoteTaken, ...] = ()


async def search(world: World, state: State, action: Action) -> tuple[State, str]:
    """Search for the text of an action."""
    text = tidy(action.text or "")[:LONGEST_SEARCH]
    if not any(map(str.isalnum, text)):
        raise Unusable('"search" needs words in "text"')
    try:
        demands, why = read_demands(text), ""
    except Unusable as error:
        demands, why = None, f"\nIts syntax has {error}, so it was searched for by its plain words."
    state, observation = await search_text(world, state, text, demands)
    summary, newline, shown = observation.partition("\n")
    return state, f"{summary}{why}{newline}{shown}"


async def search_text(world: World, state: State, text: str, demands: Demands | None = None) -> tuple[State, str]:
    """Search for a text, and show the best segment of each document that was not shown."""
    return await _show_hits(world, replace(state, searched=(*state.searched, text), at=0, demands=demands))


async def more(world: World, state: State, _action: Action) -> tuple[State, str]:
    """Show further documents of the last search."""
    if not state.searched:
        raise Unusable('"more" needs a search before it')
    return await _show_hits(world, state)


async def _show_hits(world: World, state: State) -> tuple[State, str]:
    desk, text = world.desk, state.searched[-1]
    ranking = await desk.search(world.query, text, state.demands)
    vector = await desk.embed(text)
    await desk.read(ranking[state.at : state.at + world.hits])
    blocks, known, copies, at = list[str](), list[int](), 0, state.at
    left = world.tokens
    while at < len(ranking) and len(blocks) < world.hits and left > 0:
        row, at = ranking[at], at + 1
        await desk.read([row])
        document = desk.documents[row]
        if not document.text.strip():
            continue
        number = desk.find_closest(row, vector)
        if (row, number) in state.segments:
            known.append(state.rows.index(row))
            continue
        if _is_copy(desk, state, row, number):
            copies += 1
            continue
        span = desk.list_segments(row)[number].span
        shown = clip(document.text[span.start : span.end], left)
        state = state.show(row, Span(document.id, span.start, span.start + len(shown)))
        state = replace(state, segments=(*state.segments, (row, number)))
        blocks.append(delimit(state.rows.index(row), shown, document.title))
        left -= count_tokens(blocks[-1])
    names = ", ".join(map(str, sorted(known)))
    again = f" Shown before: documents {names}." if known else ""
    same = f" {copies} copies of shown passages are left out." if copies else ""
    found = "meet its demands" if state.demands else "found"
    summary = (
        f"Search {neutralise(text)!r}: {len(ranking)} documents {found}, {len(blocks)} new ones shown.{again}{same}"
    )
    return replace(state, at=at), "\n".join([summary, *blocks])


def _is_copy(desk: Desk, state: State, row: int, number: int) -> bool:
    """Whether a segment says the same as one that was shown."""
    if not len(desk.segments[row]):
        return False
    shown = [desk.segments[other][at] for other, at in state.segments if len(desk.segments[other])]
    return bool(shown) and float((np.array(shown) @ desk.segments[row][number]).max()) >= SAME_COSINE


async def read(world: World, state: State, action: Action) -> tuple[State, str]:
    """Show a page of a document."""
    row = _read_document(state, action)
    document = world.desk.documents[row]
    pages = split_chunks(document.text, world.tokens)
    page = read_place((action.page or 1) - 1, len(pages))
    if page is None:
        raise Unusable(f"document {action.document} has the pages 1 to {len(pages)}")
    start, end = pages[page]
    state = state.show(row, Span(document.id, start, end))
    state = replace(state, read=state.read if row in state.read else (*state.read, row))
    summary = f"Document {action.document}, page {page + 1} of {len(pages)}:"
    return state, f"{summary}\n{delimit(state.rows.index(row), document.text[start:end], document.title)}"


async def find(world: World, state: State, action: Action) -> tuple[State, str]:
    """Show the segments of a document that hold the most of some words."""
    row = _read_document(state, action)
    wanted = find_stems(action.text or "")
    if not wanted:
        raise Unusable('"find" needs words in "text"')
    document = world.desk.documents[row]
    spans = [one.span for one in world.desk.list_segments(row)]
    shares = [len(wanted & find_stems(document.text[span.start : span.end])) for span in spans]
    best = sorted((place for place, share in enumerate(shares) if share), key=lambda place: (-shares[place], place))
    blocks, left = list[str](), world.tokens
    for place in best[:MOST_FOUND]:
        if left <= 0:
            break
        shown = clip(document.text[spans[place].start : spans[place].end], left)
        state = state.show(row, Span(document.id, spans[place].start, spans[place].start + len(shown)))
        blocks.append(delimit(action.document or 0, shown))
        left -= count_tokens(blocks[-1])
    return state, "\n".join([f"Document {action.document}: {len(best)} places hold some of these words.", *blocks])


async def plan(world: World, state: State, _action: Action) -> tuple[State, str]:
    """Show all questions of the narrative with their notes."""
    queries = world.desk.task.context.queries
    lines = list[str]()
    for place, query in enumerate(queries):
        own = [note for note in (*world.taken, *state.notes) if note.place == place]
        lines.append(neutralise(f"{query.question} Notes: {'; '.join(note.claim for note in own) or 'none'}."))
    return state, "\n".join([f"The plan has {len(queries)} questions.", *(clip(line, 120) for line in lines)])


Tool = Callable[[World, State, Action], Awaitable[tuple[State, str]]]
TOOLS: Mapping[str, Tool] = {"search": search, "more": more, "read": read, "find": find, "plan": plan}
"""Each tool by its name. `done` ends a walk and needs none."""


def _read_document(state: State, action: Action) -> int:
    number = read_place(action.document, len(state.rows))
    if number is None:
        shown = f"0 to {len(state.rows) - 1}" if state.rows else "none yet"
        raise Unusable(f"{action.tool!r} needs the number of a document that was shown: {shown}")
    return state.rows[number]


def take_notes(world: World, state: State, notes: Sequence[TakenNote]) -> tuple[State, str]:
    """Take the notes whose quotes stand in what was shown of their documents; returns why each other one is refused."""
    kept, refused = list(state.notes), list[str]()
    for note in notes:
        number = read_place(note.document, len(state.rows))
        claim, quote = tidy(note.claim or ""), note.quote or ""
        if number is None:
            refused.append(f"document {note.document} was not shown")
        elif not 0 < len(claim.split()) <= MOST_CLAIM_WORDS:
            refused.append(f"a claim has 1 to {MOST_CLAIM_WORDS} words")
        else:
            row = state.rows[number]
            document = world.desk.documents[row]
            span = find_quote(document, state.spans, quote)
            taken = [one.quote for one in (*world.taken, *kept) if one.place == world.place]
            if span is None:
                refused.append(f"{neutralise(tidy(quote))[:60]!r} was not shown word by word in document {number}")
            elif span not in taken:
                text = document.text[span.start : span.end]
                kept.append(NoteTaken(world.place, row, span, text, neutralise(claim)))
    return replace(state, notes=tuple(kept)), f"Not noted: {'; '.join(refused)}." if refused else ""
