"""Faults of an answer's wording that a program can find, and their repair by the model, sentence by sentence.

A repair changes words of a sentence. It cannot move citations, add a number or a name, or lose one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from keystone.generation.answers.sentences import (
    WordRange,
    allow_tokens,
    count_words,
    list_sentences,
    read_place,
    read_text,
    tidy,
)
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import read_parts
from keystone.generation.rules.support import denies
from keystone.generation.rules.words import find_names, find_numbers, find_terms, find_word_forms
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.corpora.languages import ORDINAL_DOTS, guess_language
from keystone.indexing.errors import Unusable

REPEATED_SHARE = 0.8
"""The least share of a sentence's terms that an earlier one holds, if it repeats that one."""
LEAST_REPEATED_TERMS = 4
"""The fewest terms of a sentence that can be a repetition."""
ALIKE_OPENINGS = 3
"""How many sentences in a row may not begin with the same two words."""
MOST_ADDED_WORDS = 6
"""How many words longer a repair may make a sentence."""

_MODAL = "(?:can|may|must|will|would|should|could|might)"
_PAST = "(?:led|made|gave|took|kept|left|let|put|cost|meant|brought|came|became|began)"
_VERB = (
    "(?:adds|allows|applies|avoids|brings|causes|changes|comes|concerns|costs|covers|creates|depends|explains|follows"
    "|gives|goes|helps|holds|keeps|leads|leaves|lets|makes|matters|means|needs|prevents|proves|raises|requires|returns"
    "|saves|serves|shows|stops|suggests|suits|supports|takes|tells|turns|weakens|works)"
)
"""Verbs that no noun after "this" is likely to be."""
_AFTER_VERB = r"(?:the|an?|no|not|to|that|how|why|its?|them|their|his|her|all|each|every|[A-Z]\w*)"
_EXISTS = f"(?:is|are|was|were|has|have|had|{_MODAL}|remains?|seems?|exists?|stands?|stood|lies?|comes?|came)"
_OPENING = re.compile(
    r"(?:It(?! (?:is|was|seems|takes|follows)\b[^,;:]{0,30} (?:to|that|who|which|whether|how|why)\b)"
    r"|Its|They|Them|Their|Theirs|He|She|His|Her|What (?:it|they))\b"
    rf"|The (?:former|latter)\b(?= (?:is|are|was|were|has|have|had|do|does|did|{_MODAL})\b)"
    rf"|(?:This|That) (?:(?:is|was)\b(?!,)|(?:has|had|does|did|{_MODAL}|{_PAST})\b"
    rf"|(?:[a-z]+ly )?{_VERB}\b|[a-z]{{2,}}(?:s|ed)\b(?= {_AFTER_VERB}\b))"
    rf"|There(?:,| (?!{_EXISTS}\b)[A-Za-z]+)"
    r"|(?:At|By|During|For|From|In|On|Under|With)(?:(?: [a-z0-9]+){1,2}(?<! that| what)|(?: [a-z0-9]+){1,5},"
    r"(?: however,| therefore,| in turn,)?) (?:he|she|they)\b"
    rf"|(?:These|Those) (?:are|were|have|had|do|did|{_MODAL})\b"
    r"|(?:Of|For|In|With|From|To) (?:it|them)\b"
    r"|(?!(?:After|Although|As|Because|Before|How|If|Once|Since|That|Though|Unless|Until|What|When|Whenever|Where"
    r"|Whereas|Whether|While|Why)\b)(?!(?:Across|Against|Among|At|By|Despite|During|Following|For|From|Given|In|Like|On"
    r"|Over|Through|Throughout|Under|Unlike|With|Within|Without) (?:its|their|his|her)\b)"
    r"(?:[A-Z][a-z]+ (?:its?|they|them|their|he|she|him|his|her)"
    r"|(?:To|First|Next|Then|Finally|Therefore|So) [a-z]+ (?:it|they|them|him))\b"
)
"""An opening whose pronoun stands for a thing in another sentence: `It is`, `This raises`, `In public he`.

A sentence may still go on from the one before by a demonstrative that has its noun, or by "then" and "against this".
"""
_LINE_MARKS = re.compile(
    r"^(?:#{1,6}\s+|(?:[-\u2022>]|\*(?! \*))\s+(?=\D|\d{1,2}[.)]\s)|\d{1,2}\)\s+(?=[\"'(\[`*_]*[A-Z](?![A-Z])))+"
)
"""The marks of a heading, a list or a quotation at the beginning of a line."""
_NUMBER_MARK = re.compile(r"^\d{1,2}\.\s+(?=[\"'(\[`*_]*[A-Z](?![A-Z]))")
_TABLE = re.compile(r"(?:^|(?<=: ))\| (.+ \| .+) \|$")
_MARKS = re.compile(
    r"""(?<!`)(?P<ticks>`++)(?P<code>(?s:.+?))(?<!`)(?P=ticks)(?!`)|<code>(?P<tagged_code>[^<>]+)</code>
    |!?(?<![\w\])])\[(?P<link>[^\[\]]+)\]\(
        (?:[a-z]+://|mailto:|www\.|[/\#]|(?=[\w./-]+\.(?:html?|md|pdf)\b))(?:[^()\s]|\([^()\s]*\))*+(?:\s"[^"]*")?\)
    |(?<!(?a:[\w*/]))(?P<stars>\*{2,3})(?=\S)(?P<bold>(?:`[^`]*`|[^*`])+)(?<!\s)(?P=stars)(?!(?a:[\w*]))
    |(?<![^\s("'\[\xab\xbb\u2000-\u206f\u3000-\u303f\uff00-\uff20])(?:\*(?P<star>[^\W_](?:[^*`]*[^\W_])?[.,:;!?]?)\*|_(?P<line>[^\W_]+|[A-Z][^_`]*[^\W_])_)
        (?![^\s.,:;!?)"'\]\xab\xbb\u2000-\u206f\u3000-\u303f\uff00-\uff20])
    |<(?P<tag>b|i|em|strong)>(?P<tagged>[^<>]+)</(?P=tag)>
    |(?<=[.:;!?])(?P<item>\s)[-*\u2022]\s(?=["'(\[`*_]*[A-Z])""",
    re.VERBOSE,
)
"""Code, and the marks of a link, of emphasis, and of an item of a list in the middle of a line."""


