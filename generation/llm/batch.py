"""A model whose requests are OpenAI batch files, for `vllm run-batch` or a batch service.

Requests without a reply in the cache are written to `<digest>.requests.jsonl` in a folder, and the run ends with
`Waits`. The user puts the replies beside it as `<digest>.replies.jsonl`, in any order, and runs the same command again.
Replies go to the cache when they are first read.

If a request was refused for its content, it is a `Failure` as long as the file of the refusal is in the folder. If it
failed otherwise, or if its reply cannot be used, it is written again. If a refusal names a field that has another form,
the request is written again in that form. A message counts and names unusable replies and repeated requests, because
the user pays for them again.

The `custom_id` of a request is its key. If it is asked again because no reader could use its reply, a point and the
number of such replies follow. So each reply belongs to one attempt.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from keystone.generation.llm.batch_jobs import (
    REPLIES_SUFFIX,
    REQUESTS_SUFFIX,
    FileAccount,
    RequestFile,
    fetch_jobs,
    join_names,
    locate_job,
    locate_replies,
    read_line,
    read_lines,
    submit_files,
)
from keystone.generation.llm.cache import Cache, keep_outcome
from keystone.generation.llm.chat import (
    CHAT,
    REPLY_LIMIT_BYTES,
    Dialect,
    PaidReply,
    ReplyBound,
    combine_dialects,
    find_other_dialect,
    find_schema,
    make_keyed_name,
    read_bound,
    write_body,
)
from keystone.generation.llm.model import OpenModel, PromptSizes, make_request_key
from keystone.generation.llm.settings import BATCH_FOLDER, ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import UserError, Waits, WrongReply, printable
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.io.retry import REFUSED_CONTENT_STATUSES

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_backend(settings: ModelSettings, folder: Path, retry: bool = False) -> AsyncIterator[OpenModel]:
    """Open the model of the replies in a folder of batch files. `Waits` at its end if any reply is missing."""
    jobs = await asyncio.to_thread(fetch_jobs, settings, folder / BATCH_FOLDER) if settings.submit else []
    with closing(Cache(settings.replies_in(folder), retry)) as cache:
        batch = Batch(settings.name, folder / BATCH_FOLDER, cache, settings.extra, settings.submit)
        try:
            with suppress(Waits):  # `flush` raises it again, with the names of the files
                yield batch
            batch.flush()
        except Waits as waits:
            if settings.submit:
                jobs += await asyncio.to_thread(submit_files, settings, batch.written)
                raise Waits("\n".join([str(waits), *jobs])) from None
            raise
        finally:
            batch.discard()


class Batch:
    """The `Model` whose replies another program makes. `UserError` if the folder cannot be written."""

    def __init__(self, model: str, folder: Path, cache: Cache, extra: Mapping[str, Any], submits: bool = False) -> None:
        self.name = make_keyed_name(model, extra)
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        self.notes: list[str] = []
        self.prompts = PromptSizes()
        self._model, self._folder, self._cache, self._extra = model, folder, cache, extra
        self._refused: dict[str, Failure] = {}
        self._fates: dict[str, str] = {}
        """Why a request's earlier reply is missing or not used, by the request's key."""
        self._waiting: defaultdict[str, list[Path]] = defaultdict(list)
        """The files without replies that hold a request, by its key."""
        self._dialects: defaultdict[str, Dialect] = defaultdict(Dialect)
        self._dialect = Dialect()
        self._schemas: dict[str, str] = {}
        """The digest of the schema that each request in the folder has, by the request's key."""
        self._asked: set[str] = set()
        self._submits = submits
        self.written: list[Path] = []
        """The files that `flush` has written."""
        self._files: list[RequestFile] = []
        with _report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._new = self._read_replies()

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Yield the known outcomes. `Waits` afterwards if any reply is missing."""
        missing = 0
        for number, request in enumerate(requests):
            key = make_request_key(self.name, request)
            known = self._cache.get(key)
            outcome = known.outcome if known else self._refused.get(key)
            if outcome is None:
                missing += 1
                self._record(key, request)
                continue
            if known:
                self.prompts.note(request, known.usage)
            new = known is not None and key in self._new
            self._new.discard(key)
            usage = known.usage if new and known else Usage(cache_hits=1)
            self.usage[request.purpose] += usage
            yield number, outcome
        if missing:
            raise Waits(f"{self.name}: {_count_waiting(missing)} for replies")

    def take_outcome(self, _step: Request, replied: Sequence[Request], refusal: str, _cut: bool, /) -> None:
        """See `keystone.generation.llm.model.TakesOutcomes`."""
        keep_outcome(self._cache, self.name, replied, refusal)

    def flush(self) -> None:
        """Write the files of requests without replies, and raise `Waits` with their names. Return if there are none."""
        if not self._asked:
            return
        with _report_write_errors(self._folder):
            self.written = written = [file.finish() for file in self._files]
        keys = sorted(self._asked)
        self._files, self._asked = [], set()
        message = [
            f"{self.name}: {_count_waiting(len(keys))} for replies. Run the same command again when they are there:",
            *(f"  {file}\n  replies expected in {locate_replies(file).name} beside it" for file in written),
        ]
        if again := [f"{key} ({self._fates[key]})" for key in keys if key in self._fates]:
            message.append(f"{len(again):,} of these {len(keys):,} had been asked before: {join_names(again)}")
        twice = [f"{key} ({file.name})" for key in keys for file in self._waiting[key][:1] if file not in written]
        if twice and not self._submits:
            message.append(
                f"{len(twice):,} of these {len(keys):,} stand in other files too, which wait for replies. If those "
                f"are being answered, wait for them, so that nothing is paid twice: {join_names(twice)}"
            )
        raise Waits("\n".join(message))

    def discard(self) -> None:
        """Forget the requests that are not yet in a file."""
        for file in self._files:
            file.discard()
        self._files, self._asked = [], set()

    def _record(self, key: str, request: Request) -> None:
        if key in self._asked:
            return
        self._asked.add(key)
        if self._submits and any(locate_job(file).exists() for file in self._waiting[key]):
            return  # a job answers it
        body = write_body(self._model, request, self._extra, combine_dialects(self._dialect, self._dialects[key]))
        attempt = self._cache.count_unusable(key)
        name = f"{key}.{attempt}" if attempt else key
        line = orjson.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}) + b"\n"
        with _report_write_errors(self._folder):
            if not self._files or not self._files[-1].has_room_for(line):
                self._files.append(RequestFile(self._folder))
            self._files[-1].write(name, line)

    def _read_replies(self) -> set[str]:
        """Put all replies of the folder into the cache; returns the keys of the new ones."""
        known: dict[str, ReplyBound] = {}
        for file in sorted(self._folder.glob(f"*{REQUESTS_SUFFIX}")):
            replies = locate_replies(file)
            for _, record in read_lines(file):
                name, body = record["custom_id"], record.get("body")
                body = body if isinstance(body, dict) else {}
                key, attempt = _split_name(name)
                known[name], self._schemas[key] = read_bound(body), find_schema(body)
                if attempt < self._cache.count_unusable(key):
                    continue
                if replies.exists():
                    self._fates[key] = f"{replies.name} holds no reply"
                else:
                    self._waiting[key].append(file)
        files = {file: FileAccount(file) for file in sorted(self._folder.glob(f"*{REPLIES_SUFFIX}"))}
        new = (
            self._cache.put((reply for account in files.values() for reply in self._read_file(account, known)), True)
            if files
            else set()
        )
        for account in files.values():
            account.failed = {key: why for key, why in account.failed.items() if not self._cache.get(key)}
            if account.is_odd:
                self.notes.append(str(account))
            if account.is_odd or not new.isdisjoint(account.taken):
                _log.warning("%s", account)
        for key, dialect in self._dialects.items():
            if self._cache.get(key):  # the change of dialect led to a reply, so the fields were the reason
                self._dialect = combine_dialects(self._dialect, dialect)
        return new

    def _read_file(self, account: "FileAccount", known: Mapping[str, ReplyBound]) -> Iterator[tuple[str, PaidReply]]:
        """Read the replies of a file, and fill its account. `known` has the bound of each request's reply."""
        for number, record in read_lines(account.file, account.add_broken, REPLY_LIMIT_BYTES):
            name = record["custom_id"]
            if name not in known:
                account.unknown.append(printable(name))
                continue
            key, attempt = _split_name(name)
            if attempt < self._cache.count_unusable(key):
                account.taken.append(key)  # by an earlier run
                continue
            try:
                answered = read_line(record, known[name])
            except (WrongReply, ValueError) as error:
                self._fates[key] = account.failed[key] = f"line {number}: {error}"
                continue
            if not isinstance(answered.outcome, Failure):
                account.taken.append(key)
                if answered.note:
                    self._note(answered.note)
                yield key, answered
            elif self._rewrite(key, record):
                self._fates[key] = f"{answered.outcome.reason}, and is asked in another way"
            else:
                self._refused[key] = answered.outcome
                account.refused[key] = answered.outcome.reason

    def _rewrite(self, key: str, record: Mapping[str, Any]) -> bool:
        """Change the form of a request if its refusal names a field that has another form; returns whether it does."""
        response = record["response"]
        if read_whole_number(response["status_code"]) not in REFUSED_CONTENT_STATUSES - {413}:
            return False
        refusal = orjson.dumps(response.get("body") or record.get("error")).decode()
        other = find_other_dialect(self._dialects[key], refusal, self._schemas[key])
        if other and other[0].path != CHAT:
            return False  # files of requests are for chat completions alone
        if other:
            self._dialects[key] = other[0]
            self._note(other[1].format(purpose="a step"))
        return other is not None

    def _note(self, note: str) -> None:
        if (note := f"{self._model} {note}") not in self.notes:
            self.notes.append(note)


def _split_name(name: str) -> tuple[str, int]:
    """Split a `custom_id` into the key of the request, and the number of its earlier replies."""
    key, _, attempt = name.partition(".")
    return (key, int(attempt)) if attempt.isdecimal() else (name, 0)


def _count_waiting(number: int) -> str:
    return "1 request waits" if number == 1 else f"{number:,} requests wait"


@contextmanager
def _report_write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
