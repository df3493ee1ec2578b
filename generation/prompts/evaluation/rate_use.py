"""The use of an answer to whoever asked: its questions, its sentences, its opening, and a mark."""

from typing import Annotated, Any, Literal

from pydantic import Field

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Asked, Part, at_most, list_hints, make_schema

Answered = Literal["yes", "partly", "no"]
Agreement = Literal["yes", "partly", "no", "unknown"]
"""Whether an answer agrees with references on a question; `unknown` if these do not tell."""
LEAST_MARK, MOST_MARK = 1, 5

_TASK = (
    "You judge of what use an answer is to the person who sent a request. You see the request, its questions by "
    "number, and the sentences of the answer by number. Judge what the sentences say, as that person would, and not "
    "their style or length. Other facts that you know are no part of the answer.\n" + DATA_RULE + "\n"
    "For each question, `answered` is `yes` if the answer settles it in the form that the request wants, such as a "
    "verdict, reasons, steps or names, so that the person need not look further. It is `partly` if the answer tells "
    "some of that, and `no` if it tells none. Facts about the same subject that leave the question open tell none. "
    "`open` is true if the answer itself says that its sources do not tell this, or not all of it.\n"
)
_AGREEMENT = (
    "Reference answers by experts are shown as well. For each question, `agrees` is `yes` if the answer says what they "
    "say on it, `partly` if it says some of that, `no` if it says none of it or the contrary, and `unknown` if they do "
    "not tell. `answered` stays a judgment of the answer alone.\n"
)
_REST = (
    "For each sentence, `use` is true if the person would miss it: it helps to answer a question, or says openly what "
    "the sources do not tell. A sentence is of no use if it states what nobody asked, repeats another sentence, or "
    "only introduces. `question` is the number of the question that the sentence serves most, 0 if it serves none.\n"
    "`lead` is true if the answer opens with what was asked for first, such as the verdict, the recommendation or the "
    "first step, and not with background.\n"
    "`mark` is 5 if the person can act on the answer as it stands, 4 if little is missing, 3 if about half of what was "
    "asked is there, 2 if the answer helps with a small part, and 1 if it is of no use.\n"
    "Judge every question and every sentence, each once. Reply with nothing but a JSON object: "
    '{"questions": [{"number": 1, "answered": "partly", "open": false%s}, ...], '
    '"sentences": [{"number": 1, "use": true, "question": 1}, ...], "lead": false, "mark": 3}'
)
SYSTEM = _TASK + _REST % ""
WITH_REFERENCES = _TASK + _AGREEMENT + _REST % ', "agrees": "unknown"'
USER = (
    "Request: {narrative}\n\nQuestions:\n{questions}\n\n{shown}\n\nRequest, once more: {narrative}\n\n"
    "There are {question_count} questions and {sentence_count} sentences to judge."
)


class JudgedQuestion(Part):
    """Whether an answer settles a question, or says that its sources do not."""

    number: Annotated[int, Asked(minimum=1, maximum="questions")]
    answered: Annotated[Answered, ANY_CASE]
    open: bool


class ComparedQuestion(JudgedQuestion):
    """Also whether the answer agrees with references."""

    agrees: Annotated[Agreement, ANY_CASE]


class JudgedSentence(Part):
    """Whether a sentence is of use, and for which question."""

    number: Annotated[int, Asked(minimum=1, maximum="sentences")]
    use: bool
    question: Annotated[int, Asked(minimum=0, maximum="questions")]


class JudgedWhole(Part):
    """Whether an answer opens well, and its mark."""

    lead: bool
    mark: Annotated[int, Field(ge=LEAST_MARK, le=MOST_MARK)]


def schema(questions: int, sentences: int, with_references: bool) -> dict[str, Any]:
    """Make the JSON schema of a reply on so many questions and sentences."""
    question: Any = list[ComparedQuestion] if with_references else list[JudgedQuestion]
    keys = {
        "questions": Annotated[question, at_most(questions, questions)],
        "sentences": Annotated[list[JudgedSentence], at_most(sentences, sentences)],
    }
    return make_schema({**keys, **list_hints(JudgedWhole)}, questions=questions, sentences=sentences)


def allow_tokens(questions: int, sentences: int) -> int:
    """Room for a reply on so many questions and sentences as JSON, with spaces and some prose around."""
    return 256 + 48 * questions + 40 * sentences
