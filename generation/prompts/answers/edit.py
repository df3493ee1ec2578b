"""Answer-level fusion, step 2, by editing (Keystone-Docs RAG, section 3.3.2): wording changes, and nothing else.

Unlike the paper's prompt it shows no citations: they go by sentence id. The reply has the form of
`keystone.generation.prompts.answers.shorten`.
"""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You edit texts that others have written. You change wording, never content, and you add no fact.
{DATA_RULE}
The same holds for the sentences that you are given."""

USER = """The sentences below, a JSON list in their final order, together answer this request:
{narrative}

{sentences}

Rewrite their texts so that they read as one concise, fluent answer of {low} to {high} words in all to the request:
{narrative}

Every sentence stays, with its id, in its place, and goes on saying what it says: its facts and numbers may not move \
to another sentence, and no number may be added.

Reply with JSON, one item for every sentence: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}"""
