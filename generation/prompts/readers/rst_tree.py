"""The rhetorical tree of one chunk (Disco-RAG, intra-chunk trees; the reply's form follows figure 10)."""

from keystone.generation.context.delimit import DATA_RULE

SYSTEM = f"""You analyse how a text is built, in the terms of Rhetorical Structure Theory.
{DATA_RULE}"""

USER = """Text to analyse, after the mark CHUNK:
{chunk}

First cut the text into elementary units: clauses or sentences that each say one thing. Number them from 1, and copy \
them word for word and in order, so that together they are the whole text.
Then join neighbours, two at a time, until one tree holds everything. A side is a unit, as in [3], or a range that you \
joined before, as in [1-2]. Write a line for each joint, the innermost first, with a relation of the list and its \
nuclei: NS if the left side matters more, SN if the right side does, NN if they are equals. Of N units come N-1 joints.

Relations:
{relations}

Reply in this form and with nothing else:
EDUs:
[1] <first unit>
[2] <second unit>
[3] <third unit>
RST ANALYSIS:
RELATION([1], [2]): CAUSE NS
RELATION([1-2], [3]): SEQUENCE NN"""
