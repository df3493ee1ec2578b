"""Answers with their citations, and the files of those that were rated.

These files have the form of castorini/RAGDoll, the toolkit of the 2026 track, at 1f06719.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from keystone.generation.types import Support
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.evaluation.nuggets.files import TOPIC_KEYS
from keystone.runs.parts import REQUIRED, Id, Objects, Part, checked, first_of
from keystone.runs.tracks.violations import parse_lines

CODES: Mapping[str, Support | None] = {"2": "full", "1": "partial", "0": "none", "-1": None}
"""The support of a citation by its code in a file. None: nobody rated it."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A cited document or segment, with the answer's confidence in it, and with its support as somebody rated it."""

    doc_id: str
    score: float | None = None
    support: Support | None = None


@dataclass(frozen=True, slots=True)
class CitedText:
    """A sentence of an answer with its citations."""

    text: str
    citations: tuple[Citation, ...] = ()
    contradicted: tuple[str, ...] | None = None
    """The documents that contradict the sentence. None: nobody looked for them."""
    existing: tuple[str, ...] | None = None
    """The documents that were known to support the sentence."""


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """A run's answer to a topic. A value that the file lacks is empty."""

    topic_id: str
    sentences: tuple[CitedText, ...]
    references: tuple[str, ...] = ()
    query: str = ""
    run_id: str = ""
    team_id: str = ""
    type: str = ""
    description: str = ""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The parts of the texts of referenced documents, by id."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the metadata."""
    place: str = field(default="", compare=False)
    """The file and the line of the answer."""

    def list_references(self) -> list[str]:
        """List the references, then the cited documents that are missing among them, each once."""
        cited = (one.doc_id for sentence in self.sentences for one in sentence.citations)
        return list(dict.fromkeys([*self.references, *cited]))


def write_cited_answers(path: Path, answers: Iterable[CitedAnswer]) -> None:
    """Write one answer a line in RAGDoll's form. The file appears when it is whole."""
    codes = {support: code for code, support in CODES.items()}
    write_json_lines(
        path,
        (
            {
                "topic_id": one.topic_id,
                "narrative_id": one.topic_id,
                "run_id": one.run_id,
                "sentences": [
                    {
                        "sentenceID": place,
                        "text": sentence.text,
                        "citations": [
                            {"citationID": number, "reference": cited.doc_id, "support": codes[cited.support]}
                            for number, cited in enumerate(sentence.citations)
                        ],
                    }
                    for place, sentence in enumerate(one.sentences)
                ],
            }
            for one in answers
        ),
    )


CODE = checked(
    f"one of {', '.join(CODES)}",
    lambda code: isinstance(code, str | int) and str(code) in CODES,
    lambda c: CODES[str(c)],
)


class _Citation(Part):
    number: Any = first_of("citationID")
    reference: Any = ""
    support: Annotated[Support | None, CODE] = REQUIRED


class _Sentence(Part):
    number: Any = first_of("sentenceID")
    text: Any = ""
    citations: Objects[_Citation] = Field({})

    def make(self) -> CitedText:
        cited = (Citation(str(one.reference), support=one.support) for one in self.citations.values())
        return CitedText(str(self.text), tuple(cited))


class RatedAnswer(Part):
    """A line of a file in RAGDoll's form."""

    topic_id: Id = first_of(*TOPIC_KEYS, default=...)
    run_id: Id = REQUIRED
    sentences: Objects[_Sentence] = REQUIRED


def read_cited_answers(path: Path, records: Iterable[tuple[str, dict[str, Any]]] | None = None) -> list[CitedAnswer]:
    """Read the answers of a file in RAGDoll's form. `UserError` with file, line and key for a bad one.

    `records` are the objects of the file with their places, if the caller has read them; None: each line is an object.
    """
    found, seen = list[CitedAnswer](), set[tuple[str, str]]()
    for place, one in parse_lines(path, RatedAnswer.read, records):
        if (one.topic_id, one.run_id) in seen:
            raise UserError(f"{place}: topic {one.topic_id!r} of run {one.run_id!r} occurs more than once")
        seen.add((one.topic_id, one.run_id))
        sentences = tuple(sentence.make() for sentence in one.sentences.values())
        found.append(CitedAnswer(one.topic_id, sentences, run_id=one.run_id, place=place))
    return found
