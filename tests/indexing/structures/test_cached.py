"""Structures of documents: a text's structure is built once, and equals the one that its builder makes."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.index import Index
from keystone.indexing.io.kept import open_kept
from keystone.indexing.structures import cached
from keystone.indexing.structures.cached import (
    BUILDERS,
    Builder,
    read_discourse_trees,
    read_section_trees,
    read_structures,
)
from keystone.indexing.structures.discourse import discourse_tree
from keystone.indexing.structures.markup import detect_format
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.types import Document

MARKED_UP = {
    "markdown": "# Bees\n\nThey fly.\n\n## Food\n\nThey eat nectar. They make honey of it.\n",
    "wikitext": "Bees fly.\n\n== Food ==\nThey eat nectar.\n\n== Enemies ==\n* wasps\n** hornets\n",
    "html": "<html><body><h1>Bees</h1><p>They fly.</p><h2>Food</h2><p>They eat nectar.</p></body></html>",
    "headings": "Bees\n\nThey fly far.\n\nFood\n\nThey eat nectar. They make honey of it.\n",
}
DOCUMENTS = [
    Document(format, text, "Bees", headings="Food" if format == "headings" else "")
    for format, text in MARKED_UP.items()
]


def index_in(folder: Path) -> Index:
    return Index(folder, "key", None, None, {}, 0, None)


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the documents of which a structure is built from now on."""
    built: list[str] = []

    def build_and_count(builder: Builder, document: Document) -> bytes:
        built.append(document.id)
        return builder.build(document)

    for kind, builder in list(BUILDERS.items()):
        monkeypatch.setitem(BUILDERS, kind, builder._replace(build=partial(build_and_count, builder)))
    return built


def test_trees_equal_those_without_a_file_and_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = [section_tree(document, format) for document, format in zip(DOCUMENTS, MARKED_UP, strict=True)]
    discourse = [discourse_tree(tree, one.text) for tree, one in zip(sections, DOCUMENTS, strict=True)]
    built = count_builds(monkeypatch)
    for wanted in (list(MARKED_UP) * 2, []):
        assert read_section_trees(index_in(tmp_path), DOCUMENTS) == sections
        assert read_discourse_trees(index_in(tmp_path), DOCUMENTS) == discourse
        assert built == wanted
        built.clear()


def test_a_tree_is_kept_by_all_that_its_builder_reads_and_by_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = count_builds(monkeypatch)
    first = DOCUMENTS[-1]
    read_section_trees(index_in(tmp_path), [first])
    same = replace(first, id="another", url="http://b.example")
    assert read_section_trees(index_in(tmp_path), [same])[0].doc_id == "another"
    assert built == [first.id]
    changed = [replace(first, text=first.text + "!"), replace(first, title="Ants"), replace(first, headings="Nectar")]
    read_section_trees(index_in(tmp_path), changed)
    read_discourse_trees(index_in(tmp_path), [first])
    assert len(built) == 5
    monkeypatch.setitem(BUILDERS, "sections", BUILDERS["sections"]._replace(version=99))
    read_section_trees(index_in(tmp_path), [first])
    assert len(built) == 6


def test_processes_build_the_same_structures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "FEWEST_FOR_PROCESSES", 2)
    monkeypatch.setattr(cached, "CHUNK_DOCUMENTS", 3)
    alone = read_all(index_in(tmp_path / "missing"), DOCUMENTS, 1)
    assert read_all(index_in(tmp_path), DOCUMENTS, 2) == alone
    built = count_builds(monkeypatch)
    assert (read_all(index_in(tmp_path), DOCUMENTS, 1), built) == (alone, [])


def read_all(index: Index, documents: Sequence[Document], threads: int) -> list[dict[str, bytes]]:
    return list(read_structures(index, list(BUILDERS), documents, threads))


@pytest.mark.parametrize("content", ["'[]'", "x'5b5d'"])
def test_a_damaged_structure_is_built_again(tmp_path: Path, content: str) -> None:
    trees = read_section_trees(index_in(tmp_path), DOCUMENTS)
    with sqlite3.connect(tmp_path / "structures.sqlite") as file:
        file.execute(f"UPDATE by_text SET content = {content}")
    assert read_section_trees(index_in(tmp_path), DOCUMENTS) == trees


def test_structures_that_must_be_kept_and_cannot_be_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match=r"missing/structures\.sqlite: cannot be written: unable to open"):
        list(read_structures(index_in(tmp_path / "missing"), ["sections"], DOCUMENTS, must_keep=True))

    def fill(path: Path) -> None:
        with open_kept(path, must_keep=True) as kept:
            kept._file.execute("PRAGMA max_page_count = 1")
            kept.put({b"key": b"content" * 10_000})

    with pytest.raises(NotWritten, match=r"full\.sqlite: cannot be written: database or disk is full"):
        fill(tmp_path / "full.sqlite")


def test_a_file_that_holds_no_structures_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "structures.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(UserError, match=r"structures\.sqlite: damaged: delete it"):
        read_section_trees(index_in(tmp_path), DOCUMENTS)


@pytest.mark.parametrize(("format", "text"), MARKED_UP.items())
def test_a_format_is_found_where_it_is_plain(format: str, text: str) -> None:
    assert detect_format(Document("1", text)) == format
    assert detect_format(Document("1", text, headings="Food")) == ("markdown" if format == "markdown" else "headings")
    assert detect_format(Document("1", text, headings="Drink")) == "headings"


def test_a_markdown_file_has_its_sections(tmp_path: Path) -> None:
    text = (
        "---\ntitle: no\n---\n# Bees\n\nThey fly.\n\n## *Food*\n\nNectar.\n\n```\n# no\n```\n\n## Enemies\n\nWasps.\n"
    )
    (tmp_path / "bees.md").write_text(text)
    (document,) = read_corpus(tmp_path / "bees.md")
    (tree,) = read_section_trees(index_in(tmp_path), [document])
    assert [(node.level, node.label) for node in tree.nodes if node.kind == "heading"] == [
        (0, "Bees"),
        (1, "Bees"),
        (2, "*Food*"),
        (2, "Enemies"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#1 in the charts, #2 at home",
        "An aside.\n# a comment in a script\n",
        "a <p> b",
        "if a == b:\n    pass\nx == y",
        "======= test session starts =======",
        "== ==",
        "= Title =",
    ],
)
def test_signs_that_prose_and_code_hold_too_are_no_format(text: str) -> None:
    assert detect_format(Document("1", text)) == "headings"
