"""The model of a run: the room of its replies, and what its end does while requests wait."""

import time
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.llm import batch
from keystone.generation.llm.ask import ask_all, request_repair
from keystone.generation.types import Reply, Request
from keystone.indexing.errors import UserError, Waits
from keystone.runs.config.read import read_config
from keystone.runs.pipeline import model_runner
from keystone.runs.pipeline.model_runner import allow_thoughts, ask_model, open_model_runner

ONE = Request("grade", (("user", "How good is it?"),), 72)


def test_a_reply_that_was_cut_has_twice_the_room_for_thoughts() -> None:
    assert allow_thoughts(ONE, 4096).max_tokens == 72 + 4096
    assert allow_thoughts(request_repair(ONE, Reply("", "length"), "it was cut"), 4096).max_tokens == 2 * (72 + 4096)
    assert allow_thoughts(request_repair(ONE, Reply("?"), "it is no grade"), 4096).max_tokens == 72 + 4096


@pytest.mark.parametrize(
    ("answer", "error", "shown"),
    [
        pytest.param(["job 7: validating"], Waits, "job 7: validating", id="a job"),
        pytest.param(UserError("refused with status 401"), UserError, "401", id="a refusal"),
    ],
)
def test_a_submission_is_waited_for(
    answer: Any, error: type[UserError], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> list[str]:
        time.sleep(0.05)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    monkeypatch.setattr(batch, "fetch_jobs", lambda *_: [])
    monkeypatch.setattr(batch, "submit_files", submit)
    monkeypatch.setattr(model_runner, "CLOSE_TIMEOUT_S", 0.01)
    model = "model={name: m, backend: batch, submit: true}"
    config = read_config(None, ["run_id=r", "index=i", "topics=t", f"out={tmp_path}", model])
    with pytest.raises(error, match=shown), open_model_runner(config, None) as run_with_model:
        ask_model(run_with_model, lambda model: ask_all(model, [(ONE, lambda reply: reply.text)]))
