"""An OpenSearch cluster: its place, a safe connection, and its answers to single requests.

The environment holds user and password (`OPENSEARCH_USER`, `OPENSEARCH_PASSWORD`) or a key (`OPENSEARCH_API_KEY`). If
`OPENSEARCH_AWS_REGION` is set, Keystone signs each request with the credentials of AWS instead. None of these is ever
part of a URL, a message or a file. Keystone checks certificates. If `OPENSEARCH_CA_CERTS` names a file, Keystone checks
them against the authorities in it.
"""

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from yarl import URL

from keystone.indexing.errors import ClusterRefused, MissingPackage, Unreached, Untrusted, UserError, printable
from keystone.indexing.io.api_keys import admit, read_key, remove_key
from keystone.indexing.io.error_text import describe_refusal
from keystone.indexing.io.http import JSON_TYPE, REPLY_LIMIT_BYTES, HttpRequest, Sender
from keystone.indexing.io.json_values import parse_json

REGION = "OPENSEARCH_AWS_REGION"
"""The environment variable with the region of the cluster, such as eu-west-1. It makes Keystone sign requests."""
SERVICE = "es"

Sign = Callable[[str, str, bytes | None], Mapping[str, str]]
"""Makes the headers that sign a request from its method, its whole URL and its body."""


def make_signer(region: str) -> Sign:
    """Make the function that signs each request to a cluster in an AWS region (AWS Signature Version 4).

    botocore finds the credentials as AWS's own tools do: in the environment, in a profile, or in the role of the
    machine.

    `UserError` if there are no credentials, `MissingPackage` if botocore or opensearch-py is not installed.
    """
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
        from opensearchpy.helpers.signer import AWSV4Signer
    except ImportError as error:
        raise MissingPackage(f"botocore is needed for {REGION}: pip install 'keystone-rag[aws]'") from error
    expected = "expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of this machine"
    try:
        credentials = Session().get_credentials()
    except BotoCoreError as error:
        raise UserError(f"{REGION}: AWS's credentials cannot be read: {error}; {expected}") from error
    if credentials is None:
        raise UserError(f"{REGION}: found no credentials of AWS, {expected}")
    signer = AWSV4Signer(credentials, region, SERVICE)

    def sign(method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        try:
            return signer.sign(method, url, body or b"")
        except BotoCoreError as error:
            raise UserError(f"{REGION}: AWS's credentials cannot be read: {error}; {expected}") from error

    return sign


EXAMPLE = "http://localhost:9200/name"
USER, PASSWORD, KEY, CA = "OPENSEARCH_USER", "OPENSEARCH_PASSWORD", "OPENSEARCH_API_KEY", "OPENSEARCH_CA_CERTS"
CREDENTIALS = f"{USER} and {PASSWORD}, {KEY} or {REGION}"
REPLY_TIMEOUT_S = 120.0
"""The time for which Keystone waits for an answer, in seconds, unless the request sets another."""
PORTS = {"http": 9200, "https": 443}
LONGEST_NAME_BYTES = 255

_NOT_IN_NAMES = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f\x7f]')


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an index: the base URLs of a cluster's nodes, and the index's name."""

    urls: tuple[str, ...]
    name: str

    @property
    def at(self) -> dict[str, str]:
        """The place as `Index.at` holds it."""
        return {"backend": "opensearch", "url": ",".join(self.urls), "name": self.name}

    @property
    def path(self) -> str:
        """The path of the index below a base URL."""
        return "/" + quote(self.name, safe="")

    def __str__(self) -> str:
        return f"{','.join(self.urls)}/{self.name}"


def place_of(text: str) -> Place:
    """Read `URL/NAME`, or `URL,URL/NAME` for several nodes. `UserError` for anything else."""
    urls, _, name = text.rpartition("/")
    return Place(tuple(_checked(url, text) for url in urls.split(",")), _checked_name(name))


def place_at(at: Mapping[str, str]) -> Place:
    """Read the place that `Place.at` has written."""
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
        raise UserError(f"{text!r}: not an index of an OpenSearch cluster, expected one such as {EXAMPLE}")
    return url.rstrip("/")


def _checked_name(name: str) -> str:
    """Return the name of an index if it obeys OpenSearch's rules; else raise `UserError`."""
    wrong = (
        "is empty" if not name
        else "has capital letters" if name != name.lower()
        else f"begins with {name[0]!r}" if name[0] in "_-+"
        else "is not a name" if name in (".", "..")
        else f"holds {found[0]!r}" if (found := _NOT_IN_NAMES.search(name))
        else f"is longer than {LONGEST_NAME_BYTES} bytes" if len(name.encode(errors="replace")) > LONGEST_NAME_BYTES
        else None
    )  # fmt: skip
    if wrong:
        raise UserError(f"index name {name!r}: {wrong}; expected lower case, such as in {EXAMPLE}")
    return name


