"""Recorded replies of a language model lead each reader to the same answers again.

The files of `recorded/` whose names begin with "squality" hold the replies for all 20 questions of `python -m
benchmarks.reader_answers`; those that only GraphReader needs have a file of their own. A model read the prompts and
replied. If a prompt changes, make its replies again.
"""

import asyncio
import lzma
from functools import partial
from pathlib import Path

import orjson
import pytest

from benchmarks.reader_answers import MODEL, SETTINGS, WINDOW_TOKENS, answer_question, choose_questions
from keystone.generation.context.topic import Sources
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.client import open_model
from keystone.generation.llm.settings import ModelSettings
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from tests.support.places import SHARED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SHARED / "squality").exists(), reason="the real collections are not on this machine"),
]

RECORDED = sorted(Path(__file__).parent.glob("recorded/squality*.replies.jsonl.xz"))
QUESTIONS = 3
"""The number of stories that the test indexes, and asks one question about each."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("stories")
    wanted = {asked.doc_id for asked in choose_questions()[:QUESTIONS]}
    lines = (SHARED / "squality/documents.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "documents.jsonl").write_bytes(b"".join(one for one in lines if orjson.loads(one)["docid"] in wanted))
    build_index(folder / "documents.jsonl", folder / "index", BuildSettings(threads=2))
    index = open_index(folder / "index")
    return Sources(index, open_store(index), 2)


@pytest.fixture(scope="module")
def replies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replies") / "replies.jsonl"
    path.write_bytes(b"".join(lzma.decompress(packed.read_bytes()) for packed in RECORDED))
    return path


@pytest.mark.parametrize("name", SETTINGS)
def test_recorded_replies_lead_to_complete_answers(name: str, sources: Sources, replies: Path, tmp_path: Path) -> None:
    settings = ModelSettings(backend="replay", name=MODEL, window=WINDOW_TOKENS, replies=replies)

    async def answer() -> list[dict[str, object]]:
        async with open_model(settings, tmp_path) as model:
            asked = choose_questions()[:QUESTIONS]
            return await run_together([partial(answer_question, sources, name, model, one) for one in asked])

    for record in asyncio.run(answer()):
        assert len(str(record["answer"]).split()) >= 50
        assert record["fallbacks"] == []
        assert record["stop"] in ("done", "max_steps", "stalled")
