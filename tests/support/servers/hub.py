"""A stand-in of the Hugging Face hub: it serves and takes the files of folders by the hub's protocol."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.support.servers.json_server import JsonHandler, serve_json

COMMIT = "0" * 40


@dataclass
class HubServer:
    """The folders of repositories by `models/USER/NAME` or `datasets/USER/NAME`, and the paths that were asked for."""

    folders: dict[str, Path]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)


class _Handler(JsonHandler):
    state: HubServer

    def do_HEAD(self) -> None:  # noqa: N802
        self._answer(False)

    def do_GET(self) -> None:  # noqa: N802
        self._answer(True)

    def do_POST(self) -> None:  # noqa: N802
        self.state.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            asked = orjson.loads(body)
            name = f"{asked.get('organization') or 'someone'}/{asked['name'].rpartition('/')[2]}"
            self._send(200, orjson.dumps({"url": f"{self.state.url}/datasets/{name}"}), True)
        elif path == "/api/validate-yaml":
            self._send(200, b"{}", True)
        elif "/preupload/" in path:
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in
                     orjson.loads(body)["files"]]  # fmt: skip
            self._send(200, orjson.dumps({"files": files}), True)
        elif "/commit/" in path:
            name = path.removeprefix("/api/").partition("/commit/")[0]
            folder = self.state.folders[name]
            for line in body.splitlines():
                one = orjson.loads(line)
                if one["key"] == "file":
                    own = folder / one["value"]["path"]
                    own.parent.mkdir(parents=True, exist_ok=True)
                    own.write_bytes(base64.b64decode(one["value"]["content"]))
            said = {"commitUrl": f"{self.state.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
            self._send(200, orjson.dumps(said), True)
        else:
            self._send(404, b"{}", True)

    def _answer(self, whole: bool) -> None:
        path = self.path.partition("?")[0]
        self.state.asked.append(path)
        for name, folder in self.state.folders.items():
            files = [own for own in folder.rglob("*") if own.is_file()]
            names = [own.relative_to(folder).as_posix() for own in files]
            if path.startswith(f"/api/{name}/tree/"):
                listed = [
                    {"type": "file", "path": one, "size": own.stat().st_size, "oid": str(own.stat().st_size)}
                    for one, own in zip(names, files, strict=True)
                ]
                return self._send(200, orjson.dumps(listed), whole)
            if path.startswith(f"/api/{name}"):
                said = {"id": name.partition("/")[2], "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
                return self._send(200, orjson.dumps(said), whole)
            prefix = f"/{name.removeprefix('models/')}/resolve/"
            if path.startswith(prefix):
                own = folder / path.removeprefix(prefix).partition("/")[2]
                return self._send(200, own.read_bytes(), whole) if own.is_file() else self._send(404, b"", whole)
        return self._send(404, b"{}", whole)

    def _send(self, status: int, body: bytes, whole: bool) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "ETag": f'"{len(body)}"', "X-Repo-Commit": COMMIT}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if whole:
            self.wfile.write(body)


@contextmanager
def hub_server(folders: Mapping[str, Path]) -> Iterator[HubServer]:
    state = HubServer(dict(folders))
    with serve_json(_Handler, state) as state.url:
        yield state
