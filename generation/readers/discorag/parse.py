"""The actions in a model's replies, and the words of documents that look like actions.

Every function runs in linear time and accepts any text.
"""

import re
from dataclasses import dataclass

from keystone.generation.structured import strip_thought
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable

NAMES = ("Move", "RelationsFrom", "RelationsTo", "Ancestors", "Retrieve", "Text", "Write", "Finish")
"""The seven tools of the paper's Table 1, and the end."""

_BY_FOLDED = {name.casefold(): name for name in NAMES}
_OBSERVATION = re.compile(r"(?im)^[^\w\n]{0,9}observation\b|\bobservation\s{0,3}\d{0,6}\s{0,3}:")
_MARKED = re.compile(
    r"(?im)^[^\w\n]{0,9}action[^\w\n:]{0,9}\d{0,6}[^\w\n:]{0,9}:[^\w\[]{0,9}"
    r"([a-z][a-z_ ]{0,39})(?:[^\w\n\[(]{0,3}([\[(]))?"
)
_UNMARKED = re.compile(rf"(?i)\b({'|'.join(NAMES)})[^\w\n\[(]{{0,3}}([\[(])")
_TURN = re.compile(r"(?im)^([^\w\n]{0,9}(?:thought|action|observation)\s{0,3}\d{0,6}\s{0,3}):")
_CALL = re.compile(rf"(?i)\b({'|'.join(NAMES)})([ ]?)\[")
_CLOSING = {"[": "]", "(": ")"}


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a tool. An unknown tool stands as the model wrote it."""

    tool: str
    argument: str

    def __str__(self) -> str:
        return f"{self.tool}[{self.argument}]"


def read_action(reply: Reply) -> Action:
    """Read the first action of a reply; words after an `Observation` are the model's invention and do not count.

    `Unusable` if there is none, or if the reply was cut within it.
    """
    text = cut_reply(reply.text)
    found = _MARKED.search(text) or _UNMARKED.search(text)
    if found is None:
        raise Unusable('it holds no line "Action: Tool[argument]" of its own')
    name, opening = found[1], found[2]
    if not opening:
        name, _, rest = name.strip().partition(" ")
        argument = rest + text[found.end() :].partition("\n")[0]
    else:
        end = _find_closing(text, found.end() - 1)
        if end is None and reply.finish == "length":
            raise Unusable("it was cut before its end")
        argument = text[found.end() : end] if end else text[found.end() :].partition("\n")[0].rstrip(" ])")
    folded = re.sub(r"[_\s]", "", name).casefold()
    return Action(_BY_FOLDED.get(folded, name.strip()), argument.strip().strip("\"'`\u201c\u201d").strip())


def cut_reply(text: str) -> str:
    """Cut a reply before its first `Observation`, and take away its hidden thoughts."""
    text = strip_thought(text).encode("utf-8", "replace").decode()
    found = _OBSERVATION.search(text)
    return (text[: found.start()] if found else text).strip()


def disarm(text: str) -> str:
    """Change the colons and brackets by which a document's text looks like an agent's turn, and nothing else."""
    return _CALL.sub("\\1\\2\u27e6", _TURN.sub("\\1\u2236", text))


def _find_closing(text: str, at: int) -> int | None:
    """Find the bracket that closes the one at `at`; None if there is none."""
    opening, depth = text[at], 0
    for found in re.finditer(rf"[{re.escape(opening + _CLOSING[opening])}]", text[at:]):
        depth += 1 if found[0] == opening else -1
        if not depth:
            return at + found.start()
    return None
