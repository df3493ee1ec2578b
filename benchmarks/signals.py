"""Local models beside their peers: impact search, an encoder and a cross-encoder.

The models are small and random, of the sizes of bge-small and of ms-marco-MiniLM-L6, so nothing is downloaded. Models
are measured by the processor time of all threads, since other work on the machine disturbs it least.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.pairs import open_pair_scorer
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.postings import open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from keystone.indexing.vectors.encoder import Encoder
from keystone.retrieval.lucene.postings import ImpactSearcher

DOCUMENTS, QUERIES, QUERY_TERMS, DEPTH = 20_000, 100, 24, 1000
TEXTS, PAIRS = 32, 32
THREADS = os.cpu_count() or 1


def rows() -> list[Row]:
    """Speed beside Anserini's searcher of impacts, which Pyserini calls, and beside sentence-transformers."""
    texts = read_passages(DOCUMENTS)
    with tempfile.TemporaryDirectory() as folder:
        return [_search_impacts(Path(folder), texts), *_run_models(Path(folder), texts)]


def _search_impacts(folder: Path, texts: list[str]) -> Row:
    """Search an index of words as if their frequencies were impacts, which is the same work."""
    build_lucene((Document(f"{row:07d}", text) for row, text in enumerate(texts)), folder / "lucene")
    write_postings(folder / "lucene", folder / "postings")
    ours, random = ImpactSearcher(open_postings(folder / "postings")), np.random.default_rng(1)
    stems = sorted({stem for text in draw_questions(texts, 2_000) for stem in text.lower().split() if len(stem) > 3})
    asked = [
        {str(stem): float(random.integers(1, 200)) for stem in random.choice(stems, QUERY_TERMS, replace=False)}
        for _ in range(QUERIES)
    ]
    ids = [str(number) for number in range(QUERIES)]
    searcher = java_class("io.anserini.search.SimpleImpactSearcher")(str(folder / "lucene"))
    maps = []
    for query in asked:
        maps.append(java_class("java.util.HashMap")())
        for stem, weight in query.items():
            maps[-1].put(stem, java_class("java.lang.Integer")(int(weight)))
    jobs: dict[str, Any] = {
        "ours": lambda: ours.search(ids, asked, DEPTH, 1),
        "peer": lambda: [searcher.search(one, DEPTH) for one in maps],
    }
    seconds = take_turns(jobs, repeats=5)
    name = f"impact search, {QUERIES} queries of {QUERY_TERMS} terms, {DOCUMENTS:,} passages: Anserini's searcher"
    return compare_costs(name, seconds["ours"], seconds["peer"], 4.0, "adding postings; one thread each")


def _run_models(folder: Path, texts: list[str]) -> list[Row]:
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    encoder, reranker = (_write_model(folder / name, layers, head) for name, layers, head in
                         (("encoder", 12, ""), ("reranker", 6, "labels")))  # fmt: skip
    (encoder / "1_Pooling").mkdir()
    (encoder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    start = time.perf_counter()
    ours, own = Encoder(read_checkpoint(str(encoder))), open_pair_scorer(str(reranker))
    opened = time.perf_counter() - start
    transformer = Transformer(str(encoder), max_seq_length=512)
    theirs = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_word_embedding_dimension(), "cls")], device="cpu"
    )
    pairs = CrossEncoder(str(reranker), device="cpu", max_length=512)
    torch.set_num_threads(THREADS)
    query, some = draw_questions(texts, 1)[0], texts[:TEXTS]
    jobs: dict[str, Any] = {
        "texts": lambda: ours.embed(some, THREADS),
        "their texts": lambda: theirs.encode(some, batch_size=32, show_progress_bar=False),
        "pairs": lambda: own(query, texts[:PAIRS], THREADS),
        "their pairs": lambda: pairs.predict([(query, one) for one in texts[:PAIRS]], show_progress_bar=False),
    }
    seconds = take_turns(jobs, repeats=3, cpu=True)
    bound = "single-precision multiply-adds"
    return [
        compare_costs(
            f"embedding {TEXTS} passages, 12 layers of 384: sentence-transformers",
            seconds["texts"], seconds["their texts"], 1.5, bound, "CPU s",
        ),
        compare_costs(
            f"{PAIRS} pairs, 6 layers of 384: CrossEncoder",
            seconds["pairs"], seconds["their pairs"], 1.5, bound, "CPU s",
        ),
        compare_costs("opening both models against 1 s", opened, 1.0, 1.0, "building two sessions"),
    ]  # fmt: skip


def _write_model(folder: Path, layers: int, head: str) -> Path:
    """Write a random BERT with the tokenizer of the embedded model."""
    import transformers

    from keystone.indexing.encoders.checkpoint import find_checkpoint
    from keystone.indexing.types import LOCAL

    config = transformers.BertConfig(
        hidden_size=384, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=12, num_labels=1
    )
    kind = transformers.BertForSequenceClassification if head else transformers.BertModel
    kind(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((find_checkpoint(LOCAL) / "tokenizer.json").read_bytes())
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder
