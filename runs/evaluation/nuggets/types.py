"""The types of nuggets: what a good answer to a topic should say."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from keystone.generation.grading.nuggets import Assignment, Importance
from keystone.indexing.types import Span, Store, document_id
from keystone.runs.track_rules import Aggregator


@dataclass(frozen=True, slots=True)
class Source:
    """A document that says a nugget, and the nugget's place in it, if it is known."""

    doc_id: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """An answer to the question of a nugget."""

    text: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Nugget:
    """A claim, or a question with its answers. None stands for a label that nobody gave."""

    text: str
    importance: Importance | None = None
    assignment: Assignment | None = None
    name: str = ""
    sources: tuple[Source, ...] = ()
    answers: tuple[GoldAnswer, ...] | None = None
    """The answers of a question. None: the nugget is a claim."""
    aggregator: Aggregator | None = None
    place: str = field(default="", compare=False, repr=False)
    """The `file:line` that holds the nugget."""

    def list_sources(self) -> list[Source]:
        """List the sources of the nugget and of its answers, each once."""
        own = [*self.sources, *(source for answer in self.answers or () for source in answer.sources)]
        return list(dict.fromkeys(own))

    def describe(self) -> str:
        """Describe the nugget in one text: the claim, or the question with its answers."""
        joint = " or " if self.aggregator == "OR" else "; "
        return " ".join(filter(None, (self.text, joint.join(answer.text for answer in self.answers or ()))))


@dataclass(frozen=True, slots=True)
class NuggetBank:
    """The nuggets of a topic. With a run, they are assigned to the answer of that run."""

    topic_id: str
    nuggets: tuple[Nugget, ...]
    query: str = ""
    run_id: str = ""
    answer_text: str = ""
    team_id: str = ""
    description: str = ""
    """The description of the run."""

    @property
    def place(self) -> str:
        """The `file:line` of its first nugget; empty without one."""
        return self.nuggets[0].place if self.nuggets else ""


def read_texts(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Read the text of each id, which names a document, or a segment of one. Ids that the store lacks are left out."""
    wanted = list(dict.fromkeys(ids))
    names = list(dict.fromkeys([*wanted, *map(document_id, wanted)]))
    rows = [row for row in store.rows(names).tolist() if row >= 0]
    found: dict[str, str] = {}
    for document in store.get(rows):
        found |= {one.id: document.segment_text(one) for one in document.segments}
        found[document.id] = document.contents
    return {name: found[name] for name in wanted if name in found}
