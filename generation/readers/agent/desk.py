"""The desk of an agent: the documents found, the rankings of all searches, and the demands in the text of a search.

A search demands of each document `"a phrase"` or `+word`, and excludes `-word`. `a AND b` demands both, and `NOT a`
excludes it. Words and phrases are compared as written, without regard to case. Keystone's indexes hold no places of
words, so the demands are checked in the texts of the documents that a search for the words has found. So every engine,
and a fusion of several, gives the same documents.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.fuse import fuse_reciprocal_ranks
from keystone.generation.context.topic import read_context
from keystone.generation.readers.reader import Hits, Task, Tools, list_rows
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Segment, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.types import Vectors
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
    """Read the demands of a search text; None if it has none. `Unusable` names a syntax that cannot be read."""
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
    rankings: dict[str, tuple[int, ...]] = field(default_factory=dict)
    demanded: dict[Demands, tuple[int, ...]] = field(default_factory=dict)
    vectors: dict[str, asyncio.Future[NDArray[np.float32]]] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """The texts that are embedded together next."""

    async def search(self, query: Query, text: str, demands: Demands | None = None) -> tuple[int, ...]:
        """Search by a text for a query; returns the rows of the store, best first. A text is searched once.

        With demands, their words are searched for, and the documents stay that meet them. Without a search of its own,
        as under a fusion of readers, an agent searches the documents that it was given.
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
                again = replace(query, sparse_text=text, dense_text=text, passage="")
                (found,) = map(list, await self.tools.search([again]))
            self.rankings[text] = tuple(found)
        return self.rankings[text]

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
