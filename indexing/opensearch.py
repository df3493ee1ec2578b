"""An OpenSearch cluster: where it is, how it is reached safely, and its answers to single requests.

User and password are `OPENSEARCH_USER` and `OPENSEARCH_PASSWORD`, or a key is `OPENSEARCH_API_KEY`: never part of a
URL, a message or a file. Certificates are checked, against those of `OPENSEARCH_CA_CERTS` where it names a file.
"""

import logging
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import quote

import opensearchpy
import orjson
from urllib3 import Timeout
from yarl import URL

from indexing.access import is_guarded, secret, without_key
from indexing.errors import UserError

EXAMPLE = "http://localhost:9200/name"
USER, PASSWORD, KEY, CA = "OPENSEARCH_USER", "OPENSEARCH_PASSWORD", "OPENSEARCH_API_KEY", "OPENSEARCH_CA_CERTS"
CREDENTIALS = f"{USER} and {PASSWORD}, or {KEY}"
CONNECT_SECONDS = 10.0
SECONDS = 120.0
"""For which an answer is awaited, unless the request says."""
PORTS = {"http": 9200, "https": 443}
LONGEST_NAME = 255
"""Bytes of the name of an index."""

_ALL = range(100, 600)
_NOT_IN_NAMES = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f\x7f]')


@dataclass(frozen=True, slots=True)
class Place:
    """An index in a cluster that is reached by any of the base URLs."""

    urls: tuple[str, ...]
    name: str

    @property
    def at(self) -> dict[str, str]:
        """As an `Index` has it."""
        return {"backend": "opensearch", "url": ",".join(self.urls), "name": self.name}

    @property
    def path(self) -> str:
        """The path of the index below a base URL."""
        return "/" + quote(self.name, safe="")

    def __str__(self) -> str:
        return f"{','.join(self.urls)}/{self.name}"


def place_of(text: str) -> Place:
    """Read `URL/NAME`, or `URL,URL/NAME` where several nodes may be asked. `UserError` for anything else."""
    urls, _, name = text.rpartition("/")
    return Place(tuple(_checked(url, text) for url in urls.split(",")), _checked_name(name))


def place_at(at: Mapping[str, str]) -> Place:
    """The place of an index whose documents are in OpenSearch: what `Place.at` gave."""
    return place_of(f"{at['url']}/{at['name']}")


def _checked(url: str, text: str) -> str:
    if "@" in text:
        raise UserError(f"OpenSearch URL: holds a user or a password; expected them in the environment: {CREDENTIALS}")
    try:
        found = URL(url)
        known = found.scheme in PORTS and bool(found.host) and not (found.query_string or found.fragment)
    except ValueError:
        known = False
    if not known:
        raise UserError(f"{text!r}: not an index of an OpenSearch cluster, expected such as {EXAMPLE}")
    return url.rstrip("/")


def _checked_name(name: str) -> str:
    """The name of an index by OpenSearch's rules."""
    wrong = (
        "is empty" if not name
        else "has capital letters" if name != name.lower()
        else f"begins with {name[0]!r}" if name[0] in "_-+"
        else "is no name" if name in (".", "..")
        else f"holds {found[0]!r}" if (found := _NOT_IN_NAMES.search(name))
        else f"is longer than {LONGEST_NAME} bytes" if len(name.encode(errors="replace")) > LONGEST_NAME
        else None
    )  # fmt: skip
    if wrong:
        raise UserError(f"index name {name!r}: {wrong}; expected lower case, such as in {EXAMPLE}")
    return name


@dataclass(frozen=True, slots=True)
class Request:
    """One request below a base URL; `seconds` is how long its answer may take."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    seconds: float = SECONDS

    @property
    def is_lines(self) -> bool:
        """Whether the body is NDJSON: that of `_bulk` and `_msearch`."""
        return self.path.endswith(("/_bulk", "/_msearch"))


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of the cluster, whatever it says; `value` is its JSON."""

    status: int
    headers: Mapping[str, str]
    value: Any
    url: str
    key: str | None = field(repr=False, default=None)

    @property
    def reason(self) -> str:
        """What the server has to say on an error, in one line and without credentials."""
        error = self.value.get("error", self.value) if isinstance(self.value, dict) else self.value
        said = f"{self.status}: {reason_of(error) or responses.get(self.status, 'without a reason')}"
        return without_key(said.encode(errors="replace"), self.key).decode(errors="replace") if self.key else said

    def checked(self) -> Any:
        """The JSON of an answer that is no error. `UserError` of an error."""
        if not 200 <= self.status < 300:
            raise UserError(f"{self.url}: refused with status {self.reason}")
        return self.value


def reason_of(error: Any) -> str:
    """The words of an OpenSearch error object: those of its last cause, which say the most."""
    if not isinstance(error, dict):
        return " ".join(str(error).split())[:500] if error else ""
    said = ": ".join(str(error[name]) for name in ("type", "reason") if error.get(name))
    cause = error.get("caused_by")
    return f"{said}: {reason_of(cause)}"[:1000] if cause else said[:500]


