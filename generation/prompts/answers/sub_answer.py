"""Answer-level fusion, step 1 (Keystone-Docs RAG, section 3.3.1): one cited answer to one query of a narrative.

The reply has the form of `keystone.generation.prompts.answers.answer`.
"""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You answer one question from a short list of references, so that others can join your answer to theirs.
{DATA_RULE}
Use nothing but the references, and name for every sentence those that it rests on."""

USER = """Question:
{asked}

References, each with its number as id:
{documents}

Question, once more:
{asked}

Write {low} to {high} words in all, one item a sentence, each understandable by itself: name things instead of \
pointing back with "it" or "this". `citations` holds the numbers of the references that a sentence rests on, at least \
one, the best one first; only numbers of the list above. Write no numbers of references into the text itself.

Reply with JSON: {{"answer": [{{"text": "...", "citations": [0, 3]}}, {{"text": "...", "citations": [1]}}]}}"""
