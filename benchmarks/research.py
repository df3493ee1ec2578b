"""(g) Research agents side by side: sixteen take about as long as one, because they mostly wait for the model."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from benchmarks.table import Row, compare_costs, take_turns
from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.agent.reader import explore
from keystone.generation.readers.agent.tools import Desk, World
from keystone.generation.readers.loop import Allowance
from keystone.generation.readers.reader import AnswerSettings, Task, Tools
from keystone.generation.readers.settings import AgentSettings
from keystone.generation.types import Reply, Request
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_sparse, open_store
from keystone.retrieval.types import Query, Topic

AGENTS, LATENCY_S, REPEATS = 16, 1.0, 3
DOCUMENTS, SENTENCES, DEPTH = 400, 30, 100
SENTENCE = "In chapter {} the traveller of number {} writes down the name of city {}."
SETTINGS = AgentSettings(name="agent")


def rows() -> list[Row]:
    """The time of sixteen agents beside the time of one, each of eight steps in a desk of its own narrative."""
    with tempfile.TemporaryDirectory() as folder:
        index = _make_index(Path(folder))
        seconds = take_turns({"one": lambda: _send(index, 1), "all": lambda: _send(index, AGENTS)}, REPEATS)
    name = f"{AGENTS} research agents of {SETTINGS.steps} steps, {LATENCY_S:g} s a call: one agent"
    return [compare_costs(name, seconds["all"], seconds["one"], 1 / 1.15, "embedding of searches, reading of hits")]


class _Slow:
    """Replies after the latency: each agent searches anew in every other step, and reads what it found in between."""

    name = "slow"

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply]]:
        for number, request in enumerate(requests):
            await asyncio.sleep(LATENCY_S)
            turn = len(request.messages) // 2
            own = request.messages[1][1].partition("city ")[2].partition("?")[0]
            action = {
                "notes": [],
                "tool": "search",
                "text": f"traveller {turn} of city {own}",
                "document": -1,
                "page": 1,
            }
            if turn % 2 == 0:
                action |= {"tool": "read", "document": turn}
            yield number, Reply(json.dumps(action))


def _make_index(folder: Path) -> Index:
    lines = [
        json.dumps({"id": f"d{n}", "title": f"Traveller {n}", "text": " ".join(
            SENTENCE.format(n, m, n * m % 97) for m in range(SENTENCES))})
        for n in range(DOCUMENTS)
    ]  # fmt: skip
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))[0]


def _send(index: Index, agents: int) -> None:
    store = open_store(index)
    searcher = open_sparse(index, store)

    async def search(queries: Sequence[Query]) -> list[list[int]]:
        texts = [query.sparse_text for query in queries]
        found = await asyncio.to_thread(searcher.search, [query.id for query in queries], texts, DEPTH)
        return [found.of(place).tolist() for place in range(len(queries))]

    sources = Sources(index, store)
    tools = Tools(sources, None, AnswerSettings("whole"), SETTINGS, search)
    texts = [f"Which traveller writes down the name of city {n}?" for n in range(agents)]
    queries = [Query("1", f"1#{n}", text, text, text) for n, text in enumerate(texts)]
    task = Task(Topic("1", " ".join(texts)), read_context(sources, [0], queries), 100, lambda sentences: sentences)
    desk = Desk(tools, task, ((0,),))

    async def explore_all() -> None:
        worlds = [World(desk, query, n, SETTINGS.hits, SETTINGS.observation_tokens) for n, query in enumerate(queries)]
        walks = (explore(_Slow(), SETTINGS, one, [one.query.question], Allowance(99, 10**7)) for one in worlds)
        found = await asyncio.gather(*walks)
        assert all(walk.stop == "max_steps" for walk in found), [walk.stop for walk in found]

    asyncio.run(explore_all())
