"""A server that speaks OpenAI's Files and Batches protocol on a socket, with faults by request."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.json_server import JsonHandler, serve_json

KEY = "sk-batch-key"


@dataclass
class Service:
    """The service's files and jobs. A test sets how the next jobs end, and what goes wrong."""

    files: dict[str, bytes] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    ends: str = "completed"
    """The state that a job has at the next look at it."""
    expired: set[int] = field(default_factory=set)
    """The places of the requests that an expired job did not answer."""
    said: dict[str, Any] = field(default_factory=dict)
    """What the service answers, by the text of the request, in the place of its echo: the body of a chat completion."""
    hangs_up_after_create: bool = False
    url: str = ""
    model: Callable[[dict[str, Any]], str] = lambda body: str(body["messages"][-1]["content"])
    """The model that answers: by default it repeats the last message."""
    reach: Callable[[str], object] = lambda _: None
    """Called when a request arrives (`create arrives`) and when its work is done (`create is done`)."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of the files that clients uploaded."""

    def look(self, job: dict[str, Any]) -> dict[str, Any]:
        """Bring a job to its end, once."""
        job["status"] = self.ends
        if self.ends in ("completed", "expired") and not job.get("output_file_id"):
            asked = [json.loads(line) for line in self.files[job["input_file_id"]].splitlines()]
            lines = [self._answer(one) for number, one in enumerate(asked) if number not in self.expired]
            lost = [_expire(asked[number]) for number in sorted(self.expired) if number < len(asked)]
            job["output_file_id"] = self.keep("".join(json.dumps(line) + "\n" for line in lines).encode())
            if lost:
                job["error_file_id"] = self.keep("".join(json.dumps(line) + "\n" for line in lost).encode())
        if self.ends == "failed":
            job["errors"] = {"object": "list", "data": [{"code": "bad", "message": "no such model", "line": 2}]}
        return job

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        said = request["body"]["messages"][-1]["content"]
        message = {"content": self.model(request["body"])}
        echo = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10}}
        response = {"status_code": 200, "body": self.said.get(said, echo)}
        return {"custom_id": request["custom_id"], "response": response, "error": None}

    def keep(self, content: bytes) -> str:
        """Keep a file under a new id."""
        self.files[name := f"file-{len(self.files)}"] = content
        return name


def _expire(request: dict[str, Any]) -> dict[str, Any]:
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    return {"custom_id": request["custom_id"], "response": None, "error": error}


class _Handler(JsonHandler):
    state: Service

    def _admitted(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {KEY}":
            return True
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.reply({"error": {"message": f"Incorrect key: {self.headers['Authorization']}"}}, 401)
        return False

    def do_POST(self) -> None:  # noqa: N802
        if not self._admitted():
            return
        if self.path == "/v1/files":
            body = self.rfile.read(int(self.headers["Content-Length"]))
            boundary = re.search(r"boundary=(\S+)", self.headers["Content-Type"])
            assert boundary
            parts = body.split(b"--" + boundary[1].encode())
            (content,) = (part for part in parts if b"filename=" in part)
            named = re.search(rb'filename="([^"]+)"', content)
            assert named
            self.state.reach("upload arrives")
            name = self.state.keep(content.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n"))
            self.state.names[name] = named[1].decode()
            self.state.reach("upload is done")
            self.reply(self._describe(name))
            return
        asked = self.read_json()
        self.state.reach("create arrives")
        number = len(self.state.jobs)
        job = asked | {"id": f"batch_{number}", "object": "batch", "status": "validating", "created_at": 1}
        self.state.jobs.append(job)
        self.state.reach("create is done")
        if self.state.hangs_up_after_create:
            self.close_connection = True
            return
        self.reply(job)

    def do_GET(self) -> None:  # noqa: N802
        if not self._admitted():
            return
        path = self.path.split("?")[0].removeprefix("/v1/").split("/")
        if path == ["files"]:
            self.reply({"object": "list", "data": [*map(self._describe, self.state.names)], "has_more": False})
        elif path[0] == "files":
            self.state.reach("fetch arrives")
            self.send(self.state.files[path[1]])
        elif len(path) == 1:
            self.reply({"object": "list", "data": self.state.jobs, "has_more": False})
        else:
            self.state.reach("poll arrives")
            found = self.state.look(next(job for job in self.state.jobs if job["id"] == path[1]))
            self.state.reach("poll is done")
            self.reply(found)

    def _describe(self, name: str) -> dict[str, Any]:
        size = len(self.state.files[name])
        return {"id": name, "object": "file", "bytes": size, "purpose": "batch", "filename": self.state.names[name]}


@contextmanager
def serve_batches() -> Iterator[Service]:
    """Serve the protocol until the block ends."""
    service = Service()
    with serve_json(_Handler, service) as url:
        service.url = f"{url}/v1"
        yield service
