"""One HTTP request and its whole reply, bounded in time and size.

The time limit covers the whole reply, even if its bytes arrive one by one. The size limit holds for the compressed and
for the decompressed bytes. No redirect is followed, so a key reaches only the server that the user named.
"""

import http.client
import io
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import urllib3
from yarl import URL

from keystone.indexing.errors import TooLarge, Unreached, Untrusted, UserError, printable

PART_BYTES = 2**16
COMPRESSED_ENCODINGS = ("gzip", "x-gzip", "deflate")

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class Body:
    """A body that grows part by part, in memory of at most twice `limit` bytes and one part.

    `TooLarge` if the body has more than `limit` bytes, compressed or decompressed. `ValueError` if its compression is
    unknown, damaged or truncated.
    """

    def __init__(self, headers: Mapping[str, str], limit: int) -> None:
        declared = headers.get("Content-Length", "")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
            raise TooLarge(f"a reply of {printable(declared, 30)} bytes, expected at most {limit:,}")
        self._encoding = headers.get("Content-Encoding", "").strip().lower()
        if self._encoding not in ("", "identity", *COMPRESSED_ENCODINGS):
            raise ValueError(f"a reply in the encoding {printable(self._encoding, 30)!r}, expected gzip or none")
        self._unpacking = zlib.decompressobj(_GZIP_OR_ZLIB) if self._encoding in COMPRESSED_ENCODINGS else None
        self._limit, self._came, self._whole = limit, 0, bytearray()

    def add(self, part: bytes) -> None:
        """Append the next bytes as the server sent them."""
        self._came += len(part)
        if self._unpacking:
            try:
                part = self._unpacking.decompress(part, self._limit + 1 - len(self._whole))
            except zlib.error as error:
                raise ValueError(f"a reply that is not {self._encoding}: {error}") from None
        self._whole += part
        if max(self._came, len(self._whole)) > self._limit:
            raise TooLarge(f"a reply of more than {self._limit:,} bytes, expected fewer")
        if self._unpacking and self._unpacking.unused_data:
            raise ValueError(f"a reply that goes on after the end of its {self._encoding}")

    def whole(self) -> bytes:
        """The decompressed body, once all parts are added. `ValueError` if its compression is truncated."""
        if self._unpacking and self._came and not self._unpacking.eof:
            raise ValueError(f"a reply whose {self._encoding} ends in the middle")
        return bytes(self._whole)


