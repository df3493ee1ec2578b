"""Archives of packages are fetched once from an index of packages, whole and of the right checksum, or not at all."""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import orjson
import pytest

from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.io import fetch
from keystone.indexing.io.published import Published, find_published
from tests.support.servers.json_server import JsonHandler, serve_json

buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as made:
    made.writestr("words/data/list.txt", "bee\n" * 50_000)
ARCHIVE = buffer.getvalue()
NAME = "words-1.0-py3-none-any.whl"
WORDS = Published("words", NAME, hashlib.sha256(ARCHIVE).hexdigest(), ("words/data/list.txt",))


class Index(JsonHandler):
    """An index of packages with one file. Class attributes say how it misbehaves."""

    protocol_version = "HTTP/1.0"
    breaks, html, page_status, user = 0, False, 200, ""
    asked: ClassVar[list[str]] = []
    users: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:  # noqa: N802
        self.asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        self.users.append(self.headers.get("Authorization"))
        if self.user and self.headers.get("Authorization") != self.user:
            self.say(401, b"", "text/plain")
        elif self.path.endswith("/words/"):
            link = f"../../files/{quote(NAME)}"
            page = (
                f'<html><a href="{link}#sha256=0" data-requires-python="&gt;=3">{NAME}</a></html>'.encode()
                if self.html
                else orjson.dumps({"files": [{"filename": NAME, "url": link}]})
            )
            kind = "text/html" if self.html else "application/vnd.pypi.simple.v1+json"
            self.say(self.page_status, page, kind)
        else:
            first = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.say(206 if first else 200, ARCHIVE[first:], "application/zip", cut=type(self).breaks > 0)
            type(self).breaks -= 1

    def say(self, status: int, body: bytes, kind: str, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Index]]:
    class Own(Index):
        asked: ClassVar[list[str]] = []
        users: ClassVar[list[str | None]] = []

    monkeypatch.setenv("KEYSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.delenv("UV_INDEX_URL", raising=False)
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0)
    with serve_json(Own, None) as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        yield Own


@pytest.mark.parametrize("html", [False, True], ids=["an index in JSON", "an index in HTML"])
def test_a_member_is_fetched_once(index: type[Index], html: bool) -> None:
    index.html = html
    folder = find_published(WORDS)
    assert [path.name for path in folder.iterdir()] == ["list.txt"]
    assert (folder / "list.txt").read_text().startswith("bee\n")
    assert find_published(WORDS) == folder
    assert index.asked == ["/simple/words/", f"/files/{quote(NAME)}"]


@pytest.mark.usefixtures("index")
def test_an_archive_without_members_is_kept_as_it_is() -> None:
    assert (find_published(replace(WORDS, members=())) / NAME).read_bytes() == ARCHIVE


def test_a_fetch_goes_on_where_the_server_broke_off(index: type[Index]) -> None:
    index.breaks = 2
    assert (find_published(WORDS) / "list.txt").stat().st_size == 200_000
    ranges = [asked.partition("bytes=")[2] for asked in index.asked if "/files/" in asked]
    assert ranges == ["", f"{len(ARCHIVE) // 2}-", f"{len(ARCHIVE) // 2 + (len(ARCHIVE) - len(ARCHIVE) // 2) // 2}-"]


def test_many_threads_fetch_once(index: type[Index]) -> None:
    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(lambda _: find_published(WORDS), range(6)))) == 1
    assert len(index.asked) == 2


@pytest.mark.usefixtures("index")
def test_a_wrong_checksum_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{NAME}: found the SHA-256 {WORDS.sha256}, expected 0000"):
        find_published(replace(WORDS, sha256="0" * 64))
    assert not [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("wanted", "status", "said", "requests"),
    [
        pytest.param(WORDS, 404, "HTTP Error 404", 1, id="no such project"),
        pytest.param(WORDS, 500, "HTTP Error 500", fetch.TRIES, id="a broken index"),
        pytest.param(replace(WORDS, archive="words-2.whl"), 200, "does not list this", fetch.TRIES, id="no file"),
    ],
)
def test_a_failure_names_the_file_the_place_and_two_ways_out(
    index: type[Index], wanted: Published, status: int, said: str, requests: int
) -> None:
    index.page_status = status
    with pytest.raises(UserError, match=rf"^{wanted.archive}: could not be fetched from http.*{said}.*KEYSTONE_FILES"):
        find_published(wanted)
    assert len(index.asked) == requests


def test_a_password_of_the_index_is_sent_and_never_shown(
    index: type[Index], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    index.user = "Basic YW5uOnNlY3JldA=="
    url = os.environ["PIP_INDEX_URL"]
    monkeypatch.setenv("PIP_INDEX_URL", url.replace("//", "//ann:secret@"))
    find_published(WORDS)
    assert "secret" not in "".join(capsys.readouterr())


def test_no_other_host_gets_the_password(index: type[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that passes requests on to another server."""

    class Other(Index):
        asked: ClassVar[list[str]] = []

        def do_GET(self) -> None:  # noqa: N802
            users.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", f"{own}{self.path}")
            self.end_headers()

    own, users = os.environ["PIP_INDEX_URL"].removesuffix("/simple"), list[str | None]()
    index.user = ""
    with serve_json(Other, None) as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url.replace('127.0.0.1', 'ann:se%40cret@localhost')}/simple")
        find_published(WORDS)
    assert users == ["Basic YW5uOnNlQGNyZXQ="]
    assert index.users == [None, None]


@pytest.mark.slow
def test_a_reply_that_drips_ends(index: type[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LONGEST_SECONDS", -1)
    monkeypatch.setattr(fetch, "CHUNK_BYTES", 1000)
    with pytest.raises(UserError, match="not whole after"):
        find_published(WORDS)
    assert sum("/files/" in asked for asked in index.asked) == fetch.TRIES


def test_an_index_may_have_a_name_as_for_uv(index: type[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"ours={os.environ['PIP_INDEX_URL']}/")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    find_published(WORDS)
    assert index.asked


def test_a_proxy_is_asked(index: type[Index], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", os.environ["PIP_INDEX_URL"].removesuffix("/simple"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    find_published(WORDS)
    assert index.asked[0] == "http://index.invalid/simple/words/"


def test_without_a_network_the_archive_may_lie_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.delenv("UV_INDEX_URL", raising=False)
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0)
    with pytest.raises(UserError, match="Connection refused"):
        find_published(WORDS)
    monkeypatch.setenv("KEYSTONE_FILES", str(tmp_path))
    (tmp_path / NAME).write_bytes(ARCHIVE)
    assert (find_published(WORDS) / "list.txt").exists()
    assert (tmp_path / NAME).exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KEYSTONE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NotWritten, match="cannot be written"):
        find_published(WORDS)
