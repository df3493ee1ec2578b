"""Embedding texts by the model that an index names."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

from keystone.indexing.embedder import Embedder, ReportCut, Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.types import EMBEDDED, MINILM, VLLM, WORDS, Embedding, Tick
from keystone.indexing.words import list_stems

MOST_KEPT_QUERIES = 4096
"""The queries whose vectors are kept for each model of this machine. Several steps of a run embed the same ones."""

_stand_ins: dict[Embedding, Embedder] = {}
_kept: dict[Embedding, dict[str, Vectors]] = {}
"""The vectors of queries, float32[dimension], by model and text."""


def load_embedder(embedding: Embedding) -> Embedder:
    """The stand-in of an embedding, or its model, loaded once in a process. Errors are those of `load_model`."""
    return find_stand_in(embedding) or load_model(embedding)


def find_stand_in(embedding: Embedding) -> Embedder | None:
    """Find the stand-in of an embedding; None if it has none."""
    return _stand_ins.get(embedding)


def use_embedder(embedding: Embedding, embedder: Embedder) -> None:
    """Let an embedder, such as a user's function, be the model of an embedding until the process ends."""
    _stand_ins[embedding] = embedder
    _kept.pop(embedding, None)


@contextmanager
def stand_in(embedding: Embedding, embedder: Embedder) -> Iterator[None]:
    """Let an embedder, such as one of recorded vectors, stand in for the model of an embedding during the block."""
    use_embedder(embedding, embedder)
    try:
        yield
    finally:
        del _stand_ins[embedding]
        _kept.pop(embedding, None)


def find_device(embedding: Embedding) -> str:
    """Find where a model runs: `cuda` on a GPU of this machine, else `cpu`. Errors are those of `load_model`."""
    return str(getattr(load_embedder(embedding), "device", "cpu"))


@cache
def load_model(embedding: Embedding) -> Embedder:
    """The model of an embedding, or word vectors, loaded once. `UserError` or `MissingPackage` if it cannot be."""
    if embedding == WORDS:
        return WordVectors()
    if embedding.url:
        if embedding.dimensions:
            raise UserError(
                f"embedding model: found {embedding.dimensions} dimensions of {embedding.model} at a URL, expected "
                "them of a model on this machine: let the server cut its vectors"
            )
        from keystone.indexing.vectors.endpoint import Endpoint

        return Endpoint(embedding.model, embedding.url, embedding.window, embedding.key_env)
    if embedding.key_env:
        raise UserError(f"embedding model: found {embedding.key_env!r} as the key of {embedding.model}, expected a URL")
    from keystone.indexing.encoders.dense import open_encoder

    return open_encoder(embedding)


def settle_embedding(
    given: Embedding,
    named: Collection[str],
    note: Callable[[str], None],
    names: tuple[str, str] = ("--query-prefix", "--passage-prefix"),
) -> Embedding:
    """Fill in what the files of a model on this machine say: prefixes and dimensions unless given, place and digest.

    `named` has the names of the fields that are given, `query_prefix` and `passage_prefix` among them. `note` receives
    a message if neither prefix is given, and either nobody knows which the model needs, or nobody adds the known ones
    for a URL. The message tells the `names` of what gives them. The embedded model in floating point and one at a URL
    stay as they are. `UserError` as from `read_checkpoint`, and for a backend that cannot run the model.
    """
    if given.backend not in (None, VLLM):
        raise UserError(f"embedding model: found the backend {given.backend!r}, expected {VLLM}")
    if given.backend and (given.url or given.model in EMBEDDED):
        where = "at a URL" if given.url else "which comes with Keystone"
        raise UserError(
            f"embedding model: found the backend {given.backend} for {given.label}, {where}; expected the folder of a "
            "checkpoint, or a name of the hub"
        )
    if given == MINILM:
        return given
    from keystone.indexing.encoders.checkpoint import find_known_prefixes, read_checkpoint

    is_named = not {"query_prefix", "passage_prefix"}.isdisjoint(named)
    if given.url:
        known = find_known_prefixes(given.model) or ("", "")
        options = (f"{name} {text!r}" for name, text in zip(names, known, strict=True) if text)
        if any(known) and not is_named:
            note(
                f"{given.label}: nothing stands before its texts at a URL; unless the server adds what the model "
                f"needs, give {' and '.join(options)}"
            )
        return given
    checkpoint = read_checkpoint(given.model)
    found = checkpoint.find_prefixes()
    if found is None and not is_named:
        others = ", ".join(name for name, text in checkpoint.prompts.items() if text)
        note(
            f"{given.label}: its files do not say what stands before queries and passages"
            f"{f' (they have the prompts {others})' if others else ''}, so nothing does; if the model needs prefixes, "
            f"give them by {' and '.join(names)}"
        )
    query, passage = found or ("", "")
    query = given.query_prefix if "query_prefix" in named else query
    passage = given.passage_prefix if "passage_prefix" in named else passage
    model = str(Path(given.model).resolve()) if Path(given.model).is_dir() else given.model
    weights = None if given.model in EMBEDDED else checkpoint.compute_digest()
    dimensions = given.dimensions or checkpoint.about.get("truncate_dim")
    return replace(
        given, model=model, query_prefix=query, passage_prefix=passage, dimensions=dimensions, weights=weights
    )


def embed_queries(embedding: Embedding, texts: Sequence[str], threads: int = 1, tick: Tick = lambda _: None) -> Vectors:
    """The vectors of queries, float32[len(texts), dimension]. Errors are those of `Embedder.embed`."""
    embedder, asked = load_embedder(embedding), [embedding.query_prefix + text for text in texts]
    if embedding.url or not asked:
        return embedder.embed(asked, threads, tick)
    kept = _kept.setdefault(embedding, {})
    found = {text: vector for text in dict.fromkeys(asked) if (vector := kept.get(text)) is not None}
    new = [text for text in dict.fromkeys(asked) if text not in found]
    if new:
        made = dict(zip(new, embedder.embed(new, threads, tick), strict=True))
        found |= made
        if len(kept) + len(made) > MOST_KEPT_QUERIES:
            kept.clear()
        kept.update(made if len(made) <= MOST_KEPT_QUERIES else {})
    tick(len(texts) - len(new))
    return np.stack([found[text] for text in asked])


def embed_passages(
    embedding: Embedding,
    texts: Sequence[str],
    threads: int = 1,
    tick: Tick = lambda _: None,
    cut: ReportCut = lambda _: None,
) -> Vectors:
    """The vectors of passages, float32[len(texts), dimension]. Errors are those of `Embedder.embed`."""
    return load_embedder(embedding).embed([embedding.passage_prefix + text for text in texts], threads, tick, cut)


DIMENSION = 2048
"""The entries of a vector. Two stems share one of them by chance, and half of these cancel out."""


class WordVectors:
    """An `Embedder` of stems of content words by their hashes; one that occurs n times weighs 1 + log n."""

    dimension = DIMENSION

    def find_long(self, texts: Sequence[str]) -> list[int]:  # noqa: ARG002
        """Find no text, because none is too long."""
        return []

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,  # noqa: ARG002
    ) -> Vectors:
        """Vectors on the grid, float32[len(texts), dimension]. A text without content words has zeros."""
        found = np.zeros((len(texts), DIMENSION))
        for row, text in zip(found, texts, strict=True):
            for stem, count in sorted(Counter(list_stems(text)).items()):
                code = crc32(stem.encode())
                row[code % DIMENSION] += (1 if code // DIMENSION % 2 else -1) * (1 + math.log(count))
        tick(len(texts))
        return round_to_grid(found)
