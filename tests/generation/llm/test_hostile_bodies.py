"""One table of hostile replies for all clients of a model: each client reads a reply alike, and keeps only usable ones.

The clients are a server over HTTP, a folder of batch files, jobs of a batch service, recorded replies, and vLLM's
engine in this process. `test_hostile_replies.py` has what only HTTP can do wrong, `test_batch.py` the lines of a batch.
"""

import json
import logging
import re
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keystone.generation.llm import vllm
from keystone.generation.llm.batch_jobs import locate_replies
from keystone.generation.llm.cache import Cache
from keystone.generation.llm.model import make_request_key
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.encoders import vllm as engines
from keystone.indexing.errors import UserError, Waits
from tests.support.models.client import complete, make_settings
from tests.support.models.hostile_bodies import HOSTILE_BODIES, Fate, body
from tests.support.servers import batch_service
from tests.support.servers.chat import says, serving

HELLO = "hello"
GOOD = Reply(HELLO)
pytestmark = pytest.mark.usefixtures("short_pauses")

ASKED = Request("step", (("user", HELLO),), 64, top_logprobs=1)
Answered = Reply | Failure | None
"""The outcome of the hostile reply; None if the client has to be given another one."""


def ask(chosen: ModelSettings) -> Reply | Failure:
    """Put the request; what the client notes, and the reason of a failure, can be shown, and its usage can be true."""
    outcomes, usage, notes = complete(chosen, [ASKED])
    shown = f"{'; '.join(notes)} {getattr(outcomes[0], 'reason', '')}"
    assert shown.isprintable()
    assert all(0 <= spent <= 1_000 for spent in (usage["step"].prompt_tokens, usage["step"].completion_tokens))
    return outcomes[0]


def wait(chosen: ModelSettings) -> None:
    """Put the request, which then waits for a reply."""
    with pytest.raises(Waits) as waits:
        complete(chosen, [ASKED])
    assert "".join(str(waits.value).splitlines()).isprintable()


def ask_server(folder: Path, hostile: Any, _: pytest.MonkeyPatch) -> Answered:
    """Ask a server over HTTP, whose second reply is a good one."""
    with serving(faults=[says(hostile)]) as server:
        outcome = ask(make_settings(folder, server.url))
    if len(server.requests) == 1:
        return outcome
    assert outcome == GOOD
    return None


def ask_batch(folder: Path, hostile: Any, _: pytest.MonkeyPatch) -> Answered:
    """Put the reply into the folder of batch files, and then a good one if the client waits for it."""
    chosen = make_settings(folder, backend="batch")

    def reply(said: Any) -> None:
        wait(chosen)
        (file,) = (file for file in (folder / "batch").glob("*.requests.jsonl") if not locate_replies(file).exists())
        line = {"custom_id": json.loads(file.read_bytes())["custom_id"], "response": {"status_code": 200, "body": said}}
        locate_replies(file).write_text(json.dumps(line) + "\n")

    reply(hostile)
    try:
        return ask(chosen)
    except Waits:
        reply(body(HELLO))
        assert ask(chosen) == GOOD
        return None


def ask_jobs(folder: Path, hostile: Any, patch: pytest.MonkeyPatch) -> Answered:
    """Submit a job whose reply it is. If a second job is submitted, it has a good one."""
    pytest.importorskip("openai")
    patch.setenv("OPENAI_API_KEY", batch_service.KEY)
    with batch_service.serve_batches() as service:
        service.said[HELLO] = hostile
        chosen = make_settings(folder, service.url, backend="batch", submit=True)
        wait(chosen)
        try:
            return ask(chosen)
        except Waits:
            service.said.clear()
            assert ask(chosen) == GOOD
            assert len(service.jobs) == 2
            return None


def ask_replay(folder: Path, hostile: Any, _: pytest.MonkeyPatch) -> Answered:
    """Put content, end and log-probabilities of the reply into a file of recorded replies."""
    choice = hostile["choices"][0]
    line = {
        "key": make_request_key("m", ASKED),
        "text": choice["message"]["content"],
        "finish": choice["finish_reason"],
    }
    file = folder / "recorded.jsonl"
    file.write_text(json.dumps(line | {"logprobs": read_alternatives(choice)}) + "\n")
    chosen = make_settings(folder, backend="replay", replies=file)
    with suppress(UserError):
        return ask(chosen)
    with pytest.raises(UserError, match=f"^{re.escape(str(file))}:1: "):
        ask(chosen)
    return None


def ask_in_process(folder: Path, hostile: Any, patch: pytest.MonkeyPatch) -> Answered:
    """Ask an engine that says content, end and log-probabilities of the reply."""
    choice = hostile["choices"][0]
    logprobs = [
        dict(enumerate(SimpleNamespace(decoded_token=one, logprob=float(logprob)) for one, logprob in each.items()))
        for each in read_alternatives(choice)
    ]
    said = SimpleNamespace(
        text=choice["message"]["content"],
        finish_reason=choice["finish_reason"],
        token_ids=[0] * len(logprobs),
        logprobs=logprobs,
    )
    output = SimpleNamespace(outputs=[said], prompt_token_ids=[1], num_cached_tokens=None)
    core = SimpleNamespace(shutdown=lambda **_: None)
    engine = SimpleNamespace(chat=lambda *_, **__: [output], llm_engine=SimpleNamespace(engine_core=core))
    patch.setattr(engines, "load_engine", lambda *_: engine)
    patch.setattr(vllm, "list_refusals", lambda: (ValueError,))
    patch.setattr(vllm.OfflineEngine, "_make_sampling", lambda *_: None)
    return ask(make_settings(folder, backend="vllm"))


def read_alternatives(choice: dict[str, Any]) -> list[dict[str, Any]]:
    listed = choice.get("logprobs", {}).get("content", ())
    return [{one["token"]: one["logprob"] for one in each["top_logprobs"]} for each in listed]


def has_text(hostile: Any) -> bool:
    try:
        choice = hostile["choices"][0]
        [float(logprob) for each in read_alternatives(choice) for logprob in each.values()]
        return isinstance(choice["message"]["content"], str)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


CLIENTS: dict[str, Callable[[Path, Any, pytest.MonkeyPatch], Answered]] = {
    "HTTP": ask_server,
    "batch": ask_batch,
    "jobs": ask_jobs,
    "replay": ask_replay,
    "in process": ask_in_process,
}
TEXT_CLIENTS = ("replay", "in process")
"""Clients that are given a text, and no body that could lack it."""


@pytest.mark.parametrize(
    ("client", "name"),
    [
        pytest.param(client, name, marks=[pytest.mark.slow] if client == "jobs" else [])
        for client in CLIENTS
        for name in HOSTILE_BODIES
        if client not in TEXT_CLIENTS or has_text(HOSTILE_BODIES[name].body)
    ],
)
def test_each_client_reads_a_hostile_reply_alike_and_keeps_it_only_if_it_is_usable(
    client: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "generation")
    hostile, fate = HOSTILE_BODIES[name]
    outcome = CLIENTS[client](tmp_path, hostile, monkeypatch)
    assert "".join(caplog.messages).isprintable()
    found: Fate = "again" if outcome is None else "reply" if isinstance(outcome, Reply) else "failure"
    if client not in TEXT_CLIENTS:
        assert found == fate
    if fate == "reply":
        assert isinstance(outcome, Reply)
        assert outcome.text == hostile["choices"][0]["message"]["content"]
    if (cache := tmp_path / "replies.sqlite").exists():
        with closing(Cache(cache)) as kept:
            assert [reply.outcome for _, reply in kept.items()] == ([] if found == "failure" else [outcome or GOOD])