def strip_marks(text: str) -> str:
    """Take the marks of Markdown off a sentence: answers are plain text, with names of code as they are."""
    bare = _LINE_MARKS.sub("", text)
    if guess_language(bare) not in ORDINAL_DOTS:
        bare = _NUMBER_MARK.sub("", bare)
    if bare.endswith(" |"):
        bare = _TABLE.sub(_join_cells, bare)
    return tidy(_MARKS.sub(_strip_mark, bare))


def _join_cells(table: re.Match[str]) -> str:
    rows = (row for row in table[1].split("| |") if any(map(str.isalnum, row)))
    return "; ".join(", ".join(filter(None, map(str.strip, f" {row} ".split(" | ")))) for row in rows)


def _strip_mark(found: re.Match[str]) -> str:
    if kept := found["code"] or found["tagged_code"] or found["item"]:
        return kept.strip() or " "
    marked = found["link"] or found["bold"] or found["star"] or found["line"] or found["tagged"]
    return _MARKS.sub(_strip_mark, marked)


def find_faults(sentences: Sequence[Sentence]) -> dict[int, str]:
    """Find the sentences with a fault of wording, by place, each with the fault.

    A sentence may open with a pronoun for a thing in another sentence, repeat an earlier one, or be the third in a row
    that opens with the same two words.
    """
    faults = dict[int, str]()
    terms = [find_terms(sentence.text) for sentence in sentences]
    openings = [" ".join(sentence.text.split(maxsplit=2)[:2]) for sentence in sentences]
    for place, sentence in enumerate(sentences):
        own = terms[place]
        repeated = next(
            (
                earlier
                for earlier in range(place)
                if len(own) >= LEAST_REPEATED_TERMS and len(own & terms[earlier]) >= REPEATED_SHARE * len(own)
            ),
            None,
        )
        row = openings[max(0, place - ALIKE_OPENINGS + 1) : place + 1]
        if pointing := _OPENING.match(sentence.text):
            faults[place] = f'opens with "{pointing[0]}", whose pronoun stands for a thing in another sentence: name it'
        elif repeated is not None:
            faults[place] = f"repeats much of sentence {repeated}: say only what is new"
        elif len(row) == ALIKE_OPENINGS and len(set(row)) == 1:
            faults[place] = f'is the third in a row that begins with "{openings[place]}"'
    return faults


