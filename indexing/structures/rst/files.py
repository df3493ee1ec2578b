"""Reads and writes trees as files; the ending of the name says the format."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import check_nesting
from keystone.indexing.io.reading import read_bytes
from keystone.indexing.io.writing import write_whole
from keystone.indexing.structures.rst.dis import format_dis, parse_dis
from keystone.indexing.structures.rst.joints import TreeText, as_discourse
from keystone.indexing.structures.rst.rs3 import format_rs3, parse_rs3
from keystone.indexing.structures.tree import Node, Tree


class Format(NamedTuple):
    """How a format is read, from its bytes and the name of the document, and written. Both raise `ValueError`."""

    parse: Callable[[bytes, str], TreeText]
    format: Callable[[Tree, str], bytes]


def read_tree(path: Path) -> TreeText:
    """The tree of a file and the text it stands over. `UserError` with file and line or element if it is no tree.

    RST formats hold the texts of leaves only, so the text is theirs with one blank between, and offsets count in it.
    They hold no connectives either. JSON keeps all.
    """
    format = _format_of(path)
    content = read_bytes(path).tobytes()
    try:
        return format.parse(content, path.stem)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def write_tree(path: Path, tree: Tree, text: str) -> None:
    """Write a tree and its text. `UserError` if the format cannot hold it.

    RST formats get a section tree as `as_discourse` gives it, and return it as such; JSON keeps it.
    """
    try:
        content = _format_of(path).format(tree, text)
    except (ValueError, orjson.JSONEncodeError) as error:
        raise UserError(f"{path}: {error}") from None
    with write_whole(path) as file:
        file.write(content)


def parse_json(content: bytes, doc_id: str) -> TreeText:
    """A tree as JSON: an object with `doc_id`, `text` and `nodes`, which have the fields of `Node`."""
    try:
        check_nesting(content)
        record = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), list):
        raise ValueError("expected a JSON object with the list `nodes`")
    text, doc_id = record.get("text", ""), record.get("doc_id", doc_id)
    if not isinstance(text, str) or not isinstance(doc_id, str):
        raise ValueError("expected `text` and `doc_id` to be strings")
    nodes = tuple(_node(number, fields) for number, fields in enumerate(record["nodes"]))
    last = max((node.end for node in nodes), default=0)
    if last > len(text):
        raise ValueError(f"a node ends at character {last} of a text of {len(text)}")
    return TreeText(Tree(doc_id, nodes), text)


def format_json(tree: Tree, text: str) -> bytes:
    """The JSON that `parse_json` reads."""
    return orjson.dumps({"doc_id": tree.doc_id, "text": text, "nodes": [asdict(node) for node in tree.nodes]})


_TYPES = {"parent": (int, type(None)), **dict.fromkeys(("id", "start", "end", "level"), (int,))}


def _node(number: int, fields: object) -> Node:
    names = Node.__slots__
    if not isinstance(fields, dict) or not set(fields) <= set(names) or not set(names[:5]) <= set(fields):
        raise ValueError(f"nodes[{number}]: expected an object with {', '.join(names[:5])}; the rest may be absent")
    for name, value in fields.items():
        if type(value) not in _TYPES.get(name, (str,)):
            raise ValueError(f"nodes[{number}]: {name} cannot be {value!r}")
    return Node(**fields)


_RS3 = Format(parse_rs3, lambda tree, text: format_rs3(*as_discourse(tree, text)))
_DIS = Format(
    lambda content, name: parse_dis(content.decode(), name),
    lambda tree, text: format_dis(*as_discourse(tree, text)).encode(),
)

FORMATS = {
    ".rs3": _RS3,
    ".rs4": _RS3,
    ".dis": _DIS,
    ".json": Format(parse_json, format_json),
}


def _format_of(path: Path) -> Format:
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: the name of a tree's file ends with {', '.join(FORMATS)}")
    return FORMATS[path.suffix]
