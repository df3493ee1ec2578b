"""The network of a checkpoint, run on this machine: a function from the tokens of a batch of texts to numbers.

ONNX Runtime computes a network of BERT's family from its weights, and any other from the checkpoint's own graph. If a
network has neither, PyTorch computes it, if installed. On a machine with CUDA, both use it, and PyTorch computes in the
precision of the checkpoint, which is mostly half.

All texts of a batch have one number of tokens, so that no text is padded or masked, and one thread computes a batch. On
a processor, ONNX Runtime computes each row of a matrix product in the same order, however many rows there are. So what
is computed for a text does not depend on the other texts of its batch.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from packaging.version import Version

from keystone.indexing.encoders.checkpoint import FAMILY, Checkpoint, refuse
from keystone.indexing.encoders.graph import Head, build_graph, folder_of
from keystone.indexing.encoders.weights import load_weights, read_layout
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.types import LOCAL_INT8, Tick, chunks

LONGEST_TOKEN_CHARACTERS = 6_000 / 256
"""A text is cut to this many characters for each token of the window before it is read."""
BATCH_TOKENS = 512
"""The tokens of a batch: enough for matrix products at full speed, few enough for a core's cache."""

Ids = NDArray[np.int64]
"""The tokens of a batch of texts of one length, or the types of these tokens: int64[texts, tokens]."""


class Run(Protocol):
    """Runs a network on tokens and their types; what it returns depends on its `Head`.

    With the head `late`, all tokens see the first `seen` ones alone, or all if it is None.
    """

    def __call__(self, ids: Ids, types: Ids, seen: int | None = None) -> NDArray[np.float32]:
        """Run the network."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network in memory, for any number of threads."""

    run: Run
    device: str
    """Where it runs: `cpu` or `cuda`."""
    batch_tokens: int = BATCH_TOKENS


def open_network(checkpoint: Checkpoint, head: Head) -> Network:
    """Load a network with one of its heads. `UserError` or `MissingPackage` if nothing here can run it."""
    if checkpoint.kind in FAMILY and checkpoint.weights:
        return open_built(checkpoint, head)
    return open_graph(checkpoint.graph, head) if checkpoint.graph else open_torch(checkpoint, head)


def open_built(checkpoint: Checkpoint, head: Head) -> Network:
    """Build the graph of one of BERT's family. `UserError` if it lacks the head. One of integers takes single texts."""
    weights, layout = load_weights(checkpoint), read_layout(checkpoint)
    if head not in ("states", "late") and f"{head}.decoder.bias" not in weights:
        needed = {"words": "a masked language model (learned sparse)", "labels": "a classifier (cross-encoder)"}
        found = ", ".join(checkpoint.config.get("architectures") or ["a network without a head"])
        raise refuse(checkpoint, found, needed[head])
    words, places = (weights[f"embeddings.{name}_embeddings.weight"].read() for name in ("word", "position"))
    places, kinds = places[layout.first_place :], np.zeros((1, layout.width), np.float32)
    if typed := weights.get("embeddings.token_type_embeddings.weight"):
        kinds = typed.read()
    integers = checkpoint.name == LOCAL_INT8
    session, device = _start(build_graph(weights, layout, head, integers), folder_of(weights), cuda=not integers)
    first = places + kinds[0]

    def run(ids: Ids, types: Ids, seen: int | None = None) -> NDArray[np.float32]:
        tokens, own = ids.shape[1], np.minimum(types, len(kinds) - 1)
        rows: NDArray[np.float32] = words[ids] + (places[:tokens] + kinds[own] if own.any() else first[:tokens])
        first_ones = {"seen": np.array([seen or tokens], np.int64)} if head == "late" else {}
        computed: NDArray[np.float32] = session.run(None, {"rows": rows} | first_ones)[0]
        return computed

    return Network(run, device, 1 if integers else BATCH_TOKENS)


