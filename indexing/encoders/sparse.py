"""Learned sparse encoders: texts as weights of the entries of a vocabulary, their impacts.

The weight of an entry is the greatest of log(1 + max(0, logit)) over the tokens of the text (SPLADE-max; Formal et al.,
2021, "SPLADE v2", section 3). An inference-free encoder weighs the tokens of a query by a table instead. The head of
BGE-M3 weighs the tokens of a text by their states (Chen et al., 2024, "M3-Embedding", section 3.2).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.encoders.checkpoint import TRANSFORMER, Checkpoint, read_checkpoint, read_json, refuse
from keystone.indexing.encoders.network import Network, Tokens, open_network, run_batches
from keystone.indexing.encoders.weights import list_missing, list_weights, read_pickled_layer
from keystone.indexing.types import Tick

WEIGHT_RANGE, LEVELS = 5, 256
"""A weight of 5 is an impact of 256, as in Anserini's indexes of impacts."""
ACTIVATIONS = ("relu", "log1p_relu")
"""`log1p_relu` takes the logarithm twice, as OpenSearch's encoders of the third generation do."""
M3_HEAD, M3_FACTOR = "sparse_linear.pt", 8
"""The weights of BGE-M3 are mostly below 0.5. Multiplied by eight, they keep their differences as whole numbers."""

Weighted = tuple[NDArray[np.int32], NDArray[np.float32]]
"""The weights of a text that are above 0: the entries of the vocabulary in ascending order, and their weights."""


@dataclass(frozen=True, slots=True)
class SparseEncoder:
    """Encoders of queries and of documents, and the vocabulary whose entries they weigh."""

    vocabulary: list[str]
    """The tokens by their numbers."""
    encode_queries: Callable[..., list[Weighted]]
    """A function of (texts, threads, tick)."""
    encode_documents: Callable[..., list[Weighted]]


@cache
def open_sparse_encoder(model: str, digest: str | None = None, prompted: bool = True) -> SparseEncoder:
    """Open a learned sparse encoder. `UserError` for another kind or digest, or a missing file.

    Unless `prompted`, texts have no prompts of the checkpoint before them, as in older versions of Keystone.
    """
    checkpoint = read_checkpoint(model, digest)
    if checkpoint.modules and checkpoint.modules[0].kind == "Router":
        ask, encode, tokens = _open_router(checkpoint)
    else:
        is_m3 = (checkpoint.folder / M3_HEAD).exists()
        pooling = next((one.settings for one in checkpoint.modules if one.kind == "SpladePooling"), {})
        encode, tokens = _open_weighed(checkpoint) if is_m3 else _open_masked(checkpoint, pooling)
        ask = encode
    query, passage = checkpoint.read_prompts() if prompted else ("", "")
    names = {place: token for token, place in tokens.vocabulary.items()}
    return SparseEncoder(
        [names.get(place, "") for place in range(1 + max(names))],
        lambda texts, *rest: ask([query + text for text in texts], *rest),
        lambda texts, *rest: encode([passage + text for text in texts], *rest),
    )


def quantise(weights: NDArray[np.float32]) -> NDArray[np.int32]:
    """Turn weights into impacts, whole numbers, int32[n]; halves are rounded up."""
    found: NDArray[np.int32] = np.floor(weights.astype(np.float64) * LEVELS / WEIGHT_RANGE + 0.5).astype(np.int32)
    return found


def _open_masked(checkpoint: Checkpoint, pooling: Mapping[str, Any]) -> tuple[Callable[..., list[Weighted]], Tokens]:
    """Open the encoder of a masked language model. The entries of special tokens get no weight."""
    if (strategy := pooling.get("pooling_strategy", "max")) != "max":
        raise refuse(checkpoint, f"pooling_strategy: {strategy!r}", "max")
    if (activation := pooling.get("activation_function", "relu")) not in ACTIVATIONS:
        raise refuse(checkpoint, f"activation_function: {activation!r}", " or ".join(ACTIVATIONS))
    tokens, network = Tokens(checkpoint), open_network(checkpoint, "words")
    special = sorted(tokens.special_ids)

    def weigh(_: list[list[int]], logits: NDArray[np.float32]) -> Iterator[Weighted]:
        weights = np.log1p(np.maximum(logits, 0))
        weights = np.log1p(weights) if activation == "log1p_relu" else weights
        weights[:, special] = 0
        for own in weights:
            entries = np.flatnonzero(own)
            yield entries.astype(np.int32), own[entries]

    return partial(_encode, network, tokens, weigh), tokens


