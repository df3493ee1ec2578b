"""The relations between all chunks in one list (Disco-RAG, inter-chunk graph; the reply's form follows figure 11)."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You find out how pieces of different documents relate to each other.
{DATA_RULE}"""

USER = """Pieces of text, each after its mark CHUNK and its number:
{chunks}

Read all of them before you judge. Then take every ordered pair of different chunks: does the first serve a purpose \
for the second? If it does, name one relation of the list; if not, write UNRELATED. The relation tells the role of the \
first chunk: in "CHUNK[2] -> CHUNK[1]: EXAMPLE", chunk 2 gives an example of a matter in chunk 1.

Relations:
{relations}

Reply with one line for each pair, {pairs} lines in all, sorted by the first number and then by the second, and with \
nothing else:
CHUNK[1] -> CHUNK[2]: <relation>"""
