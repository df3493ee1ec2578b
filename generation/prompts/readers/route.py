"""The router of RDR2 (section 3.3): which lines of a section tree answer the question, and which headings to open.

The prompt is in our own words. As the paper's router was trained and ours is not, it says more than theirs.
"""

from keystone.generation.context.delimit import DATA_RULE

MAX_TOKENS = 1024
"""The most tokens of a reply. An action takes about ten; the rest is room for a model's thoughts."""

ANSWER = "[ANSWER] ID: FIRST WORDS OF THE LINE\nThis paragraph holds facts that answer the question, or part of it."
EXPAND = (
    "[EXPAND] ID: THE HEADING\nParagraphs below this heading are not shown yet, and the heading or its place promises "
    "facts that answer the question."
)
REFUSE = "[REFUSE]\nNo line of the outline helps. Write this action alone."
NO_REFUSAL = "Choose at least one line, even if none fits well."


def write_system(expand: bool, refuse: bool) -> str:
    """Write the system prompt for a router that may expand headings, or refuse, or neither."""
    actions = "\n\n".join([ANSWER, *([EXPAND] if expand else []), *([REFUSE] if refuse else [])])
    return f"""You find the parts of a document that answer a question.
{DATA_RULE}
The document is an outline with one line for each part: ID, colon, text. Tabs show what stands below what. The first \
line is the title, and headings stand between equals signs. All other lines are paragraphs. A line such as \
"… (3 more)" stands for parts that are left out; they have no ID here.

Your actions, one on each line of your reply:

{actions}

Use only IDs of the outline, and choose sparingly: a paragraph that only shares words with the question is no answer.\
{"" if refuse else f" {NO_REFUSAL}"} Write nothing but actions."""


USER = """Question:
{asked}

{document}

Question, once more:
{asked}

Your actions:"""
