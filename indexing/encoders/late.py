"""Late interaction: a vector for each token of a text, and the sum of the greatest products of a query's vectors.

A query's vectors each find the closest vector of a passage, and the products are added (MaxSim; Khattab and Zaharia,
2020, "ColBERT", section 3.3). Three layouts of checkpoints can be used: PyLate's, ColBERT's own, and the head of
BGE-M3.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.encoders.checkpoint import (
    MOST_TOKENS,
    Checkpoint,
    Module,
    count_places,
    read_checkpoint,
    read_json,
    refuse,
)
from keystone.indexing.encoders.network import Network, Tokens, open_network, run_batches
from keystone.indexing.encoders.weights import list_missing, list_weights, read_linear, read_pickled_layer
from keystone.indexing.errors import UserError

COLBERT = "artifact.metadata"
SIDES = ("query", "document")
M3_HEAD = "colbert_linear.pt"

Matrix = NDArray[np.float32]
"""The vectors of a text, of length 1: float32[tokens, dimension]."""


@dataclass(frozen=True, slots=True)
class Side:
    """How queries, or passages, become tokens: the marker at position 1, the most tokens with it, and the prompt."""

    marker: int | None
    longest: int
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a checkpoint of late interaction says."""

    query: Side
    passage: Side
    filler: int | None
    """The token that fills a query up to its length; None if queries are not filled."""
    sees_filler: bool
    skipped: frozenset[int]
    """The tokens of passages whose vectors are left out, such as punctuation."""
    first: int = 0
    """The first token that has a vector."""


class LateEncoder:
    """The vectors of tokens by a checkpoint, for any number of threads.

    Unless `prompted`, only markers stand before texts. If `older`, texts have other lengths. Older versions of Keystone
    read texts in these ways.
    """

    def __init__(self, checkpoint: Checkpoint, prompted: bool = True, older: bool = False) -> None:
        prompts = find_prompts(checkpoint) if prompted else None
        self.reading = "" if prompts is None else " with prompts"
        """What stands before texts besides markers, in words: a part of the keys of kept vectors."""
        self._layout = read_layout(checkpoint, prompts, older)
        self._layers = open_projection(checkpoint)
        self._network: Network = open_network(checkpoint, "late")
        self._tokens = {
            side: Tokens(checkpoint, side.longest - (side.marker is not None))
            for side in (self._layout.query, self._layout.passage)
        }
        width = self._network.run(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), 2).shape[-1]
        for weight, _ in self._layers:
            if weight.shape[1] != width:
                raise refuse(checkpoint, f"a projection of {weight.shape[1]} numbers", f"of {width} numbers")
            width = len(weight)
        self.dimension: int = width
        """The numbers of each vector."""

    def encode_query(self, text: str) -> Matrix:
        """Compute the vectors of a query, those of its fillers included."""
        (ids,), (types,) = self._read([text], self._layout.query)
        seen, missing = len(ids), self._layout.query.longest - len(ids)
        if self._layout.filler is not None:
            ids, types = [*ids, *[self._layout.filler] * missing], [*types, *[0] * missing]
            seen = len(ids) if self._layout.sees_filler else seen
        (states,) = self._network.run(np.array([ids], np.int64), np.array([types], np.int64), seen)
        return self._project(states[self._layout.first :])

    def encode_passages(self, texts: Sequence[str], threads: int = 1) -> list[Matrix]:
        """Compute the vectors of passages, without those of tokens that the checkpoint skips."""
        ids, types = self._read(texts, self._layout.passage)
        found: list[Matrix] = [np.empty((0, 0), np.float32)] * len(texts)

        def keep(members: list[int], states: NDArray[np.float32]) -> None:
            for place, own in zip(members, states, strict=True):
                kept = [
                    n for n, id in enumerate(ids[place]) if n >= self._layout.first and id not in self._layout.skipped
                ]
                found[place] = self._project(own[kept])

        run_batches(self._network, ids, types, keep, threads)
        return found

    def score(self, query: str, passages: Sequence[str], threads: int = 1) -> NDArray[np.float64]:
        """Score passages for a query by MaxSim: float64[passages]. `UserError` for a score that is not finite."""
        asked = self.encode_query(query)
        found = np.array([compute_maxsim(asked, own) for own in self.encode_passages(passages, threads)], np.float64)
        return check_scores(found, query)

    def _read(self, texts: Sequence[str], side: Side) -> tuple[list[list[int]], list[list[int]]]:
        ids, types, _ = self._tokens[side].read([side.prompt + text for text in texts])
        if side.marker is None:
            return ids, types
        return [[*own[:1], side.marker, *own[1:]] for own in ids], [[*own[:1], 0, *own[1:]] for own in types]

    def _project(self, states: Matrix) -> Matrix:
        for weight, bias in self._layers:
            states = states @ weight.T + bias
        lengths = np.linalg.norm(states, axis=1, keepdims=True)
        return np.asarray(states / np.maximum(lengths, 1e-12), np.float32)


