"""The values that files of any tool are read into: requests, answers, nuggets and scores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from keystone.runs.evaluation.nuggets.cited import CitedAnswer
from keystone.runs.evaluation.nuggets.files import NuggetBank

Kind = Literal["requests", "answers", "nuggets", "scores"]
"""The content of a file. Each form holds one kind."""

TEXT_KEYS = ("segment", "contents", "text", "passage", "content", "body")
"""The keys of a document's text, in the order in which one is chosen."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document or segment of a request, with its score, its grade and the parts of its text, if they are known."""

    doc_id: str
    score: float | None = None
    grade: int | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    subtopics: tuple[tuple[str, int], ...] = ()
    """The grade for each nugget or subtopic."""

    @property
    def text(self) -> str:
        """The text of the candidate; empty if it has none."""
        return get_text(self.parts)


def get_text(parts: Mapping[str, Any]) -> str:
    """Get the text among the parts of a document; empty if it has none."""
    return str(parts.get(find_text_key(parts), ""))


def find_text_key(parts: Mapping[str, Any]) -> str:
    """Find the key of the text among the parts of a document; empty if it has none."""
    return next((key for key in TEXT_KEYS if isinstance(parts.get(key), str) and parts[key]), "")


@dataclass(frozen=True, slots=True)
class Request:
    """A topic or query with its candidates, best first. An id or a query that the file lacks is empty."""

    topic_id: str
    query: str = ""
    candidates: tuple[Candidate, ...] = ()
    run_id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the topic."""
    place: str = field(default="", compare=False)
    """The file and the line of the request."""


@dataclass(frozen=True, slots=True)
class Score:
    """The value of a measure for a run's answer to a topic. The topic `all` stands for the mean."""

    run_id: str
    topic_id: str
    measure: str
    value: str


@dataclass(frozen=True, slots=True)
class Handover:
    """The content of a file. One of the kinds is filled; the others are empty."""

    requests: tuple[Request, ...] = ()
    answers: tuple[CitedAnswer, ...] = ()
    nuggets: tuple[NuggetBank, ...] = ()
    scores: tuple[Score, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The number of values under each key of the file that no reader keeps."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of file: its name, the content, the tools that use it, and the functions that read and write it.

    `read` and `write` raise `UserError`: for a file of another form, and for content that the form cannot hold at all.
    """

    name: str
    kind: Kind
    used_by: str
    read: Callable[[Path], Handover]
    write: Callable[[Path, Handover], None]
    fits: Callable[[dict[str, Any]], bool] | None = None
    """Whether the first record of a file of JSON shows this form."""
