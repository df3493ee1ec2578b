"""Rerankers on this machine: scores of pairs of a query and a passage, by the model of a checkpoint.

A cross-encoder scores a pair by its logit (Nogueira and Cho, 2019). A sequence-to-sequence or a causal model reads it
in a template that belongs to the model. The score is how much more likely its word for yes is than its word for no. A
model of late interaction scores it by the vectors of its tokens.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.encoders.checkpoint import Checkpoint, read_checkpoint, refuse
from keystone.indexing.encoders.late import check_scores, is_late, name_lengths, open_late_encoder
from keystone.indexing.encoders.network import Network, Tokens, open_answers, open_network, run_batches
from keystone.indexing.encoders.vllm import ask_pooling_engine, import_vllm
from keystone.indexing.errors import UserError
from keystone.indexing.types import VLLM

Scores = NDArray[np.float64]


ScorePairs = Callable[[str, Sequence[str], int], Scores]
"""A function of a query, passages and a number of threads that returns the scores, float64[passages]."""


@dataclass(frozen=True, slots=True)
class Template:
    """The text around a query and a passage, and the two words whose logits are compared."""

    before: str
    """The text before the passage, with `{query}`. Tokens may reach from its end into the passage."""
    after: str
    no: str | None
    """The word for no; None if the logit of yes counts alone."""
    yes: str
    longest: int


_SEARCH_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_QWEN_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant)."
)
_GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
TEMPLATES: Mapping[str, Template] = {
    r"qwen3-reranker": Template(
        f"<|im_start|>system\n{_QWEN_SYSTEM}<|im_end|>\n<|im_start|>user\n<Instruct>: {_SEARCH_TASK}\n"
        "<Query>: {query}\n<Document>: ",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "no",
        "yes",
        8192,
    ),
    r"mxbai-rerank-(base|large)-v2": Template(
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nquery: {query}\ndocument: ",
        f"\n{_MXBAI_TASK}\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
        "0",
        "1",
        8192,
    ),
    r"bge-reranker-v2-gemma": Template("<bos>A: {query}\nB: ", f"\n{_GEMMA_TASK}", None, "Yes", 1024),
    r"mono-?t5": Template("Query: {query} Document: ", " Relevant:", "▁false", "▁true", 512),
}
"""The templates of rerankers that answer yes or no, by patterns of their names. They come from the models' cards."""
ENGINE_KINDS = "a classifier, or a causal model with words for yes and no, for vLLM"
READING = 2
"""How rerankers other than classifiers read texts. Each change raises it, so that kept scores are computed anew."""


@cache
def open_pair_scorer(model: str, backend: str | None = None) -> ScorePairs:
    """Open the reranker of a checkpoint, by vLLM or here. `UserError` for another kind, or an unknown template."""
    checkpoint = read_checkpoint(model)
    if is_late(checkpoint):
        if backend == VLLM:
            raise refuse(checkpoint, "a model of late interaction", ENGINE_KINDS)
        return open_late_encoder(model).score
    kinds = checkpoint.config.get("architectures") or [""]
    if kinds[0].endswith("ForSequenceClassification"):
        if backend == VLLM:
            return _open_engine_classifier(checkpoint)
        return partial(_score_pairs, open_network(checkpoint, "labels"), Tokens(checkpoint))
    if kinds[0].endswith(("ForCausalLM", "ForConditionalGeneration")):
        return _open_answering(checkpoint, kinds[0].endswith("ForCausalLM"), backend)
    raise refuse(checkpoint, kinds[0] or "no architecture in config.json", "a reranker: a classifier, or a known one")


def list_reading(checkpoint: Checkpoint) -> list[int | str]:
    """List what kept scores depend on besides the checkpoint and the texts; nothing for a classifier."""
    kinds = checkpoint.config.get("architectures") or [""]
    lengths = [named] if (named := name_lengths(checkpoint)) else []
    return [] if kinds[0].endswith("ForSequenceClassification") else [READING, *lengths]


def _score_pairs(network: Network, tokens: Tokens, query: str, passages: Sequence[str], threads: int) -> Scores:
    """Score passages by a cross-encoder: its logit, or with two labels the difference of their logits."""
    ids, types, _ = tokens.read([(query, passage) for passage in passages])
    found = np.zeros(len(passages))

    def keep(members: list[int], logits: NDArray[np.float32]) -> None:
        found[members] = logits[:, 0] if logits.shape[1] == 1 else logits[:, -1] - logits[:, 0]

    run_batches(network, ids, types, keep, threads)
    return check_scores(found, query)


