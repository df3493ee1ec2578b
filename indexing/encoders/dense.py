"""The embedders of a checkpoint: the states of a text's tokens, joined into one vector as the checkpoint says."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import ReportCut, Vectors, round_to_grid
from keystone.indexing.encoders.checkpoint import Checkpoint, Module, list_pooling_modes, read_checkpoint, refuse
from keystone.indexing.encoders.network import Tokens, open_network, run_batches
from keystone.indexing.encoders.vllm import ask_pooling_engine, find_engine_device
from keystone.indexing.encoders.weights import read_linear
from keystone.indexing.errors import UserError
from keystone.indexing.types import VLLM, Embedding, Tick, chunks

ENGINE_TEXTS = 1024
"""The texts that go to vLLM's engine together."""
ENGINE_POOLING = {"cls": "CLS", "lasttoken": "LAST", "mean": "MEAN"}
"""The names of vLLM for the ways of pooling that it has."""

States = NDArray[np.float32]
"""The states of the tokens of one text, float32[tokens, width], or a vector that was made of them."""


Keep = Callable[[list[int], NDArray[np.float32]], None]
"""Receives the vectors of the texts at some positions, float32[positions, dimension], before they are rounded."""


class _TextEncoder(ABC):
    """An `Embedder` of a checkpoint, for any number of threads."""

    dimension: int

    def __init__(self, checkpoint: Checkpoint, window: int | None) -> None:
        _check_vectors(checkpoint, window)
        self._tokens = Tokens(checkpoint, window)

    def find_long(self, texts: Sequence[str]) -> list[int]:
        """The positions of the texts that are longer than the window."""
        return self._tokens.read(texts)[2]

    def embed(
        self, texts: Sequence[str], threads: int = 1, tick: Tick = lambda _: None, cut: ReportCut = lambda _: None
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), dimension], each text cut to the window."""
        ids, types, longer = self._tokens.read(texts)
        for position in longer:
            cut(position)
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)

        def keep(members: list[int], vectors: NDArray[np.float32]) -> None:
            if not np.isfinite(vectors).all():
                raise UserError(f"found a vector that is not finite for {texts[members[0]][:80]!r}")
            result[members] = round_to_grid(vectors)

        self._compute(ids, types, keep, threads, tick)
        return result

    @abstractmethod
    def _compute(self, ids: list[list[int]], types: list[list[int]], keep: Keep, threads: int, tick: Tick) -> None: ...


class Encoder(_TextEncoder):
    """An `Embedder` of a checkpoint whose network runs here."""

    def __init__(self, checkpoint: Checkpoint, window: int | None = None, dimensions: int | None = None) -> None:
        self._steps = [_open_step(one) for one in checkpoint.modules]  # before other files, to name faults first
        if all(one.kind != "Pooling" for one in checkpoint.modules):
            self._steps.insert(0, partial(_pool, modes=["mean"]))
        super().__init__(checkpoint, window)
        self._network = open_network(checkpoint, "states")
        self._cut_to = dimensions
        (states,) = self._network.run(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64))
        self.dimension = _choose_dimension(checkpoint, len(self._join(states)), dimensions)

    @property
    def device(self) -> str:
        """Where the network runs: `cpu` or `cuda`."""
        return self._network.device

    def _compute(self, ids: list[list[int]], types: list[list[int]], keep: Keep, threads: int, tick: Tick) -> None:
        def join(members: list[int], states: NDArray[np.float32]) -> None:
            keep(members, np.stack([self._join(own) for own in states]))

        run_batches(self._network, ids, types, join, threads, tick)

    def _join(self, states: States) -> States:
        for step in self._steps:
            states = step(states)
        return states[: self._cut_to]


class EngineEncoder(_TextEncoder):
    """An `Embedder` by vLLM's engine in this process, which the first text loads. A text without tokens has zeros."""

    def __init__(self, checkpoint: Checkpoint, window: int | None = None, dimensions: int | None = None) -> None:
        self._arguments = {"pooler_config": {"pooling_type": _name_pooling(checkpoint)}}
        super().__init__(checkpoint, window)
        self._checkpoint, self._window = checkpoint, window or checkpoint.window
        self.device = find_engine_device()
        width = checkpoint.config.get("hidden_size")
        if not isinstance(width, int):
            raise refuse(checkpoint, f"hidden_size: {width!r} in config.json", "the number of entries of a vector")
        self.dimension = _choose_dimension(checkpoint, width, dimensions)

    def _compute(self, ids: list[list[int]], _types: list[list[int]], keep: Keep, _threads: int, tick: Tick) -> None:
        filled = [position for position, own in enumerate(ids) if own]
        tick(len(ids) - len(filled))
        for members in chunks(filled, ENGINE_TEXTS):
            prompts = [{"prompt_token_ids": ids[position]} for position in members]

            def ask(engine: Any, prompts: list[Any] = prompts) -> list[list[float]]:
                return [one.outputs.embedding for one in engine.embed(prompts, use_tqdm=False)]

            found = ask_pooling_engine(self._checkpoint, self._window, self._arguments, ask)
            keep(members, np.array(found, np.float32)[:, : self.dimension])
            tick(len(members))


