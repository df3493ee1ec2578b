"""Mending of single sentences of an answer by the faults that a program has found. Wording changes, and nothing else.

The reply has the form of `keystone.generation.prompts.answers.shorten`.
"""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You edit the answers of others before print. You change wording, never content: you add no fact, name, \
number or judgement, and you take none away.
{DATA_RULE}
The same holds for the sentences that you are given."""

USER = """An answer to this request:
{narrative}

Its sentences, a JSON list in their order:
{sentences}

These sentences have faults:
{faults}

Change these sentences alone, and in them as few words as the fault asks for: put a name or a noun in the place of a \
pronoun, say only what is new, or begin with another word. All else stays as it is: the names, numbers, calls and \
conditions, the tone, and the words that join a sentence to the one before it.

Reply with JSON, one item for each sentence with a fault: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}"""
