"""The cost of each preset: the calls and the prompt tokens of a narrative, beside those of the paper's graded preset.

A program stands for the model and follows every prompt by rules (`tests.support.models.reading_model`). It makes a
query from each sentence of a narrative. Its replies are short, so prompts alone are counted.
"""

import tempfile
from pathlib import Path

import orjson

from benchmarks.table import Row, compare_costs
from benchmarks.texts import draw_questions, read_passages
from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.indexing.builds.index import build_index
from keystone.indexing.index import Index
from keystone.runs.config.read import PRESETS, read_config
from keystone.runs.pipeline.run import run
from tests.support.indexes.preset_sets import settle_preset_sets
from tests.support.models.reading_model import say
from tests.support.servers.chat import serving

DOCUMENTS, NARRATIVES, SENTENCES = 1_000, 5, 5
PEER = "uema21lab_B4"
"""The preset of the paper that grades each query and document in a call of its own."""


def rows() -> list[Row]:
    """A row for each preset that asks a model."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = _make_index(folder, texts := read_passages(DOCUMENTS))
        questions = iter(draw_questions(texts, NARRATIVES * SENTENCES))
        narratives = [" ".join(f"{next(questions)}." for _ in range(SENTENCES)) for _ in range(NARRATIVES)]
        topics = folder / "topics.jsonl"
        lines = [{"id": str(number), "narrative": text} for number, text in enumerate(narratives)]
        topics.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        costs = {preset: _measure(preset, index, topics, folder / preset) for preset in PRESETS}
    peer = costs[PEER][1]
    return [
        compare_costs(f"{preset}, {calls:.0f} calls a narrative: {PEER}", tokens, peer, None, "its prompts", "tokens")
        for preset, (calls, tokens) in costs.items()
        if calls
    ]


def _make_index(folder: Path, texts: list[str]) -> Index:
    corpus = folder / "corpus.jsonl"
    corpus.write_bytes(
        b"".join(orjson.dumps({"id": f"d{n:04}", "text": f"{text}."}) + b"\n" for n, text in enumerate(texts))
    )
    return build_index(corpus, folder / "index", settle_preset_sets(folder / "models"))[0]


def _measure(preset: str, index: Index, topics: Path, out: Path) -> tuple[float, float]:
    """Make a run by a preset; returns the calls and the prompt tokens of a narrative."""
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 32768}}"
        places = [f"index={index.folder}", f"topics={topics}", f"out={out}"]
        run(read_config(None, [*places, model], preset=preset), threads=2)
        asked = [request["messages"] for request in server.requests]
    characters = sum(len(message["content"]) for messages in asked for message in messages)
    return len(asked) / NARRATIVES, characters / CHARACTERS_PER_TOKEN / NARRATIVES
