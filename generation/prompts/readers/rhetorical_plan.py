"""The plan of an answer (Disco-RAG, discourse-driven planning; the reply's form follows figure 12)."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You plan answers that others write from collected evidence.
{DATA_RULE}"""

USER = """Question:
{question}

Evidence, each piece after its mark CHUNK and its number:
{chunks}
{structures}
Question, once more:
{question}

Plan the answer in one paragraph of at most 150 words: its course from beginning to end, the chunks that carry each \
part, named as in CHUNK[2], and how the parts connect. Order events in time, set opposed sources side by side, and \
leave out chunks that do not help. Tell how to use the evidence without repeating it, and do not answer the question.

Reply in this form and with nothing else:
PLAN: <the paragraph>"""

TREES = """
Within a chunk, numbers such as [1] mark its units. The tree of each chunk joins units by relations, where N marks the \
part that matters and S the one that serves it:
{trees}
"""

GRAPH = """
Relations between chunks, where the first chunk serves the second; all other pairs are unrelated:
{graph}
"""
