"""The desk of an agent, and its tools: each changes what the agent has seen, and says in words what it shows.

The desk has the documents found, the rankings of all searches, and the demands in the text of a search. A search
demands of each document `"a phrase"` or `+word`, and excludes `-word`. `a AND b` demands both, and `NOT a` excludes it.
Words and phrases are compared as written, without regard to case. Keystone's indexes do not tell where words are. So
the demands are checked in the texts of the documents that a search for the words finds. So every engine, and a fusion
of several, gives the same documents.

The first line of an observation is a summary: an older observation is shortened to it. Documents have numbers within a
walk, in the order in which they were first shown; an agent can name no other document.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.fuse import fuse_reciprocal_ranks
from keystone.generation.answers.quotes import find_quote, find_quoted_segments
from keystone.generation.answers.sentences import read_place, tidy
from keystone.generation.context.texts import clip, count_tokens, delimit, neutralise
from keystone.generation.context.topic import read_context
from keystone.generation.prompts.readers import Action, TakenNote
from keystone.generation.readers.graphreader.material import split_chunks
from keystone.generation.readers.reader import Hits, Task, Tools, list_rows
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Segment, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.words import find_stems
from keystone.retrieval.backends import BACKENDS
from keystone.retrieval.types import Query

_PART = re.compile(r'([+-]?)"([^"]*)"|([+-](?=\w))?([^\s"]+)')
_MARKS = str.maketrans("\u201c\u201d\u201e\uff02", '""""')
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, order=True)
class Demands:
    """The words that rank the documents, and the phrases, each a tuple of words, that a document must hold or lack."""

    words: str
    held: tuple[tuple[str, ...], ...] = ()
    lacked: tuple[tuple[str, ...], ...] = ()

    def meets(self, document: Document) -> bool:
        """Whether the title and text of a document meet the demands."""
        text = _fold(document.contents)
        return all(_find(own, text) for own in self.held) and not any(_find(own, text) for own in self.lacked)


def read_demands(text: str) -> Demands | None:
    """Read the demands of a search text; None if it makes none. `Unusable` names a syntax that cannot be read."""
    text = text.translate(_MARKS)
    if text.count('"') % 2:
        raise Unusable("a quotation mark without its partner")
    ranked, held, lacked = list[str](), list[tuple[str, ...]](), list[tuple[str, ...]]()
    both, excluded, either = False, False, False
    for sign, phrase, of_word, word in _PART.findall(text):
        if word in ("AND", "NOT", "OR"):
            both, excluded, either = word == "AND" or both, word == "NOT" or excluded, word == "OR" or either
            if word == "AND" and ranked and not excluded:
                held.append(_list_words(ranked[-1]))
            continue
        own = _list_words(phrase or word)
        if not own:
            continue
        if excluded or "-" in (sign, of_word):
            lacked.append(own)
        else:
            ranked.append(phrase or word)
            if phrase or both or "+" in (sign, of_word):
                held.append(own)
        both = excluded = False
    if not held and not lacked:
        return None
    if either:
        raise Unusable("OR beside words that are demanded")
    if not ranked:
        raise Unusable("no word to search for, only words to exclude")
    return Demands(" ".join(ranked), tuple(dict.fromkeys(held)), tuple(dict.fromkeys(lacked)))


def choose_rows(demands: Demands, rows: Sequence[int], documents: Sequence[Document]) -> tuple[int, ...]:
    """Choose the rows whose documents meet the demands, in their order."""
    return tuple(row for row, document in zip(rows, documents, strict=True) if demands.meets(document))


def _fold(text: str) -> str:
    return normalize("NFKC", text).casefold()


def _list_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_fold(text)))


def _find(words: tuple[str, ...], text: str) -> bool:
    return _compile(words).search(text) is not None


