"""A run whose model is a batch service, killed at each step of a job: the same command goes on and pays once."""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from keystone.indexing.index import Index
from tests.support import programs
from tests.support.indexes.small_corpus import write_topics
from tests.support.models.plain_model import say
from tests.support.runs.model_runs import read_run_content
from tests.support.servers.batch_service import KEY, Service, serve_batches
from tests.support.waiting import LIMIT_S

pytest.importorskip("openai")
pytestmark = pytest.mark.slow

MOMENTS = [
    "upload arrives", "upload is done", "create arrives", "create is done", "poll arrives", "poll is done",
    "fetch arrives",
]  # fmt: skip
STEPS = "answer.method=whole", "answer.rounds=0", "answer.support=rules"
"""Settings with which a run has one step of the model, so that few processes have to start."""
WAITS = 3
MOST_COMMANDS = 40


def command(index: Index, folder: Path, service: Service) -> list[str | Path]:
    model = f"model={{name: plain, backend: batch, submit: true, urls: ['{service.url}'], window: 4096}}"
    where = [f"out={folder / 'out'}", f"index={index.folder}", f"topics={folder / 'topics.jsonl'}"]
    settings = [part for value in (model, *STEPS, *where) for part in ("--set", value)]
    return [sys.executable, "-m", "keystone.runs.cli.main", "run", "--preset", "bm25", "--quiet", *settings]


def finish(index: Index, folder: Path, moments: list[str]) -> tuple[Service, list[int], dict[str, bytes]]:
    """Run the command until it is done, and kill it at each of the moments once.

    Returns the service, the exit codes and the run's files.
    """
    folder.mkdir()
    write_topics(folder / "topics.jsonl")
    left, codes, running = list(moments), list[int](), list[Popen[Any]]()
    with serve_batches() as service:

        def kill(moment: str) -> None:
            if moment in left:
                left.remove(moment)
                programs.kill(running[-1])
                raise ConnectionAbortedError  # so that nobody does the work of a request that has just arrived

        service.model, service.reach = say, kill
        while not codes or codes[-1] != 0:
            env = {**os.environ, "OPENAI_API_KEY": KEY, "NO_COLOR": "1"}
            with programs.started(command(index, folder, service), env=env, stderr=-1, text=True) as process:
                running.append(process)
                _, errors = process.communicate(timeout=LIMIT_S)
            codes.append(process.returncode)
            assert codes[-1] in (0, WAITS, -9), errors
            assert len(codes) < MOST_COMMANDS
    assert left == []
    return service, codes, read_run_content(next(path for path in (folder / "out").iterdir() if path.name != "batch"))


def test_a_run_that_is_killed_at_each_step_of_a_job_uploads_and_pays_nothing_twice(
    index: Index, tmp_path: Path
) -> None:
    whole, undisturbed, expected = finish(index, tmp_path / "whole", [])
    service, codes, found = finish(index, tmp_path / "killed", MOMENTS)
    assert -9 not in undisturbed
    assert codes.count(-9) == len(MOMENTS)
    uploads = [service.files[name] for name in service.names]
    asked = Counter(json.loads(line)["custom_id"] for content in uploads for line in content.splitlines())
    assert set(asked.values()) == {1}
    assert asked.keys() == {
        json.loads(line)["custom_id"] for name in whole.names for line in whole.files[name].splitlines()
    }
    assert sorted(job["input_file_id"] for job in service.jobs) == sorted(service.names)
    assert found == expected
