"""Index folders over documents and postings that another engine holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.index import FORMAT, ImpactSet, Index, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.staged import partial_folder, write_description
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import load_embedder

KEY_ENV = "key_env"
"""The part of `Index.at` that names the environment variable with the server's key."""

MAX_RATE = "max_rate"
"""The part of `Index.at` with the most requests a second to the server, as a text."""
REST = "rest"
"""The name of REST servers as an engine, in `Index.at`."""
_ACCESS = (KEY_ENV, MAX_RATE)
"""The parts of `Index.at` that change no result."""


@dataclass(frozen=True, slots=True)
class AttachSettings:
    """How runs use an index that others made."""

    segments: Path | None = None
    """`pyserini:NAME` or `pyserini:FOLDER` of an index of official segments."""
    windows: bool = False
    """Whether runs may cut documents of MS MARCO V2.1 that have no official segments."""
    embedding: Embedding | None = None
    """The model by which runs embed the documents that they find; None if they embed nothing."""
    passages: bool = False
    """Whether runs embed each segment of these documents; otherwise each document."""
    key_env: str | None = None
    """The environment variable with the key of a REST server."""
    impacts: Mapping[str, ImpactSet] = field(default_factory=dict)
    """The model of the impacts that the index holds in place of the terms of BM25, by a name; empty for BM25."""
    max_rate: float | None = None
    """The most requests a second to a REST server."""


DEFAULTS = AttachSettings()


def adopt(
    corpus: Path,
    out: Path,
    at: dict[str, str],
    settings: AttachSettings,
    fill: Callable[[Path], int | None],
    parts: tuple[str, ...] = (),
    languages: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Index, bool]:
    """Make an index folder over documents and postings `at` an engine; also returns whether it is new.

    `fill` makes the `parts` that Keystone adds beside `index.json`, and returns the number of documents, None if it is
    unknown. `languages` is what `index.json` says of the languages of the documents; it is empty for English. If `out`
    already holds this very index, only the name of its server's key and the rate may change. `UserError` if `out` holds
    anything else, and for an impossible embedding model.
    """
    embedding = settings.embedding
    model = embedding.as_json() if embedding else None
    place = {name: value for name, value in at.items() if name not in _ACCESS}
    made_of = [FORMAT, place, embedding.made_by if embedding else None]
    if settings.impacts:
        made_of.append(["impacts", {name: one.made_by for name, one in settings.impacts.items()}])
    if languages:
        codes = sorted(languages.get("languages", ()))
        made_of.append(["language", languages["language"], *codes])
    key = digest([*made_of, "passages"] if settings.passages else made_of)
    if out.exists():
        existing = open_index(out)
        if existing.key != key:
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        if existing.at != at:
            write_description(out, orjson.loads((out / "index.json").read_bytes()) | {"at": at})
        return open_index(out), False
    if embedding:
        load_embedder(embedding)  # raises for an impossible model now, though only runs use it
    with partial_folder(out, key, (*parts, "index.json")) as folder:
        meta = {"format": FORMAT, "key": key, "embedding": model, "faiss": None, "documents": fill(folder)}
        meta |= {"left_out": {}, "cut": 0, "at": at, "corpus": str(corpus), "passages": settings.passages}
        meta |= languages
        if settings.impacts:
            meta["impacts"] = {name: one.as_json() for name, one in settings.impacts.items()}
        write_description(folder, meta)
    return open_index(out), True


def limit_rate(index: Index, rate: float) -> Index:
    """Return the index with at most `rate` requests a second; 0 returns it as it is.

    `UserError` for a rate if the index is not on a REST server.
    """
    if rate and index.backend != REST:
        raise UserError(
            f"retrieval.max_rate: found {rate:g} for {index.folder}, expected an index on a REST server, or 0"
        )
    return replace(index, at={**index.at, MAX_RATE: str(rate)}) if rate else index
