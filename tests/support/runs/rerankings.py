"""Candidates of rerankers in tests: a narrative, and documents of one segment each."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keystone.generation.context.topic import TopicContext
from keystone.generation.llm.model import Model
from keystone.generation.rerank.open import Candidates, Means, Reranked, open_reranker
from keystone.generation.rerank.settings import RerankSettings
from keystone.indexing.types import Document, Segment, Span
from keystone.retrieval.types import Query


def make_candidates(narrative: str, texts: Sequence[Sequence[str]], topic_id: str = "t") -> Candidates:
    """Make candidates from the segments of each document. Earlier segments are closer to the narrative."""
    documents, vectors = {}, {}
    for row, parts in enumerate(texts):
        ends = np.cumsum([len(part) for part in parts]).tolist()
        segments = tuple(
            Segment(f"d{row}#{n}", Span(f"d{row}", end - len(part), end))
            for n, (part, end) in enumerate(zip(parts, ends, strict=True))
        )
        documents[row] = Document(f"d{row}", text="".join(parts), segments=segments)
        vectors[row] = np.array([[1 / (1 + n)] for n in range(len(parts))], dtype=np.float32).reshape(-1, 1)
    query = Query(topic_id, topic_id, narrative, narrative, narrative)
    return Candidates(topic_id, narrative, TopicContext(documents, vectors, [query], np.ones((1, 1), dtype=np.float32)))


def rerank(
    settings: dict[str, Any], folder: Path, topics: Sequence[Candidates], model: Model | None = None
) -> list[Reranked]:
    """Open the reranker of the settings, and order the documents of all topics at the same time."""

    async def run() -> list[Reranked]:
        async with open_reranker(RerankSettings.model_validate(settings), Means(folder, model, 32_768)) as order:
            return await asyncio.gather(*map(order, topics))

    return asyncio.run(run())
