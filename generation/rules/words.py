"""English words that open a question or a request, beside the words of a text from `keystone.indexing.words`."""

import re

from keystone.indexing.words import STEM_LETTERS, STOP_WORDS, WORD, find_content_words, find_stems, find_words

__all__ = [
    "INTERROGATIVES",
    "LEAD_IN",
    "STEM_LETTERS",
    "STOP_WORDS",
    "WORD",
    "find_content_words",
    "find_stems",
    "find_words",
]

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
