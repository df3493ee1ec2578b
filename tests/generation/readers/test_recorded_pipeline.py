"""Recorded replies of a language model lead the preset `keystone` to valid answers with each reader.

The corpus is the documentation that CPython 3.11 carries. A model read the prompts and replied; docs/papers.md has the
figures. If a prompt changes, make its replies again.
"""

import json
import lzma
import sys
from pathlib import Path

import orjson
import pytest

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.io.reading import read_json_lines
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support import programs
from tests.support.indexes.small_corpus import TRIAL_WARNINGS
from tests.support.mutation import FUZZ_CASES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11), reason="the replies belong to the documentation of CPython 3.11"
    ),
]

RECORDED = Path(__file__).parent / "recorded"
MODEL = "reader-1"
SETTINGS: dict[str, dict[str, int]] = {
    "plain": {},
    "rdr2": {"documents": 2, "max_expand": 1},
    "discorag": {"entries": 2, "entries_per_document": 1, "steps": 4},
    "disco_rag": {"chunks": 4},
    "graphreader": {"nodes": 2, "functions": 4},
}
"""The settings of each reader, small because every reply was written by reading."""
NARRATIVES = 12 if FUZZ_CASES else 1
"""`make nightly` answers all narratives."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    programs.run([sys.executable, RECORDED / "pages.py", folder / "corpus.jsonl"], check=True)
    return build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))[0].folder


@pytest.fixture(scope="module")
def made() -> list[Path]:
    """The runs so far, from which further ones have the files that no reader changes."""
    return []


@pytest.mark.parametrize(
    "name", [pytest.param("plain", marks=pytest.mark.nightly), *(name for name in SETTINGS if name != "plain")]
)
def test_recorded_replies_lead_each_reader_to_valid_answers(
    name: str, index: Path, made: list[Path], tmp_path: Path
) -> None:
    topics, replies = tmp_path / "topics.jsonl", tmp_path / "replies.jsonl"
    lines = (RECORDED / "pages.narratives.jsonl").read_bytes().splitlines(keepends=True)
    topics.write_bytes(b"".join(lines[:NARRATIVES]))
    of_pipeline = [orjson.dumps(row) for _, row in read_json_lines(RECORDED / "pages.pipeline.replies.jsonl.zst")]
    of_readers = lzma.decompress((RECORDED / "pages.readers.replies.jsonl.xz").read_bytes())
    replies.write_bytes(b"\n".join([*of_pipeline, of_readers]))
    settings = {
        "index": str(index),
        "topics": str(topics),
        "out": str(tmp_path),
        "queries": {"method": "model", "variants": 10, "question_weight": 3, "passages": "none"},
        "grading.pool": 8,
        "answer": {"method": "retrieval", "documents": 3, "segments": "closest", "support": "none", "mend": False},
        "reader": {"name": name, "evidence_tokens": 1500, **SETTINGS[name]},
        "model": {"backend": "replay", "name": MODEL, "replies": str(replies)},
    }
    overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    directory = run(read_config(None, overrides, preset="keystone"), threads=2, lenders=made)
    made.append(directory)
    track, narratives = TRACKS["rag25"], read_topics(topics)
    found = {violation.kind for violation in validate(directory / track.answer_file, track, narratives)}
    assert found <= TRIAL_WARNINGS
    answers = [row for _, row in read_json_lines(directory / "answers.jsonl")]
    assert len(answers) == len(narratives) == NARRATIVES
    assert all(len(answer["sentences"]) >= 5 for answer in answers)
    evidence = [row for _, row in read_json_lines(directory / "evidence.jsonl")]
    assert {one["stop"] for one in evidence} <= {"done", "max_steps"}