def _encode(
    network: Network,
    tokens: Tokens,
    weigh: Callable[[list[list[int]], NDArray[np.float32]], Iterable[Weighted]],
    texts: Sequence[str],
    threads: int = 1,
    tick: Tick = lambda _: None,
) -> list[Weighted]:
    """Encode texts; `weigh` weighs those of a batch by their tokens and by what the network computes of them."""
    ids, types, _ = tokens.read(texts)
    found: list[Weighted] = [(np.empty(0, np.int32), np.empty(0, np.float32))] * len(texts)

    def keep(members: list[int], computed: NDArray[np.float32]) -> None:
        for place, own in zip(members, weigh([ids[place] for place in members], computed), strict=True):
            found[place] = own

    run_batches(network, ids, types, keep, threads, tick)
    return found


def _open_weighed(checkpoint: Checkpoint) -> tuple[Callable[..., list[Weighted]], Tokens]:
    """Open the head of BGE-M3: a token of a text weighs as much as its greatest state says, times `M3_FACTOR`."""
    matrix, bias = read_pickled_layer(checkpoint.folder / M3_HEAD)
    tokens, network = Tokens(checkpoint), open_network(checkpoint, "states")
    special = np.array(sorted(tokens.special_ids), np.int32)
    width = network.run(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)).shape[-1]
    if matrix.shape != (1, width):
        raise refuse(checkpoint, f"a head of the shape {matrix.shape} in {M3_HEAD}", f"(1, {width})")

    def weigh(ids: list[list[int]], states: NDArray[np.float32]) -> Iterator[Weighted]:
        weights = np.maximum(states @ matrix[0] + bias, 0) * np.float32(M3_FACTOR)
        for read, own in zip(ids, weights, strict=True):
            entries, inverse = np.unique(np.array(read, np.int32), return_inverse=True)
            greatest = np.zeros(len(entries), np.float32)
            np.maximum.at(greatest, inverse, own)
            kept = (greatest > 0) & ~np.isin(entries, special)
            yield entries[kept], greatest[kept]

    return partial(_encode, network, tokens, weigh), tokens


def _open_router(checkpoint: Checkpoint) -> tuple[Callable[..., list[Weighted]], Callable[..., list[Weighted]], Tokens]:
    """Open an inference-free encoder: `router_config.json` names the modules of queries and of documents."""
    router = read_json(checkpoint.folder / "router_config.json")
    routes = router.get("structure", {})
    if not {"query", "document"} <= routes.keys():
        raise refuse(checkpoint, f"the routes {', '.join(routes) or 'none'}", "query and document")
    kinds = {folder: str(kind).rpartition(".")[2] for folder, kind in router.get("types", {}).items()}
    query, document = (
        [(kinds.get(own, ""), checkpoint.folder / own) for own in routes[side]] for side in ("query", "document")
    )
    if [kind for kind, _ in query] != ["SparseStaticEmbedding"] or document[0][0] not in TRANSFORMER:
        raise refuse(checkpoint, "other modules in router_config.json", "SparseStaticEmbedding, and MLMTransformer")
    own = read_checkpoint(str(document[0][1]))
    pooling = read_json(document[1][1] / "config.json", needed=False) if len(document) > 1 else {}
    encode, tokens = _open_masked(own, pooling)
    held = list_weights(query[0][1] / "model.safetensors")
    list_missing(query[0][1], ["weight"], held)
    table = held["weight"].read().reshape(-1)
    bare = Tokens(own, specials=False)

    def encode_queries(texts: Sequence[str], threads: int = 1, tick: Tick = lambda _: None) -> list[Weighted]:  # noqa: ARG001
        found = []
        for ids in bare.read(texts)[0]:
            entries = np.unique(np.array(ids, np.int32))
            entries = entries[table[entries] > 0]
            found.append((entries, table[entries]))
        tick(len(texts))
        return found

    return encode_queries, encode, tokens
