"""English words: those without content, those that open a question, and the words of a text."""

import re

WORD = re.compile(r"[^\W\d_][^\W_]*(?:['\u2019-][^\W_]+)*")
"""A word begins with a letter, and may hold digits, apostrophes and hyphens."""

STOP_WORDS = frozenset(
    """a about above after again against all almost along already also although always am among an and another any
    anyone anything are around as ask at away back be because become been before behind being below best better
    between both but by came can cannot case come could day did different do does doing done down during each either
    else enough especially even ever every everything example examples few find first for from further general get
    give given go going good got great had has have having he help helps her here hers him his how however i if
    important in including info information instead interest interested into is it its itself just keep kind kinds
    know known lack large last later learn least less let like likely little long look made main mainly make makes
    making many may me mean means might mine more most much must my need needed needs neither never new next no none
    nor not nothing now of off often on once one only onto or other others our out over own part people per perhaps
    please put quite rather really regarding said same say see seem seems several shall she should since so some
    someone something sometimes soon still such take tell than that the their them themselves then there these they
    thing things think this those though through thus to together too toward two type types under understand
    understanding until up upon us use used useful uses using various very via want wants was way ways we well were
    what whatever when where whether which while who whole whom whose why will with within without wonder wondering
    would yes yet you your""".split()
)
"""Words without content, in lower case."""

STEM_LETTERS = 6
"""Words count as equal if they share this number of first letters."""

INTERROGATIVES = ("how", "what", "what's", "when", "where", "whether", "which", "who", "whom", "whose", "why")
"""Words that open a question."""

LEAD_IN = re.compile(
    r"""^(?:
      (?:(?:finally|specifically|additionally|moreover|furthermore|in\ addition|at\ the\ same\ time),?\s+)
    | (?:i|we|i'm|i\u2019m|i'd|i\u2019d|we're|we'd)\s+
        (?:(?:am|are|would|also|really|just|further|even|especially|particularly|specifically|keen|curious|eager|
           looking|trying|hoping|exploring|puzzled|interested|wondering|seeking|like|love|want|need|wish|hope|plan|know|wonder|have|
           understand|learning|about|in|on)\s+)+
    | (?:please|can\ you|could\ you|would\ you|tell\ me|show\ me|help\ me)\s+(?:please\s+|also\s+|about\s+)*
    | (?:to\s+)?(?:(?:deeply|better|fully|also|really|thoroughly)\s+)*
        (?:know|learn|learning|understand|understanding|see|find\ out|hear|explore|discover|explain|describe|discuss|
           compare|outline)(?:\s+(?:more|about|both))*\s+
    | (?:to\s+)?(?:(?:get|gain|have)\s+)?an?\s+(?:\w+\s+)?(?:understanding|overview|explanation|idea|picture)\s+of\s+
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Phrases before the content of a sentence, such as "I want to know"."""


def find_words(text: str) -> list[str]:
    """Find the words of a text in order, as written."""
    return WORD.findall(text)


def find_content_words(text: str) -> list[str]:
    """Find the words of a text that carry content, in order and in lower case."""
    return [word for word in map(str.lower, find_words(text)) if word not in STOP_WORDS and len(word) > 1]


def find_stems(text: str) -> set[str]:
    """Find the stems of a text's content words."""
    return {word.removesuffix("s")[:STEM_LETTERS] for word in find_content_words(text)}
