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
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import USAGE_FILE
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.table import bind_stages
from keystone.runs.pipeline.values import Values
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
        def __init__(self, directory: Path, job: Job, lenders: Sequence[Path]) -> None:
            super().__init__(directory, job, lenders)
            held.append(self)

    monkeypatch.setattr("keystone.runs.pipeline.run.Values", Noted)
    with serving(model=say) as server:
        model = [f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"] if preset else ["run_id=rules"]
        where = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path}", "fusion.depth=20"]
        config = read_config(None, [*model, *where, "answer.documents=9"], preset)
        directory = run(config, threads=2)
    job, values = open_job(config), held[0]
    fresh, checked = Values(directory, job), set()
    for artifact in (artifact for stage in bind_stages(job) for artifact in stage.makes):
        value, before = values.get(artifact), (directory / artifact.name).read_bytes()
        read = artifact.read(directory / artifact.name, fresh)
        if artifact.name != job.track.retrieval_file:
            assert same(value, read), artifact.name
        artifact.write(tmp_path / "again", read, fresh)
        assert (tmp_path / "again").read_bytes() == before, artifact.name
        checked.add(artifact.name)
    assert checked == {path.name for path in directory.iterdir()} - {MANIFEST, USAGE_FILE}
