"""The files of a batch of requests and of its replies, and the jobs of OpenAI's batch service that answer them.

Each file of requests becomes a job, whose replies are fetched when it has ended. `<digest>.job.json` beside the file
keeps the server, the id of the uploaded file and the id of the job. Each is kept before the next step begins. If a
process ends before it knows an id, the next one looks for the file, or for a job with this file, at the server. So it
uploads and pays nothing twice.

The client repeats uploads and downloads, but never the creation of a job.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

from keystone.generation.llm.chat import PaidReply, ReplyBound, read_reply
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import MESSAGE_TOKENS, compute_cost
from keystone.generation.types import Failure, Usage
from keystone.indexing.errors import BadRecord, MissingPackage, Report, UserError, WrongReply, stop
from keystone.indexing.io.api_keys import OPENAI_KEY, choose_key, remove_key
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.json_values import digest, read_whole_number
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_json_lines
from keystone.indexing.io.retry import REFUSED_CONTENT_STATUSES
from keystone.indexing.io.writing import write_whole

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
"""The most requests and bytes of one file: the limits of OpenAI's batch service."""
REQUESTS_SUFFIX, REPLIES_SUFFIX = ".requests.jsonl", ".replies.jsonl"
"""The ends of the names of both kinds of files."""
MOST_NAMED = 3
"""How many requests or lines a message names."""


@dataclass(slots=True)
class FileAccount:
    """The content of a file of replies: the keys of the replies taken, and all others with the reason."""

    file: Path
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add_broken(self, error: BadRecord) -> None:
        """Add a broken line. If the file cannot be read to its end, raise the error."""
        if error.kind == "unreadable file":
            raise error
        self.broken.append(f"line {str(error).removeprefix(f'{self.file}:')}")

    @property
    def is_odd(self) -> bool:
        """Whether the file holds anything but replies that were taken."""
        return bool(self.failed or self.refused or self.unknown or self.broken)

    def __str__(self) -> str:
        others = {
            "not usable": [f"{key} ({why})" for key, why in self.failed.items()],
            "refused": [f"{key} ({why})" for key, why in self.refused.items()],
            "to no request in the folder": self.unknown,
            "on broken lines": self.broken,
        }
        taken = "1 reply is" if len(self.taken) == 1 else f"{len(self.taken):,} replies are"
        parts = [f"{len(names):,} {what}: {join_names(names)}" for what, names in others.items() if names]
        return "; ".join([f"{self.file}: {taken} taken", *parts])


class RequestFile:
    """A file of requests while it is written. It gets its name when it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: list[str] = []
        self._bytes = 0
        self._path = folder / f".{os.getpid()}.{id(self)}.partial"
        self._file = self._path.open("wb")

    def has_room_for(self, line: bytes) -> bool:
        """Return whether one more line fits."""
        return len(self._keys) < MOST_REQUESTS and self._bytes + len(line) <= MOST_BYTES

    def write(self, key: str, line: bytes) -> None:
        """Write the line of the request with this key."""
        self._keys.append(key)
        self._bytes += len(line)
        self._file.write(line)

    def finish(self) -> Path:
        """Name the file by the digest of its requests' keys. If replies of that name already exist, add a number."""
        name = stem = digest(sorted(self._keys))[:16]
        repeat = 1
        while (self._folder / f"{name}{REPLIES_SUFFIX}").exists():
            repeat += 1
            name = f"{stem}-{repeat}"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path.replace(self._folder / f"{name}{REQUESTS_SUFFIX}")

    def discard(self) -> None:
        """Remove the unfinished file."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._path.unlink()


def join_names(names: Sequence[str]) -> str:
    """Join the first names, and the number of the others."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def locate_replies(requests: Path) -> Path:
    """Locate the file of the replies to a file of requests."""
    return requests.with_name(requests.name.removesuffix(REQUESTS_SUFFIX) + REPLIES_SUFFIX)


