"""GraphReader on documents in memory: facts, plan, first nodes, the limits of a question, and reader_module."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from keystone.generation.context.texts import count_tokens
from keystone.generation.context.topic import Sources, TopicContext
from keystone.generation.llm.model import InLanguage, Model
from keystone.generation.readers.graphreader import reader
from keystone.generation.readers.graphreader import reader as reader_module
from keystone.generation.readers.graphreader.material import list_chunks
from keystone.generation.readers.graphreader.reader import read_graph
from keystone.generation.readers.graphreader.start import ask_for_facts, read_chunk_facts
from keystone.generation.readers.loop import Allowance, count_prompt_tokens
from keystone.generation.readers.reader import AnswerSettings, Tools
from keystone.generation.readers.settings import GraphReaderSettings
from keystone.generation.types import EvidenceSet, Failure, Reply, Request, Stop
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.fact_graph import make_facts
from keystone.indexing.types import Span
from tests.support.models.scripted import Said, Scripted
from tests.support.mutation import FUZZ_CASES, mutate
from tests.support.structures.questions import make_question

DOCUMENTS = {
    "band": "Never Too Loud was sung by Danko Jones.\n\nDanko Jones came from Toronto.",
    "castle": "Casa Loma stands in Toronto.\n\nIts towers were built by Henry Pellatt for his wife.",
    "lake": "Lake Huron is deep.\n\nToronto lies at another lake.",
}
QUESTION = "Which castle stands in the city of Danko Jones?"
STEPS = {
    "These are the facts": "*Updated Notebook*: Danko Jones came from Toronto.\n*Chosen Action*: read_chunk(C1, C2)",
    "This is the chunk C1": "*Chosen Action*: search_more()",
    "This is the chunk": "*Updated Notebook*: Danko Jones came from Toronto. Casa Loma stands in Toronto.\n"
    "*Chosen Action*: search_more()",
    "These are the neighbours": "*Chosen Action*: termination()",
}
"""The reply to a step whose functions begin with these words; the castle is noted only after its chunk is read."""
REPLIES = {
    "graph_facts": "1. Danko Jones came from Toronto. | Danko Jones | Toronto\n"
    "2. Casa Loma stands in Toronto. | Casa Loma | Toronto\n"
    "3. Lake Huron is deep. | Lake Huron",
    "graph_plan": "Find the city, then its castle.",
    "graph_nodes": "Node: Danko Jones, Score: 80\nNode: Paris, Score: 100\nNode: Toronto, Score: 90",
}


def say(request: Request) -> Said:
    if request.purpose in REPLIES:
        return REPLIES[request.purpose]
    return next(reply for start, reply in STEPS.items() if f"\n\n{start}" in request.messages[1][1])


@pytest.fixture(autouse=True)
def _work_without_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """No facts are kept. The longer a stretch, the closer it is to every question."""

    def embed(_sources: Sources, _context: TopicContext, spans: Sequence[Span]) -> Vectors:
        return np.array([[span.end - span.start] for span in spans], np.float32)

    monkeypatch.setattr(reader_module, "embed_spans", embed)
    monkeypatch.setattr(reader, "read_facts", lambda _index, documents: list(map(make_facts, documents)))


def read(model: Model | None, documents: dict[str, str] = DOCUMENTS, **settings: object) -> EvidenceSet:
    chosen = GraphReaderSettings.model_validate({"name": "graphreader", "chunk_tokens": 100, **settings})
    method = AnswerSettings("retrieval" if model else "rules")
    tools = Tools(cast(Sources, SimpleNamespace(index=None)), model, method, chosen)
    return asyncio.run(read_graph(tools, make_question(QUESTION, documents)))


def test_a_question_takes_facts_plan_nodes_and_paths_in_this_order() -> None:
    model = Scripted(say)
    found = read(model, nodes=2)
    purposes = [step.purpose for step in found.steps]
    assert purposes[:5] == ["graph_facts", "graph_facts", "graph_facts", "graph_plan", "graph_nodes"]
    assert [step.number for step in found.steps[:5]] == [0, 1, 2, 3, 4]
    assert found.steps[4].action == "Toronto, Danko Jones"
    assert {step.agent for step in found.steps[5:]} == {1, 2}
    assert found.stop == "done"
    assert all(REPLIES["graph_plan"] in text for text in [r.messages[1][1] for r in model.requests[4:]])
    temperatures = {request.purpose: request.temperature for request in model.requests}
    assert temperatures == {"graph_facts": 0.0, "graph_plan": 0.2, "graph_nodes": 0.2, "graph_step": 0.2}


def test_evidence_of_more_paths_comes_first_and_notes_are_the_notebooks() -> None:
    found = read(Scripted(say), nodes=2)
    assert [(item.text, item.score) for item in found.items] == [
        ("Danko Jones came from Toronto.", 2.0),
        ("Casa Loma stands in Toronto.", 1.0),
    ]
    assert [note.text for note in found.notes] == [
        "Notebook of search 1 of 2: Danko Jones came from Toronto. Casa Loma stands in Toronto.",
        "Notebook of search 2 of 2: Danko Jones came from Toronto.",
    ]
    assert all(note.kind == "notebook" and note.query_id == "1#0" and note.sources for note in found.notes)


def test_facts_rest_on_a_sentence_of_their_chunk_or_are_dropped() -> None:
    chunk, *_ = list_chunks(make_question(QUESTION, DOCUMENTS), 100)
    (fact,) = read_chunk_facts(Reply(REPLIES["graph_facts"]), chunk)
    assert (fact.text, fact.keys) == ("Danko Jones came from Toronto.", ("Danko Jones", "Toronto"))
    assert DOCUMENTS["band"][fact.span.start : fact.span.end] == fact.text
    with pytest.raises(Unusable, match="do not stand"):
        read_chunk_facts(Reply("1. Elephants never forget. | elephants"), chunk)


def test_what_copies_the_words_of_documents_is_asked_for_in_their_language() -> None:
    model = Scripted(say)
    read(InLanguage(model, "English"), nodes=2)
    told = {request.purpose for request in model.requests if "Write in English" in request.messages[0][1]}
    assert told == {"graph_plan", "graph_step"}


def test_the_request_for_facts_depends_on_nothing_but_the_chunk() -> None:
    requests: list[str] = []
    for documents in (DOCUMENTS, dict(reversed(DOCUMENTS.items()))):
        model = Scripted(say)
        read(model, documents)
        requests += sorted(r.messages[1][1] for r in model.requests if r.purpose == "graph_facts")
    assert requests[:3] == requests[3:]


def test_facts_take_at_most_half_of_the_allowance_and_leave_what_they_do_not_use() -> None:
    few = read(Scripted(say), calls=9).steps[:3]
    assert [step.action for step in few] == ["1 facts", "1 facts", "plan"]
    question = make_question(QUESTION, DOCUMENTS)
    allowance = Allowance(6, 100_000)
    sent = Scripted(say)
    asyncio.run(ask_for_facts(question, sent, list_chunks(question, 100), allowance))
    used = sum(count_prompt_tokens(r) + count_tokens(REPLIES["graph_facts"]) for r in sent.requests)
    assert (allowance.calls, allowance.tokens) == (3, 100_000 - used)


@pytest.mark.slow
@pytest.mark.parametrize("said", ["I do not know.", "", Failure("no server")])
@pytest.mark.parametrize("calls", range(1, 40, 3))
def test_no_question_exceeds_its_calls_or_tokens(said: Said, calls: int) -> None:
    for reply in (said, None):
        tokens = 3000 * calls
        model = Scripted(say if reply is None else lambda _request, reply=reply: reply)  # type: ignore[misc]
        found = read(model, calls=calls, tokens=tokens)
        assert len(model.requests) <= calls
        assert sum(step.prompt_tokens + step.reply_tokens for step in found.steps) <= tokens
        assert found.items


@pytest.mark.parametrize(
    ("answer", "settings", "stop"),
    [
        pytest.param(say, {}, "done", id="a path terminates"),
        pytest.param(say, {"functions": 1}, "max_steps", id="no path does within its functions"),
        pytest.param(say, {"calls": 1}, "budget", id="the calls are spent before a path"),
        pytest.param(lambda _: Failure("no server"), {}, "llm_error", id="the model is silent"),
        pytest.param(lambda _: "I do not know.", {}, "invalid", id="no reply can be used"),
    ],
)
def test_every_reason_to_stop_comes_with_evidence(
    answer: Callable[[Request], Said], settings: dict[str, int], stop: Stop
) -> None:
    found = read(Scripted(answer), DOCUMENTS, **settings)
    assert found.stop == stop
    assert found.items


def test_without_documents_or_text_the_evidence_is_empty_and_no_model_is_asked() -> None:
    model = Scripted(say)
    for documents in ({}, {"blank": " \n\n "}):
        for asked in (model, None):
            assert (read(asked, documents).stop, read(asked, documents).items) == ("empty", ())
    assert not model.requests


def test_a_text_without_keys_is_evidence_although_no_path_begins() -> None:
    found = read(None, {"d": "So it was, and so it is."})
    assert (found.stop, [item.text for item in found.items]) == ("empty", ["So it was, and so it is."])


def test_rules_walk_within_the_same_limits_and_show_the_closest_first() -> None:
    found = read(None, functions=4, nodes=3)
    assert not found.notes
    assert {step.agent for step in found.steps} == {1, 2, 3}
    assert max(step.number for step in found.steps) < 4
    lengths = [len(item.text) for item in found.items]
    assert lengths == sorted(lengths, reverse=True)
    assert found == read(None, functions=4, nodes=3)


def test_a_prompt_shows_no_more_keys_and_a_question_has_no_more_paths_than_the_settings_say() -> None:
    model = Scripted(say)
    found = read(model, candidates=2, neighbours=1)
    shown = {step.purpose: step.shown.split("\n") for step in found.steps}
    assert len(shown["graph_nodes"]) == 2
    assert len(shown["graph_step_neighbours"]) == 3  # between the lines of its delimiters
    assert len({step.agent for step in read(None, nodes=4).steps}) == 4
    assert len({step.agent for step in read(None).steps}) == 5


def test_random_nodes_depend_on_the_seed_alone() -> None:
    def list_actions(seed: int) -> list[tuple[int, str]]:
        found = read(Scripted(say), random_nodes=True, seed=seed)
        assert "graph_nodes" not in {step.purpose for step in found.steps}
        return [(step.agent, step.action) for step in found.steps]

    assert list_actions(1) == list_actions(1)
    assert len({tuple(list_actions(seed)) for seed in range(5)}) > 1


@pytest.mark.slow
def test_damaged_replies_lead_to_evidence_and_a_reason() -> None:
    chance = Random(0)
    asked = 0

    def damage(request: Request) -> Said:
        nonlocal asked
        asked += 1
        said = say(request)
        assert isinstance(said, str)
        return Reply(
            mutate(said.encode(), chance).decode("utf-8", "replace"), chance.choice(["stop", "stop", "length"])
        )

    while asked < (FUZZ_CASES or 1_000):
        found = read(Scripted(damage), functions=5)
        assert found.items
        assert found.stop in ("done", "max_steps", "invalid", "llm_error")
