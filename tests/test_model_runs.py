"""Runs with a language model behind a real endpoint: every preset, from recorded replies too, faults and all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from generation.replay import record
from indexing.build import Index
from runs.config_file import PRESETS, read_config
from runs.models import REPLIES, USAGE
from runs.stages import run
from runs.topics import read_topics
from runs.validate import track_of, validate
from tests.chat_server import Server, serving
from tests.conftest import write_topics
from tests.plain_model import say


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


def make(preset: str, index: Index, folder: Path, server: Server, *changes: str) -> Path:
    """A run of a preset in a folder, in this process."""
    topics = write_topics(folder / "topics.jsonl")
    settings = [
        f"index={index.folder}",
        f"topics={topics}",
        f"out={folder / 'out'}",
        f"model={{name: plain, urls: ['{server.url}'], window: 4096}}",
        *changes,
    ]
    return run(read_config(None, settings, preset), threads=2)


def submitted(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "_output_trec_rag_" in path.name)


def content(directory: Path) -> dict[str, bytes]:
    """What a run made, without its configuration, and the manifest's word on that, and what it cost."""
    left_out = {"config.yaml", "manifest.json", USAGE}
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in left_out}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_and_the_same_from_recorded_replies(
    preset: str, index: Index, tmp_path: Path, server: Server
) -> None:
    directory = make(preset, index, tmp_path, server)
    topics = read_topics(tmp_path / "topics.jsonl")
    assert submitted(directory)
    for path in submitted(directory):
        assert {violation.kind for violation in validate(path, track_of(path), topics)} <= {"id of another corpus"}
    replies = tmp_path / "replies.jsonl"
    made = record(tmp_path / "out" / REPLIES, replies) if (tmp_path / "out" / REPLIES).exists() else 0
    if made:
        asked = len(server.requests)
        (tmp_path / "again").mkdir()
        again = make(preset, index, tmp_path / "again", server, "model.backend=replay", f"model.replies={replies}")
        assert content(again) == content(directory)
        assert len(server.requests) == asked
