"""Training of a cross-encoder in PyTorch: `python train_cross_encoder.py PAIRS MODEL TOKENS` changes MODEL's weights.

Each line of PAIRS is a query, a relevant passage and another one, and the loss is that of their order (RankNet; Burges
et al., 2005). AdamW makes one pass over the pairs, with a rate that rises and falls linearly. Each input is cut to
TOKENS tokens. There is no dropout: on a processor, its random numbers would cost more than half of the time. A
processor with AMX computes products in bfloat16.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, get_linear_schedule_with_warmup

PAIRS_AT_ONCE, RATE, WARM_SHARE = 8, 1e-4, 0.1


def main(pairs: Path, folder: Path, most_tokens: int) -> None:
    """Train the checkpoint and write its weights in place."""
    torch.manual_seed(0)
    lines = [json.loads(line) for line in pairs.read_text().splitlines()]
    words = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    words.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = BertForSequenceClassification.from_pretrained(
        folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model.train()
    has_amx = torch.cpu.get_capabilities().get("amx_bf16", False)
    steps = -(-len(lines) // PAIRS_AT_ONCE)
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimiser, int(WARM_SHARE * steps), steps)
    for step in range(steps):
        batch = lines[step * PAIRS_AT_ONCE : (step + 1) * PAIRS_AT_ONCE]
        queries, right, wrong = zip(*batch, strict=True)
        given = words(
            [*queries, *queries], [*right, *wrong], truncation="longest_first", max_length=most_tokens, padding=True,
            return_tensors="pt",
        )  # fmt: skip
        with torch.autocast("cpu", torch.bfloat16, enabled=has_amx):
            better, worse = model(**given).logits[:, 0].float().chunk(2)
        loss = torch.nn.functional.softplus(worse - better).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 10 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    model.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": most_tokens}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
