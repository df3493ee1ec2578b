"""Artifacts as values: for every artifact of a run, the value in memory equals the value in its file."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keystone.indexing.index import Index
from keystone.retrieval.types import Rankings
from keystone.runs.config.read import read_config
from keystone.runs.pipeline import stages
from keystone.runs.pipeline.artifacts import list_artifacts
from keystone.runs.pipeline.directory import MANIFEST, Artifact, Values
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.model_runner import USAGE_FILE
from tests.support.models.plain_model import say
from tests.support.servers.chat import serving


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, arrays and lists of arrays included."""
    if isinstance(one, Rankings):
        return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return bool(one == other)


@pytest.mark.slow
@pytest.mark.parametrize("preset", [None, "keystone", "uema21lab_base"])
def test_a_value_in_memory_is_the_one_in_its_file(
    preset: str | None, index: Index, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Values] = []

    class Noted(Values):
        def __init__(self, directory: Path, lenders: Sequence[Path]) -> None:
            super().__init__(directory, lenders)
            held.append(self)

    monkeypatch.setattr(stages, "Values", Noted)
    with serving(model=say) as server:
        model = [f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"] if preset else ["run_id=rules"]
        where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path}", "fusion.depth=20"]
        config = read_config(None, [*model, *where, "answer.documents=9"], preset)
        directory = stages.run(config, threads=2)
    job, values = open_job(config), held[0]
    files = list_artifacts(job, Values(directory))
    named = [getattr(files, field.name) for field in fields(files)]
    single: list[Artifact[Any]] = [one for one in named if isinstance(one, Artifact)]
    checked = set()
    for artifact in [*single, *files.systems]:
        if (directory / artifact.name).exists():
            value, before = values.get(artifact), (directory / artifact.name).read_bytes()
            read = artifact.read(directory / artifact.name)
            if artifact.name != job.track.retrieval_file:
                assert same(value, read), artifact.name
            artifact.write(tmp_path / "again", read)
            assert (tmp_path / "again").read_bytes() == before, artifact.name
            checked.add(artifact.name)
    assert checked == {path.name for path in directory.iterdir()} - {MANIFEST, USAGE_FILE}