def open_graph(path: Path, head: Head) -> Network:
    """Load a graph of ONNX. If it quantises what it computes by the numbers of a batch, a batch is one text."""
    session, device = _start(str(path))
    inputs = {one.name for one in session.get_inputs()}
    known = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
    if not {"input_ids"} <= inputs <= known:
        raise UserError(f"{path}: found the inputs {', '.join(sorted(inputs))}, expected {', '.join(sorted(known))}")
    sizes = {one.name: len(one.shape or ()) for one in session.get_outputs()}
    wanted = ("logits",) if head not in ("states", "late") else ("last_hidden_state", "token_embeddings")
    dimensions = 2 if head == "labels" else 3
    names = [name for name in (*wanted, *sizes) if sizes.get(name) == dimensions]
    if not names:
        raise UserError(f"{path}: found the outputs {', '.join(sizes)}, expected {' or '.join(wanted)}")

    def run(ids: Ids, types: Ids, seen: int | None = None) -> NDArray[np.float32]:
        places = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape)
        mask = np.ones_like(ids)
        mask[:, seen:] = seen is None
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "position_ids": places}
        (found,) = session.run(names[:1], {name: given[name] for name in inputs})
        return np.asarray(found.max(axis=1) if head == "words" else found, np.float32)

    return Network(run, device, 1 if b"DynamicQuantize" in path.read_bytes() else BATCH_TOKENS)