def open_encoder(embedding: Embedding) -> Encoder | EngineEncoder:
    """Open the encoder of an embedding without a URL. `UserError` if its checkpoint has changed since it was named."""
    kind = EngineEncoder if embedding.backend == VLLM else Encoder
    return kind(read_checkpoint(embedding.model, embedding.weights), embedding.window, embedding.dimensions)


def _check_vectors(checkpoint: Checkpoint, window: int | None) -> None:
    """Raise `UserError` for a model whose vectors are not compared by cosine, or whose window is smaller."""
    if checkpoint.similarity not in ("cosine", "dot"):
        raise refuse(checkpoint, f"the similarity {checkpoint.similarity}", "cosine or dot")
    if checkpoint.similarity == "dot" and all(one.kind != "Normalize" for one in checkpoint.modules):
        raise refuse(checkpoint, "vectors of any length, whose products count", "a model of vectors of length 1")
    if window and window > checkpoint.window:
        raise refuse(checkpoint, f"a window of {checkpoint.window} tokens", f"the {window} that the settings name")


def _choose_dimension(checkpoint: Checkpoint, whole: int, dimensions: int | None) -> int:
    """Choose the smaller number, as sentence-transformers does. `UserError` if settings name more than there are."""
    if dimensions and dimensions > whole and dimensions != checkpoint.about.get("truncate_dim"):
        raise refuse(checkpoint, f"vectors of {whole} numbers", f"the {dimensions} that the settings name")
    return min(dimensions or whole, whole)


def _name_pooling(checkpoint: Checkpoint) -> str:
    """Name the pooling of a checkpoint as vLLM does. `UserError` for one that vLLM lacks, and for further layers."""
    modes = ["mean"]
    for module in checkpoint.modules:
        if module.kind == "Pooling":
            modes = list_pooling_modes(module.settings, module.folder / "config.json")
        elif module.kind != "Normalize":
            raise refuse(checkpoint, f"the module {module.kind}", "Pooling or Normalize, which vLLM computes")
    if len(modes) > 1 or modes[0] not in ENGINE_POOLING:
        raise refuse(checkpoint, f"the pooling {' and '.join(modes)}", f"{', '.join(ENGINE_POOLING)} for vLLM")
    return ENGINE_POOLING[modes[0]]


def _open_step(module: Module) -> Callable[[States], States]:
    """Open a module after the transformer. `UserError` for one that is not known."""
    if module.kind == "Pooling":
        return partial(_pool, modes=list_pooling_modes(module.settings, module.folder / "config.json"))
    if module.kind == "Normalize":
        return _normalise
    if module.kind == "Dense":
        return _open_dense(module)
    raise UserError(f"{module.folder}: found the module {module.kind}, expected Pooling, Dense or Normalize")


def _pool(states: States, modes: Sequence[str]) -> States:
    """Join the states of tokens, float32[tokens, width], into a vector: one part for each of `POOLING_MODES`."""
    parts = [_POOLED[mode](states) for mode in modes]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _weigh_places(states: States) -> States:
    places = np.arange(1, len(states) + 1, dtype=np.float32)
    found: States = (states * places[:, None]).sum(axis=0) / places.sum()
    return found


_POOLED: dict[str, Callable[[States], Any]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.max(axis=0),
    "mean": lambda states: states.mean(axis=0),
    "mean_sqrt_len_tokens": lambda states: states.sum(axis=0) / np.sqrt(np.float32(len(states))),
    "weightedmean": _weigh_places,
    "lasttoken": lambda states: states[-1],
}


def _normalise(vector: States) -> States:
    found: States = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return found


def _open_dense(module: Module) -> Callable[[States], States]:
    named = str(module.settings.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if named not in ("Tanh", "Identity"):
        raise UserError(f"{module.folder / 'config.json'}: found the activation {named}, expected Tanh or Identity")
    path = module.folder / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{path}: is missing, expected the weights of the layer in this form")
    matrix, bias = read_linear(path)

    def apply(vector: States) -> States:
        found = matrix @ vector + bias
        return np.asarray(np.tanh(found) if named == "Tanh" else found, np.float32)

    return apply