@dataclass(frozen=True, slots=True)
class Request:
    """One request below a base URL. Its answer may take `seconds` and have `limit` bytes."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    seconds: float = REPLY_TIMEOUT_S
    limit: int = REPLY_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of the cluster, also an error; `value` is its JSON."""

    status: int
    headers: Mapping[str, str]
    value: Any
    url: str
    key: str | None = field(repr=False, default=None)

    @property
    def reason(self) -> str:
        """Status and words of an error, in one line and without credentials."""
        said = self.value.encode() if isinstance(self.value, str) else self.value
        return describe_refusal(self.status, self.headers, said)

    def checked(self) -> Any:
        """The JSON of a reply. `ClusterRefused` if its status is that of an error."""
        if not 200 <= self.status < 300:
            raise ClusterRefused(self.url, self.status, self.reason)
        return self.value


@contextmanager
def as_expected(where: object) -> Iterator[None]:
    """Raise `UserError` if the block reads an answer of another form than OpenSearch's; `where` names its sender."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        found = f"lacks {error}" if isinstance(error, KeyError) else str(error) or "holds too little"
        raise UserError(f"{where}: an answer of another form than OpenSearch's: {printable(found)}") from error


class Node:
    """One base URL. `ask` may be called by many threads at once."""

    def __init__(
        self, url: str, credentials: str | None, ca: str | None, at_once: int, sign: Sign | None = None
    ) -> None:
        self.url, self._key, self._sign = url, credentials and credentials.split()[1], sign
        self._sender = Sender(url, credentials, at_once, ca)

    def ask(self, request: Request) -> Reply:
        """The node's reply. `Unreached` if no whole one comes; `UserError` if it is too large or untrusted."""
        target = f"{request.path}?{urlencode(request.params)}" if request.params else request.path
        kind = "application/x-ndjson" if request.path.endswith(("/_bulk", "/_msearch")) else JSON_TYPE
        signed = self._sign(request.method, self.url + target, request.body) if self._sign else {}
        try:
            sent = HttpRequest(request.method, target, request.body, request.limit, kind, signed)
            received = self._sender.send(sent, request.seconds)
        except Untrusted as error:
            raise UserError(
                f"{error}; expected one of a known authority, or in {CA} the file of the authority that signed it"
            ) from error
        status, body = received.status, received.body
        if self._key and status >= 300:
            body = remove_key(body, self._key)
        value: Any = None
        try:
            value = parse_json(body) if body else None
        except ValueError as error:
            value = body.decode(errors="replace")
            if 200 <= status < 300:
                raise Unreached(f"an answer that is not whole JSON: {error}: {printable(value, 60)!r}") from None
        return Reply(status, received.headers, value, self.url, self._key)

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()


def credentials() -> str | None:
    """Make the Authorization header from the environment, or None. `UserError` for incomplete or two credentials."""
    user, password, key = os.environ.get(USER, ""), os.environ.get(PASSWORD, ""), read_key(KEY)
    if bool(user) != bool(password):
        raise UserError(f"found {USER if user else PASSWORD} alone in the environment, expected {CREDENTIALS}")
    chosen = [name for name in (USER, KEY, REGION) if os.environ.get(name)]
    if len(chosen) > 1:
        raise UserError(f"found {' and '.join(chosen)} in the environment, expected one of them")
    if ":" in user:
        raise UserError(f"{USER}: holds a colon, which no user's name can")
    return f"ApiKey {key}" if key else f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if user else None


def connect(urls: Sequence[str], at_once: int) -> list[Node]:
    """Connect to nodes. `UserError` if none answers, or credentials are rejected or would go by plain http."""
    header, ca = credentials(), os.environ.get(CA) or None
    sign = make_signer(region) if (region := os.environ.get(REGION)) else None
    if ca and not Path(ca).is_file():
        raise UserError(f"{CA}: {ca}: no such file, expected certificates in PEM form")
    for url in urls if header or sign else ():
        admit(url)
    nodes = [Node(url, header, ca, at_once, sign) for url in urls]
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
    """Raise `UserError` for an answer that asks for credentials, or for other ones."""
    if reply.status in (401, 403):
        known = "" if reply.key else f"; expected in the environment {CREDENTIALS}"
        raise UserError(f"{reply.url}: refused with status {reply.reason}{known}")


def _missed(node: Node) -> str | None:
    """Say why a node does not answer; None if it does. `UserError` if it rejects the credentials."""
    try:
        reply = node.ask(Request("GET", "/"))
    except Unreached as error:
        return f"{node.url}: cannot be reached: {error}"
    if reply.status == 401:
        refuse_strangers(reply)
    return None
