"""A server of the files of a folder, for tests of downloads."""

from contextlib import AbstractContextManager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from tests.support.servers.json_server import serve


class _Handler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve_files(folder: Path) -> AbstractContextManager[str]:
    """Serve the files of a folder until the block ends, and give the server's address."""
    return serve(partial(_Handler, directory=str(folder)))
