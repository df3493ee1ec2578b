"""A forwarder to a server that demands AWS's signatures (Signature Version 4), as Amazon OpenSearch Service does.

The signature is computed here by the steps of AWS's documentation, from what arrives on the socket.
"""

import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

import urllib3

from tests.support.servers.json_server import JsonHandler, serve_json

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\S+?)/([^,]+), SignedHeaders=(\S+), Signature=([0-9a-f]{64})"
)


@dataclass
class Account:
    """A user's keys, the scope of the service, the server behind, and the refused and admitted requests."""

    key: str
    secret: str
    token: str
    scope: str
    """The region and the service, such as eu-west-1/es."""
    behind: str
    admitted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def compute_signature(
    secret: str, scope: str, method: str, target: str, headers: Mapping[str, str], body_digest: str
) -> str:
    """Compute the signature of a request from its signed headers; `scope` is DATE/REGION/SERVICE/aws4_request."""
    parts = urlsplit(target)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    canonical = "\n".join(
        [
            method,
            quote(parts.path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)),
            "",
            ";".join(sorted(headers)),
            body_digest,
        ]
    )
    wanted = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in [*scope.split("/"), wanted]:
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


class _Handler(JsonHandler):
    state: Account

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if wrong := self._find_fault(body):
            self.state.refused.append(wrong)
            self.reply({"message": wrong}, 403)
            return
        self.state.admitted.append(f"{self.command} {self.path}")
        sent = {"Content-Type": self.headers["Content-Type"]} if body else {}
        found = urllib3.request(self.command, self.state.behind + self.path, body=body, headers=sent, retries=False)
        self.send(found.data, found.status)

    do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815

    def _find_fault(self, body: bytes) -> str:
        account = self.state
        if not (found := _AUTHORIZATION.fullmatch(self.headers["Authorization"] or "")):
            return "Missing Authentication Token"
        key, scope, signed, signature = found.groups()
        headers = {name: self.headers[name] or "" for name in signed.split(";")}
        date = self.headers["X-Amz-Date"]
        if key != account.key or scope != f"{date[:8]}/{account.scope}/aws4_request":
            return f"Credential should be scoped to {account.scope}, found {scope}"
        if not headers.keys() >= {"host", "x-amz-date", "x-amz-security-token"}:
            return f"headers are not signed: {signed}"
        if headers["x-amz-security-token"] != account.token:
            return "The security token included in the request is invalid"
        content = sha256(body).hexdigest()
        if signature != compute_signature(account.secret, scope, self.command, self.path, headers, content):
            return "The request signature we calculated does not match the signature you provided"
        return ""


@contextmanager
def demand_signatures(account: Account) -> Iterator[str]:
    """Forward signed requests until the block ends, and give the forwarder's address."""
    with serve_json(_Handler, account) as url:
        yield url