def request_mending(narrative: str, sentences: Sequence[Sentence], faults: Mapping[int, str]) -> Request:
    """Make a request to reword the sentences with faults. It shows all sentences, without citations."""
    words = count_words([sentences[place] for place in faults])
    return prompts.MEND.request(
        allow_tokens(words) + 64 * len(faults),
        narrative=narrative,
        sentences=list_sentences(sentences),
        faults="\n".join(f"- {place}: {fault}" for place, fault in faults.items()),
    )


def read_mended(reply: Reply, sentences: Sequence[Sentence], faults: Mapping[int, str]) -> tuple[Sentence, ...]:
    """Read the new texts of sentences with faults. All else stays as it is. `Unusable` for no new text at all.

    A new text stays out if it loses a number, a name or most other terms, adds a number, has a name that no sentence of
    the answer has, denies what the old one does not, or the reverse, or is more than `MOST_ADDED_WORDS` longer.
    """
    now, mended = list(sentences), 0
    known = find_word_forms(" ".join(sentence.text for sentence in sentences))
    for item in read_parts(reply, "sentences", prompts.NewText):
        place = read_place(item.id, len(sentences))
        if place is None or place not in faults or item.text is None:
            continue
        old, new = sentences[place].text, strip_marks(read_text(item.text, reply))
        longer = len(new.split()) - len(old.split())
        terms = find_terms(old)
        kept = find_numbers(new) == find_numbers(old) and find_names(old) <= find_word_forms(new)
        kept = kept and len(terms & find_terms(new)) >= len(terms) / 2 and denies(new) == denies(old)
        if new and kept and find_names(new) <= known and longer <= MOST_ADDED_WORDS:
            now[place], mended = replace(sentences[place], text=new), mended + 1
    if not mended:
        raise Unusable("it rewords no sentence with a fault, or adds or loses numbers or names")
    return tuple(now)


async def mend_answer(model: Model, narrative: str, answer: Answer, words: WordRange) -> tuple[Answer, list[Fallback]]:
    """Mend the wording of an answer, in one request at most. It stays as it is where the repair cannot be used.

    The answer and its sentence about what is missing keep the range of `words`, or become no longer.
    """
    faults = find_faults(answer.sentences)
    if not faults:
        return answer, []

    def count(sentences: Sequence[Sentence]) -> int:
        return count_words((*sentences, Sentence(answer.missing, ())))

    most = max(words[1], count(answer.sentences))

    def read(reply: Reply) -> tuple[Sentence, ...]:
        found = read_mended(reply, answer.sentences, faults)
        kept = list(found)
        while reply.last and count(kept) > most:  # the new texts that grow most stay out
            place = max(faults, key=lambda at: count_words([kept[at]]) - count_words([answer.sentences[at]]))
            kept[place] = answer.sentences[place]
        if count(kept) > most or (count(found) > most and kept == list(answer.sentences)):
            raise Unusable(f"the answer then has {count(found)} words, at most {most} are allowed")
        return tuple(kept)

    (found,) = await ask_all(model, [(request_mending(narrative, answer.sentences, faults), read)])
    if isinstance(found, Failure):
        return answer, [Fallback(answer.topic_id, "mend", f"{len(faults)} faults of wording stay: {found.reason}")]
    return replace(answer, sentences=found), []
