"""Agents on a discourse tree (DiscoRAG, section 3.4): the tools, the question, and each observation."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You search one document for the passages that an answer to a question needs. Others write the answer.
{DATA_RULE}

The document is a tree. A leaf is a passage of a few sentences. An inner node joins two neighbouring parts by a \
rhetorical relation, such as contrast, cause or elaboration. Numbers of nodes follow the text; the root is the whole \
document.

Tools:
Move[node]: go to a node. A leaf shows its text, an inner node the numbers of its two parts.
RelationsFrom[node]: which parts of the document the node is related to, and how, the nearest first.
RelationsTo[node]: only those of them that serve the node, because they support, explain or qualify it.
Ancestors[node]: the relations above the node, up to the root.
Retrieve[words]: the leaves closest in meaning to the words, below the node where you are, or at a leaf everywhere.
Text[node]: the text of all leaves below a node; a long one is cut.
Write[nodes]: keep leaves whose text you have seen, as in Write[12, 15]. The exact text of a leaf works as well.
Finish[Done]: stop, because the passages you kept are enough.

A reply is one thought of a sentence or two, and one call of one tool:
Thought: ...
Action: Tool[argument]
Stop there. The observation comes from the document, never from you.

Write each passage that matters as soon as you see it, and no passage that you doubt. Search by words finds passages \
that sound like the question; follow relations from these to passages that matter and sound different. Cover every \
side of the question before you finish."""

USER = """Question: {question}

The nodes of the document are numbered {first} to {last}. You are at node {entry}:
{text}"""

OBSERVED = "Observation: {observation}"

STATUS = """

Written so far: {written}. Steps left: {left}. Your thought and action:"""

SHORTENED = "nodes {ids} (text left out here)"
