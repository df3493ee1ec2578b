"""The reader DiscoRAG over an index: agents, baselines, rules and the gate, each with its evidence and its steps."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from typing import Any

import pytest

from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.discorag.read import SIBLINGS, Pick, choose_entries, find_marker, merge, read_discourse
from keystone.generation.readers.discorag.tools import Discourse, read_forest
from keystone.generation.readers.reader import AnswerSettings, Task, Tools
from keystone.generation.readers.settings import DiscoRagSettings
from keystone.generation.readers.structure_reader import Question, list_questions
from keystone.generation.types import EvidenceSet, Failure, Reply, Request
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Said, Scripted

ASKED = "Why do bees dance, and who feeds them in winter?"
FACT = "Who feeds bees in winter?"
SUBJECTS = ("bees dance", "a keeper feeds bees in winter", "rain falls", "stones lie still")
TEXTS = {
    "story": "\n\n".join(f"In part {n} {SUBJECTS[n % 4]}. It is so in part {n}. The tale goes on." for n in range(24)),
    "note": "Bees dance for flowers. They do so in the sun.\n\nSnow is cold. It melts in spring.",
    "line": "A bee dances.",
}
ENTRY = re.compile(r"You are at node (\d+):\n<document")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """An index of three documents: with 24 leaves, with two, and with one."""
    folder = tmp_path_factory.mktemp("stories")
    lines = [json.dumps({"_id": id, "title": "", "text": text}) for id, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    index, *_ = build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))
    return Sources(index, open_store(index))


def make_task(sources: Sources, asked: str = ASKED) -> Task:
    rows = list(range(len(sources.store)))
    return Task(Topic("1", asked), read_context(sources, rows, [Query("1", "1#0", asked, asked, asked)]), 60, list)


def read(sources: Sources, model: Any = None, asked: str = ASKED, **values: Any) -> EvidenceSet:
    tools = Tools(
        sources,
        model,
        AnswerSettings("retrieval" if model else "rules", window=4096),
        DiscoRagSettings(name="discorag", **values),
    )
    task = make_task(sources, asked)
    (question,) = list_questions(tools, task, (tuple(task.context.documents),))
    return asyncio.run(read_discourse(tools, question))


def open_forest(sources: Sources) -> tuple[list[Discourse], Question]:
    tools = Tools(sources, None, AnswerSettings("rules"), DiscoRagSettings(name="discorag"))
    task = make_task(sources)
    (question,) = list_questions(tools, task, (tuple(task.context.documents),))
    return read_forest(sources, question), question


def write_next_leaf(request: Request) -> Said:
    """Writes the entry leaf, then reads and writes a leaf of the root's text, then ends."""
    turns = len([role for role, _ in request.messages if role == "assistant"])
    entry = ENTRY.search(request.messages[1][1])
    assert entry
    return [f"Action: Write[{entry[1]}]", "Action: Text[0]", "Action: Write[1, 3]", "Action: Finish[Done]"][turns]


