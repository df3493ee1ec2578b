"""A real command as the model: its prompts, its replies, each way in which it can fail, and its kept replies."""

import os
import shlex
import sys
import time
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from pydantic import ValidationError

from keystone.generation.llm import command as backend
from keystone.generation.llm.command import write_prompt
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Message, Reply, Request, Usage
from keystone.indexing.errors import UserError
from tests.support.models.client import SECRET, complete
from tests.support.places import ROOT

pytestmark = pytest.mark.usefixtures("short_pauses")

ECHO = "import sys; print(sys.stdin.read())"


def asking(text: str, **changes: Any) -> Request:
    return Request("step", (("system", "Be short."), ("user", text)), 10, **changes)


def running(folder: Path, program: str, **changes: Any) -> ModelSettings:
    chosen = {"name": "m", "backend": "command", "command": [sys.executable, "-c", program], "concurrency": 2}
    return ModelSettings.model_validate(chosen | {"cache": folder / "replies.sqlite"} | changes)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param((("user", "Why?"),), "Why?\n", id="one turn"),
        pytest.param((("system", "Be short."), ("user", "Why?")), "Be short.\n\nWhy?\n", id="a system's text"),
        pytest.param(
            (("system", "Be short."), ("user", "Why?"), ("assistant", "So."), ("user", "Really?")),
            "Be short.\n\n[USER]\nWhy?\n\n[ASSISTANT]\nSo.\n\n[USER]\nReally?\n",
            id="several turns",
        ),
        pytest.param((("user", "\ud800"),), "?\n", id="half a character"),
    ],
)
def test_the_messages_become_one_prompt(messages: tuple[Message, ...], expected: str) -> None:
    assert write_prompt(messages).decode() == expected


def test_replies_come_from_standard_output_and_are_kept(tmp_path: Path) -> None:
    program = f"import sys, pathlib; pathlib.Path({str(tmp_path)!r}, 'ran').open('a').write('x'); {ECHO}"
    requests = [asking(str(number)) for number in range(5)]
    outcomes, usage, notes = complete(running(tmp_path, program), requests)
    assert outcomes == {number: Reply(f"Be short.\n\n{number}") for number in range(5)}
    assert (usage["step"].calls, usage["step"].prompt_tokens, notes) == (5, 0, [])
    again, usage, _ = complete(running(tmp_path, program), requests)
    assert again == outcomes
    assert usage["step"] == Usage(cache_hits=5)
    assert (tmp_path / "ran").read_text() == "xxxxx"


def test_at_most_concurrency_processes_run_at_once(tmp_path: Path) -> None:
    program = (
        f"import os, pathlib, time; own = pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.pid'); own.touch();"
        "time.sleep(0.2); print(len(list(own.parent.glob('*.pid')))); own.unlink()"
    )
    outcomes, *_ = complete(running(tmp_path, program), [asking(str(number)) for number in range(8)])
    assert max(int(one.text) for one in outcomes.values() if isinstance(one, Reply)) == 2


FAULTS = {
    "an exit code": ("import sys; sys.exit('no\\nquota')", "exit code 1: no quota, 8 times"),
    "an exit code without words": ("import sys; sys.exit(3)", "exit code 3: nothing on standard error, 8 times"),
    "a signal": ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL: nothing on standard error, 8 times"),
    "no reply": ("pass", "exit code 0, and nothing on standard output, 8 times"),
    "no text": ("import sys; sys.stdout.buffer.write(b'a\\xff')", "a reply that is not UTF-8: byte 1, 8 times"),
    "a long reply": (
        "print('x' * 100_000)",
        "an answer of 100,000 characters, where 10 tokens were asked for, 8 times",
    ),
    "an endless reply": ("while True: print('x' * 60)", "a reply of more than 200,000 bytes, 8 times"),
    "much on standard error": (
        "import sys; sys.exit('x' * 10**6 + ' end')",
        "exit code 1: " + "x" * 495 + " end, 8 times",
    ),
    "no end": ("import time; time.sleep(60)", "no reply within 1.5 s, 3 times"),
    "a child that stays": (
        "import os, time; os.fork() or time.sleep(60); print('said')",
        "no reply within 1.5 s, 3 times",
    ),
}


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        pytest.param(program, reason, id=name, marks=[pytest.mark.slow] * ("no reply within" in reason))
        for name, (program, reason) in FAULTS.items()
    ],
)
def test_a_fault_of_one_prompt_is_named_and_harms_no_other(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "REPLY_LIMIT_BYTES", 200_000)
    faulty = f"import sys\nif 'bad' not in sys.stdin.read(): print('fine'); sys.exit()\n{program}"
    outcomes, usage, _ = complete(running(tmp_path, faulty, call_seconds=1.5), [asking("bad"), asking("good")])
    assert outcomes[1] == Reply("fine")
    assert isinstance(outcomes[0], Failure)
    assert outcomes[0].reason.startswith("model.command: ")
    assert outcomes[0].reason.endswith(reason)
    assert usage["step"].retries == int(reason.split()[-2])


