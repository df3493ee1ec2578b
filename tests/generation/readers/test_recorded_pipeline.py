"""Recorded replies of a language model lead the preset `keystone` to valid answers with each reader.

The corpus is the documentation that CPython 3.11 carries. A model read the prompts and replied; docs/papers.md has the
figures. If a prompt changes, make its replies again. Since the index takes minutes, only `make nightly` answers.
"""

import json
import lzma
import sys
from pathlib import Path

import orjson
import pytest

from keystone.generation.prompts import readers as prompts
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import read_json_lines
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support import programs
from tests.support.indexes.small_corpus import TRIAL_WARNINGS

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
PROMPTS = {
    "DISCORAG": "b690a339faf50fb8",
    "GRAPH_FACTS": "4f15be20a224f56e",
    "GRAPH_NODES": "35704fddca06bfa5",
    "GRAPH_PLAN": "946552442e8bca30",
    "GRAPH_STEP": "ca9f1949930d2426",
    "RHETORICAL_GRAPH": "5b4183a0b7e700c5",
    "RHETORICAL_PLAN": "dcf1bfde086c8c86",
    "RST_TREE": "74141261418b2324",
    "route": "6b52a95aa3cfaef2",
}
"""The beginning of the digest of each prompt of a reader that the recorded replies belong to."""


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_with_recorded_replies_is_unchanged(name: str) -> None:
    """If you mean to change one, make the replies anew, run `make nightly`, and put the new digest here."""
    prompt = prompts.write_route(True, True) if name == "route" else getattr(prompts, name)
    assert digest(prompt._asdict())[:16] == PROMPTS[name]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    programs.run([sys.executable, RECORDED / "pages.py", folder / "corpus.jsonl"], check=True)
    return build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))[0].folder


@pytest.fixture(scope="module")
def made() -> list[Path]:
    """The runs so far, from which further ones have the files that no reader changes."""
    return []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the replies belong to the documentation of CPython 3.11")
@pytest.mark.parametrize("name", SETTINGS)
def test_recorded_replies_lead_each_reader_to_valid_answers(
    name: str, index: Path, made: list[Path], tmp_path: Path
) -> None:
    topics, replies = tmp_path / "topics.jsonl", tmp_path / "replies.jsonl"
    topics.write_bytes((RECORDED / "pages.narratives.jsonl").read_bytes())
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
    assert len(answers) == len(narratives) == 12
    assert all(len(answer["sentences"]) >= 5 for answer in answers)
    evidence = [row for _, row in read_json_lines(directory / "evidence.jsonl")]
    assert {one["stop"] for one in evidence} <= {"done", "max_steps"}