class Shuffled(Scripted):
    """Answers early requests last, so that replies overtake each other."""

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        for _ in range(50 // (1 + len(self.requests))):
            await asyncio.sleep(0)
        async for found in super().complete(requests):
            yield found


@pytest.mark.slow
def test_agents_gather_what_they_wrote_interleaved(sources: Sources) -> None:
    model = Scripted(write_next_leaf)
    settings = DiscoRagSettings(name="discorag", entries=4, entries_per_document=2, kept=5)
    found = read(sources, model, **settings.model_dump(exclude={"name"}))
    forest, question = open_forest(sources)
    entries = choose_entries(forest, question.vector, settings)
    assert found.stop == "done"
    assert len(found.items) == 5
    assert [item.span for item in found.items[:4]] == [forest[place].find_span(id) for place, id in entries]
    assert found.items[0].why == f"written by the agent from node {entries[0][1]}"
    assert all(item.text == TEXTS[item.span.doc_id][item.span.start : item.span.end] for item in found.items)
    walking = [number for number, (place, _) in enumerate(entries) if len(forest[place].leaves) > 1]
    assert sorted({step.agent for step in found.steps}) == walking
    assert len(model.requests) == len(found.steps) == 4 * len(walking)


def test_the_order_of_replies_changes_nothing(sources: Sources) -> None:
    assert read(sources, Scripted(write_next_leaf)) == read(sources, Shuffled(write_next_leaf))


def test_an_agent_that_wrote_nothing_is_its_entry_and_two_siblings(sources: Sources) -> None:
    found = read(sources, Scripted(lambda _: "Action: Finish[Done]"), entries=3, entries_per_document=1)
    written = [item for item in found.items if "wrote nothing" in item.why]
    assert found.stop == "done"
    assert [item.span.doc_id for item in written].count("story") == 1 + SIBLINGS
    assert [item.text for item in found.items if item not in written] == [TEXTS["line"]]


@pytest.mark.parametrize(("said", "stop"), [(Failure("down"), "llm_error"), ("Well.", "invalid")])
def test_if_all_agents_fail_the_closest_leaves_are_the_evidence(said: Said, stop: str, sources: Sources) -> None:
    found = read(sources, Scripted(lambda _: said), kept=4)
    closest = read(sources, method="vanilla", kept=4)
    assert (found.stop, found.items) == (stop, closest.items)
    assert [step.purpose for step in found.steps[-4:]] == ["vanilla"] * 4


@pytest.mark.parametrize("calls", [1, 3, 8, 20])
@pytest.mark.parametrize("tokens", [1_000, 9_000, 400_000])
def test_all_agents_together_stay_within_calls_and_tokens(calls: int, tokens: int, sources: Sources) -> None:
    model = Scripted(write_next_leaf)
    found = read(sources, model, calls=calls, tokens=tokens)
    assert len(model.requests) <= calls
    assert sum(step.prompt_tokens + step.reply_tokens for step in found.steps) <= tokens
    assert found.items


@pytest.mark.parametrize(
    ("method", "purpose", "first"),
    [("agents", "rest_topk", "brought in by"), ("expansion", "expansion", "beside"), ("vanilla", "vanilla", "closest")],
)
def test_every_method_without_a_model_has_evidence_and_steps(
    method: Any, purpose: str, first: str, sources: Sources
) -> None:
    found = read(sources, method=method, kept=6)
    assert (found.stop, len(found.items)) == ("done", 6)
    assert {step.purpose for step in found.steps} == {purpose}
    assert all(item.why.startswith(first) for item in found.items)
    assert {item.span for item in found.items} <= {span for step in found.steps for span in step.added}


def test_the_gate_reads_a_simple_question_plainly_and_asks_no_model(sources: Sources) -> None:
    model = Scripted(write_next_leaf)
    found = read(sources, model, FACT, gate=True, kept=4)
    assert (found.stop, [step.action for step in found.steps], model.requests) == ("done", ["simple"], [])
    assert len(found.items) <= 4
    ordered = sorted((item.span.doc_id, item.span.start, item.span.end) for item in found.items)
    assert all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(ordered))
    found = read(sources, model, ASKED, gate=True)
    assert (found.steps[0].purpose, found.steps[0].action) == ("gate", "cause: Why")
    assert model.requests


def test_merging_takes_each_leaf_once_rank_by_rank(sources: Sources) -> None:
    forest, question = open_forest(sources)
    story = next(place for place, one in enumerate(forest) if len(one.leaves) > 2)
    ids = [leaf.id for leaf in forest[story].leaves[:5]]
    lists = [(ids[0], ids[1], ids[2]), (ids[1], ids[3]), (ids[4],)]
    picks = [Pick(story, 0, leaves, f"list {number}") for number, leaves in enumerate(lists)]
    found = merge(forest, question, picks, 4)
    assert [item.span for item in found] == [forest[story].find_span(ids[place]) for place in (0, 1, 4, 3)]
    assert [item.why for item in found] == ["list 0", "list 0", "list 2", "list 1"]


@pytest.mark.parametrize(
    "question",
    [
        "What year was the experiment conducted?",
        "Who is the chief of the Vasads?",
        "Where does the ship land?",
        "How many moons has the planet?",
        "How old is Sarna?",
        "When did the whyte knight showcase his horse?",
        "",
    ],
)
def test_a_question_for_one_fact_is_simple(question: str) -> None:
    assert not find_marker(question)


@pytest.mark.parametrize(
    ("question", "marker"),
    [
        ("Why did the rulers send Gurn away?", "cause: Why"),
        ("What caused Tinker Tim to quarrel with Dan?", "cause: caused"),
        ("How did Mary Alice's sheltered upbringing shape her talks with Jack?", "manner: How"),
        ("What is Gurn's role in the story?", "connection: role"),
        ("In what way do the two towns differ?", "comparison: differ"),
        ("What does the robe stand for as a symbol?", "interpretation: symbol"),
        ("What happens to the Misty Ones throughout the story?", "development: throughout"),
        ("Describe the valley.", "overview: Describe"),
        ("Who is he? Where is he?", "several: he? Where is he?"),
        ("What led   to the war?", "cause: led to"),
    ],
)
def test_a_question_for_causes_relations_or_a_whole_is_complex(question: str, marker: str) -> None:
    assert find_marker(question) == marker


@pytest.mark.slow
@pytest.mark.parametrize("part", ["how ", "? ", "led ", "why", "how many "])
def test_the_gate_takes_linear_time(part: str) -> None:
    begun = time.process_time()
    find_marker(part * 200_000)
    assert time.process_time() - begun < 5