def test_a_command_that_answers_nothing_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"exit code 1: no key; it does not answer a short prompt either\. All replies are"
    ):
        complete(running(tmp_path, "import sys; sys.exit('no key')"), [asking("a")])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param("no-such-program --fast", "No such file or directory", id="unknown"),
        pytest.param("/", "Permission denied", id="no program"),
        pytest.param(["echo", "a\0b"], "embedded null byte", id="a null byte"),
    ],
)
def test_a_command_that_cannot_start_is_named(command: str | list[str], reason: str, tmp_path: Path) -> None:
    shown = "model.command: .*: cannot be started: {}, expected a program and its arguments"
    with pytest.raises(UserError, match=shown.format(reason)):
        complete(running(tmp_path, "", command=command), [asking("a")])


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    text = shlex.join([sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME", "a b", "; ls", "*"])
    outcomes, *_ = complete(running(tmp_path, "", command=text), [asking("a")])
    assert outcomes == {0: Reply("['$HOME', 'a b', '; ls', '*']")}


def test_a_command_need_not_read_its_prompt(tmp_path: Path) -> None:
    outcomes, *_ = complete(running(tmp_path, "print('said')"), [asking("long " * 200_000)])
    assert outcomes == {0: Reply("said")}


def test_the_key_of_the_environment_is_kept_out_of_replies_and_errors(tmp_path: Path) -> None:
    program = (
        "import os, sys; key = os.environ['OPENAI_API_KEY']; 'bad' in sys.stdin.read() and sys.exit(key); print(key)"
    )
    outcomes, *_ = complete(running(tmp_path, program), [asking("good"), asking("bad")])
    assert outcomes[0] == Reply("[key]")
    assert SECRET not in str(outcomes[1])


def test_no_process_outlives_its_run(tmp_path: Path) -> None:
    program = (
        f"import os, pathlib, time; pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid())); time.sleep(60)"
    )
    began = time.monotonic()
    with pytest.raises(UserError, match="the run has reached its limit of 1 s"):
        complete(running(tmp_path, program, run_seconds=1), [asking("a")])
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "said"),
    [
        (1000, "{'replies': 60}"),
        (100, "cat: cannot be started: Too many open files, expected a smaller model.concurrency than 60"),
    ],
)
def test_processes_may_hold_as_many_files_open_as_the_system_allows(most: int, said: str, tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, sys; from keystone.generation.types import Request;"
        "from tests.support.models.client import complete, make_settings;"
        "chosen = make_settings(pathlib.Path(sys.argv[1]), backend='command', command=['cat'], concurrency=60);"
        "asked = [Request('step', (('user', str(number)),), 10) for number in range(60)];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, int(sys.argv[2])));"
        "print({'replies': len(complete(chosen, asked)[0])})"
    )
    ended = run([sys.executable, "-c", code, tmp_path, str(most)], capture_output=True, text=True, cwd=ROOT)
    assert said in (ended.stderr or ended.stdout)


def test_a_budget_of_calls_holds(tmp_path: Path) -> None:
    settings = running(tmp_path, ECHO, budget={"calls": 2})
    outcomes, usage, _ = complete(settings, [asking(str(number)) for number in range(5)])
    assert sum(isinstance(one, Reply) for one in outcomes.values()) == usage["step"].calls == 2


@pytest.mark.parametrize("command", ["", [], [""]])
def test_a_backend_without_command_is_refused(command: str | list[str]) -> None:
    with pytest.raises(ValidationError, match="command: found none with backend 'command', expected a program"):
        ModelSettings.model_validate({"name": "m", "backend": "command", "command": command})


def test_a_text_with_an_open_quote_is_refused() -> None:
    with pytest.raises(ValidationError, match="No closing quotation"):
        ModelSettings.model_validate({"name": "m", "backend": "command", "command": "say 'a"})


def test_settings_without_a_command_are_stored_as_before() -> None:
    assert "command" not in ModelSettings(name="m").model_dump()
    assert ModelSettings(name="m", backend="command", command=["say"]).model_dump()["command"] == ["say"]
