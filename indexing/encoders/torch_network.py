"""The network of a checkpoint by PyTorch and transformers, for families that no graph here computes.

On CUDA it computes in half precision, which PyTorch chooses by the checkpoint.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.encoders.checkpoint import Checkpoint, refuse
from keystone.indexing.encoders.graph import Head
from keystone.indexing.encoders.network import BATCH_TOKENS, Ids, Network
from keystone.indexing.errors import MissingPackage

CLASSES = {
    "states": "AutoModel",
    "late": "AutoModel",
    "words": "AutoModelForMaskedLM",
    "labels": "AutoModelForSequenceClassification",
}
"""The classes of transformers by the heads of a network."""
CUDA_BATCH_TOKENS = 16_384


def open_torch(checkpoint: Checkpoint, head: Head) -> Network:
    """Load a network by PyTorch. `MissingPackage` if it is not installed; `UserError` if it cannot load it."""
    model, device = load_model(checkpoint, CLASSES[head])
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
    """Load a model of transformers by the name of its class; returns it and its device."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingPackage(
            f"{checkpoint.name}: a network of the kind {checkpoint.kind or 'unknown'} without a graph of ONNX needs "
            "PyTorch: pip install torch transformers"
        ) from error
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