@lru_cache(256)
def _compile(words: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern of words in this order. Only ASCII words need an end: some scripts have no blanks."""
    begin, end = r"(?<!\w)" * words[0][0].isascii(), r"(?!\w)" * words[-1][-1].isascii()
    return re.compile(begin + r"[\W_]+".join(map(re.escape, words)) + end)


MOST_FOUND_DOCUMENTS = 1000
"""The most documents of a narrative's searches that its evidence names."""


@dataclass(slots=True)
class Desk:
    """The documents and searches of one narrative. Agents that work side by side share them."""

    tools: Tools
    task: Task
    hits: Hits
    documents: dict[int, Document] = field(default_factory=dict)
    segments: dict[int, Vectors] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """The row by which each document of a growing store was found first, by its id."""
    rankings: dict[str, tuple[int, ...]] = field(default_factory=dict)
    demanded: dict[Demands, tuple[int, ...]] = field(default_factory=dict)
    vectors: dict[str, asyncio.Future[NDArray[np.float32]]] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """The texts that are embedded together next."""

    async def search(self, query: Query, text: str, demands: Demands | None = None) -> tuple[int, ...]:
        """Search by a text for a query; returns the rows of the store, best first. A text is searched once.

        If there are demands, their words are searched for, and only documents that meet them stay. Without a search of
        its own, as under a fusion of readers, an agent searches the documents that it was given.
        """
        if demands is not None:
            if demands not in self.demanded:
                ranked = await self.search(query, demands.words)
                documents = await asyncio.to_thread(self.tools.sources.store.get, ranked)
                self.demanded[demands] = choose_rows(demands, ranked, documents)
            return self.demanded[demands]
        if text not in self.rankings:
            if self.tools.search is None:
                rows = list_rows(self.hits)
                await self.read(rows)
                vector = await self.embed(text)
                closest = [float((self.segments[row] @ vector).max(initial=-1.0)) for row in rows]
                found = [rows[place] for place in np.argsort(-np.array(closest), kind="stable").tolist()]
            else:
                again = query.search_by(text, f"{query.id}+")
                if text == query.question:  # given runs and translations know this id
                    again = replace(again, id=query.id, translations=query.translations)
                (found,) = map(list, await self.tools.search([again]))
                found = self._find_first_rows(found)
            self.rankings[text] = tuple(found)
        return self.rankings[text]

    def _find_first_rows(self, rows: list[int]) -> list[int]:
        """Find the rows by which earlier searches found the same documents, since a REST server's may have several."""
        sources = self.tools.sources
        if not BACKENDS[sources.index.backend].grows:
            return rows
        return [self.rows.setdefault(name, row) for name, row in zip(sources.store.ids(rows), rows, strict=True)]

    def list_found(self, texts: Sequence[str]) -> list[Span]:
        """List the documents that searches by these texts found, fused by reciprocal ranks, as empty spans."""
        lists = [self.rankings[text] for text in texts if text in self.rankings]
        lists += [self.demanded[demands] for demands in sorted(self.demanded)]
        rows = [row for row, _ in fuse_reciprocal_ranks(lists)[:MOST_FOUND_DOCUMENTS]]
        return [Span(doc_id, 0, 0) for doc_id in self.tools.sources.store.ids(rows)]

    async def read(self, rows: Sequence[int]) -> None:
        """Read the documents in these rows with the vectors of their segments, unless that was done before."""
        if new := [row for row in dict.fromkeys(rows) if row not in self.documents]:
            context = await asyncio.to_thread(read_context, self.tools.sources, new, ())
            context = self.task.narrow(context) if self.task.narrow else context
            self.documents |= context.documents
            self.segments |= context.segments

    async def embed(self, text: str) -> NDArray[np.float32]:
        """Embed a text as a query: float32[d]. Texts that wait at the same time are embedded together, each once."""
        if text not in self.vectors:
            self.vectors[text] = asyncio.get_running_loop().create_future()
            self.waiting.append(text)
            await asyncio.sleep(0)  # the other agents that are at work now add their texts
            if texts := self.waiting:
                self.waiting = []
                await self._embed_all(texts)
        return await self.vectors[text]

    async def _embed_all(self, texts: Sequence[str]) -> None:
        places, sources = [self.vectors[text] for text in texts], self.tools.sources
        try:
            vectors = await asyncio.to_thread(embed_queries, sources.embedding, texts, sources.threads)
        except Exception as error:
            for place in places:
                place.set_exception(error)
            return
        for place, vector in zip(places, vectors, strict=True):
            place.set_result(vector)

    def list_segments(self, row: int) -> tuple[Segment, ...]:
        """List the segments of a document; one of its whole text if it has none."""
        document = self.documents[row]
        return document.segments or (Segment(document.id, Span(document.id, 0, len(document.text))),)

    def find_closest(self, row: int, vector: NDArray[np.float32]) -> int:
        """Find the number of the segment of a document that is closest to a vector; 0 if it has no vectors."""
        cosines = self.segments[row] @ vector
        return int(cosines.argmax()) if len(cosines) else 0


SAME_COSINE = 0.97
"""Segments with at least this cosine are copies of each other: the later one is not shown."""
LONGEST_SEARCH = 200
"""The most characters of a search text, without the question before it. A longer text is cut."""
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
    """Take the notes whose quotes are in what was shown of their documents, and in segments that can be cited.

    Returns why each other one is refused.
    """
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
            elif document.segments and not find_quoted_segments(document, span):
                refused.append(f"no answer can cite this part of document {number}")
            elif span not in taken:
                text = document.text[span.start : span.end]
                kept.append(NoteTaken(world.place, row, span, text, neutralise(claim)))
    return replace(state, notes=tuple(kept)), f"Not noted: {'; '.join(refused)}." if refused else ""
