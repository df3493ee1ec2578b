"""The prompts of queries: what a narrative asks for, its topic, and further words to search by."""

from typing import Annotated, Any

from keystone.generation.context.texts import DATA_RULE
from keystone.generation.replies import FILLED, Asked, Maybe, Number, Part, Several, at_most, make_schema
from keystone.generation.types import Prompt
from keystone.retrieval.types import AnswerForm

MOST_TERMS = 4
"""The most terms of one question."""
MOST_WEIGHT = 3
"""The weight of a question that the person asks about most."""


class WantedQuestion(Part):
    """A question, and what it wants."""

    question: Maybe[str]
    form: Maybe[AnswerForm]
    weight: Annotated[Maybe[Number], Asked(minimum=1, maximum=MOST_WEIGHT)]
    terms: Annotated[Several[str], at_most(MOST_TERMS)]


CONTRACT = Prompt(
    "contract",
    f"""You prepare research for a person who has described at length what they want to know. You list the \
questions that a good answer has to settle, and the words by which documents about each can be found.

`questions`, in the order in which the description raises them. Each asks about one matter only, is short and plain, \
and can be understood on its own: name what it is about instead of using words like "it" or "they". Leave nothing out \
that the person asks for, whether in a question or in passing, and ask nothing that they do not ask for. Two \
questions whose answers would be the same are one question.
`form`, the answer that the question wants. "verdict": which to choose, when to use it, whether it holds. \
"comparison": how things differ. "reasons": why, or what causes or follows from it. "steps": how to do something. \
"list": which things there are. "example": what it looks like. "definition": what something is.
`weight`, from 1 to {MOST_WEIGHT}. {MOST_WEIGHT}: the description turns on it. 1: mentioned in passing.
`terms`, up to {MOST_TERMS} words or short phrases that documents with the answer are likely to contain and that the \
question does not: the proper name or the technical term of what the person describes, the usual abbreviation, the \
name of a function, setting, method, law, place or person. An empty list, if the question holds these words already.
`topic`, the one subject at the centre: a word, or the shortest phrase that will do, copied from the description.

Reply with a JSON object: {{"topic": "...", "questions": [{{"question": "...", "form": "steps", "weight": 2, \
"terms": ["...", "..."]}}, ...]}}""",
    "Description:\n{narrative}",
    make_schema({"topic": str, "questions": Annotated[list[WantedQuestion], FILLED]}),
    2048,
)
"""What a narrative asks for, in one call: its questions with the answer that each wants, and the words to search by."""

DECOMPOSE = Prompt(
    "decompose",
    "You prepare searches for a research assistant. A person has described at length what they want to know. "
    "Restate it as the separate questions that have to be answered, in the order in which the description raises "
    "them.\n"
    "Each question asks about one aspect only, is short and plain, and can be understood on its own: name what it is "
    "about instead of using words like 'it' or 'they'. Leave nothing out that the person asks for, and ask nothing "
    "that they do not ask for.\n"
    'Reply with a JSON object: {"questions": ["...", "..."]}',
    "Description:\n{narrative}",
    make_schema({"questions": Annotated[list[str], Asked(items="", minItems=1)]}),
    1024,
)
"""Narrative decomposition (paper, section 2.1.1)."""

TOPIC = Prompt(
    "topic",
    "A person describes what they want to understand. Name the one subject at the centre of it: a single word, or the "
    "shortest phrase that will do, copied from the description without any word that is not in it.\n"
    'Reply with a JSON object: {"topic": "..."}',
    "Description:\n{narrative}",
    make_schema({"topic": str}),
    64,
)
"""Narrative topic extraction (paper, section 2.1.2)."""
LONGEST_TOPIC = 8
"""Words above which a reply is no topic."""

NUM_QUERIES = 10
EXPAND = Prompt(
    "expand",
    "You widen searches. For a word or short phrase you write other keyword phrases by which documents about the very "
    "same thing could be found: synonyms of its nouns, close terms, and other ways to build the phrase, such as "
    "'effects of X', 'role of X' or 'X in society'. Each keeps the whole meaning, all are different, none repeats the "
    "phrase itself, and none contains a comma or a question mark.\n"
    'Reply with a JSON object that holds as many as you are asked for: {"variants": ["...", "..."]}',
    "Phrase: {topic}\nVariants wanted: exactly {variants}",
)
"""Narrative topic expansion (paper, section 2.1.3)."""
EXPAND_NARRATIVE = Prompt(
    "expand",
    "You widen searches. You get a description of what a person wants to know, and the phrase that names its subject. "
    "Write other keyword phrases by which documents for this person could be found. Read the phrase as the "
    "description means it. Use synonyms, the terms that experts in the field write, narrower subjects that the "
    "description asks about, and close subjects that documents on it treat. Each phrase has two to six words and can "
    "be understood without the description, all are different, none repeats the phrase itself, and none contains a "
    "comma or a question mark.\n"
    'Reply with a JSON object that holds as many as you are asked for: {"variants": ["...", "..."]}',
    "Description:\n{narrative}\n\nPhrase: {topic}\nVariants wanted: exactly {variants}",
)
"""Topic expansion that sees the narrative."""
NAMES = "\nThese names are only examples given by the person who asks, keep them out of every variant: {names}"
"""The names to avoid, at the end of both."""


def make_variants_schema(variants: int) -> dict[str, Any]:
    """An object with exactly so many variants."""
    return make_schema({"variants": Annotated[list[str], at_most(variants, variants)]})


PASSAGE = Prompt(
    "passage",
    "You help a search engine by writing a passage of the kind it should find. You get a description of what a person "
    "wants to know, and one question from it. Write the passage of a document that answers this question: 50 to 90 "
    "words of plain prose in the words that documents on the subject use, with the terms, methods, causes and "
    "examples that belong to the answer. State it as fact, even where you are not sure. Do not repeat the question, "
    "mention the person, or write anything besides the passage.",
    "Description:\n{narrative}\n\nQuestion:\n{question}",
    max_tokens=256,
)
"""Answer-like passages for a query: HyDE (Gao et al., ACL 2023) and Query2Doc (Wang et al., EMNLP 2023)."""
PASSAGE_OF_NARRATIVE = PASSAGE._replace(user="Description:\n{narrative}\n\nQuestion:\nThe description as a whole")

MOST_TEXTS = 3
"""The most new search texts of one question."""
SEARCH_AGAIN = Prompt(
    "search_again",
    f"""You improve searches. A search for a question found documents that do not answer it.
{DATA_RULE}
Write up to {MOST_TEXTS} new search texts of 3 to 12 words each, by which documents that answer the question could be \
found. Use words that such documents would use: other terms for the same thing, the name of a method, place or case, a \
narrower or a wider subject. Move away from the documents that were found. Do not repeat a search that was made.
Reply with a JSON object: {{"searches": ["...", "..."]}}""",
    """Description of what a person wants to know:
{narrative}

Question from it:
{question}

Searches that were made:
{searches}

The first documents found:
{documents}""",
    make_schema({"searches": Annotated[list[str], at_most(MOST_TEXTS, 1)]}),
    256,
)
"""New search texts for a question whose search found no document that answers it."""

TRANSLATE = Prompt(
    "translate",
    "You translate what a person wants to know, so that a search engine finds documents in another language. Write the "
    "text in that language, in the words that documents there would use, and with names as they are written there. "
    "Leave nothing out, add nothing, and do not answer it. Write nothing but the translation.\n" + DATA_RULE,
    "Language: {language}\n\n{text}",
    max_tokens=1024,
)
"""A query in the language of the documents that it shall find."""
