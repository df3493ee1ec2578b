"""The structures of documents: each is built once for a text, and kept in the index's `structures.sqlite`.

A key is the hash of the kind, of the builder's version, and of the title, headings and text that a builder reads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from operator import attrgetter
from signal import SIG_IGN, SIGINT, signal
from typing import NamedTuple

import orjson

from keystone.indexing.index import Index
from keystone.indexing.io.kept import Kept, hash_parts, open_kept
from keystone.indexing.structures.discourse import discourse_tree
from keystone.indexing.structures.fact_graph import Fact, make_facts
from keystone.indexing.structures.markup import detect_format
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.structures.tree import Node, Tree
from keystone.indexing.types import Document

CHUNK_DOCUMENTS = 256
"""The documents whose structures are built and kept together."""
FEWEST_FOR_PROCESSES = 64
"""From this many documents on, several processes build. It takes about a second to start them."""

_get_fields = attrgetter(*Node.__slots__)


class Builder(NamedTuple):
    """Builds one kind of structure as JSON. Each change of its structures raises its `version`."""

    version: int
    build: Callable[[Document], bytes]


def _build_sections(document: Document) -> bytes:
    return _format_nodes(_make_section_tree(document))


def _build_discourse(document: Document) -> bytes:
    return _format_nodes(discourse_tree(_make_section_tree(document), document.text))


def _build_facts(document: Document) -> bytes:
    return orjson.dumps([list(fact) for fact in make_facts(document)])


BUILDERS = {
    "sections": Builder(2, _build_sections),
    "discourse": Builder(2, _build_discourse),
    "facts": Builder(1, _build_facts),
}


def read_section_trees(index: Index, documents: Sequence[Document]) -> list[Tree]:
    """Read or build the section tree of each document. `UserError` if the file of structures is damaged."""
    return _read_trees(index, "sections", documents)


def read_discourse_trees(index: Index, documents: Sequence[Document]) -> list[Tree]:
    """Read or build the discourse tree of each document. `UserError` if the file of structures is damaged."""
    return _read_trees(index, "discourse", documents)


def read_facts(index: Index, documents: Sequence[Document]) -> list[tuple[Fact, ...]]:
    """Read or build the facts of each document. `UserError` if the file of structures is damaged."""
    contents = (orjson.loads(own["facts"]) for own in read_structures(index, ["facts"], documents))
    return [tuple(Fact(start, end, tuple(keys)) for start, end, keys in own) for own in contents]


def read_structures(
    index: Index, kinds: Sequence[str], documents: Iterable[Document], threads: int = 1, must_keep: bool = False
) -> Iterator[dict[str, bytes]]:
    """Yield for each document its structures by kind, as JSON, read or built.

    `KeyError` for a kind that `BUILDERS` lacks; `UserError` for a damaged file, or one that cannot keep what it must.
    """
    left = iter(documents)
    with (
        open_kept(index.folder / "structures.sqlite", must_keep) as kept,
        ProcessPoolExecutor(threads, get_context("spawn"), signal, (SIGINT, SIG_IGN)) as pool,
    ):
        while chunk := list(islice(left, CHUNK_DOCUMENTS)):
            found = [_fill(kept, kind, chunk, pool if threads > 1 else None) for kind in kinds]
            yield from (dict(zip(kinds, own, strict=True)) for own in zip(*found, strict=True))


def _fill(kept: Kept, kind: str, documents: Sequence[Document], pool: Executor | None) -> list[bytes]:
    """Read one kind of structure of each document, and build those that the file lacks. Then the file holds them."""
    version, build = BUILDERS[kind]
    maker = f"{kind} {version}".encode()
    keys = [hash_parts(maker, (document.title, document.headings, document.text)) for document in documents]
    found = kept.get(keys)
    missing = {key: document for key, document in zip(keys, documents, strict=True) if key not in found}
    apply = partial(pool.map, chunksize=8) if pool and len(missing) >= FEWEST_FOR_PROCESSES else map
    made = dict(zip(missing, apply(build, missing.values()), strict=True))
    kept.put(made)
    found |= made
    return [found[key] for key in keys]


def _read_trees(index: Index, kind: str, documents: Sequence[Document]) -> list[Tree]:
    contents = (orjson.loads(own[kind]) for own in read_structures(index, [kind], documents))
    return [
        Tree(document.id, tuple(Node(*fields) for fields in nodes))
        for document, nodes in zip(documents, contents, strict=True)
    ]


def _make_section_tree(document: Document) -> Tree:
    return section_tree(document, detect_format(document))


def _format_nodes(tree: Tree) -> bytes:
    return orjson.dumps([_get_fields(node) for node in tree.nodes])
