"""The inventories of rhetorical relations, which are data files, and the relation that a line of a reply means."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Generic, NamedTuple, TypeVar

import yaml

from keystone.generation.structured import strip_thought
from keystone.generation.types import Reply
from keystone.indexing.errors import printable
from keystone.indexing.structures.tree import Nuclearity

T = TypeVar("T")

_PLAIN = str.maketrans(
    {**dict.fromkeys("*`#{}|"), **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"), "\u2192": "->"}
)


class Found(NamedTuple, Generic[T]):
    """A value that is read from a reply or made by rules, with remarks for the record of the step."""

    value: T
    remarks: list[str]


def tidy_lines(reply: Reply) -> Iterator[str]:
    """Yield the lines of a reply that are not empty, without thoughts, markup and spaces around them."""
    for line in strip_thought(reply.text).translate(_PLAIN).splitlines():
        if tidied := " ".join(line.split()).lstrip("->\u2022 "):
            yield tidied


LONGEST_LABEL_CHARACTERS = 60
"""The characters of a label that are looked at. The rest is a remark of the model."""
MOST_LABEL_WORDS = 4
"""The most words of a relation's name or alias."""
LEAST_SIMILARITY = 0.8
"""The least similarity of a misspelt label and a name, as `difflib` computes it."""
MOST_REPORTED_LABELS = 5
"""The most labels that a step's record lists."""

_NOT_LETTERS = re.compile(r"[^a-z]+")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation: its usual nuclei, and its meaning for a prompt."""

    nuclei: Nuclearity
    meaning: str


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """The relations by label, the label of each name and alias, and the label that stands for all other words."""

    relations: Mapping[str, Relation]
    labels: Mapping[str, str]
    default: str

    def __str__(self) -> str:
        """List the relations with their meanings, one a line."""
        return "\n".join(f"{label}: {relation.meaning}" for label, relation in self.relations.items())


class Named(NamedTuple):
    """The label that a model's words mean, and whether they are a name or an alias of it."""

    label: str
    known: bool


def _load(names: Iterable[str], default: str) -> Inventory:
    folder = files(__package__) / "inventories"
    read = {
        label: entry
        for name in names
        for label, entry in yaml.safe_load(folder.joinpath(name).read_text(encoding="utf-8")).items()
    }
    return Inventory(
        {label: Relation(entry["nuclei"], entry["meaning"]) for label, entry in read.items()},
        {name.lower(): label for label, entry in read.items() for name in (label, *entry["aliases"])},
        default,
    )


UNRELATED = "UNRELATED"
"""The label of two chunks that have no relation."""
INTRA = _load(["intra.yaml"], "ELABORATION")
"""The relations within a chunk (Disco-RAG, figure 8)."""
INTER = _load(["intra.yaml", "inter.yaml"], UNRELATED)
"""The relations between chunks (Disco-RAG, figure 9)."""


@lru_cache(maxsize=4096)
def name_relation(words: str, inventory: Inventory) -> Named:
    """Find the label that words mean: their longest beginning that is a name, or else the most similar name.

    A similar name has the same first letter. If no name is similar, the label is the inventory's default.
    """
    parts = _NOT_LETTERS.sub(" ", words[:LONGEST_LABEL_CHARACTERS].lower()).split()
    for count in range(min(len(parts), MOST_LABEL_WORDS), 0, -1):
        if label := inventory.labels.get(" ".join(parts[:count])):
            return Named(label, True)
    near = [name for name in inventory.labels if parts and name[0] == parts[0][0]]
    for start in (parts, parts[:1]):
        for name in get_close_matches(" ".join(start), near, 1, LEAST_SIMILARITY):
            return Named(inventory.labels[name], False)
    return Named(inventory.default, False)


def report_unknown(words: Iterable[str], inventory: Inventory) -> list[str]:
    """Report which words are no name of a relation, and the label that each means; empty if there are none."""
    found = [
        f'"{printable(one, LONGEST_LABEL_CHARACTERS)}" as {named.label}'
        for one in dict.fromkeys(words)
        if not (named := name_relation(one, inventory)).known
    ]
    more = f" and {len(found) - MOST_REPORTED_LABELS} more" if len(found) > MOST_REPORTED_LABELS else ""
    return [f"read {', '.join(found[:MOST_REPORTED_LABELS])}{more}"] if found else []
