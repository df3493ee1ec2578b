"""One HTTP request, and the whole reply to it: within a time, within a size, and to no other server than was asked.

The time is that of the whole reply, also where its bytes come one by one. The size is counted as bytes come and again
as they are decompressed. Redirects are not followed, so that a key goes nowhere else.
"""

import http.client
import io
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson
import urllib3
from yarl import URL

from indexing.errors import UserError, printable

CONNECT_TIMEOUT_S = 10.0
REPLY_LIMIT_BYTES = 2**26
"""Bytes of a reply, as they come and decompressed, where the request does not say."""
PART_BYTES = 2**16
JSON = "application/json"

_GZIP, _ZLIB = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


@dataclass(frozen=True, slots=True)
class Received:
    """A whole reply, whatever it says; its body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unreached(Exception):
    """A server gave no whole reply; `late` where it was asked and did not answer in time."""

    def __init__(self, words: str, late: bool = False) -> None:
        super().__init__(words)
        self.late = late


class TooLarge(UserError):
    """A reply of more bytes than anything that was asked for can have."""


class Untrusted(UserError):
    """The certificate of a server is not trusted."""


class Sender:
    """Connections to one base URL, `at_once` of them kept; `send` may be called by many threads at once.

    `authorization` is the header of that name. `ca` is a file of certificates, the system's where None.
    """

    def __init__(self, url: str, authorization: str | None = None, at_once: int = 8, ca: str | None = None) -> None:
        try:
            parts = URL(url)
            port = parts.port
        except ValueError:
            parts, port = URL(), None
        if parts.user or parts.password:
            raise UserError("URL of a server: holds a user or a password, expected the key in the environment")
        if parts.scheme not in ("http", "https") or not parts.host or not port or "?" in url or "#" in url:
            raise UserError(f"{printable(url)!r}: not the URL of a server, expected such as http://localhost:8000/v1")
        self.url, self._prefix = url, parts.raw_path.rstrip("/")
        self._headers = {"Accept": JSON, **({"Authorization": authorization} if authorization else {})}
        host = parts.raw_host or ""
        self._pool: urllib3.HTTPConnectionPool = (
            _SecurePool(host, port, maxsize=at_once, cert_reqs="CERT_REQUIRED", ca_certs=ca)
            if parts.scheme == "https"
            else _Pool(host, port, maxsize=at_once)
        )

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        seconds: float,
        limit: int = REPLY_LIMIT_BYTES,
        kind: str = JSON,
    ) -> Received:
        """The reply to one request for a path below the base URL; `kind` is that of the body.

        `Unreached` if there is no whole reply in time. `TooLarge` above `limit` bytes. `Untrusted` for a certificate.
        """
        headers = {**self._headers, "Content-Type": kind} if body is not None else self._headers
        timeout = urllib3.Timeout(connect=min(seconds, CONNECT_TIMEOUT_S), read=seconds)
        try:
            reply = self._open(method, self._prefix + target, body, headers, timeout)
            try:
                read = read_body(reply.read, reply.headers, limit)
            except BaseException:
                reply.close()
                raise
            reply.release_conn()
        except TooLarge as error:
            raise TooLarge(f"{self.url}: {error}") from None
        except ssl.SSLError as error:  # while the body is read, urllib3 wraps its own
            raise Unreached(_cause(error)) from error
        except urllib3.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Untrusted(f"{self.url}: its certificate is not trusted: {_cause(error)}") from error
            raise Unreached(_cause(error)) from error
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Unreached(f"no whole reply in {seconds:g} s", late=True) from error
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise Unreached(_cause(error)) from error
        return Received(reply.status, reply.headers, read)

    def _open(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout: urllib3.Timeout
    ) -> urllib3.BaseHTTPResponse:
        """The head of the reply. If the server has closed kept connections, the request goes out on a new one."""
        while True:
            try:
                return self._pool.urlopen(
                    method,
                    path,
                    body,
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


def read_body(read: Callable[[int], bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """The body whose next bytes, up to so many, `read` gives; decompressed as the headers say.

    Memory is twice `limit` bytes and those of a part. `TooLarge` above `limit` bytes, as they come or decompressed;
    `ValueError` for a compression that is not known, damaged or not whole.
    """
    declared = headers.get("Content-Length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
        raise TooLarge(f"a reply of {printable(declared, 30)} bytes, expected at most {limit:,}")
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", *_WINDOWS):
        raise ValueError(f"a reply in the encoding {printable(encoding, 30)!r}, expected gzip or none")
    unpacked = zlib.decompressobj(_WINDOWS[encoding]) if encoding in _WINDOWS else None
    whole, came = bytearray(), 0
    while part := read(PART_BYTES):
        came += len(part)
        if unpacked:
            try:
                part = unpacked.decompress(part, limit + 1 - len(whole))
            except zlib.error as error:
                raise ValueError(f"a reply that is not {encoding}: {error}") from None
        whole += part
        if max(came, len(whole)) > limit:
            raise TooLarge(f"a reply of more than {limit:,} bytes, expected fewer")
        if unpacked and unpacked.unused_data:
            raise ValueError(f"a reply that goes on after the end of its {encoding}")
    if unpacked and came and not unpacked.eof:
        raise ValueError(f"a reply whose {encoding} ends in the middle")
    return bytes(whole)


def words_of(body: bytes) -> str:
    """The words of an error, in one line: `error` or `detail` of its JSON, or their `message`, else its beginning."""
    try:
        return said(orjson.loads(body))
    except orjson.JSONDecodeError:
        return said(re.sub("<[^>]*>", " ", body[:1000].decode(errors="replace")))


def said(value: Any) -> str:
    """The words of an error that a server writes as JSON, whatever it is; "no reason" where it is empty."""
    for keys in (("error", "detail"), ("message",)):
        if isinstance(value, dict):
            value = next((value[key] for key in keys if value.get(key)), value)
    if not isinstance(value, str):
        try:
            value = orjson.dumps(value).decode() if value else ""
        except orjson.JSONEncodeError:
            value = "JSON that is nested too deeply"
    return printable(value) or "no reason"


class _UntilThen(io.RawIOBase):
    """A socket's file whose bytes all come within the time that the socket has for one of them."""

    def __init__(self, own: socket.socket, file: io.RawIOBase) -> None:
        self._socket, self._file = own, file
        self._until = time.monotonic() + (own.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A reply whose head and body come within the time of the socket."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_UntilThen(sock, self.fp.detach()))


class _ClosedWhileKept(Exception):
    """The server closed a connection that had served a request before, and sent nothing for the next request."""


class _Kept(urllib3.connection.HTTPConnection):
    """A connection that knows whether it has served a request since it was opened."""

    response_class = _Response
    _served = False

    def connect(self) -> None:
        self._served = False
        super().connect()

    def request(self, *arguments: Any, **named: Any) -> None:
        try:
            super().request(*arguments, **named)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._give_up(error)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        try:
            reply = super().getresponse()
        except ConnectionResetError as error:  # and RemoteDisconnected, which is one
            self._give_up(error)
        self._served = True
        return reply

    def _give_up(self, error: OSError) -> NoReturn:
        if self._served:
            self.close()
            raise _ClosedWhileKept from error
        raise error


class _SecureKept(_Kept, urllib3.connection.HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Kept


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureKept


def _cause(error: BaseException) -> str:
    """The last of the causes that the layers below have wrapped into each other, in one line."""
    cause: Any = error
    while inner := next((one for one in _within(cause) if isinstance(one, Exception)), None):
        cause = inner
    return printable(str(getattr(cause, "strerror", None) or cause)) or type(cause).__name__


def _within(error: Any) -> tuple[Any, ...]:
    wrapped = getattr(error, "reason", None), *error.args[-1:]
    return (*wrapped, error.__cause__) if isinstance(error, urllib3.exceptions.HTTPError) else wrapped
