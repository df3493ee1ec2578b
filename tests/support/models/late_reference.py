"""MaxSim by PyTorch and transformers, in vLLM's environment: the reference of late interaction, and heads of BGE-M3.

`python tests/support/models/late_reference.py` reads jobs as JSON from standard input, each with a folder, a query,
passages and what the checkpoint says. It writes the scores of each. A job with `heads` adds BGE-M3's two heads to the
folder, and gets the scores of its head of late interaction and the weights of each passage's tokens.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast


def score(job: dict[str, Any]) -> list[float]:
    """Score passages by padded batches of one text, as ColBERT describes it."""
    folder = Path(job["folder"])
    words = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    own = load_file(folder / "model.safetensors")
    if "linear.weight" in own:
        model = BertModel(BertConfig.from_pretrained(folder))
        model.load_state_dict({k.removeprefix("bert."): v for k, v in own.items() if k[:5] == "bert."}, strict=False)
        projection = own["linear.weight"]
    else:
        model, projection = (
            AutoModel.from_pretrained(folder),
            load_file(folder / "1_Dense/model.safetensors")["linear.weight"],
        )
    model.eval()
    said = job["said"]

    def encode(text: str, side: str) -> torch.Tensor:
        ids = words(text, truncation=True, max_length=said[f"{side}_length"] - 1)["input_ids"]
        ids = [ids[0], words.get_vocab()[said[f"{side}_prefix"]], *ids[1:]]
        mask = [1] * len(ids)
        if side == "query" and said["expands"]:
            missing = said["query_length"] - len(ids)
            ids, mask = ids + [words.get_vocab()["[MASK]"]] * missing, mask + [int(said["attends"])] * missing
        states = model(torch.tensor([ids]), attention_mask=torch.tensor([mask])).last_hidden_state[0] @ projection.T
        states = torch.nn.functional.normalize(states, dim=-1)
        skipped = {words.get_vocab()[one] for one in said["skipped"]} if side == "document" else set()
        return states[[place for place, id in enumerate(ids) if id not in skipped]]

    query = encode(job["query"], "query")
    return [float((query @ encode(one, "document").T).amax(1).sum()) for one in job["passages"]]


def score_heads(job: dict[str, Any]) -> dict[str, Any]:
    """Write BGE-M3's heads, and compute what they say."""
    torch.manual_seed(0)
    folder = Path(job["folder"])
    model = AutoModel.from_pretrained(folder).eval()
    width = model.config.hidden_size
    late, sparse = torch.nn.Linear(width, width), torch.nn.Linear(width, 1)
    torch.save(late.half().state_dict(), folder / "colbert_linear.pt")
    torch.save(sparse.state_dict(), folder / "sparse_linear.pt")
    late = late.float()
    words = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    vectors, weights = [], []
    for text in [job["query"], *job["passages"]]:
        ids = words(text, truncation=True, max_length=64)["input_ids"]
        states = model(torch.tensor([ids])).last_hidden_state[0]
        vectors.append(torch.nn.functional.normalize(late(states[1:]), dim=-1))
        greatest: dict[int, float] = {}
        for id, weight in zip(ids, torch.relu(sparse(states)).flatten().tolist(), strict=True):
            if id > 4 and weight > 0:
                greatest[id] = max(weight, greatest.get(id, 0))
        weights.append(greatest)
    return {"late": [float((vectors[0] @ one.T).amax(1).sum()) for one in vectors[1:]], "sparse": weights[1:]}


if __name__ == "__main__":
    with torch.inference_mode():
        jobs = json.load(sys.stdin)
        print(json.dumps([(score_heads if job.get("heads") else score)(job) for job in jobs]))
