"""The story of a narrative: its lines for a hand-made run, and lines that fit the terminal for any text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.index import Index
from keystone.indexing.types import Document
from keystone.retrieval.backends import open_store
from keystone.runs.exchange.bundle.parts import PartStore
from keystone.runs.report.story import WIDTH_COLUMNS, tell_story

FILES: dict[str, list[dict[str, Any]]] = {
    "queries.jsonl": [
        {"topic_id": "0", "queries": []},
        {
            "topic_id": "1",
            "queries": [
                {"id": "1", "question": "Tell me about bees and wasps."},
                {"id": "1#1", "question": "How do bees live?"},
                {"id": "1#2", "question": "How do wasps live?"},
            ],
        },
    ],
    "grades.jsonl": [
        {
            "topic_id": "1",
            "queries": ["1#1", "1#2"],
            "documents": ["wasps", "bees", "volcano"],
            "grades": [[1, 3, None], [2, 2, None]],
            "selected": ["bees", "volcano", "wasps"],
        }
    ],
    "answers.jsonl": [
        {
            "topic_id": "1",
            "sentences": [
                {"text": "Bees live in colonies.", "citations": ["bees#w0_0"]},
                {"text": "So do some wasps.", "citations": ["wasps#w1_40", "bees#w0_0", "wasps#w0_0"]},
                {"text": "Glaciers move.", "citations": ["glacier"]},
            ],
        }
    ],
}


def write_files(folder: Path, files: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for name, records in files.items():
        (folder / name).write_bytes(b"\n".join(map(orjson.dumps, records)))


@pytest.mark.slow
def test_a_story_has_the_queries_that_each_document_covers_and_numbered_citations(tmp_path: Path, index: Index) -> None:
    write_files(tmp_path, FILES)
    assert list(tell_story(tmp_path, "1", open_store(index))) == [
        "Tell me about bees and wasps.",
        "",
        "Queries:",
        "   1. How do bees live?",
        "   2. How do wasps live?",
        "",
        "Documents chosen, and the queries that each covers:",
        "  [1] Bees: 1, 2",
        "  [2] Volcanoes: none",
        "  [3] Wasps: 2",
        "  [4] Glaciers: none",
        "",
        "Answer:",
        "Bees live in colonies. [1] So do some wasps. [1] [3] Glaciers move. [4]",
        "",
        "Citations of the first sentences, opened:",
        "  [1] Honey bees live in colonies of many thousand workers.",
        "  [3] Most wasps live alone.",
        "  [4] A glacier is a body of ice that moves slowly under its own weight.",
    ]


texts = st.lists(st.text("ab-", min_size=1, max_size=20), min_size=1, max_size=40).map(" ".join)


@given(texts, st.lists(texts, min_size=1, max_size=12), st.lists(texts, max_size=12))
def test_each_line_fits_the_terminal_and_no_word_is_lost(narrative: str, queries: list[str], titles: list[str]) -> None:
    asked = {"1": narrative, **{f"1#{number}": query for number, query in enumerate(queries)}}
    documents = {f"d{number:02}": Document(f"d{number:02}", "", title=title) for number, title in enumerate(titles)}
    store, ids = PartStore(documents, lambda wanted: [documents[name] for name in wanted]), [*documents]
    grades = {"queries": [*asked][1:], "documents": ids, "grades": [[2] * len(ids)] * len(queries), "selected": ids}
    files: dict[str, list[dict[str, Any]]] = {
        "queries.jsonl": [{"topic_id": "1", "queries": [{"id": one, "question": asked[one]} for one in asked]}],
        "grades.jsonl": [{"topic_id": "1", **grades}],
        "answers.jsonl": [{"topic_id": "1", "sentences": [{"text": own, "citations": ids[:2]} for own in queries]}],
    }
    with TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        lines = list(tell_story(Path(folder), "1", store))
    assert max(map(len, lines)) <= WIDTH_COLUMNS
    joined = f" {' '.join(' '.join(lines).split())} "
    for text in (narrative, *queries, *(f"{title}:" for title in titles)):
        assert f" {text} " in joined
