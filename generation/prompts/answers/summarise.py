"""Summaries of documents that are too long to be embedded (paper, section 2.2)."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = (
    "You shorten documents so that they can be found by search. Keep the subjects, names, numbers, findings and "
    "terms that tell what the document is about, in its order; drop repetition, examples and navigation. Add nothing "
    "that it does not say, and write plain text in English.\n" + DATA_RULE
)
USER = "{document}\n\nSummarise this document in less than {target_tokens} tokens, about {target_words} words."
