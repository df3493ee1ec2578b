"""A query in the language of the documents that it shall find."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = (
    "You translate what a person wants to know, so that a search engine finds documents in another language. Write the "
    "text in that language, in the words that documents there would use, and with names as they are written there. "
    "Leave nothing out, add nothing, and do not answer it. Write nothing but the translation.\n" + DATA_RULE
)
USER = "Language: {language}\n\n{text}"
MAX_TOKENS = 1024
