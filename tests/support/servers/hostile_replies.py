"""Replies of servers that are broken, wrong or meant to harm, byte by byte, for any handler of a test's HTTP server."""

import gzip
import time
import zlib
from collections.abc import Callable
from functools import cache, partial
from http.server import BaseHTTPRequestHandler

Hostile = Callable[[BaseHTTPRequestHandler], None]
"""Answers a request in its own way; the connection then ends."""

UNPACKED = 2**28
"""Bytes of the bomb."""
DRIP_SECONDS, DRIPS = 0.05, 200
"""Between the bytes of a slow reply, and how many come: more than any test waits for."""
STEPS = 100_000
"""After which something endless ends, if nobody has hung up before."""
ANSI = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b0m\u202egnol"


@cache
def bomb() -> bytes:
    """Zeros, as gzip."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(UNPACKED >> 20)) + packer.flush()


def head(handler: BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
    """The first line and these headers, and the end of the connection after the reply."""
    handler.close_connection = True
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.flush()


def told(body: bytes, status: int = 200, **headers: str) -> Hostile:
    """A whole reply."""

    def hostile(handler: BaseHTTPRequestHandler) -> None:
        head(handler, status, **{"Content_Length": str(len(body)), **headers})
        handler.wfile.write(body)

    return hostile


def repeated(part: bytes, *, pause: float = 0.0, begun: bytes = b"", times: int = STEPS) -> Hostile:
    """Bytes again and again, after a beginning that may be no HTTP."""

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
drip = partial(repeated, pause=DRIP_SECONDS, times=DRIPS)

TOO_LARGE: dict[str, Hostile] = {
    "a bomb": lambda handler: told(bomb(), Content_Encoding="gzip")(handler),
    "a bomb with an error": lambda handler: told(bomb(), 503, Content_Encoding="gzip")(handler),
    "a huge length": told(b"{", Content_Length="1000000000000"),
    "a length of 400 digits": told(b"{", Content_Length="9" * 400),
    "no end": repeated(b"10000\r\n" + b" " * 2**16 + b"\r\n", begun=CHUNKED),
    "no end without a length": repeated(b" " * 2**16, begun=OK + b"\r\n"),
}
"""Replies that are larger than anything that was asked for."""

NOT_WHOLE: dict[str, Hostile] = {
    "another encoding": told(b"{}", Content_Encoding="br"),
    "no gzip": told(b"{}", Content_Encoding="gzip"),
    "half of a gzip": told(gzip.compress(b"[" + b"1," * 999)[:-20], Content_Encoding="gzip"),
    "more after the gzip": told(gzip.compress(b"{}") + b"x", Content_Encoding="gzip"),
    "half of what was promised": told(b'{"data": [', Content_Length="99"),
    "an endless head": repeated(b"X-Header: y\r\n", begun=OK),
    "an endless line of the head": repeated(b"y" * 2**16, begun=OK + b"X-Header: "),
    "an endless number of a chunk": repeated(b"1" * 2**16, begun=CHUNKED),
    "control bytes instead of HTTP": repeated(ANSI.encode() + b"\r\n", times=9),
}
"""Replies of which no body comes whole."""

SLOW: dict[str, Hostile] = {
    "a head that drips": drip(b"y", begun=OK + b"X-Header: "),
    "a body that drips": drip(b" ", begun=OK + b"Content-Length: 1000\r\n\r\n"),
    "chunks that drip": drip(b"1\r\n \r\n", begun=CHUNKED),
    "wait, for ever": drip(b"HTTP/1.1 100 Continue\r\n\r\n"),
}
"""Replies whose bytes come, each soon enough, and never all."""

NOT_JSON: dict[str, Hostile] = {
    "a web page": told(b"<!DOCTYPE html><html><body>Sign in\x1b[2J</body></html>", Content_Type="text/html"),
    "not a number": told(b'{"data": NaN}'),
    "an infinite number": told(b'{"data": [Infinity]}'),
    "half a character": told(b'{"data": "\\ud800"}'),
    "not UTF-8": told(b'{"data": "\xff"}'),
    "JSON too deep to be read": told(b"[" * 5000 + b"]" * 5000),
}

DEEP = b'{"error": ' + b"[" * 900 + b"]" * 900 + b', "message": "x"}'
REFUSED: dict[str, tuple[Hostile, str]] = {
    "control bytes": (told(f"<b>No{ANSI}</b>".encode(), 401), "No"),
    "control bytes in JSON": (told(rb'{"error": {"reason": "\u001b[2J\u202eno", "message": "no"}}', 401), "no"),
    "a deep error": (told(DEEP, 401), "JSON that is nested too deeply"),
    "a long error": (told(b'{"error": "' + b"long " * 10**6 + b'"}', 401), "long long .*…"),
    "an error of no words": (told(b'{"error": {}}', 401), "401"),
}  # fmt: skip
"""Refusals, and how they are told."""
