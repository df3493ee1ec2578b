"""One row for each of Keystone's tables."""

import json
import math
import re
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from keystone.fusion.methods import Method
from keystone.generation.readers.settings import ReaderKind, StructureSettings
from keystone.generation.readers.structure_reader import StructureReader
from keystone.generation.types import Evidence, EvidenceSet
from keystone.indexing.corpora.forms import Format
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.types import Document, Span
from keystone.retrieval.system import System
from keystone.retrieval.types import ranked
from keystone.runs.evaluation.measures import Family
from keystone.runs.exchange.records import read_form
from keystone.runs.exchange.table import Form
from keystone.runs.exchange.types import Candidate, Handover, Request
from keystone.runs.parts import REQUIRED, Id, Part
from keystone.runs.track_rules import TRACKS, Length, RequestForm


def read_notes(file, name, report):
    """Each line of a file of notes is a document: a title, a colon, and a text."""
    for number, line in read_text_lines(file, report):
        title, _, text = line.partition(":")
        yield Document(f"{name}:{number}", text.strip(), title, place=f"{file}:{number}")


NOTES = Format(read_notes, re.compile(r".*\.notes"))


def score_by_best_rank(hits):
    """A document scores the highest w / r of all lists, where w is a list's weight, and r the document's rank in it."""
    scores = np.zeros(len(hits.docs))
    np.maximum.at(scores, hits.document, hits.weights / hits.ranks)
    return scores


BEST_RANK = Method(score_by_best_rank, weighted=True)


class TitlesSystem(System):
    """The share of a query's words that the title of a document has."""

    lowest: ClassVar[float] = 0.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["titles"] = "titles"
    letters: int = 4
    """How many letters a word has at least to count."""

    def search(self, opened, queries, within):
        """Score the titles of all documents, or of those of `within`."""
        rows = np.arange(len(opened.store)) if within is None else within
        titles = [self.read_words(document.title) for document in opened.store.get(rows)]
        asked = [self.read_words(query.question) for query in queries]
        scores = [np.array([len(words & title) / max(len(words), 1) for title in titles]) for words in asked]
        found = [(rows[own > 0], own[own > 0]) for own in scores]
        return ranked([query.id for query in queries], *zip(*found, strict=True), self.depth)

    def read_words(self, text):
        """Read the different words of a text that count."""
        return {word for word in re.findall(r"\w+", text.lower()) if len(word) >= self.letters}


class OpeningsSettings(StructureSettings):
    """The reader of openings."""

    name: Literal["openings"]
    characters: int = 200
    """How many characters of each document are evidence."""


async def read_openings(tools, question):
    """The first characters of each document are the evidence."""
    items = []
    for document in question.documents:
        text = document.text[: tools.reader.characters]
        items.append(Evidence(Span(document.id, 0, len(text)), text, 1, question.query_id, why="opens the document"))
    return EvidenceSet(tuple(items), stop="done" if items else "empty")


OPENINGS = ReaderKind(OpeningsSettings, partial(StructureReader, read_openings))


def find_first_rank(topic):
    """The rank of the first relevant document; a topic without one has no value."""
    return next((float(rank) for rank, grade in enumerate(topic.ranked, start=1) if grade > 0), math.nan)


FIRST_RANK = Family(find_first_rank)


class Pair(Part):
    """A line has a topic and a document: {"pair": ["1", "d7"], "points": 2.5}."""

    pair: list[Id] = REQUIRED
    points: float = REQUIRED


def read_pairs(path):
    """Each line is a pair, and those of a topic are one request."""
    found = {}
    pairs, unread = read_form(path, Pair, lambda pair, *_: pair)
    for one in pairs:
        found.setdefault(one.pair[0], []).append(Candidate(one.pair[1], one.points))
    requests = tuple(Request(topic, candidates=tuple(listed)) for topic, listed in found.items())
    return Handover(requests=requests, unread=unread)


def write_pairs(path, content):
    """Write a line for each candidate, as `read_pairs` reads it."""
    with path.open("w") as file:
        for request in content.requests:
            for one in request.candidates:
                file.write(json.dumps({"pair": [request.topic_id, one.doc_id], "points": one.score}) + "\n")


PAIRS = Form("pairs", "requests", "an example", read_pairs, write_pairs, lambda record: "pair" in record)

REQUEST = RequestForm(parts=("need", "wish"), required=("need",))
TINY26 = replace(TRACKS["responses"], name="tiny26", request=REQUEST, length=Length(100), words=100, cited=2)
