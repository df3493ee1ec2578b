"""Jobs of a batch service: submitted once, fetched when they end, and continued after any fall."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.llm import batch_jobs
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Request
from keystone.indexing.errors import UserError, Waits
from tests.support.models.client import open_beside_cache
from tests.support.servers.batch_service import KEY, Service, serve_batches

pytest.importorskip("openai")


class Fall(BaseException):
    """The end of a process, which no handler of errors sees."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_batches() as found:
        yield found


def ask(folder: Path, service: Service, *said: str, **changes: Any) -> list[Any]:
    own = {"name": "m", "backend": "batch", "submit": True, "urls": [service.url], "cache": folder / "replies.sqlite"}
    chosen = ModelSettings.model_validate(own | changes)

    async def run() -> Any:
        async with open_beside_cache(chosen) as model:
            asked = [(Request("step", (("user", text),), 10), lambda reply: reply.text) for text in said]
            return await ask_all(model, asked)

    return asyncio.run(run())


@pytest.mark.slow
def test_a_job_is_submitted_with_its_cost_and_the_same_command_fetches_its_replies(
    tmp_path: Path, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(Waits, match=r"job batch_0 of .*: validating"):
        ask(tmp_path, service, "a", "b", prices={"prompt": 1000, "completion": 1000})
    assert "2 requests are submitted, at most" in caplog.text
    assert "by model.prices" in caplog.text
    service.ends = "in_progress"
    with pytest.raises(Waits, match=r"job batch_0 of .*: in_progress"):
        ask(tmp_path, service, "a", "b")
    service.ends = "completed"
    assert ask(tmp_path, service, "a", "b") == ["a", "b"]
    assert len(service.jobs) == 1


@pytest.mark.slow
def test_a_run_with_more_requests_submits_only_those_that_no_job_answers(tmp_path: Path, service: Service) -> None:
    service.ends = "in_progress"
    for said in (("a", "b"), ("a", "b", "c"), ("c", "a")):
        with pytest.raises(Waits):
            ask(tmp_path, service, *said)
    assert [service.files[job["input_file_id"]].count(b"\n") for job in service.jobs] == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("falls", ["after the upload", "after the job is created", "at each kept file"])
def test_a_process_that_falls_at_any_point_pays_nothing_twice(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch, falls: str
) -> None:
    keep, kept = batch_jobs._keep, []

    def fall(requests: Path, job: Any) -> None:
        kept.append(job["batch"])
        if falls == "after the upload":
            keep(requests, job)
            raise Fall
        if falls == "at each kept file" or job["batch"]:
            raise Fall
        keep(requests, job)

    with monkeypatch.context() as patched:
        patched.setattr(batch_jobs, "_keep", fall)
        with pytest.raises(Fall):
            ask(tmp_path, service, "a")
    for _ in range(2):
        try:
            assert ask(tmp_path, service, "a") == ["a"]
        except Waits:
            continue
    assert ask(tmp_path, service, "a") == ["a"]
    assert len(service.jobs) == 1


@pytest.mark.slow
def test_a_lost_reply_to_the_creation_is_found_among_the_jobs(tmp_path: Path, service: Service) -> None:
    service.hangs_up_after_create = True
    with pytest.raises(UserError, match="did not answer"):
        ask(tmp_path, service, "a")
    service.hangs_up_after_create = False
    service.ends = "completed"
    with pytest.raises(Waits):
        ask(tmp_path, service, "a")
    assert ask(tmp_path, service, "a") == ["a"]
    assert len(service.jobs) == 1


@pytest.mark.slow
def test_an_expired_job_keeps_its_replies_and_only_the_others_are_submitted_again(
    tmp_path: Path, service: Service
) -> None:
    with pytest.raises(Waits):
        ask(tmp_path, service, "a", "b", "c")
    service.ends, service.expired = "expired", {1}
    with pytest.raises(Waits, match="batch_1"):
        ask(tmp_path, service, "a", "b", "c")
    service.ends, service.expired = "completed", set()
    assert ask(tmp_path, service, "a", "b", "c") == ["a", "b", "c"]
    assert [service.files[job["input_file_id"]].count(b"\n") for job in service.jobs] == [3, 1]


@pytest.mark.slow
def test_a_failed_job_says_its_reason_and_can_be_submitted_again(tmp_path: Path, service: Service) -> None:
    with pytest.raises(Waits):
        ask(tmp_path, service, "a")
    service.ends = "failed"
    with pytest.raises(UserError, match=r"job batch_0 failed.*line 2: no such model"):
        ask(tmp_path, service, "a")
    service.ends = "completed"
    with pytest.raises(Waits, match="batch_1"):
        ask(tmp_path, service, "a")
    assert ask(tmp_path, service, "a") == ["a"]


@pytest.mark.slow
def test_a_refused_key_is_named_without_the_key(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-key")
    with pytest.raises(UserError, match="401") as error:
        ask(tmp_path, service, "a")
    assert "sk-wrong-key" not in str(error.value)


def test_only_batches_are_submitted_and_the_default_is_left_out() -> None:
    with pytest.raises(ValueError, match="submit: found with backend 'endpoints'"):
        ModelSettings(name="m", submit=True)
    with pytest.raises(ValueError, match="with submit, whose files are for chat completions"):
        ModelSettings(name="m", backend="batch", submit=True, urls=["http://localhost/v1/responses"])
    assert "submit" not in ModelSettings(name="m").model_dump()
