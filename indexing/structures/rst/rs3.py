"""`.rs3` and `.rs4`, the XML of RSTTool and rstWeb: segments of text and groups, each with its parent and relation."""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

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

MULTINUC = "multinuc"

_NO_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Part:
    """A segment or a group. `text` is None for a group; `is_multinuc` says that its nuclei are equals."""

    id: str
    parent: str | None
    relation: str
    text: str | None = None
    is_multinuc: bool = False


def parse_rs3(content: bytes, doc_id: str) -> TreeText:
    """The binary tree of a file. `ValueError` with the line or the element if the file is no tree."""
    try:
        root = ET.fromstring(content)
    except ET.ParseError as error:
        raise ValueError(f"line {error.position[0]}: {str(error).partition(':')[0]}") from None
    except LookupError as error:
        raise ValueError(f"line 1: {error}") from None
    relations = {(rel.get("name", ""), rel.get("type", "")) for rel in root.iter("rel")}
    equal = {name for name, type in relations if type == MULTINUC}
    parts = [_part(element) for element in root.iter() if element.tag in ("segment", "group")]
    return tree_of_parts(doc_id, parts, equal)


def tree_of_parts(doc_id: str, parts: Sequence[Part], equal: Collection[str]) -> TreeText:
    """The binary tree of segments and groups; `equal` names the relations between nuclei.

    A group with one child is that child. Several nuclei branch to the right; satellites behind their nucleus are joined
    before those in front of it. `ValueError` with the element if the parts form no tree over the text.
    """
    by_id: dict[str, Part] = {}
    for part in parts:
        if by_id.setdefault(part.id, part) is not part:
            raise ValueError(f"{_name(part)}: its id occurs twice")
    below: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.parent is not None:
            if part.parent not in by_id:
                raise ValueError(f"{_name(part)}: its parent {part.parent!r} does not exist")
            below[part.parent].append(part)
    roots = [part for part in parts if part.parent is None]
    if len(roots) != 1:
        names = ", ".join(_name(part) for part in roots[:3]) or "none"
        raise ValueError(f"expected one element without a parent, found {len(roots)} ({names})")
    texts = [part.text for part in parts if part.text is not None]
    numbers = {part.id: number for number, part in enumerate(part for part in parts if part.text is not None)}
    units: dict[str, Unit] = {}
    order = _from_the_root(roots[0], below)
    if len(order) < len(parts):
        reached = {part.id for part in order}
        lost = next(part for part in parts if part.id not in reached)
        raise ValueError(f"{_name(lost)}: no way leads from the root to it")
    for part in reversed(order):
        try:
            units[part.id] = _unit(part, below[part.id], units, numbers, equal)
        except ValueError as error:
            raise ValueError(f"{_name(part)}: {error}") from None
    return tree_of(doc_id, units[roots[0].id], texts)


def format_rs3(tree: Tree, text: str) -> bytes:
    """A discourse tree as a file. Characters that XML cannot hold become `?`. `ValueError` for another tree."""
    check_binary(tree)
    relations = sorted({(node.relation, MULTINUC if node.nuclearity == "NN" else "rst") for node in tree.nodes})
    lines = ["<rst>", "\t<header>", "\t\t<relations>"]
    lines += [f"\t\t\t<rel name={quoteattr(name)} type={quoteattr(type)}/>" for name, type in relations if name]
    lines += ["\t\t</relations>", "\t</header>", "\t<body>"]
    lines += [_element(part) for part in parts_of(tree, text)]
    return _NO_XML.sub("?", "\n".join([*lines, "\t</body>", "</rst>", ""])).encode()


def parts_of(tree: Tree, text: str) -> list[Part]:
    """The segments of a binary discourse tree, numbered from 1 in text order, then its groups."""
    content = [node for node in tree.nodes if node.kind == "content"]
    names = {node.id: str(number) for number, node in enumerate(content, start=1)}
    spare = len(content) + 1
    links: dict[str, tuple[str | None, str]] = {}
    groups: list[tuple[str, bool]] = []
    for node in tree.nodes:
        if node.kind == "relation":
            names[node.id] = str(spare)
            groups.append((str(spare), node.nuclearity == "NN"))
            spare += 1
    links[names[tree.nodes[0].id]] = (None, "")
    for node in tree.nodes:
        if node.kind != "relation":
            continue
        left, right = children(tree, node.id)
        if node.nuclearity == "NN":
            links[names[left.id]] = links[names[right.id]] = (names[node.id], node.relation)
            continue
        nucleus, satellite = (left, right) if node.nuclearity == "NS" else (right, left)
        head = names[nucleus.id]
        links[head] = (names[node.id], SPAN)
        if nucleus.nuclearity == "NN":
            head = str(spare)
            groups.append((head, False))
            links[head] = (names[node.id], SPAN)
            links[names[nucleus.id]] = (head, SPAN)
            spare += 1
        links[names[satellite.id]] = (head, node.relation)
    segments = [Part(names[node.id], *links[names[node.id]], text[node.start : node.end]) for node in content]
    return segments + [Part(name, *links[name], None, is_multinuc) for name, is_multinuc in groups]


def _part(element: ET.Element) -> Part:
    id, parent = element.get("id"), element.get("parent") or None
    if id is None:
        raise ValueError(f"a {element.tag} has no id")
    text = "".join(element.itertext()) if element.tag == "segment" else None
    relation = element.get("relname", "")
    part = Part(id, parent, relation, text, element.get("type") == MULTINUC)
    if parent is not None and not relation:
        raise ValueError(f"{_name(part)}: it has a parent and no relname")
    return part


def _name(part: Part) -> str:
    return f"{'group' if part.text is None else 'segment'} {part.id}"


def _from_the_root(root: Part, below: Mapping[str, list[Part]]) -> list[Part]:
    """All parts that can be reached, each before those below it."""
    order, waiting = [], [root]
    while waiting:
        part = waiting.pop()
        order.append(part)
        waiting += below.get(part.id, ())
    return order


def _unit(
    part: Part, below: Iterable[Part], units: Mapping[str, Unit], numbers: Mapping[str, int], equal: Collection[str]
) -> Unit:
    nuclei: list[tuple[Unit, str]] = []
    satellites: list[tuple[Unit, str]] = []
    for child in below:
        is_nucleus = child.relation == SPAN or (part.is_multinuc and child.relation in equal)
        (nuclei if is_nucleus else satellites).append((units[child.id], child.relation))
    nuclei.sort(key=lambda nucleus: nucleus[0].first)
    if part.text is not None:
        if nuclei:
            raise ValueError(f"text unit {nuclei[0][0].first + 1} is its nucleus, but it has text")
        return join_satellites(Unit(numbers[part.id], numbers[part.id]), satellites)
    if not nuclei:
        raise ValueError("it has no nucleus")
    relation = next((relation for _, relation in nuclei if relation != SPAN), "")
    if len(nuclei) > 1 and not relation:
        raise ValueError(f"it has {len(nuclei)} nuclei and no relation between them")
    return join_satellites(join_equals([unit for unit, _ in nuclei], relation), satellites)


def _element(part: Part) -> str:
    link = f" parent={quoteattr(part.parent)} relname={quoteattr(part.relation)}" if part.parent else ""
    if part.text is None:
        return f'\t\t<group id="{part.id}" type="{MULTINUC if part.is_multinuc else SPAN}"{link}/>'
    return f'\t\t<segment id="{part.id}"{link}>{escape(part.text, {chr(13): "&#13;"})}</segment>'
