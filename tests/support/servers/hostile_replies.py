"""Replies of broken or malicious servers, byte by byte, for any handler of a test's HTTP server."""

import gzip
import time
import zlib
from collections.abc import Callable
from functools import cache, partial
from http.server import BaseHTTPRequestHandler

Hostile = Callable[[BaseHTTPRequestHandler], None]
"""Answers a request; then the connection ends."""

UNPACKED_BYTES = 2**28
"""The decompressed size of the bomb."""
DRIP_PAUSE_S, DRIPS = 0.05, 200
"""The pause between the bytes of a slow reply, and their number: together longer than any test waits."""
MOST_STEPS = 100_000
"""An endless reply ends after this number of parts, unless the client hangs up before."""
ANSI = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b0m\u202egnol"


@cache
def bomb() -> bytes:
    """Zeros, compressed by gzip."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(UNPACKED_BYTES >> 20)) + packer.flush()


def send_head(handler: BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
    """Send the first line and these headers, and close the connection after the reply."""
    handler.close_connection = True
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.flush()


def send_reply(body: bytes, status: int = 200, **headers: str) -> Hostile:
    """A whole reply."""

    def hostile(handler: BaseHTTPRequestHandler) -> None:
        send_head(handler, status, **{"Content_Length": str(len(body)), **headers})
        handler.wfile.write(body)

    return hostile


def repeat_part(part: bytes, *, pause: float = 0.0, begun: bytes = b"", times: int = MOST_STEPS) -> Hostile:
    """Send a part again and again, after a beginning that need not be HTTP."""

    def hostile(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        try:
            handler.wfile.write(begun)
            for _ in range(times):
                handler.wfile.write(part)
                handler.wfile.flush()
                time.sleep(pause)
        except OSError:
            pass

    return hostile


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
drip = partial(repeat_part, pause=DRIP_PAUSE_S, times=DRIPS)

TOO_LARGE: dict[str, Hostile] = {
    "a bomb": lambda handler: send_reply(bomb(), Content_Encoding="gzip")(handler),
    "a bomb with an error": lambda handler: send_reply(bomb(), 503, Content_Encoding="gzip")(handler),
    "a huge length": send_reply(b"{", Content_Length="1000000000000"),
    "a length of 400 digits": send_reply(b"{", Content_Length="9" * 400),
    "no end": repeat_part(b"10000\r\n" + b" " * 2**16 + b"\r\n", begun=CHUNKED),
    "no end without a length": repeat_part(b" " * 2**16, begun=OK + b"\r\n"),
}
"""Replies above the size limit of every client."""

NOT_WHOLE: dict[str, Hostile] = {
    "another encoding": send_reply(b"{}", Content_Encoding="br"),
    "no gzip": send_reply(b"{}", Content_Encoding="gzip"),
    "half of a gzip": send_reply(gzip.compress(b"[" + b"1," * 999)[:-20], Content_Encoding="gzip"),
    "more after the gzip": send_reply(gzip.compress(b"{}") + b"x", Content_Encoding="gzip"),
    "half of what was promised": send_reply(b'{"data": [', Content_Length="99"),
    "an endless head": repeat_part(b"X-Header: y\r\n", begun=OK),
    "an endless line of the head": repeat_part(b"y" * 2**16, begun=OK + b"X-Header: "),
    "an endless number of a chunk": repeat_part(b"1" * 2**16, begun=CHUNKED),
    "control bytes instead of HTTP": repeat_part(ANSI.encode() + b"\r\n", times=9),
}
"""Replies whose body is never whole."""

SLOW: dict[str, Hostile] = {
    "a head that drips": drip(b"y", begun=OK + b"X-Header: "),
    "a body that drips": drip(b" ", begun=OK + b"Content-Length: 1000\r\n\r\n"),
    "chunks that drip": drip(b"1\r\n \r\n", begun=CHUNKED),
    "wait, for ever": drip(b"HTTP/1.1 100 Continue\r\n\r\n"),
}
"""Replies whose bytes arrive with short pauses, and never all."""

NOT_JSON: dict[str, Hostile] = {
    "a web page": send_reply(b"<!DOCTYPE html><html><body>Sign in\x1b[2J</body></html>", Content_Type="text/html"),
    "not a number": send_reply(b'{"data": NaN}'),
    "an infinite number": send_reply(b'{"data": [Infinity]}'),
    "half a character": send_reply(b'{"data": "\\ud800"}'),
    "not UTF-8": send_reply(b'{"data": "\xff"}'),
    "JSON too deep to be read": send_reply(b"[" * 5000 + b"]" * 5000),
}

DEEP = b'{"error": ' + b"[" * 900 + b"]" * 900 + b', "message": "x"}'
REFUSED: dict[str, tuple[Hostile, str]] = {
    "control bytes": (send_reply(f"<b>No{ANSI}</b>".encode(), 401), "No"),
    "control bytes in JSON": (send_reply(rb'{"error": {"reason": "\u001b[2J\u202eno", "message": "no"}}', 401), "no"),
    "a deep error": (send_reply(DEEP, 401), "JSON that is nested more than"),
    "a long error": (send_reply(b'{"error": "' + b"long " * 10**6 + b'"}', 401), "long long .*…"),
    "an error of no words": (send_reply(b'{"error": {}}', 401), "401"),
}  # fmt: skip
"""Refusals, each with the text that the error must have."""
