"""What transformers computes for texts, in vLLM's environment: the reference of networks that Keystone runs itself.

`python tests/support/models/reference.py` reads a list of jobs as JSON from standard input, each with the folder of a
checkpoint, a head and texts, or pairs of texts. It writes a list of numbers for each text. The texts of a job are one
padded batch.
"""

import json
import sys
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

CLASSES = {
    "words": AutoModelForMaskedLM,
    "labels": AutoModelForSequenceClassification,
}


def compute(folder: str, head: str, texts: list[Any]) -> list[list[float]]:
    """Compute the numbers of texts, or of pairs of texts."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = CLASSES.get(head, AutoModel).from_pretrained(folder, dtype=torch.float32).eval()
    pairs = [list(column) for column in zip(*texts, strict=True)] if isinstance(texts[0], list) else [texts]
    given = tokenizer(*pairs, padding=True, truncation=True, max_length=64, return_tensors="pt")
    if not getattr(model.config, "type_vocab_size", 0) > 1:
        given.pop("token_type_ids", None)
    mask = given["attention_mask"].unsqueeze(-1)
    out = model(**given)
    if head == "words":
        return list((torch.log1p(torch.relu(out.logits)) * mask).amax(dim=1).tolist())
    if head == "labels":
        return list(out.logits.tolist())
    states = out.last_hidden_state
    last = mask.sum(dim=1).squeeze(-1) - 1
    values = {
        "mean": (states * mask).sum(dim=1) / mask.sum(dim=1),
        "cls": states[:, 0],
        "max": states.masked_fill(mask == 0, -1e9).amax(dim=1),
        "lasttoken": states[torch.arange(len(states)), last],
    }
    return list(values[head].tolist())


if __name__ == "__main__":
    with torch.inference_mode():
        print(json.dumps([compute(**job) for job in json.load(sys.stdin)]))