def _start(model: bytes | str, folder: Path | None = None, cuda: bool = True) -> tuple[Any, str]:
    """Start ONNX Runtime on a graph that names weights in the folder, on CUDA if possible; returns the device too."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # from 1.32 on, it sends events to Microsoft
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackage("local models need packages: pip install onnx onnxruntime tokenizers") from error
    onnxruntime.set_default_logger_severity(3)  # it warns of machines without a GPU
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # batches have many shapes
    if folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    there = onnxruntime.get_available_providers()
    known = ("CUDAExecutionProvider", "CPUExecutionProvider")
    wanted = [one for one in (known if cuda else known[1:]) if one in there]
    try:
        session = onnxruntime.InferenceSession(model, options, providers=wanted)
    except Exception as error:  # ONNX Runtime has no class of its own for a damaged file
        raise UserError(f"{model if isinstance(model, str) else 'the graph of the model'}: {error}") from error
    return session, "cuda" if session.get_providers()[0].startswith("CUDA") else "cpu"


CLASSES = {
    "states": "AutoModel",
    "late": "AutoModel",
    "words": "AutoModelForMaskedLM",
    "labels": "AutoModelForSequenceClassification",
}
CUDA_BATCH_TOKENS = 16_384
READS_IS_CAUSAL = Version("5.2")
"""The first version of transformers that lets each token see all others if `config.json` has `is_causal: false`."""


def open_torch(checkpoint: Checkpoint, head: Head) -> Network:
    """Load a network by PyTorch. `MissingPackage` if it is not installed; `UserError` if it cannot load it."""
    reads_t5 = head in ("states", "late") and "t5" in checkpoint.kind  # AutoModel also wants the text of a decoder
    model, device = load_model(checkpoint, "AutoModelForTextEncoding" if reads_t5 else CLASSES[head])
    import torch

    def run(ids: Ids, types: Ids, seen: int | None = None) -> NDArray[np.float32]:
        given: dict[str, Any] = {"input_ids": torch.from_numpy(ids).to(device)}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        given["attention_mask"][:, seen:] = int(seen is None)
        if int(checkpoint.config.get("type_vocab_size") or 0) > 1:
            given["token_type_ids"] = torch.from_numpy(types).to(device)
        with torch.inference_mode():
            found = model(**given)
            values = found.last_hidden_state if head in ("states", "late") else found.logits
            values = values.amax(dim=1) if head == "words" else values
        array: NDArray[np.float32] = values.float().cpu().numpy()
        return array

    return Network(run, device, CUDA_BATCH_TOKENS if device == "cuda" else BATCH_TOKENS)


def load_model(checkpoint: Checkpoint, kind: str) -> tuple[Any, str]:
    """Load a model of transformers by the name of its class; returns it and its device.

    `MissingPackage` without PyTorch. `UserError` for a version of transformers that would ignore `is_causal: false`.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingPackage(
            f"{checkpoint.name}: a network of the kind {checkpoint.kind or 'unknown'} without a graph of ONNX needs "
            "PyTorch: pip install torch transformers"
        ) from error
    if checkpoint.config.get("is_causal") is False and Version(transformers.__version__) < READS_IS_CAUSAL:
        found = f"is_causal: false in config.json, which transformers {transformers.__version__} ignores"
        raise refuse(checkpoint, found, f"transformers {READS_IS_CAUSAL} or newer: build what it has embedded again")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # the texts of batches are shared among threads here
    try:
        loaded = getattr(transformers, kind).from_pretrained(
            checkpoint.folder, dtype="auto" if device == "cuda" else torch.float32
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise refuse(checkpoint, f"a checkpoint that transformers cannot load ({error})"[:300], kind) from error
    return loaded.eval().to(device), device


def open_answers(
    checkpoint: Checkpoint, is_causal: bool
) -> tuple[Callable[[Sequence[int]], NDArray[np.float32]], list[int]]:
    """Load a model of text: a function from tokens to the logits of the next word, float32[vocabulary].

    For a sequence-to-sequence model, that is the first word of its answer. Also returns the tokens that stand at the
    end of a text.
    """
    model, device = load_model(checkpoint, "AutoModelForCausalLM" if is_causal else "AutoModelForSeq2SeqLM")
    import torch

    end = [] if is_causal else [int(checkpoint.config.get("eos_token_id", 1))]
    start = torch.tensor([[int(checkpoint.config.get("decoder_start_token_id") or 0)]]).to(device)

    def answer(ids: Sequence[int]) -> NDArray[np.float32]:
        given = torch.tensor([list(ids)]).to(device)
        with torch.inference_mode():
            found = model(given) if is_causal else model(given, decoder_input_ids=start)
        array: NDArray[np.float32] = found.logits[0, -1].float().cpu().numpy()
        return array

    return answer, end


class Tokens:
    """The tokenizer of a checkpoint, which cuts texts to its window."""

    def __init__(self, checkpoint: Checkpoint, window: int | None = None, specials: bool = True) -> None:
        from tokenizers import Tokenizer

        path = checkpoint.folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain exceptions
            raise UserError(f"{path}: could not be read as a tokenizer: {error}") from error
        self._tokenizer.no_padding()
        window = window or checkpoint.window
        self._tokenizer.enable_truncation(window)
        self._characters = int(window * LONGEST_TOKEN_CHARACTERS)
        self._lowers, self._specials = bool(checkpoint.sentence.get("do_lower_case")), specials
        self.special_ids = {id for id, own in self._tokenizer.get_added_tokens_decoder().items() if own.special}

    @property
    def vocabulary(self) -> dict[str, int]:
        """The tokens with their ids."""
        found: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return found

    def read(self, texts: Sequence[str | tuple[str, str]]) -> tuple[list[list[int]], list[list[int]], list[int]]:
        """Read texts, or pairs of texts: the tokens of each, their types, and the positions of those that were cut."""
        encodings = self._tokenizer.encode_batch(
            [self._shorten(one) for one in texts], add_special_tokens=self._specials
        )
        cut = [
            position
            for position, (text, encoding) in enumerate(zip(texts, encodings, strict=True))
            if self._is_long(text) or encoding.overflowing
        ]
        return [encoding.ids for encoding in encodings], [encoding.type_ids for encoding in encodings], cut

    def _is_long(self, text: str | tuple[str, str]) -> bool:
        return any(len(part) > self._characters for part in ((text,) if isinstance(text, str) else text))

    def _shorten(self, text: str | tuple[str, str]) -> str | tuple[str, str]:
        if isinstance(text, tuple):
            return text[0][: self._characters], text[1][: self._characters]
        return (text.lower() if self._lowers else text)[: self._characters]


def run_batches(
    network: Network,
    ids: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]],
    keep: Callable[[list[int], NDArray[np.float32]], None],
    threads: int = 1,
    tick: Tick = lambda _: None,
) -> None:
    """Run a network on texts of any lengths: `keep` receives the positions of each batch, and what was computed."""

    def run(members: list[int]) -> None:
        batch, own = (np.array([part[place] for place in members], np.int64) for part in (ids, types))
        keep(members, network.run(batch, own))
        tick(len(members))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, group_by_length([len(own) for own in ids], network.batch_tokens)))


def group_by_length(lengths: Sequence[int], most: int = BATCH_TOKENS) -> list[list[int]]:
    """Positions in groups of one length, the longest first. A group has at most `most` tokens, or is a single text."""
    found: list[list[int]] = []
    for length, group in groupby(sorted(range(len(lengths)), key=lambda i: -lengths[i]), key=lengths.__getitem__):
        found += chunks(list(group), max(1, most // max(1, length)))
    return found
