"""Where an endpoint is, and which variable holds the key that opens it."""

import re

from yarl import URL

from indexing.errors import UserError

KEY = "OPENAI_API_KEY"
"""The environment variable of the key where none is named."""


def checked(url: str) -> str:
    """A base URL as it was given; `UserError` if it is none, or holds a password, a query or a fragment."""
    try:
        found = URL(url)
    except ValueError:
        found = URL()
    if found.user or found.password:
        raise UserError("model URL: holds a user or a password; expected the key in the environment or in a file")
    shown = re.split("[?#]", url.rpartition("@")[2])[0]
    if found.scheme not in ("http", "https") or not found.host:
        raise UserError(f"{shown!r}: not the URL of an endpoint, expected such as http://localhost:8000/v1")
    if "?" in url or "#" in url:
        raise UserError(f"{shown!r}: the model's URL has a query or a fragment, expected such as {shown}")
    return url