def read_body(read: Callable[[int], bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """The whole decompressed body. `read(n)` returns its next bytes, at most n. Errors are those of `Body`."""
    body = Body(headers, limit)
    while part := read(PART_BYTES):
        body.add(part)
    return body.whole()


CONNECT_TIMEOUT_S = 10.0
REPLY_LIMIT_BYTES = 2**26
"""The largest reply, compressed and decompressed, if the request sets no limit."""
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request for `target` below a server's URL; `kind` is the body's media type, `limit` the reply's bytes."""

    method: str
    target: str
    body: bytes | None = None
    limit: int = REPLY_LIMIT_BYTES
    kind: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Received:
    """A whole reply with any status; its body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_url(url: str) -> URL:
    """Parse the base URL of a server. `UserError` if it is not a URL, or holds a password, a query or a fragment."""
    try:
        found = URL(url)
        port = found.port
    except ValueError:
        found, port = URL(), None
    if found.user or found.password:
        raise UserError("URL of a server: holds a user or a password, expected the key in the environment or in a file")
    if found.scheme not in ("http", "https") or not found.host or not port or "?" in url or "#" in url:
        public = printable(re.split("[?#]", url.rpartition("@")[2])[0])
        raise UserError(f"{public!r}: not the URL of a server, expected one such as http://localhost:8000/v1")
    return found


class Sender:
    """Connections to one base URL for many threads, `at_once` of them kept.

    `authorization` is the header of that name. `ca` is a file of certificates, or None for the system's.
    """

    def __init__(self, url: str, authorization: str | None = None, at_once: int = 8, ca: str | None = None) -> None:
        parts = check_url(url)
        self.url, self._prefix = url, parts.raw_path.rstrip("/")
        self._headers = {"Accept": JSON_TYPE, **({"Authorization": authorization} if authorization else {})}
        host, port = parts.raw_host or "", parts.port
        self._pool: urllib3.HTTPConnectionPool = (
            _SecurePool(host, port, maxsize=at_once, cert_reqs="CERT_REQUIRED", ca_certs=ca)
            if parts.scheme == "https"
            else _Pool(host, port, maxsize=at_once)
        )

    def send(self, request: HttpRequest, seconds: float) -> Received:
        """The reply to a request.

        `Unreached` beyond `seconds`; `TooLarge` beyond `request.limit`; `Untrusted` for the server's certificate.
        """
        kind = {} if request.body is None else {"Content-Type": request.kind}
        headers = {**self._headers, **kind, **request.headers}
        timeout = urllib3.Timeout(connect=min(seconds, CONNECT_TIMEOUT_S), read=seconds)
        try:
            reply = self._open(request, headers, timeout)
            try:
                read = read_body(reply.read, reply.headers, request.limit)
            except BaseException:
                reply.close()
                raise
            reply.release_conn()
        except TooLarge as error:
            raise TooLarge(f"{self.url}: {error}") from None
        except ssl.SSLError as error:  # from reading the body; urllib3 wraps only the errors of its own reads
            raise Unreached(_innermost_cause(error)) from error
        except urllib3.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Untrusted(f"{self.url}: its certificate is not trusted: {_innermost_cause(error)}") from error
            raise Unreached(_innermost_cause(error)) from error
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Unreached(f"no whole reply in {seconds:g} s", late=True) from error
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise Unreached(_innermost_cause(error)) from error
        return Received(reply.status, reply.headers, read)

    def _open(
        self, request: HttpRequest, headers: Mapping[str, str], timeout: urllib3.Timeout
    ) -> urllib3.BaseHTTPResponse:
        """The head of the reply. If the server has closed a kept connection, the request is sent on a new one."""
        while True:
            try:
                return self._pool.urlopen(
                    request.method,
                    self._prefix + request.target,
                    request.body,
                    headers,
                    retries=False,
                    redirect=False,
                    timeout=timeout,
                    preload_content=False,
                    decode_content=False,
                )
            except _ClosedWhileKept:
                continue

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class _DeadlineFile(io.RawIOBase):
    """A socket's file; all its bytes must arrive within the time that the socket grants to one read."""

    def __init__(self, own: socket.socket, file: io.RawIOBase) -> None:
        self._socket, self._file = own, file
        self._until = time.monotonic() + (own.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining_s = self._until - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(remaining_s)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A reply whose head and body must arrive within the socket's time limit."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_DeadlineFile(sock, self.fp.detach()))


class _ClosedWhileKept(Exception):
    """The server closed a connection that had served a request before, and sent nothing for the next request."""


class _KeptConnection(urllib3.connection.HTTPConnection):
    """A connection that knows whether it has served a request since it was opened."""

    response_class = _Response
    _served = False

    def connect(self) -> None:
        self._served = False
        super().connect()

    def request(self, *arguments: Any, **options: Any) -> None:
        try:
            super().request(*arguments, **options)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._give_up(error)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        try:
            reply = super().getresponse()
        except ConnectionResetError as error:  # includes RemoteDisconnected
            self._give_up(error)
        self._served = True
        return reply

    def _give_up(self, error: OSError) -> NoReturn:
        if self._served:
            self.close()
            raise _ClosedWhileKept from error
        raise error


class _SecureKeptConnection(_KeptConnection, urllib3.connection.HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _KeptConnection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureKeptConnection


def _innermost_cause(error: BaseException) -> str:
    """The innermost of the errors that the libraries have wrapped into each other, in one line."""
    cause: Any = error
    while inner := next((one for one in _wrapped_errors(cause) if isinstance(one, Exception)), None):
        cause = inner
    return printable(str(getattr(cause, "strerror", None) or cause)) or type(cause).__name__


def _wrapped_errors(error: Any) -> tuple[Any, ...]:
    wrapped = getattr(error, "reason", None), *error.args[-1:]
    return (*wrapped, error.__cause__) if isinstance(error, urllib3.exceptions.HTTPError) else wrapped