def _open_engine_classifier(checkpoint: Checkpoint) -> ScorePairs:
    """Open a cross-encoder of one label by vLLM's engine, which reads and cuts the pairs itself."""
    labels = len(checkpoint.config.get("id2label") or ()) or checkpoint.config.get("num_labels", 2)
    if labels != 1:
        raise refuse(checkpoint, f"{labels} labels", "one, which vLLM scores")
    import_vllm()  # without it, the error comes before the first pair

    def score(query: str, passages: Sequence[str], threads: int) -> Scores:  # noqa: ARG001
        def ask(engine: Any) -> list[float]:
            found = engine.score(
                query,
                list(passages),
                pooling_params=_ask_for_logits(),
                tokenization_kwargs={"truncate_prompt_tokens": -1},
                use_tqdm=False,
            )
            return [one.outputs.score for one in found]

        return check_scores(np.array(ask_pooling_engine(checkpoint, checkpoint.window, {}, ask)), query)

    return score


def _ask_for_logits() -> Any:
    return import_vllm().PoolingParams(use_activation=False)


def find_template(checkpoint: Checkpoint) -> Template:
    """Find the template of a reranker by its name, or by the name that its files have. `UserError` if none fits."""
    names = f"{checkpoint.name} {checkpoint.config.get('_name_or_path', '')}".lower()
    for pattern, template in TEMPLATES.items():
        if re.search(pattern, names):
            return template
    unknown = "a model that answers yes or no, whose template is not known"
    raise refuse(checkpoint, unknown, "a folder with the name of the model, as in Qwen3-Reranker-0.6B")


Weigh = Callable[[Sequence[list[int]]], Sequence[float]]
"""A function of the tokens of texts: how much the logit of yes after each text exceeds that of no."""


def _open_answering(checkpoint: Checkpoint, is_causal: bool, backend: str | None) -> ScorePairs:
    """Open a model that answers yes or no. Only the passage is cut, never the text around it."""
    template, tokens = find_template(checkpoint), Tokens(checkpoint, 1_000_000, specials=False)
    window = min(template.longest, checkpoint.window)
    words = [None if word is None else _find_word(checkpoint, tokens, word) for word in (template.no, template.yes)]
    if backend == VLLM:
        weigh, end = _open_engine_weigher(checkpoint, is_causal, template, window), list[int]()
    else:
        weigh, end = _open_torch_weigher(checkpoint, is_causal, words)

    def score(query: str, passages: Sequence[str], threads: int) -> Scores:  # noqa: ARG001
        before = template.before.format(query=query)
        alone, after, *each = tokens.read([before, template.after, *(before + passage for passage in passages)])[0]
        after = [*after, *end]
        room = window - len(after)
        if room <= len(alone):
            raise UserError(f"found a query of {len(alone)} tokens for {checkpoint.name}, expected fewer: shorten it")
        return np.array(weigh([[*own[:room], *after] for own in each]), np.float64)

    return score


def _open_torch_weigher(
    checkpoint: Checkpoint, is_causal: bool, words: Sequence[int | None]
) -> tuple[Weigh, list[int]]:
    """Open a model by PyTorch, with the words for no and for yes. Also returns the tokens at the end of a text."""
    (no, yes), (answers, end) = words, open_answers(checkpoint, is_causal)

    def weigh(texts: Sequence[list[int]]) -> list[float]:
        logits = map(answers, texts)
        return [float(own[yes] - (0 if no is None else own[no])) for own in logits]

    return weigh, end


def _open_engine_weigher(checkpoint: Checkpoint, is_causal: bool, template: Template, window: int) -> Weigh:
    """Open a causal model by vLLM's engine, which makes a classifier of the words of the template."""
    kind = checkpoint.config["architectures"][0]
    if not is_causal or template.no is None:
        raise refuse(checkpoint, kind, ENGINE_KINDS)
    import_vllm()
    overrides = {
        "architectures": [kind.replace("ForCausalLM", "ForSequenceClassification")],
        "classifier_from_token": [template.no, template.yes],
        "method": "from_2_way_softmax",
    }

    def weigh(texts: Sequence[list[int]]) -> list[float]:
        prompts = [{"prompt_token_ids": own} for own in texts]

        def ask(engine: Any) -> list[float]:
            found = engine.classify(prompts, pooling_params=_ask_for_logits(), use_tqdm=False)
            return [one.outputs.probs[0] for one in found]

        return ask_pooling_engine(checkpoint, window, {"hf_overrides": overrides}, ask)

    return weigh


def _find_word(checkpoint: Checkpoint, tokens: Tokens, word: str) -> int:
    if (found := tokens.vocabulary.get(word)) is None:
        raise refuse(checkpoint, f"no token {word!r} in tokenizer.json", "the vocabulary of the model")
    return found
