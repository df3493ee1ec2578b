"""A BERT cross-encoder of some hundred kB with random weights, made in vLLM's environment.

`python tests/support/models/tiny_cross_encoder.py FOLDER` writes it. Its scores have no meaning, but a real server
serves them, and they depend on every letter of the query and of the passage.
"""

import string
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

CONTEXT_TOKENS = 512
"""The tokens of a query and a passage together."""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of BERT's form whose words are single letters and digits."""
    letters = string.ascii_lowercase + string.digits
    words = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    found = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=found,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=CONTEXT_TOKENS,
    )


def make_model(words: PreTrainedTokenizerFast) -> BertForSequenceClassification:
    """A model of two layers with two heads of size 32 and one score."""
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=CONTEXT_TOKENS,
            num_labels=1,
            pad_token_id=0,
            initializer_range=0.2,  # so that scores differ
        )
    )


def write(folder: Path) -> None:
    """Write the model as a folder, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        made = Path(beside) / "model"
        words = make_tokenizer()
        words.save_pretrained(made)
        make_model(words).save_pretrained(made)
        made.rename(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
