"""A program that uses vLLM's engine for vectors, a chat and scores in turn, in vLLM's own environment.

`main` makes small random checkpoints beside the report. It writes what the engine computes and what Keystone computes
without it, and counts the engines after each step. Packages that vLLM's environment lacks come from the environment
that `KEYSTONE_PACKAGES` names.

Run it with `python -c`. The engine's processes import the main module of a program, and on a processor vLLM 0.32 fails
where that imports numba.
"""

import asyncio
import json
import os
import site
from collections.abc import Callable
from pathlib import Path
from typing import Any

site.addsitedir(os.environ["KEYSTONE_PACKAGES"])

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

from keystone.generation.llm.client import open_model
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Reply
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.dense import Encoder
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.types import VLLM, Embedding
from keystone.indexing.vectors.embed import embed_passages, settle_embedding
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.models.checkpoints import add_pooling, write_checkpoint
from tests.support.models.engine_in_process import ENGINE
from tests.support.models.torch_parity import PASSAGES, QUERY, SIZES, write
from tests.support.models.vllm_calls import prose

TEXTS = [QUERY, *PASSAGES, "the stock market fell 9 percent " * 4, "word " * 99]
"""The last two are longer than the window of the checkpoints."""
PROMPTS = {"document": "d "}
HEADS = 1
"""The number of heads. Each has 32 numbers, the smallest size that vLLM computes on a processor."""


def count_engines() -> int:
    """Count the processes of engines in the group of this process."""
    found = 0
    for place in Path("/proc").glob("[0-9]*/comm"):
        try:
            own = os.getpgid(int(place.parent.name)) == os.getpgid(0) and "EngineCor" in place.read_text()
            found += own and place.with_name("cmdline").read_bytes() != b""  # empty for one that has ended
        except OSError:
            continue
    return found


def embed(folder: Path) -> dict[str, Any]:
    """Build an index by the engine, and embed texts; returns the settings in `index.json`, and the vectors."""
    embedding = settle_engine(write_bert(folder / "encoder", "mean"))
    corpus = write_corpus(folder / "corpus.jsonl")
    build_index(corpus, folder / "index", BuildSettings(embedding=embedding, threads=2))
    about = json.loads((folder / "index/index.json").read_bytes())["embedding"]
    return {**compare_vectors(embedding), "embedding": about}


def write_bert(folder: Path, pooling: str) -> Path:
    """Write an encoder of BERT's kind with a prompt for documents."""
    return write_checkpoint(folder, pooling=pooling, prompts=PROMPTS, num_attention_heads=HEADS)


def write_qwen(folder: Path) -> Path:
    """Write a causal encoder with a prompt for documents, which pools by the last token."""
    torch.manual_seed(0)
    write(folder, Qwen3Model(Qwen3Config(**SIZES, head_dim=32, num_key_value_heads=2)))
    add_pooling(folder, "lasttoken", PROMPTS)
    return folder


def settle_engine(model: Path) -> Embedding:
    """Choose vLLM's engine for the encoder in a folder."""
    return settle_embedding(Embedding(str(model), backend=VLLM), (), print)


def compare_vectors(embedding: Embedding) -> dict[str, Any]:
    """Embed texts by the engine and without it; returns the vectors, and which texts each has cut."""
    cut, cut_without = list[int](), list[int]()
    found = embed_passages(embedding, TEXTS, cut=cut.append)
    texts = [PROMPTS["document"] + text for text in TEXTS]
    expected = Encoder(read_checkpoint(embedding.model)).embed(texts, cut=cut_without.append)
    return {"found": found.tolist(), "expected": expected.tolist(), "cut": [sorted(cut), sorted(cut_without)]}


async def chat(model: Path, folder: Path) -> dict[str, Any]:
    """Ask a chat, and count the engines before and after it is closed."""
    settings = ModelSettings(name=str(model), backend="vllm", cache=folder / "replies.sqlite", engine=ENGINE)
    async with open_model(settings, folder) as opened:
        (outcome,) = [outcome async for _, outcome in opened.complete([prose(1, 5)])]
        engines = count_engines()
    return {"replied": isinstance(outcome, Reply), "engines": [engines, count_engines()]}


def rerank(index: Path, folder: Path) -> dict[str, Any]:
    """Make a run with a cross-encoder, and score pairs by it; returns what the manifest says, and the scores."""
    model = str(write_checkpoint(folder / "cross-encoder", head="labels", num_attention_heads=HEADS))
    places = [f"index={index}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    rerank = f"rerank={{method: model, model: {model}, backend: vllm, depth: 5}}"
    directory = run(read_config(None, ["run_id=engine", *places, rerank, "answer.method=none"]))
    about = json.loads((directory / "manifest.json").read_bytes())["reranker"]
    return {**score(model), "manifest": about}


def score(model: str) -> dict[str, Any]:
    """Score pairs by the engine and without it."""
    found, expected = (open_pair_scorer(model, backend)(QUERY, TEXTS, 1).tolist() for backend in (VLLM, None))
    return {"found": found, "expected": expected}


def answer(folder: Path) -> dict[str, Any]:
    """Score pairs by a causal model that answers yes or no."""
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=32, num_key_value_heads=2))
    return score(str(write(folder / "Qwen3-Reranker-tiny", model)))


def main(index: Path, chat_model: Path, report: Path) -> None:
    """Take the steps in turn: the chat with the model, the run over the index."""
    folder, said = report.parent, dict[str, Any]()
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "embed": lambda: embed(folder),
        "cls": lambda: compare_vectors(settle_engine(write_bert(folder / "cls", "cls"))),
        "lasttoken": lambda: compare_vectors(settle_engine(write_qwen(folder / "lasttoken"))),
        "chat": lambda: asyncio.run(chat(chat_model, folder)),
        "rerank": lambda: rerank(index, folder),
        "answer": lambda: answer(folder),
    }
    for name, step in steps.items():
        said[name] = {"engines": [], **step()}
        said[name]["engines"].append(count_engines())
        report.write_text(json.dumps(said))
