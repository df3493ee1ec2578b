"""A program that puts requests, and then each structure-aware reader, to vLLM's engine in vLLM's own environment.

`python -m tests.support.models.engine_in_process INDEX MODEL CALLS REPORT` keeps the replies in `replies.sqlite` beside
the report. It writes the failures and the usage of the requests to the report, and for each reader the reason why it
stopped, the calls that it made, and the number of sentences of its answer. Packages that vLLM's environment lacks come
from the environment that `KEYSTONE_PACKAGES` names.
"""

import asyncio
import json
import os
import site
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

site.addsitedir(os.environ["KEYSTONE_PACKAGES"])

from keystone.generation.context.topic import Sources, read_context
from keystone.generation.llm.client import open_model
from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import READERS
from keystone.generation.types import Failure
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.vllm_calls import mixed

ENGINE = {"dtype": "bfloat16", "enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}
"""The arguments of vLLM's engine for the tiny model."""
MEASURED = ("rdr2", "discorag", "disco_rag", "graphreader")
QUESTION = "How do bees find flowers?"
WINDOW_TOKENS = 8192


async def ask(model: OpenModel) -> dict[str, Any]:
    """Put the requests of every kind to the model; returns their part of the report."""
    outcomes = {number: outcome async for number, outcome in model.complete(mixed())}
    failed = {number: outcome.reason for number, outcome in sorted(outcomes.items()) if isinstance(outcome, Failure)}
    spent = {purpose: asdict(usage) for purpose, usage in model.usage.items()}
    return {"outcomes": len(outcomes), "failed": failed, "spent": spent}


async def read(sources: Sources, model: OpenModel, name: str, calls: int) -> dict[str, Any]:
    """Answer the question from four documents by one reader; returns its line of the report."""
    query = Query("1", "1#0", QUESTION, QUESTION, QUESTION)
    rows = list(range(4))
    task = Task(Topic("1", QUESTION), read_context(sources, rows, [query]), 60, list)
    settings = READERS[name].settings.model_validate({"name": name, "calls": calls})
    reader = open_reader(Tools(sources, model, AnswerSettings("retrieval", window=WINDOW_TOKENS), settings))  # type: ignore[arg-type]
    before = sum(usage.calls for usage in model.usage.values())
    found = await reader.gather(task, (tuple(rows),))
    made = sum(usage.calls for usage in model.usage.values()) - before
    answer = await reader.answer(task, found)
    return {"stop": found.stop, "by": found.by, "calls": made, "sentences": len(answer.sentences)}


async def main(index: Path, engine_model: Path, calls: int, report: Path) -> None:
    opened = open_index(index)
    sources = Sources(opened, open_store(opened))
    engine = {**ENGINE, "model": str(engine_model)}
    cache = report.with_name("replies.sqlite")
    settings = ModelSettings(name="tiny", backend="vllm", cache=cache, engine=engine, concurrency=5)
    async with open_model(settings, report.parent) as model:
        asked = await ask(model)
        readers = {name: await read(sources, model, name, calls) for name in MEASURED}
    report.write_text(json.dumps({**asked, "readers": readers}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
