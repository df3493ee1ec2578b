"""Index folders over documents, postings and vectors in OpenSearch."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.attached.attach import AttachSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import FORMAT, ImpactSet, Index, open_index
from keystone.indexing.io.error_text import show_value
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.staged import partial_folder, stage
from keystone.indexing.io.writing import write_whole
from keystone.indexing.opensearch.analysis import check_analyzers
from keystone.indexing.opensearch.cluster import Place, as_expected, close, connect, place_of
from keystone.indexing.opensearch.index import Target, check_possible, held_at, index_body, refuse_other
from keystone.indexing.opensearch.load import Upload, load
from keystone.indexing.opensearch.numbers import NUMBERS, read_numbers, write_numbers
from keystone.indexing.types import Embedding, Progress
from keystone.indexing.vectors.embed import load_embedder

PREFIX = "opensearch:"


def check_cluster(target: Target, keys: Collection[str], meta: Mapping[str, Any], embedding: Embedding | None) -> None:
    """Raise `UserError` if the cluster cannot take the index, before Keystone reads or embeds anything for it.

    The index may have each of the `keys`. `meta` is the known part of its description of itself: `faiss`,
    `passages`, `impacts`, and its languages.
    """
    dimension = load_embedder(embedding).dimension if embedding and meta["faiss"] is not None else None
    body = index_body(meta, target.shards, dimension)
    nodes = connect(target.place.urls, 1)
    try:
        check_analyzers(nodes, meta)
        held = held_at(nodes, target.place)
        refuse_other(target.place, held, keys)
        if held is None:
            check_possible(nodes, target.place, body)
    finally:
        close(nodes)


def load_stage(folder: Path, upload: Upload, progress: Progress) -> None:
    """Load the documents of a build in `folder`, as a stage that a later try skips or goes on with."""
    stage(folder, "opensearch", lambda _: load(upload, progress))


def attach(corpus: str, out: Path, settings: AttachSettings, _progress: Progress) -> tuple[Index, bool]:
    """Make an index folder over `opensearch:URL/NAME`; see `adopt_loaded`."""
    key_env = settings.embedding.key_env if settings.embedding else None
    return adopt_loaded(place_of(corpus.removeprefix(PREFIX)), out, key_env)


def adopt_loaded(place: Place, out: Path, key_env: str | None = None) -> tuple[Index, bool]:
    """Make an index folder over an index that another folder has loaded to OpenSearch; also returns whether it is new.

    `key_env` is the environment variable with the key of the embedding model. Keystone never takes that name from the
    cluster, to which others may write. `UserError` if there is no finished index, or `out` holds another one.
    """
    nodes = connect(place.urls, 1)
    try:
        held = held_at(nodes, place)
        if held is None or not held.finished:
            found = "not yet finished" if held else "no such index"
            raise UserError(f"{place}: {found}; expected one that `keystone index CORPUS --opensearch` has made")
        if out.exists():
            existing = open_index(out)
            if (existing.key, existing.at) != (held.meta["key"], place.at):
                raise UserError(f"{out}: holds another index: remove it or choose another")
            return existing, False
        with as_expected(place):
            meta = _checked({**held.meta, "at": place.at}, key_env)
            content, parts_key = orjson.dumps(meta, option=orjson.OPT_INDENT_2), digest(meta)
        with partial_folder(out, parts_key, ("index.json", NUMBERS)) as folder:
            if "numbers" in meta:
                write_numbers(read_numbers(nodes, held.place, meta["documents"]), folder)
            with write_whole(folder / "index.json") as file:
                file.write(content)
    finally:
        close(nodes)
    return open_index(out), True


def _checked(meta: dict[str, Any], key_env: str | None) -> dict[str, Any]:
    """Check the description that an index holds, and put `key_env` into its embedding model.

    `ValueError`, `KeyError` or `TypeError` for a description that Keystone has not written.
    """
    if meta["format"] != FORMAT:
        raise ValueError(f"index format {show_value(meta['format'])}, expected {FORMAT}: build it again")
    if not isinstance(meta["documents"], int) or meta["documents"] < 0 or not isinstance(meta["key"], str):
        raise ValueError(f"found {show_value(meta['documents'])} documents, expected their number, and a key")
    if missing := {"left_out", "cut", "faiss"} - meta.keys():
        raise ValueError(f"lacks {sorted(missing)}")
    if meta["embedding"]:
        meta["embedding"] = Embedding(**{**meta["embedding"], "key_env": key_env}).as_json()
        if not all(isinstance(value, str | int | None) for value in meta["embedding"].values()):
            raise ValueError(f"found the embedding model {show_value(meta['embedding'])}, expected names and a number")
    for one in meta.get("impacts", {}).values():
        if not all(isinstance(value, str) for value in asdict(ImpactSet(**one)).values()):
            raise ValueError(f"found the impacts {show_value(one)}, expected names")
    return meta
