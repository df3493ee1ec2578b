"""A language model of 200,000 random weights with a tokenizer of 2,048 tokens, for servers that tests start.

`python tests/support/models/tiny_model.py FOLDER` writes it. Its words have no meaning, but a real server serves them.
"""

import inspect
import json
import pydoc_data.topics
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT_TOKENS = 32_768
"""The tokens of a prompt and its reply together."""
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "<|begin|>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer() -> PreTrainedTokenizerFast:
    """Train a tokenizer of bytes and of byte pairs that are frequent in Python's documentation and sources."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=["<|pad|>", "<|begin|>", "<|end|>", *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*pydoc_data.topics.topics.values(), inspect.getsource(inspect), inspect.getsource(json)]
    found.train_from_iterator(texts, trainer)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=found,
        pad_token="<|pad|>",
        bos_token="<|begin|>",
        eos_token="<|end|>",
        additional_special_tokens=ROLES,
        model_max_length=CONTEXT_TOKENS,
    )
    whole.chat_template = TEMPLATE
    return whole


def make_model(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A model of two layers with two heads. 32 is the smallest size of a head that vLLM accepts on a CPU."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=CONTEXT_TOKENS,
            pad_token_id=words.pad_token_id,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
            tie_word_embeddings=True,
            initializer_range=0.2,  # so that some tokens are likelier than others
        )
    )


def write(folder: Path) -> None:
    """Write the model as a folder, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        made = Path(beside) / "model"
        words = train_tokenizer()
        words.save_pretrained(made)
        make_model(words).save_pretrained(made)
        if not folder.exists():
            made.rename(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
