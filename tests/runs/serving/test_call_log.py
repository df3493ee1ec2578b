"""The log of calls after a server that was stopped while it wrote, and on a disk that is full for a while."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from keystone.indexing.errors import NotWritten
from keystone.runs.serving import call_log
from keystone.runs.serving.agents.replay import read_calls
from keystone.runs.serving.call_log import Call, CallLog, Reply, log_call, open_call_log
from tests.support.waiting import LIMIT_S

CALL, REPLY = Call("rest", "search", {"query": "bees {}"}), Reply(b"{}")


def write(path: Path, calls: Sequence[Call] = (CALL,)) -> bytes:
    async def log_all(log: CallLog) -> None:
        for call in calls:
            log_call(log, call, REPLY)

    with open_call_log(path, "index", "settings") as log:
        asyncio.run(log_all(log))
    return path.read_bytes()


def test_a_line_that_is_torn_anywhere_is_cut_off_by_the_next_server(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    line = write(path)
    for kept in range(len(line)):
        path.write_bytes(line + line[:kept])
        with open_call_log(path, "index", "settings"):
            whole = 2 if kept == len(line) - 1 else 1
            assert path.read_bytes() == line * whole, f"torn after {kept} bytes"
    write(path)
    assert [len(found) for found in read_calls(path)] == [3, 0]


def test_text_of_another_origin_without_an_end_is_ended_and_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"first\nsecond")
    assert write(path).startswith(b"first\nsecond\n" + call_log.FIRST_BYTES)


def test_lines_that_the_file_does_not_take_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(call_log, "RETRY_S", 0.01)
    monkeypatch.setattr(call_log, "MOST_WAITING", 2)
    outgoing, incoming = os.pipe()
    os.set_blocking(outgoing, False)
    os.set_blocking(incoming, False)  # a full pipe takes a part of a line, and then refuses, as a full disk does
    log = CallLog(tmp_path / "calls.jsonl", "index", "settings", incoming)
    calls = [Call("rest", "search", {"query": str(number) * 100_000}) for number in range(3)]

    async def fill_and_empty() -> bytes:
        for call in calls:
            log_call(log, call, REPLY)  # the third finds two that wait
        text = b""
        while log.lines or text.count(b"\n") < 2:
            await asyncio.sleep(0.02)
            with suppress(BlockingIOError):
                text += os.read(outgoing, 2**20)
        return text

    found = asyncio.run(asyncio.wait_for(fill_and_empty(), LIMIT_S)).splitlines()
    os.close(incoming)
    os.close(outgoing)
    assert [orjson.loads(line)["arguments"] for line in found] == [dict(call.arguments) for call in calls[:2]]
    assert "calls.jsonl: cannot be written: Resource temporarily unavailable; 2 lines wait" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_log_that_stays_unwritable_is_an_error_when_it_is_closed() -> None:
    with pytest.raises(NotWritten, match="/dev/full: cannot be written: No space left on device"):
        write(Path("/dev/full"))