class Unreached(Exception):
    """A node gave no whole answer; `late` where it was asked and did not answer in time."""

    def __init__(self, words: str, late: bool = False) -> None:
        super().__init__(words)
        self.late = late


class Node:
    """One base URL. `ask` may be called by many threads at once."""

    def __init__(self, url: str, credentials: str | None, ca: str | None, at_once: int) -> None:
        parts = URL(url)
        self.url, self._key = url, credentials and credentials.split()[1]
        self._connection = opensearchpy.Urllib3HttpConnection(
            host=parts.host or "",
            port=parts.explicit_port or PORTS[parts.scheme],
            use_ssl=parts.scheme == "https",
            url_prefix=parts.raw_path.strip("/"),
            headers={"authorization": credentials} if credentials else None,
            pool_maxsize=at_once,
            verify_certs=True,
            ca_certs=ca,
        )

    def ask(self, request: Request) -> Reply:
        """The node's answer. `Unreached` if there is no whole one; `UserError` where its certificate is not trusted."""
        kind = "application/x-ndjson" if request.is_lines else "application/json"
        try:
            status, headers, body = self._connection.perform_request(
                request.method,
                request.path,
                request.params,
                request.body,
                timeout=Timeout(connect=CONNECT_SECONDS, read=request.seconds),  # type: ignore[arg-type]
                ignore=_ALL,
                headers={"content-type": kind},
            )
        except opensearchpy.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise UserError(
                    f"{self.url}: its certificate is not trusted: {_cause(error)}; expected one of a known authority, "
                    f"or in {CA} the file of the authority that signed it"
                ) from error
            raise Unreached(_cause(error)) from error
        except opensearchpy.ConnectionError as error:
            raise Unreached(_cause(error), isinstance(error, opensearchpy.ConnectionTimeout)) from error
        except UnicodeDecodeError as error:
            raise Unreached("an answer that is not UTF-8") from error
        try:
            value = orjson.loads(body) if body else None
        except orjson.JSONDecodeError:
            if 200 <= status < 300:
                raise Unreached("an answer that is not whole JSON") from None
            value = body
        return Reply(status, headers, value, self.url, self._key)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def _cause(error: opensearchpy.ConnectionError) -> str:
    """The last of the causes that the layers below have wrapped into each other, in one line."""
    cause: Any = error.info
    while isinstance(getattr(cause, "reason", None) or (cause.args and cause.args[-1]), Exception):
        cause = getattr(cause, "reason", None) or cause.args[-1]
    return " ".join(str(getattr(cause, "strerror", None) or cause).split())[:300]


def credentials() -> str | None:
    """The Authorization header of the environment's credentials; None if it has none. `UserError` for half of them."""
    user, password, key = os.environ.get(USER, ""), os.environ.get(PASSWORD, ""), secret(KEY)
    if bool(user) != bool(password):
        raise UserError(f"found {USER if user else PASSWORD} alone in the environment, expected {CREDENTIALS}")
    if key and user:
        raise UserError(f"found {USER} and {KEY} in the environment, expected one of them")
    if ":" in user:
        raise UserError(f"{USER}: holds a colon, which no user's name can")
    return f"ApiKey {key}" if key else f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if user else None


def connect(urls: Sequence[str], at_once: int) -> list[Node]:
    """The nodes of a cluster, of which at least one answers; each is asked up to `at_once` requests at one time.

    `UserError` if none is there, if credentials are wrong, or would go to another machine by plain http.
    """
    logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # its warnings are our errors, told once and in full
    header, ca = credentials(), os.environ.get(CA) or None
    if ca and not Path(ca).is_file():
        raise UserError(f"{CA}: {ca}: no such file, expected certificates in PEM form")
    for url in urls if header else ():
        if not is_guarded(url):
            raise UserError(f"{url}: credentials are sent by https or within this machine only, expected an https URL")
    nodes = [Node(url, header, ca, at_once) for url in urls]
    missed = [why for node in nodes if (why := _missed(node))]
    if len(missed) == len(nodes):
        close(nodes)
        raise UserError(f"{'; '.join(missed)}: expected an OpenSearch server there, such as http://localhost:9200")
    return nodes


def close(nodes: Sequence[Node]) -> None:
    """Close the connections of all nodes."""
    for node in nodes:
        node.close()


def refuse_strangers(reply: Reply) -> None:
    """`UserError` for an answer that asks for credentials, or for other ones."""
    if reply.status in (401, 403):
        known = "" if reply.key else f"; expected in the environment {CREDENTIALS}"
        raise UserError(f"{reply.url}: refused with status {reply.reason}{known}")


def _missed(node: Node) -> str | None:
    try:
        reply = node.ask(Request("GET", "/"))
    except Unreached as error:
        return f"{node.url}: cannot be reached: {error}"
    if reply.status == 401:
        refuse_strangers(reply)
    return None
