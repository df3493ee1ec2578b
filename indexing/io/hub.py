"""Data sets of the Hugging Face hub: files of a corpus, topics or judgments, and folders that were pushed there.

`hf:USER/NAME` stands for a folder, `hf:USER/NAME/PATH` for what it holds, and `hf:USER/NAME@REVISION` for a commit or
a branch. The hub is asked once; `HF_HUB_OFFLINE`, `HF_HOME`, `HF_TOKEN` and `HF_ENDPOINT` are obeyed.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from keystone.indexing.errors import UserError

_NAMED = re.compile(r"hf:/*([\w.-]+/[\w.-]+)(?:@([\w.-]+))?((?:/[^/:\s]+)*)(:[\w.-]+)?")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_LEFT_OUT = (".gitattributes", "*.py", "*.png", "*.jpg", "*.svg")
"""The files of a data set that no reader of a corpus needs."""
_OF_THE_HUB = ".gitattributes"
"""The file that the hub itself adds to a data set."""


class Sent(NamedTuple):
    """A file that is sent to the hub: its path there, and its size."""

    path: str
    size_bytes: int


def to_local(name: str) -> str:
    """Fetch the data set that a name of the hub names, and return its path here. Any other text is returned as it is.

    The split at the end of the name (`hf:USER/NAME:test`) stays there. `UserError` if the hub does not have it.
    """
    found = _NAMED.fullmatch(name)
    if not found:
        return name
    repository, revision, inside, split = found.groups()
    inside = (inside or "").strip("/")
    patterns = [inside, f"{inside}/*"] if inside else None
    place = fetch_folder(repository, revision, patterns=patterns) / inside
    if not place.exists():
        raise UserError(f"{name}: the data set has no {inside}; see what {repository} holds on the hub")
    return f"{place}{split or ''}"


def fetch_folder(
    repository: str, revision: str | None = None, out: Path | None = None, patterns: list[str] | None = None
) -> Path:
    """Fetch the files of a data set into a folder, by default one in the hub's cache; returns the folder.

    Only files that match `patterns` are fetched, if there are any. The cache leaves out programs and pictures. A file
    that is here already is not fetched again. `UserError` if the hub does not give them.
    """
    from huggingface_hub import constants, snapshot_download

    kept = Path(constants.HF_HOME) / "keystone" / "--".join([*repository.split("/"), revision or "main"])
    with report_hub_errors(lambda reason: _explain(repository, reason)):
        found = snapshot_download(
            repository, repo_type="dataset", revision=revision, local_dir=out or kept, allow_patterns=patterns,
            ignore_patterns=list(_LEFT_OUT) if out is None else _OF_THE_HUB,
        )  # fmt: skip
    return Path(found)


def list_files_to_push(path: Path) -> list[Sent]:
    """List the files of a folder, or a single file, with their paths on the hub. `UserError` if there are none."""
    files = sorted(own for own in path.rglob("*") if own.is_file()) if path.is_dir() else [path]
    if not files or not path.exists():
        raise UserError(f"{path}: holds no file; expected the folder of an index or a run, or a bundle")
    root = path if path.is_dir() else path.parent
    return [Sent(own.relative_to(root).as_posix(), own.stat().st_size) for own in files]


def push(path: Path, repository: str, private: bool = True) -> str:
    """Send a folder or file to a data set of the hub, made if needed; returns its URL. `UserError` if refused."""
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"{repository}: expected the name of a data set of the hub, such as USER/NAME")
    files = list_files_to_push(path)
    from huggingface_hub import CommitOperationAdd, HfApi

    api, root = HfApi(), path if path.is_dir() else path.parent
    with report_hub_errors(lambda reason: _explain(repository, reason)):
        made = api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
        api.create_commit(
            repository,
            [CommitOperationAdd(one.path, root / one.path) for one in files],
            commit_message=f"{path.name} by Keystone",
            repo_type="dataset",
        )
    return str(made)


@contextmanager
def report_hub_errors(explain: Callable[[str], str]) -> Iterator[None]:
    """Turn an error of the hub in the block into a `UserError`, whose message `explain` makes of its first line."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(explain(reason)) from error


def _explain(repository: str, reason: str) -> str:
    token = "" if os.environ.get("HF_TOKEN") else "; a private data set needs the token in HF_TOKEN"
    return f"hf:{repository}: the hub does not give or take it: {reason}{token}"
