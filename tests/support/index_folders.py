"""The files of an index."""

from collections.abc import Sequence
from pathlib import Path

DENSE = ("store", "dense.faiss", "index.json")
"""What has the same bytes; Lucene's files hold random names, its rankings are compared."""


def contents(folder: Path, names: Sequence[str] = DENSE) -> dict[str, bytes]:
    files = [file for name in names for file in [folder / name, *sorted((folder / name).glob("*"))] if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
