"""An index as it lies in its folder: opened, and known by its key while it is in use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import orjson

from indexing.errors import UserError
from indexing.types import Embedding

P = ParamSpec("P")
T = TypeVar("T")

FORMAT = 5
"""Raised when the layout of an index folder changes."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index folder: its parts and its key, which changes with the corpus, the settings and the layout.

    `at` says where documents and postings are, if not in the folder: {"backend": "opensearch", "url": ...}.

    `documents` is how many there are, None where the engine does not tell.
    `left_out` counts the records of the corpus that are no documents, by kind. `segments` counts the segments:
    `official` ones, which the corpus has, and `windows`, which Keystone cut; empty where nobody counted.
    `cut` of the documents were longer than the embedding model's window; their vectors stand for their beginning.
    `faiss` is the kind of the FAISS index; None where there is none. It lies in `faiss_shards` files; 0 where it is
    one that is read as a whole.
    """

    folder: Path
    key: str
    embedding: Embedding | None
    documents: int | None
    left_out: dict[str, int]
    cut: int
    faiss: str | None
    at: dict[str, str] = field(default_factory=dict)
    faiss_shards: int = 0
    segments: dict[str, int] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """What holds documents and postings: a name of `indexing.stores` and `retrieval.backends`."""
        return self.at.get("backend", "lucene")

    @property
    def pooled(self) -> bool:
        """Whether a run embeds the candidates that it finds by BM25, and searches among them alone."""
        return self.embedding is not None and self.faiss is None

    @property
    def store(self) -> Path:
        """The document store."""
        return self.folder / "store"

    @property
    def lucene(self) -> Path:
        """The Lucene index."""
        return self.folder / "lucene"

    @property
    def dense(self) -> Path:
        """The FAISS index; there only where `faiss` says of which kind."""
        return self.folder / "dense.faiss"

    @property
    def dense_shards(self) -> list[Path]:
        """The files of a FAISS index in parts; none where it is `dense`."""
        return shard_files(self.folder, self.faiss_shards)


def open_index(folder: Path) -> Index:
    """An index that `build_index` made. `UserError` if the folder is not one."""
    try:
        found = orjson.loads((folder / "index.json").read_bytes())
        if found["format"] != FORMAT:
            raise UserError(f"{folder}: index format {found['format']}, expected {FORMAT}: build it again")
        embedding = Embedding(**found["embedding"]) if found["embedding"] else None
        return Index(
            folder, found["key"], embedding, found["documents"], found["left_out"], found["cut"], found["faiss"],
            found["at"], found.get("faiss_shards", 0), found.get("segments", {}),
        )  # fmt: skip
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not an index: expected a folder made by `keystone index`") from error


def of_one_index(open_part: Callable[Concatenate[Index, P], T]) -> Callable[Concatenate[Index, P], T]:
    """What opens a part of an index, so that parts of two indexes are never used together.

    `UserError` where the folder does not hold the index any more when the part is open, whatever the part says.
    """

    @wraps(open_part)
    def opened(index: Index, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return open_part(index, *arguments, **named)
        finally:
            if _key_in(index.folder) != index.key:
                raise UserError(
                    f"{index.folder}: was replaced or removed while it was in use, expected the index that the command "
                    "began with: give the same command again"
                )

    return opened


def _key_in(folder: Path) -> str | None:
    try:
        return open_index(folder).key
    except UserError:
        return None


def shard_files(folder: Path, count: int) -> list[Path]:
    """The files of an index in `count` parts, in the order of rows."""
    return [folder / f"dense-{number:04d}.faiss" for number in range(count)]