def check_scores(found: NDArray[np.float64], query: str) -> NDArray[np.float64]:
    """Return scores of a query, float64[passages]. `UserError` for one that is not finite."""
    if not np.isfinite(found).all():
        raise UserError(f"found a score that is not finite for the query {query[:80]!r}")
    return found


def compute_maxsim(query: Matrix, passage: Matrix) -> float:
    """Add, over the vectors of a query, the greatest product with a vector of a passage; 0 for one without vectors."""
    return float((query @ passage.T).max(axis=1).sum(dtype=np.float64)) if len(passage) else 0.0


@cache
def open_late_encoder(model: str, digest: str | None = None, prompted: bool = True, older: bool = False) -> LateEncoder:
    """Open the encoder of a checkpoint that `is_late`, kept by its digest. `UserError` for unusable files."""
    return LateEncoder(read_checkpoint(model, digest), prompted, older)


def is_late(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is one of late interaction."""
    return (
        (checkpoint.folder / M3_HEAD).exists()
        or _is_stanford(checkpoint)
        or checkpoint.about.get("model_type") in ("ColBERT", "MultiVectorEncoder")
        or checkpoint.similarity == "MaxSim"
    )


def _is_stanford(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint has the layout of ColBERT's own code."""
    return "HF_ColBERT" in (checkpoint.config.get("architectures") or ()) or (checkpoint.folder / COLBERT).exists()


def read_lengths(checkpoint: Checkpoint, older: bool = False) -> dict[str, Any]:
    """Read the most tokens of a query and of a passage, and whether queries are filled, unless `about` says it.

    If sentence-transformers' own layout leaves a length out, texts may fill the window, and queries are filled only if
    it says so. Older versions of Keystone took 32 and 180 tokens there, and never the length of `query_expansion`.
    """
    own, sentence = read_json(checkpoint.folder / COLBERT, needed=False), checkpoint.sentence
    expansion = sentence.get("query_expansion") or {}
    query, passage = (sentence.get(f"{side}_length") for side in SIDES)
    is_long = checkpoint.about.get("model_type") == "MultiVectorEncoder" and not (older or (query and passage))
    longest = (checkpoint.window, checkpoint.window) if is_long else (32, 180)
    return {
        "query_length": own.get("query_maxlen", (not older and expansion.get("length")) or query or longest[0]),
        "document_length": own.get("doc_maxlen", passage or longest[1]),
        "do_query_expansion": bool(expansion) or not (is_long or "query_length" in sentence),
    }


def name_lengths(checkpoint: Checkpoint) -> str:
    """Name, for keys, what `read_lengths` reads otherwise than older versions of Keystone; empty if nothing differs."""
    found, before = read_lengths(checkpoint), read_lengths(checkpoint, older=True)
    changed = [key for key in found if found[key] != before[key] and checkpoint.about.get(key) is None]
    return "".join(f" {key}={found[key]}" for key in changed)


def find_prompts(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """Find what stands before queries and passages besides markers; None if the checkpoint has markers alone.

    A checkpoint without prompts, whose files name no marker either, has empty prompts.
    """
    prompts = checkpoint.read_prompts()
    is_marked = _is_stanford(checkpoint) or any(checkpoint.about.get(f"{side}_prefix") is not None for side in SIDES)
    if (checkpoint.folder / M3_HEAD).exists() or (is_marked and not any(prompts)):
        return None
    return prompts


def read_layout(checkpoint: Checkpoint, prompts: tuple[str, str] | None = None, older: bool = False) -> Layout:
    """Read what the files of a checkpoint say of queries and passages. `UserError` for a marker that is not a token.

    `prompts` are those of `find_prompts`. If a prompt begins with the marker, it is not repeated.
    """
    if (checkpoint.folder / M3_HEAD).exists():
        whole = Side(None, checkpoint.window)
        return Layout(whole, whole, None, False, frozenset(), first=1)
    about, own = checkpoint.about, read_json(checkpoint.folder / COLBERT, needed=False)
    masks = next((dict(one.settings) for one in checkpoint.modules if one.kind == "MultiVectorMask"), {})
    expansion = checkpoint.sentence.get("query_expansion") or {}
    markers = ("[unused0]", "[unused1]") if prompts is None or _is_stanford(checkpoint) else ("", "")
    said = read_lengths(checkpoint, older) | {
        "query_prefix": own.get("query_token_id", markers[0]),
        "document_prefix": own.get("doc_token_id", markers[1]),
        "attend_to_expansion_tokens": own.get("attend_to_mask_tokens", bool(expansion.get("attend"))),
        "skiplist_words": list(string.punctuation) if own.get("mask_punctuation", not masks) else [],
    }
    if masks.get("skiplist_words") is not None:
        said["skiplist_words"] = masks["skiplist_words"]
    said |= {key: about[key] for key in said if about.get(key) is not None}
    if expansion.get("strategy", "fixed") != "fixed":
        raise refuse(checkpoint, f"query_expansion: {expansion['strategy']!r}", "fixed")
    if masks.get("keep_only_token_ids"):
        raise refuse(checkpoint, "keep_only_token_ids", "skiplist_words alone")
    vocabulary = Tokens(checkpoint).vocabulary
    names = read_json(checkpoint.folder / "tokenizer_config.json", needed=False)
    sides = {}
    most = count_places(checkpoint.config) or MOST_TOKENS
    for name, prompt in zip(SIDES, prompts or ("", ""), strict=True):
        marker, longest = said[f"{name}_prefix"], said[f"{name}_length"]
        if marker and marker not in vocabulary:
            raise refuse(checkpoint, f"the marker {marker!r}, which is not a token", "a marker of tokenizer.json")
        if not isinstance(longest, int) or not 2 < longest <= most:
            raise refuse(checkpoint, f"{name}_length: {longest!r}", f"a number above 2, and at most {most} places")
        sides[name] = Side(vocabulary[marker] if marker else None, longest, prompt.removeprefix(marker or ""))
    filler = None
    if said["do_query_expansion"]:
        known = [expansion.get("token"), names.get("mask_token"), "[MASK]", "<mask>"]
        filler = _find_filler(checkpoint, vocabulary, [*known, names.get("eos_token"), names.get("pad_token")])
    skipped = frozenset(vocabulary[word] for word in said["skiplist_words"] if word in vocabulary)
    return Layout(sides["query"], sides["document"], filler, bool(said["attend_to_expansion_tokens"]), skipped)


def _find_filler(checkpoint: Checkpoint, vocabulary: Mapping[str, int], names: Sequence[Any]) -> int:
    texts = (one.get("content") if isinstance(one, dict) else one for one in names)
    for text in texts:
        if isinstance(text, str) and text in vocabulary:
            return vocabulary[text]
    raise refuse(
        checkpoint, "no token that fills queries in tokenizer_config.json", "mask_token, eos_token or pad_token"
    )


def open_projection(checkpoint: Checkpoint) -> list[tuple[Matrix, NDArray[np.float32]]]:
    """Open the layers after the network: float32[outputs, inputs], and biases. `UserError` for unusable ones."""
    if (path := checkpoint.folder / M3_HEAD).exists():
        return [read_pickled_layer(path)]
    known = ("Dense", "Normalize", "MultiVectorMask")
    if unknown := [one for one in checkpoint.modules if one.kind not in known]:
        raise refuse(checkpoint, f"the module {unknown[0].kind}", ", ".join(known))
    if layers := [one for one in checkpoint.modules if one.kind == "Dense"]:
        return [_open_layer(one) for one in layers]
    held = {name: one for file in checkpoint.weights for name, one in list_weights(file).items()}
    list_missing(checkpoint.folder, ["linear.weight"], held)
    return [_check(checkpoint.folder / "model.safetensors", held["linear.weight"].read(), np.zeros(1, np.float32))]


def _open_layer(module: Module) -> tuple[Matrix, NDArray[np.float32]]:
    named = str(module.settings.get("activation_function", "Identity")).rpartition(".")[2]
    if named != "Identity":
        raise UserError(f"{module.folder / 'config.json'}: found the activation {named}, expected Identity")
    if module.settings.get("use_residual"):
        raise UserError(f"{module.folder / 'config.json'}: found use_residual: true, expected a linear layer alone")
    path = module.folder / "model.safetensors"
    return _check(path, *read_linear(path))


def _check(path: Path, weight: Matrix, bias: NDArray[np.float32]) -> tuple[Matrix, NDArray[np.float32]]:
    if weight.ndim != 2 or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise UserError(f"{path}: the projection is not a matrix of finite numbers: fetch the checkpoint again")
    return weight, bias
