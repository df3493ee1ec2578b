"""Ratings of an answer against references, strict (LR-1) and lenient (LR-2).

Source: GraphReader, appendix B, after ReadAgent. The words are our own, and all references of a question are shown.
"""

from keystone.generation.context.delimit import DATA_RULE

_RULES = (
    "You compare an answer with reference answers by experts to the same question. Judge facts alone, not style or "
    "length. To agree with one of the references is enough.\n" + DATA_RULE + "\n"
)
STRICT = _RULES + 'Does the answer say the same as a reference? Reply with one word: "Yes" or "No".'
LENIENT = (
    _RULES
    + 'Reply "Yes" if the answer holds all that a reference says, or says it in more detail. Reply "Yes, partially" if '
    'the two share some of their facts. Reply "No" if they share none. Reply with nothing else.'
)
USER = "Question: {question}\n\n{references}\n\nThe answer to judge:\n{answer}"
MAX_TOKENS = 64
TEMPERATURE = 0.1
"""The paper's temperature of the rater."""
