"""A language model and how it is reached."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from yarl import URL

from generation.llm.usage import Prices
from indexing.errors import UserError

KEY = "OPENAI_API_KEY"
"""The environment variable of the key where none is named."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A language model and how it is reached. The secret itself is never part of it."""

    name: str
    backend: Literal["endpoints", "vllm", "batch", "replay"] = "endpoints"
    urls: tuple[str, ...] = ()
    """Base URLs such as http://localhost:8000/v1 of endpoints that serve the same model."""
    key_env: str | None = None
    """The environment variable that holds the secret; None: OPENAI_API_KEY, sent by https or within this machine only.
    Without it none is sent."""
    key_file: Path | None = None
    """A file of mode 600 that holds the secret; it goes before the variable."""
    concurrency: int = 256
    """The most requests at one endpoint at one time."""
    call_seconds: float = 600.0
    """For which one answer is awaited."""
    run_seconds: float | None = None
    """After which everything ends with an error."""
    patience_seconds: float = 600.0
    """For which endpoints are tried while none of them answers."""
    cache: Path = Path("replies.sqlite")
    folder: Path = Path("batch")
    """Of batch files."""
    recorded: Path | None = None
    """A JSONL file of replies for `replay`."""
    prices: Prices | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request's body; part of what replies are kept by."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `vllm.LLM`, such as tensor_parallel_size, for `vllm`."""


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
