"""Documents without a text: those with a title are kept and counted, and those without one are left out."""

import json
from pathlib import Path

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import BadRecord
from keystone.indexing.store import DocumentStore
from tests.support.runs.command_line import keystone

RECORDS = [
    {"id": "a", "title": "River", "text": "Rivers flow."},
    {"id": "b", "title": "Flood", "text": None},
    {"id": "c", "title": "Lamp", "text": " \n"},
    {"id": "d", "title": "", "text": ""},
    {"id": "e", "text": "\t"},
]


def write(folder: Path) -> Path:
    file = folder / "c.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return file


def test_documents_without_text_are_counted_by_whether_they_have_a_title(tmp_path: Path) -> None:
    errors: list[BadRecord] = []
    corpus = write(tmp_path)
    made, _ = build_index(corpus, tmp_path / "index", BuildSettings(embedding=None), report=errors.append)
    assert [document.id for document in DocumentStore(made.store)] == ["a", "b", "c"]
    assert (made.documents, made.left_out, made.segments["blank"]) == (3, {"empty": 2}, 2)
    assert [str(error) for error in errors] == [
        f"{corpus}:{line}: document {name}: has neither text nor title" for line, name in ((4, "d"), (5, "e"))
    ]


def test_the_command_says_how_many_documents_have_no_text(tmp_path: Path) -> None:
    shown = keystone("index", write(tmp_path), "--out", tmp_path / "i", "--no-dense", "-q")
    assert shown.stderr.splitlines()[-2:] == [
        f"{tmp_path / 'i'}: records left out of the corpus: 2 (2 empty)",
        f"{tmp_path / 'i'}: 2 documents without text are found by their titles and never cited",
    ]
