"""Archives of projects on the index of Python packages, loaded as pip and uv load them."""

import base64
import os
import re
import ssl
import sys
import time
from html import unescape
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import Request, urlopen

import certifi
import orjson

from keystone.indexing.errors import UserError, printable

PUBLIC_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
"""The variables by which uv and pip take another index."""
TRIES, PAUSE_SECONDS, LONGEST_SILENCE_SECONDS, LONGEST_SECONDS = 5, 2, 60, 1800
CHUNK_BYTES = 1 << 20


def fetch(project: str, archive: str, path: Path) -> None:
    """Load an archive from the index, continuing after a break.

    `UserError` if the index cannot be reached or lacks it; `OSError` for the disk.
    """
    index = next((os.environ[name] for name in INDEX_VARIABLES if os.environ.get(name)), PUBLIC_INDEX)
    index = re.sub(r"^[\w.-]+=(?=https?://)", "", index)  # uv may give it a name
    page = f"{index.rstrip('/')}/{project}/"
    place, _ = _without_user(page)
    print(f"Fetching {archive} from {place} (once; it is kept in {path.parent})", file=sys.stderr)
    for left in reversed(range(TRIES)):
        try:
            _load(_find_url(page, archive), path)
            return
        except (HTTPException, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno and error.filename:
                raise  # the disk, not the network
            refused = isinstance(error, HTTPError) and error.code in (401, 403, 404)
            if not left or refused:
                reason = printable(str(error))
                raise UserError(
                    f"{archive}: could not be fetched from {place}: {reason}: name another index by "
                    "PIP_INDEX_URL, or put this file into a folder and set KEYSTONE_FILES to the folder"
                ) from error
            time.sleep(PAUSE_SECONDS)
    raise AssertionError


def _find_url(page: str, archive: str) -> str:
    """The address of a file on a project's page of the index, in JSON (PEP 691) or HTML (PEP 503)."""
    with _open(page, {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}) as reply:
        content, place, is_json = reply.read(), reply.geturl(), "json" in reply.headers.get_content_type()
    if is_json:
        named: dict[str, str] = {file["filename"]: file["url"] for file in orjson.loads(content)["files"]}
    else:
        links = re.findall(r"""<a\s[^>]*href=["']([^"']+)["'][^>]*>\s*([^<]+?)\s*</a>""", content.decode())
        named = {name: unescape(link) for link, name in links}
    if archive not in named:
        raise ValueError("the index does not list this file")
    user = urlsplit(page).netloc.rpartition("@")[0]
    url = urlsplit(urljoin(place, named[archive]))
    same_host = url.hostname == urlsplit(page).hostname
    return urlunsplit(url._replace(netloc=f"{user}@{url.netloc}") if user and same_host else url)


def _load(url: str, path: Path) -> None:
    held = path.stat().st_size if path.exists() else 0
    try:
        reply = _open(url, {"Range": f"bytes={held}-"} if held else {})
    except HTTPError as error:
        if error.code == 416:  # nothing is missing, or more is there than should be: the checksum tells
            return
        raise
    with reply, path.open("ab" if reply.status == 206 else "wb") as out:
        until = time.monotonic() + LONGEST_SECONDS
        while chunk := reply.read1(CHUNK_BYTES):
            out.write(chunk)
            if time.monotonic() > until:
                raise TimeoutError(f"not whole after {LONGEST_SECONDS} s")
        missing = reply.length
    if missing:
        raise ValueError(f"the server broke off, {missing:,} bytes before the end")


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    """Ask a server; `urlopen` takes the proxies of the environment. Certificates are trusted as by pip and uv."""
    bare, user = _without_user(url)
    request = Request(bare, headers=headers)
    if user:
        plain = unquote(user).encode()
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(plain).decode()}")
    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE"):
        if os.environ.get(name):
            context.load_verify_locations(os.environ[name])
    reply: HTTPResponse = urlopen(request, timeout=LONGEST_SILENCE_SECONDS, context=context)
    return reply


def _without_user(url: str) -> tuple[str, str]:
    """A URL without the user and password that it may contain, and these two."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), user
