"""Networks that only PyTorch runs, in vLLM's environment: what Keystone computes, beside what transformers computes.

`python tests/support/models/torch_parity.py FOLDER` makes small random checkpoints in the folder, and prints for each a
list of Keystone's numbers and one of transformers'.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.dense import Encoder
from keystone.indexing.encoders.pairs import TEMPLATES, open_pair_scorer
from tests.support.models.checkpoints import VOCABULARY, add_pooling, write_tokenizer

QUERY = "what causes bleaching"
PASSAGES = ["warm water makes corals expel algae", "the market fell", "w" * 9]
WORDS = ["yes", "no", "Yes", "No", "▁true", "▁false"]
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"max_position_embeddings": 2048, "vocab_size": len(VOCABULARY) + len(WORDS), "initializer_range": 0.3}


def write(folder: Path, model: Any) -> Path:
    """Write a model with a tokenizer of letters, which also knows the words of answers."""
    folder.mkdir()
    write_tokenizer(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {word: len(VOCABULARY) + number for number, word in enumerate(WORDS)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 2048}))
    model.eval().save_pretrained(folder)
    return folder


def read_tokens(folder: Path, text: str) -> list[int]:
    """Read the tokens of a text, without special ones at its ends."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def compare_answers(folder: Path, pattern: str) -> list[list[float]]:
    """Compare the scores of a reranker that answers yes or no."""
    template = TEMPLATES[pattern]
    found = open_pair_scorer(str(folder))(QUERY, PASSAGES, 1).tolist()
    kind = T5ForConditionalGeneration if "t5" in pattern else None
    model: Any = (kind or (Qwen3ForCausalLM if "qwen3" in pattern else Qwen2ForCausalLM)).from_pretrained(folder).eval()
    words = [word and (len(VOCABULARY) + WORDS.index(word) if word in WORDS else VOCABULARY.index(word))
             for word in (template.no, template.yes)]  # fmt: skip
    expected = []
    for passage in PASSAGES:
        parts = [template.before.format(query=QUERY) + passage, template.after]
        ids = torch.tensor([[id for part in parts for id in read_tokens(folder, part)]])
        if kind:
            ids = torch.cat([ids, torch.tensor([[1]])], dim=1)
            logits = model(ids, decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
        else:
            logits = model(ids).logits[0, -1]
        expected.append(float(logits[words[1]] - logits[words[0]]))
    return [found, expected]


def compare_states(folder: Path, kind: Any) -> list[list[float]]:
    """Compare the vectors of an encoder: their cosines with those of transformers, beside ones."""
    add_pooling(folder, "lasttoken")
    found = torch.from_numpy(Encoder(read_checkpoint(str(folder))).embed(PASSAGES))
    model, cosines = kind.from_pretrained(folder).eval(), []
    for vector, passage in zip(found, PASSAGES, strict=True):
        ids = [VOCABULARY.index("[CLS]"), *read_tokens(folder, passage), VOCABULARY.index("[SEP]")]
        state = model(torch.tensor([ids])).last_hidden_state[0, -1]
        cosines.append(float(torch.nn.functional.cosine_similarity(vector, state, dim=0)))
    return [cosines, [1.0] * len(cosines)]


def main(place: Path) -> None:
    """Print the numbers of all checkpoints by name."""
    torch.manual_seed(0)
    qwen3 = Qwen3Config(**SIZES, head_dim=16, num_key_value_heads=2)
    t5 = T5Config(vocab_size=SIZES["vocab_size"], d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2)
    t5.update({"eos_token_id": 1, "decoder_start_token_id": 0, "pad_token_id": 0})
    with torch.inference_mode():
        found = {
            "qwen3": compare_answers(write(place / "Qwen3-Reranker-tiny", Qwen3ForCausalLM(qwen3)), "qwen3-reranker"),
            "mxbai": compare_answers(
                write(place / "mxbai-rerank-base-v2", Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2))),
                r"mxbai-rerank-(base|large)-v2",
            ),
            "monot5": compare_answers(write(place / "monot5-tiny", T5ForConditionalGeneration(t5)), r"mono-?t5"),
            "encoder": compare_states(write(place / "neox", GPTNeoXModel(GPTNeoXConfig(**SIZES))), GPTNeoXModel),
            "t5": compare_states(write(place / "t5", T5EncoderModel(t5)), T5EncoderModel),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
