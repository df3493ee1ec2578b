"""Replies of JSON, and the errors that all fronts share."""

import orjson
from starlette.types import Send

from keystone.runs.serving.call_log import Reply


def make_error(message: str, status: int, key: str = "error") -> Reply:
    """Make the reply to a request that cannot be answered. Pyserini 1 has the message under `detail`."""
    return Reply(orjson.dumps({key: message}), status)


async def send_json(send: Send, reply: Reply, *headers: tuple[bytes, bytes], more_body: bool = False) -> None:
    """Send a reply as the whole response, with further `headers`. With `more_body`, the caller ends the response."""
    own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply.body)), *headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": own})
    await send({"type": "http.response.body", "body": reply.body, "more_body": more_body})
