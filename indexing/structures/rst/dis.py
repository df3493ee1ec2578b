"""`.dis`, the s-expressions of the RST Discourse Treebank: a node names its role, its leaves and its relation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from keystone.indexing.structures.rst.joints import (
    SPAN,
    TreeText,
    Unit,
    check_binary,
    join_equals,
    join_satellites,
    tree_of,
)
from keystone.indexing.structures.tree import Tree, children

ROOT, NUCLEUS, SATELLITE = "Root", "Nucleus", "Satellite"
QUOTE = "_!"

_TOKEN = re.compile(rf"[()]|{QUOTE}.*?{QUOTE}|[^\s()]+", re.DOTALL)


@dataclass(slots=True)
class _Open:
    """A node whose bracket is not closed yet."""

    role: str
    line: int
    relation: str = ""
    text: str | None = None
    parts: list[tuple[str, str, Unit]] = field(default_factory=list)


def parse_dis(source: str, doc_id: str) -> TreeText:
    """The binary tree of a file; nodes with more than two children are split. `ValueError` with the line if not."""
    texts: list[str] = []
    path: list[_Open] = []
    whole: Unit | None = None
    tokens = _tokens(source)
    line = 1
    for token, line in tokens:
        if whole is not None:
            raise ValueError(f"line {line}: {token[:40]!r} follows the end of the tree")
        if token == "(":
            name, line = next(tokens, ("", line))
            if name in (ROOT, NUCLEUS, SATELLITE):
                path.append(_Open(name, line))
            elif name in ("span", "leaf", "rel2par", "text") and path:
                _read_value(path[-1], name, tokens, line)
            else:
                raise ValueError(f"line {line}: expected a node or one of its values, found {name[:40]!r}")
        elif token == ")" and path:
            node = path.pop()
            unit = _close(node, texts)
            if path:
                path[-1].parts.append((node.role, node.relation, unit))
            else:
                whole = unit
        else:
            raise ValueError(f"line {line}: expected a bracket, found {token[:40]!r}")
    if whole is None:
        raise ValueError(f"line {line}: the file ends within the tree")
    return tree_of(doc_id, whole, texts)


def format_dis(tree: Tree, text: str) -> str:
    """A discourse tree as a file. Within a text, `_!` becomes `_ !`, because it ends texts. `ValueError` for others."""
    check_binary(tree)
    lines: list[str] = []
    number = 0
    last_leaf = _last_leaves(tree)
    waiting: list[tuple[int, int, str, str] | int] = [(tree.nodes[0].id, 0, ROOT, "")]
    while waiting:
        item = waiting.pop()
        if isinstance(item, int):
            lines.append(f"{_indent(item)})")
            continue
        id, depth, role, relation = item
        node = tree[id]
        value = f" (rel2par {_atom(relation)})" if relation else ""
        if node.kind == "content":
            number += 1
            quoted = text[node.start : node.end].replace(QUOTE, "_ !")
            lines.append(f"{_indent(depth)}( {role} (leaf {number}){value} (text {QUOTE}{quoted}{QUOTE}) )")
            continue
        lines.append(f"{_indent(depth)}( {role} (span {number + 1} {last_leaf[id]}){value}")
        left, right = children(tree, id)
        waiting.append(depth)
        for child, nucleus in ((right, node.nuclearity[1] == "N"), (left, node.nuclearity[0] == "N")):
            link = SPAN if nucleus and node.nuclearity != "NN" else node.relation
            waiting.append((child.id, depth + 1, NUCLEUS if nucleus else SATELLITE, link))
    return "\n".join([*lines, ""])


def _tokens(source: str) -> Iterator[tuple[str, int]]:
    """The tokens with their line numbers; the treebank's own error marks are left out."""
    line, seen = 1, 0
    for match in _TOKEN.finditer(source):
        line += source.count("\n", seen, match.start())
        seen = match.start()
        if not match[0].startswith("//TT_ERR"):
            yield match[0], line


def _read_value(node: _Open, name: str, tokens: Iterator[tuple[str, int]], line: int) -> None:
    words = []
    for token, at in tokens:
        if token == ")":
            break
        if token == "(":
            raise ValueError(f"line {at}: a bracket opens within ({name}")
        words.append(token)
    else:
        raise ValueError(f"line {line}: the file ends within ({name}")
    if name == "rel2par":
        node.relation = " ".join(words)
    elif name == "text":
        value = " ".join(words)
        node.text = value[len(QUOTE) : -len(QUOTE)] if value.startswith(QUOTE) and value.endswith(QUOTE) else value


def _close(node: _Open, texts: list[str]) -> Unit:
    if node.text is not None and not node.parts:
        texts.append(node.text)
        return Unit(len(texts) - 1, len(texts) - 1)
    nuclei = [(relation, unit) for role, relation, unit in node.parts if role == NUCLEUS]
    satellites = [(unit, relation) for role, relation, unit in node.parts if role == SATELLITE]
    if not nuclei or node.text is not None:
        raise ValueError(f"line {node.line}: expected a leaf with a text or a node with a nucleus")
    relation = next((relation for relation, _ in nuclei if relation not in ("", SPAN)), "")
    if (len(nuclei) > 1 and not relation) or any(name in ("", SPAN) for _, name in satellites):
        raise ValueError(f"line {node.line}: a child has no relation")
    try:
        return join_satellites(join_equals([unit for _, unit in nuclei], relation), satellites)
    except ValueError as error:
        raise ValueError(f"line {node.line}: {error}") from None


def _last_leaves(tree: Tree) -> dict[int, int]:
    """The number of the last leaf of each subtree, counted from 1."""
    counts = [0]
    for node in tree.nodes:
        counts.append(counts[-1] + (node.kind == "content"))
    return {node.id: counts[end] for node, end in zip(tree.nodes, tree.ends, strict=True)}


def _indent(depth: int) -> str:
    return "  " * min(depth, 20)


def _atom(relation: str) -> str:
    if re.fullmatch(r"[^\s()]+", relation) is None:
        raise ValueError(f"relation {relation!r}: a .dis file holds no relation with blanks or brackets")
    return relation
