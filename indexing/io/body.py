"""The body of an HTTP reply, decompressed and bounded while its bytes arrive, for blocking and for async clients."""

import zlib
from collections.abc import Callable, Mapping

from keystone.indexing.errors import TooLarge, printable

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
