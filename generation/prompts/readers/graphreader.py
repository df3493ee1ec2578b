"""GraphReader: facts of a chunk, a plan, first nodes, and the three kinds of steps (arXiv 2406.14550, Figures 6 to 11).

The words are our own. The names of the functions and the form of the replies are the paper's.
"""

from keystone.generation.context.delimit import DATA_RULE

FACTS_SYSTEM = f"""You break a text down into its smallest facts, so that others can search it without reading it.
{DATA_RULE}"""

FACTS = """{chunk}

List the facts of this text: what it states, what happens and in what order, why, and who is related to whom. Each \
fact is one short sentence in the language of the text that can be understood by itself, so write names instead of \
pronouns. Leave out nothing that somebody may ask about. After each fact write its key elements: the names, things, \
places, times, numbers, acts and qualities in it that matter, in the words of the fact.

Write one line a fact, and nothing else, in 700 words at most:
1. fact | key element | key element
2. fact | key element | key element | key element"""

_GRAPH = f"""You look for the answer to a question in long documents, which somebody has turned into a graph. \
Chunks (C1, C2, ...) are parts of the documents. Facts are short statements, each from one chunk. Nodes are key \
elements of facts, such as names, things or acts; two nodes are neighbours if a fact mentions both.
{DATA_RULE}"""

PLAN_SYSTEM = f"""You plan the search for the answer to a question in long documents.
{DATA_RULE}"""

PLAN = """Question: {question}

Do not answer the question yet. Write one paragraph: which pieces of information does the answer need, in which order \
can they be found, and how do they make the answer together?"""

NODES_SYSTEM = _GRAPH

NODES = """Question: {question}

Plan: {plan}

The nodes of the graph, one a line:
{nodes}

Choose the nodes at which the search should begin, at least 10 if there are so many, different from each other. Copy \
each one letter for letter from the list. Score it from 0 (of no use) to 100 (the answer must be near it). Write one \
line a node, and nothing else:
Node: the node, Score: 80"""

STEP_SYSTEM = (
    _GRAPH
    + """
You keep a notebook: all that you have learned for the answer, each point with names, so that somebody who has \
nothing but the notebook can answer the question. Your reply has these three parts, each after its heading:
*Updated Notebook*: the notebook with all its old points, and with every new one that helps to answer the question.
*Rationale for Next Action*: what is still missing, and which action can find it, in one or two sentences.
*Chosen Action*: one call of one of the functions that you are offered, and nothing after it.
Do not read again what you have read."""
)

STEP = """Question: {question}

Plan: {plan}

{view}

Your notebook:
{notebook}

Your actions so far: {actions}

{functions}"""

FUNCTIONS = {
    "facts": """These are the facts about the node "{node}", by chunk. Facts tell only a part of their chunk, so read \
a chunk even if its facts are only loosely related to the question. The functions:
read_chunk([C1, C2]): read these chunks, in this order. You can read: {chunks}.
stop_and_read_neighbor(): read none of them, because they surely do not help, and look at the node's neighbours.""",
    "chunk": """This is the chunk {chunk}. The functions:
search_more(): go on, because something is still missing.
read_previous_chunk(): read the chunk before this one, because it seems to hold something of use.
read_subsequent_chunk(): read the chunk after this one, because it seems to hold something of use.
termination(): stop, because the notebook now holds all that the answer needs.""",
    "neighbours": """These are the neighbours of the node "{node}" that you have not visited, one a line. Leave the \
notebook as it is. The functions:
read_neighbor_node(the node): visit this one of the neighbours, because it may lead to what is missing.
termination(): stop, because none of them leads further.""",
}
"""The functions that each kind of step offers."""
