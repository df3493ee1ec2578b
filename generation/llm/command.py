"""A command as the model, such as an agent of the command line: the prompt on standard input, the reply on standard
output.

A command that fails is run again, as often as any client asks again (`keystone.indexing.io.retry`). If a request has
failed for good, a short plain request tells whether its prompt is at fault or the command. Only a command that does not
answer that one ends the run.
"""

import asyncio
import errno
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import Signals

from keystone.generation.llm.budget import Purse
from keystone.generation.llm.chat import PLAIN_REQUEST, REPLY_LIMIT_BYTES, PaidReply, ReplyBound, read_reply
from keystone.generation.llm.client import open_client
from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Message, Request
from keystone.indexing.errors import UserError, WrongReply, printable
from keystone.indexing.io.api_keys import remove_key
from keystone.indexing.io.retry import choose_pause, is_last
from keystone.indexing.io.system import allow_open_files, kill_group

MOST_LATE_TRIES = 3
"""Tries of a request whose command does not end in time."""
ERROR_BYTES = 500
"""The last bytes of standard error that are kept for the reason of a failure."""
PART_BYTES = 2**16
FILES_OF_A_PROCESS = 4
"""The files that this process holds open for a process of the command: its three pipes, and itself."""
END_TIMEOUT_S = 5.0
"""How long a process outside of its group may hold open the pipes of a killed one."""


def open_backend(
    settings: ModelSettings, folder: Path, retry: bool = False, purse: Purse | None = None
) -> AbstractAsyncContextManager[OpenModel]:
    """Open the model of a command. `purse` pays for its calls."""
    return open_client(settings, folder, lambda: Command(settings, purse), retry)


class Command:
    """The `keystone.generation.llm.chat.Backend` of a command; at most `concurrency` of its processes run at once."""

    def __init__(self, settings: ModelSettings, purse: Purse | None = None) -> None:
        self.at_once = settings.concurrency
        allow_open_files(FILES_OF_A_PROCESS * self.at_once)
        self.notes: list[str] = []
        self._command, self._seconds, self._purse = settings.command, settings.call_seconds, purse
        self._shown = f"model.command: {printable(shlex.join(settings.command))}"
        self._key = os.environ.get(settings.key_env, "")
        self._answered_at = -1.0

    async def answer(self, request: Request) -> PaidReply:
        """Run the command until it gives a reply, or until its tries are over."""
        loop = asyncio.get_running_loop()
        began, faults, late = loop.time(), 0, 0
        while True:
            try:
                answered = await self._pay(request)
            except WrongReply as error:
                faults, late = faults + 1, late + isinstance(error.__cause__, TimeoutError)
                if not is_last(faults) and late < MOST_LATE_TRIES:
                    await asyncio.sleep(choose_pause(faults))
                    continue
                if self._answered_at < began:
                    await self._probe(error)
                times = f", {faults} times" if faults > 1 else ""
                answered = PaidReply(Failure(f"{self._shown}: {error}{times}"))
            else:
                self._answered_at = loop.time()
            calls = int(answered.sent or faults > 0)
            usage = replace(answered.usage, calls=calls, seconds=loop.time() - began, retries=faults)
            return replace(answered, usage=usage)

    async def close(self) -> None:
        """Do nothing: each process ends with its call."""

    async def _pay(self, request: Request) -> PaidReply:
        return await (self._purse.pay(request, partial(self._run, request)) if self._purse else self._run(request))

    async def _probe(self, failed: WrongReply) -> None:
        """Ask for a word. `UserError` if the command does not give it either."""
        try:
            await self._pay(PLAIN_REQUEST)
        except WrongReply:
            raise UserError(
                f"{self._shown}: {failed}; it does not answer a short prompt either. "
                "All replies are kept: run the same command again to continue"
            ) from None
        self._answered_at = asyncio.get_running_loop().time()

    async def _run(self, request: Request) -> PaidReply:
        """Run one process. `WrongReply` if it gives no reply, `UserError` if it cannot be started."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            full = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
            smaller = f"a smaller model.concurrency than {self.at_once}"
            expected = smaller if full else "a program and its arguments"
            raise UserError(f"{self._shown}: cannot be started: {why}, expected {expected}") from None
        try:
            async with asyncio.timeout(self._seconds):
                _, said, errors = await asyncio.gather(
                    _feed(process, write_prompt(request.messages)), _read_all(process), _read_end(process.stderr)
                )
                code = await process.wait()
        except TimeoutError as error:
            raise WrongReply(f"no reply within {self._seconds:g} s") from error
        finally:
            kill_group(process.pid)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_TIMEOUT_S):
                    await asyncio.gather(_read_end(process.stdout), _read_end(process.stderr))
                    await process.wait()
        return self._read(request, code, said, errors)

    def _read(self, request: Request, code: int, said: bytes, errors: bytes) -> PaidReply:
        if self._key:
            said, errors = remove_key(said, self._key, spare_words=True), remove_key(errors, self._key)
        if len(said) > REPLY_LIMIT_BYTES:
            raise WrongReply(f"a reply of more than {REPLY_LIMIT_BYTES:,} bytes")
        if code:
            ended = f"exit code {code}" if code > 0 else f"ended by {_name_signal(-code)}"
            why = printable(errors.decode(errors="replace")) or "nothing on standard error"
            raise WrongReply(f"{ended}: {why}")
        try:
            text = said.decode().strip()
        except UnicodeDecodeError as error:
            raise WrongReply(f"a reply that is not UTF-8: byte {error.start}") from None
        if not text:
            raise WrongReply("exit code 0, and nothing on standard output")
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        answered = read_reply({"choices": [choice]}, ReplyBound(request.max_tokens, request.top_logprobs))
        if answered.note and (note := f"{self._shown} {answered.note}") not in self.notes:
            self.notes.append(note)
        return answered


def write_prompt(messages: Sequence[Message]) -> bytes:
    """Write the messages of a request as one text: the system's, then the user's.

    If there are several turns, a line names whose turn begins: `[USER]` or `[ASSISTANT]`. No document can write such a
    line (`keystone.generation.context.texts.neutralise`).
    """
    marked = sum(role != "system" for role, _ in messages) > 1
    parts = [f"[{role.upper()}]\n{text}" if marked and role != "system" else text for role, text in messages]
    return ("\n\n".join(parts) + "\n").encode(errors="replace")


async def _feed(process: asyncio.subprocess.Process, prompt: bytes) -> None:
    assert process.stdin
    with suppress(ConnectionError):  # a command need not read all of its prompt
        process.stdin.write(prompt)
        await process.stdin.drain()
    process.stdin.close()


async def _read_all(process: asyncio.subprocess.Process) -> bytes:
    """Read standard output to its end: a little more than `REPLY_LIMIT_BYTES` of a process that writes too much.

    Such a process is killed. The rest of its pipe is read all the same: before that, it does not count as ended.
    """
    assert process.stdout
    found = bytearray()
    while part := await process.stdout.read(PART_BYTES):
        if len(found) <= REPLY_LIMIT_BYTES:
            found += part
        else:
            kill_group(process.pid)
    return bytes(found)


async def _read_end(stream: asyncio.StreamReader | None) -> bytes:
    assert stream
    found = b""
    while part := await stream.read(PART_BYTES):
        found = (found + part)[-ERROR_BYTES:]
    return found


def _name_signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
