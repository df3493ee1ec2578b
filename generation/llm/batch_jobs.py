"""Jobs of OpenAI's batch service: each file of requests becomes a job, whose replies are fetched when it has ended.

`<digest>.job.json` beside a file of requests keeps the server, the id of the uploaded file and the id of the job. Each
is kept before the next step begins. If a process ends before it knows an id, the next one looks for the file among the
server's files, and for a job with this file among its jobs. So it uploads and pays nothing twice.

The client repeats uploads and downloads, but never the creation of a job.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

from keystone.generation.llm.batch_files import REQUESTS_SUFFIX, locate_replies, read_lines
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import MESSAGE_TOKENS, compute_cost
from keystone.generation.types import Usage
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.io.keys import OPENAI_KEY, choose_key, remove_key
from keystone.indexing.io.writing import write_whole

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch

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
    files = [file.with_name(file.name.removesuffix(JOB_SUFFIX) + REQUESTS_SUFFIX) for file in _find_jobs(folder)]
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


def _find_jobs(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{JOB_SUFFIX}"))


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
