"""The passages of documents: whose they are, and which collections are embedded by them."""

import json
import pickle
from pathlib import Path

import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import open_index
from keystone.indexing.store import DocumentStore
from keystone.indexing.vectors.passages import Passages, load_offsets
from tests.support.indexes.small_corpus import read_contents, write_corpus
from tests.support.runs.command_line import keystone

SENTENCE = "Bees of many hives carry pollen to the red and yellow flowers of one large field. "


def test_another_process_opens_the_same_passages(tmp_path: Path) -> None:
    index, _ = build_index(write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "index", BuildSettings(passages=True))
    passages = Passages(DocumentStore(index.store), load_offsets(index))
    again = pickle.loads(pickle.dumps(passages))
    assert again.get([0, 8]) == passages.get([0, 8])
    assert again.ids([8]) == ["weather#w0_0"]
    assert len(again) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "passages"),
    [
        (["short"] * 3 + [SENTENCE * 30] * 2, False),
        (["short"] * 2 + [SENTENCE * 30] * 3, True),
        (["a b " * 500] * 3, False),
        (["Yes. " * 30] * 3, False),
    ],
    ids=["few are long", "most are long", "long, but of one segment", "several segments in the window"],
)
def test_passages_are_embedded_if_most_documents_are_long(tmp_path: Path, texts: list[str], passages: bool) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    made, _ = build_index(corpus, tmp_path / "auto", BuildSettings(passages=None))
    asked, _ = build_index(corpus, tmp_path / "asked", BuildSettings(passages=passages))
    assert made.passages is asked.passages is passages
    assert read_contents(made.folder) == read_contents(asked.folder)
    again, built = build_index(corpus, asked.folder, BuildSettings(passages=None))
    assert (again.key, built) == (asked.key, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "option", "passages"),
    [(SENTENCE * 30, [], True), ("short", [], False), (SENTENCE * 30, ["--dense", "all"], False)],
)
def test_the_command_chooses_passages_unless_told(tmp_path: Path, text: str, option: list[str], passages: bool) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "d", "text": text}) + "\n")
    made = keystone("index", corpus, "--out", tmp_path / "index", "-q", *option)
    assert made.returncode == 0, made.stderr
    assert open_index(tmp_path / "index").passages is passages
