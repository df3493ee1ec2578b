"""Two further prompts for UMBRELA's scale, for judgments by several prompts.

They lead to the grade by other ways than the first prompt, so that an accident of one wording does not decide.
"""

from keystone.generation.context.delimit import DATA_RULE

_REPLY = DATA_RULE + "\n" + 'Reply with nothing but a JSON object: {"grade": G}, where G is 0, 1, 2 or 3.'

BY_QUESTIONS = (
    "You assess a passage for somebody who typed a search query. Ask yourself these questions in order, and stop at "
    "the first no:\n"
    "Is the passage about the subject of the query? If not, the grade is 0.\n"
    "Does it state something that this person asked for? If not, the grade is 1.\n"
    "Does it state this fully and plainly, and is most of the passage about it? If not, the grade is 2.\n"
    "Otherwise the grade is 3.\n"
    "Only statements of the passage count, not those that you could add yourself.\n" + _REPLY
)
BY_USE = (
    "Somebody has to write an accurate reply to a search query, and may use a single passage as the source. Judge the "
    "worth of the passage for this reply:\n"
    "3: the reply can be written from the passage alone.\n"
    "2: the passage gives a part of the reply, or gives it vaguely; other sources are needed.\n"
    "1: the passage gives background of the same subject, but no part of the reply.\n"
    "0: the passage gives nothing, because it is about something else.\n"
    "Good style, length or a known origin add no worth.\n" + _REPLY
)
