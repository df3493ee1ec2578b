"""Connectives of English and the relation that each signals: our own table, in the terms of Mann and Thompson (1988).

A connective relates the unit that it begins to the unit before it, or within a sentence to the one after it.
"""

import re
from dataclasses import dataclass

from keystone.indexing.structures.tree import Nuclearity


@dataclass(frozen=True, slots=True)
class Signal:
    """A relation, its nuclearity, and the connective that says so; `cue` is empty for a default."""

    relation: str
    nuclearity: Nuclearity
    cue: str = ""


MULTINUCLEAR = frozenset(("joint", "sequence", "disjunction", "contrast"))
"""Relations between equals."""

REPORTED = frozenset(("", "that", "if", "whether"))
"""What may begin a clause that a verb of speech or thought reports."""

FRONTED = frozenset(("concession", "cause", "condition", "circumstance", "purpose", "means", "manner"))
"""Relations of a satellite that may stand in front of its nucleus."""

_TABLE = {
    "contrast": "however; by contrast; in contrast; conversely; on the other hand; on the contrary; whereas",
    "antithesis": "but; yet; nevertheless; nonetheless",
    "concession": "although; though; even though; even if; despite; in spite of; regardless of; while",
    "cause": "because; because of; since; due to; owing to; given that; thanks to",
    "result": "so; therefore; thus; hence; consequently; as a result; accordingly; for this reason; thereby",
    "condition": "if; unless; provided that; as long as; in case; otherwise; only if; whether",
    "circumstance": "when; whenever; as; after; before; until; once; as soon as; during; following; in the course of",
    "purpose": "to; in order to; so that; so as to; in order that; for the purpose of",
    "means": "by; through; by means of; using; via",
    "manner": "as if; as though; like; without",
    "restatement": "in other words; that is; that is to say; namely; in short; in sum; i.e; or rather",
    "elaboration": "for example; for instance; such as; in particular; specifically; including; especially; e.g; "
    "which; who; whose; whom; where; that; of; indeed; in fact",
    "joint": "and; also; in addition; additionally; moreover; furthermore; besides; as well as; similarly; likewise; "
    "not only; nor; both",
    "disjunction": "or; either; alternatively",
    "sequence": "then; and then; next; finally; afterwards; later; subsequently; firstly; second; secondly; third; "
    "thirdly; lastly; meanwhile; eventually",
}

CONNECTIVES = {cue: relation for relation, cues in _TABLE.items() for cue in cues.split("; ")}
"""The relation of each connective."""

INSIDE_ONLY = frozenset(
    "to by as of that which who whose whom where while like using through via without during".split()
)
"""Connectives that join parts of a sentence; at the beginning of a sentence they say nothing of the sentence before."""

LONGEST_CUE_WORDS = max(len(cue.split()) for cue in CONNECTIVES)

_WORDS = re.compile(r"[a-z]+(?:[.'\u2019][a-z]+)*")
_SPEECH = re.compile(
    r"\b(?:says?|said|saying|tells?|told|thinks?|thought|believes?|believed|knows?|knew|reports?|reported|claims?|"
    r"claimed|argues?|argued|suggests?|suggested|shows?|showed|found|finds?|notes?|noted|adds?|added|explains?|explained|"
    r"asks?|asked|writes?|wrote|hopes?|hoped|feels?|felt|states?|stated|indicates?|indicated|announced|seems?|means?|"
    r"realized|discovered|concluded|confirmed|insisted|replied|admitted|agreed|wonder|wondered|guess|suppose|imagine)"
    r"[^\w.!?]{0,3}\Z",
    re.IGNORECASE,
)
HEAD_LENGTH = 80
"""Characters at the beginning or the end of a unit that are looked at."""


def find_connective(unit: str) -> str:
    """The longest connective that a unit of text begins with, in small letters; empty if it begins with none."""
    words: list[str] = []
    at = 0
    head = unit[:HEAD_LENGTH].lower().lstrip(" \n\t\"'([\u201c\u2018-\u2013\u2014")
    while len(words) < LONGEST_CUE_WORDS and (match := _WORDS.match(head, at)):
        words.append(match[0])
        at = match.end()
        if not head.startswith(" ", at):
            break
        at += 1
    for count in range(len(words), 0, -1):
        if (cue := " ".join(words[:count])) in CONNECTIVES:
            return cue
    return ""


def signal_across(right: str) -> Signal | None:
    """The relation of a sentence or more to the text before it, by the connective it begins with; None without one."""
    cue = find_connective(right)
    return _signal(cue) if cue and cue not in INSIDE_ONLY else None


def signal_within(left: str, right: str) -> Signal | None:
    """The relation between two parts of one sentence, by a connective that one begins with; None without one.

    A left part that ends with a verb of speech or thought is an attribution. Else the right part counts first.
    """
    cue, fronted = find_connective(right), find_connective(left)
    if cue in REPORTED and (verb := _SPEECH.search(left[-HEAD_LENGTH:])):
        return Signal("attribution", "SN", verb[0].strip(" ,:").lower())
    if cue and not (cue == "then" and fronted == "if"):
        return _signal(cue)
    return Signal(CONNECTIVES[fronted], "SN", fronted) if CONNECTIVES.get(fronted) in FRONTED else None


def _signal(cue: str) -> Signal:
    relation = CONNECTIVES[cue]
    return Signal(relation, "NN" if relation in MULTINUCLEAR else "SN" if relation == "antithesis" else "NS", cue)
