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

Reword these sentences alone, so that the faults are gone and each can be read without the sentence before it. A \
sentence goes on saying what it says, with all its names, numbers, calls and conditions, in about as many words.

Reply with JSON, one item for each sentence with a fault: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}"""
