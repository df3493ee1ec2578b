"""Recorded replies of a language model lead each reader to valid answers to the demo's narratives.

`demo.replies.jsonl.xz`, beside the tests of the readers, holds the replies that the readers got besides those of the
demo. A model read the prompts and replied; docs/readers.md has the figures. If a prompt changes, make its replies
again.
"""

import json
import lzma
import sys
from importlib.resources import files
from pathlib import Path

import orjson
import pytest

from indexing.builds.index import build_index
from indexing.builds.settings import BuildSettings
from indexing.io.reading import read_json_lines
from runs.config.read import read_config
from runs.demo.main import MODEL, make_corpus
from runs.pipeline.stages import run
from runs.tracks.rules import TRACKS
from runs.tracks.validate import validate
from runs.trec.topics import read_topics
from tests.support.places import ROOT
from tests.support.small_corpus import TRIAL_WARNINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11), reason="the replies belong to the documentation of CPython 3.11"
    ),
]

RECORDED = ROOT / "tests" / "generation" / "readers" / "recorded" / "demo.replies.jsonl.xz"
SETTINGS: dict[str, dict[str, int]] = {
    "plain": {},
    "rdr2": {"documents": 2, "max_expand": 1},
    "discorag": {"entries": 2, "entries_per_document": 1, "steps": 4},
    "disco_rag": {"chunks": 4},
    "graphreader": {"nodes": 2, "functions": 4},
}
"""The settings of each reader, small because every reply was written by reading."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the index of the demo, its narratives and all replies."""
    folder = tmp_path_factory.mktemp("demo")
    make_corpus(folder / "corpus.jsonl")
    build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))
    package = files("runs.demo")
    (folder / "narratives.jsonl").write_bytes((package / "narratives.jsonl").read_bytes())
    (folder / "replies.jsonl.zst").write_bytes((package / "replies.jsonl.zst").read_bytes())
    of_demo = [orjson.dumps(row) for _, row in read_json_lines(folder / "replies.jsonl.zst")]
    (folder / "replies.jsonl").write_bytes(b"\n".join([*of_demo, lzma.decompress(RECORDED.read_bytes())]))
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_recorded_replies_lead_to_valid_answers_to_the_narratives_of_the_demo(
    name: str, demo: Path, tmp_path: Path
) -> None:
    settings = {
        "index": str(demo / "index"),
        "topics": str(demo / "narratives.jsonl"),
        "out": str(tmp_path),
        "queries.passages": "none",
        "grading.pool": 8,
        "answer": {"method": "retrieval", "documents": 3, "segments": "closest", "support": "none"},
        "reader": {"name": name, "evidence_tokens": 1500, **SETTINGS[name]},
        "model": {"backend": "replay", "name": MODEL, "replies": str(demo / "replies.jsonl")},
    }
    overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    directory = run(read_config(None, overrides, preset="keystone"), threads=2)
    track, topics = TRACKS["rag25"], read_topics(demo / "narratives.jsonl")
    found = {violation.kind for violation in validate(directory / track.answer_file, track, topics)}
    assert found <= TRIAL_WARNINGS
    answers = [row for _, row in read_json_lines(directory / "answers.jsonl")]
    assert len(answers) == len(topics)
    assert all(len(answer["sentences"]) >= 5 for answer in answers)
    evidence = [row for _, row in read_json_lines(directory / "evidence.jsonl")]
    assert {one["stop"] for one in evidence} <= {"done", "max_steps"}