def read_line(record: Mapping[str, Any], bound: ReplyBound) -> PaidReply:
    """Read the outcome in a line of a batch's output. `WrongReply`: ask again. `ValueError`: no line of a batch."""
    response, error = record.get("response"), record.get("error")
    if response is None and error is not None:
        raise WrongReply(describe_error(error))
    found = response if isinstance(response, dict) else {}
    status, body = read_whole_number(found.get("status_code")), found.get("body")
    if status is None:
        raise ValueError("not a line of a batch's output: expected response.status_code")
    if status == 200:
        return read_reply(body, bound)
    if status in REFUSED_CONTENT_STATUSES or status == 404:
        return PaidReply(Failure(f"refused with status {status}: {describe_error(body or error)}"))
    raise WrongReply(f"{status}: {describe_error(body or error)}")


def read_lines(
    file: Path, report: Report = stop, longest: int = LONGEST_LINE_BYTES
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the lines of a file of requests or replies, with their numbers. `report` gets each broken line."""
    for number, record in read_json_lines(file, report, longest):
        if isinstance(record.get("custom_id"), str):
            yield number, record
        else:
            report(BadRecord(f"{file}:{number}: expected a line of a batch, with a custom_id", "no line of a batch"))


JOB_SUFFIX = ".job.json"
"""The end of the name of the file that keeps a job."""
ENDED = ("completed", "expired", "cancelled")
"""The states of a job whose results can be fetched. Requests that were not answered have a line with the reason."""

_log = logging.getLogger(__name__)


class Job(TypedDict):
    """A job as its file keeps it; `file` and `batch` are None until the server has given them an id."""

    url: str
    file: str | None
    batch: str | None


def locate_job(requests: Path) -> Path:
    """Locate the file that keeps the job of a file of requests."""
    return requests.with_name(requests.name.removesuffix(REQUESTS_SUFFIX) + JOB_SUFFIX)


def fetch_jobs(settings: ModelSettings, folder: Path) -> list[str]:
    """Fetch the replies of the jobs in a folder that have ended; returns a line about each job that has not.

    `UserError` if the server refuses a request, or a whole file of requests. The latter can then be submitted again.
    """
    jobs = sorted(folder.glob(f"*{JOB_SUFFIX}"))
    files = [job.with_name(job.name.removesuffix(JOB_SUFFIX) + REQUESTS_SUFFIX) for job in jobs]
    return _run(settings, (file for file in files if not locate_replies(file).exists()), _fetch)


def submit_files(settings: ModelSettings, files: Iterable[Path]) -> list[str]:
    """Submit files of requests, after a line about the most that each can cost; returns a line about each job."""
    return _run(settings, files, _submit)


def count_most_usage(requests: Path) -> Usage:
    """Count the most that a file can cost: a token for each byte of a prompt, and replies of full length."""
    calls = prompt = completion = 0
    for _, record in read_lines(requests):
        body = record["body"]
        calls += 1
        prompt += len(orjson.dumps(body)) + MESSAGE_TOKENS * (len(body["messages"]) + 1)
        completion += body.get("max_tokens") or body.get("max_completion_tokens") or 0
    return Usage(calls=calls, prompt_tokens=prompt, completion_tokens=completion)


def _run(settings: ModelSettings, files: Iterable[Path], act: Any) -> list[str]:
    """Act on each file with a client. An error of the server becomes a `UserError`, which names the file."""
    if not (waiting := list(files)):
        return []
    try:
        import openai
    except ImportError as error:
        raise MissingPackage("openai is needed for model.submit: pip install 'keystone-rag[openai]'") from error
    url = settings.urls[0]
    secret = choose_key(url, OPENAI_KEY, settings.named_key, settings.key_file).secret
    told = []
    with openai.OpenAI(base_url=url, api_key=secret or "none", timeout=settings.call_seconds) as client:
        for file in waiting:
            try:
                told += act(client, settings, file)
            except openai.OpenAIError as error:
                reason = remove_key(str(error).encode(), secret).decode() if secret else str(error)
                raise UserError(f"{file}: {url} refused its batch job or did not answer: {reason}") from error
    return told


def _submit(client: "OpenAI", settings: ModelSettings, requests: Path) -> list[str]:
    usage = count_most_usage(requests)
    tokens = f"at most {usage.prompt_tokens:,} prompt tokens and {usage.completion_tokens:,} reply tokens"
    cost = f", ${compute_cost(usage, settings.prices):,.2f} by model.prices" if settings.prices else ""
    _log.warning("%s: %s requests are submitted, %s%s", requests, f"{usage.calls:,}", tokens, cost)
    job: Job = {"url": settings.urls[0], "file": None, "batch": None}
    _keep(requests, job)
    return [_describe(requests, _create(client, requests, job, _upload(client, requests, job)))]


def _upload(client: "OpenAI", requests: Path, job: Job) -> str:
    """Upload a file of requests, keep its id, and return it."""
    with requests.open("rb") as content:
        uploaded = client.files.create(file=(requests.name, content), purpose="batch")
    _keep(requests, {**job, "file": uploaded.id})
    return uploaded.id


def _find_upload(client: "OpenAI", requests: Path) -> str | None:
    """Find a file of requests among the server's files. Its name is the digest of its requests."""
    found = (requests.name, requests.stat().st_size)
    return next((one.id for one in client.files.list(purpose="batch") if (one.filename, one.bytes) == found), None)


def _create(client: "OpenAI", requests: Path, job: Job, file: str) -> "Batch":
    """Create a job, and keep its id. A repeated creation would be paid twice, so the client does not repeat it."""
    once = client.with_options(max_retries=0)
    batch = once.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h")
    _keep(requests, {**job, "file": file, "batch": batch.id})
    return batch


def _fetch(client: "OpenAI", settings: ModelSettings, requests: Path) -> list[str]:
    """Write the replies of a job that has ended, or return a line about the job."""
    job = _read_job(locate_job(requests))
    if job["url"] != settings.urls[0]:
        raise UserError(f"model.urls: found {settings.urls[0]}, expected {job['url']}, which has the job of {requests}")
    if job["batch"]:
        batch = client.batches.retrieve(job["batch"])
    else:
        file = job["file"] or _find_upload(client, requests) or _upload(client, requests, job)
        created = next((one for one in client.batches.list(limit=100) if one.input_file_id == file), None)
        batch = created or _create(client, requests, job, file)
        _keep(requests, {**job, "file": file, "batch": batch.id})
    if batch.status == "failed":
        found = batch.errors.data if batch.errors and batch.errors.data else []
        reasons = "; ".join(f"line {one.line}: {one.message}" if one.line else str(one.message) for one in found[:3])
        locate_job(requests).unlink()
        raise UserError(
            f"{requests}: job {batch.id} failed, and no request was answered: {reasons or 'no reason given'}. "
            "The same command submits them again"
        )
    if batch.status not in ENDED:
        return [_describe(requests, batch)]
    parts = [client.files.content(id).content for id in (batch.output_file_id, batch.error_file_id) if id]
    with write_whole(locate_replies(requests)) as out:
        out.writelines(part if part.endswith(b"\n") or not part else part + b"\n" for part in parts)
    return []


def _read_job(file: Path) -> Job:
    with suppress(orjson.JSONDecodeError):
        job = orjson.loads(file.read_bytes())
        if isinstance(job, dict) and job.keys() == Job.__annotations__.keys():
            return Job(url=job["url"], file=job["file"], batch=job["batch"])
    raise UserError(f"{file}: no job of a batch service, expected an object with url, file and batch")


def _keep(requests: Path, job: Job) -> None:
    with write_whole(locate_job(requests)) as out:
        out.write(orjson.dumps(job) + b"\n")


def _describe(requests: Path, batch: "Batch") -> str:
    counts = batch.request_counts
    done = f", {counts.completed + counts.failed:,} of {counts.total:,} done" if counts and counts.total else ""
    return f"  job {batch.id} of {requests.name}: {batch.status}{done}"
