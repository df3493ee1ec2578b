"""The files of an index."""

from collections.abc import Sequence
from pathlib import Path

SAME_BYTES_NAMES = ("store", "postings", "dense.faiss", "passages.npy", "index.json")
"""The files of equal indexes that have equal bytes. Lucene's files hold random names, so tests compare its rankings."""


def read_contents(folder: Path, names: Sequence[str] = SAME_BYTES_NAMES) -> dict[str, bytes]:
    files = [file for name in names for file in [folder / name, *sorted((folder / name).glob("*"))] if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
