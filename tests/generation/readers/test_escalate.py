"""Escalation and fusion of readers: which queries go on, under which limits, and which evidence results."""

import asyncio
import json
from collections.abc import Sequence
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.fuse import fuse_reciprocal_ranks, interleave
from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.combined import read_open
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import READERS, list_combined, set_combined
from keystone.generation.readers.write import NOTED
from keystone.generation.types import EvidenceSet, Failure, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Said, Scripted

QUERIES = ("How do bees find flowers?", "Who says words about sugar in the kitchen?")


@pytest.fixture(scope="module")
def sources(index: Index) -> Sources:
    return Sources(index, open_store(index))


def make_task(sources: Sources) -> Task:
    queries = [Query("1", f"1#{number}", text, text, text) for number, text in enumerate(QUERIES)]
    context = read_context(sources, list(range(len(sources.store))), queries)
    return Task(Topic("1", " ".join(QUERIES)), context, 60, list)


def escalate(sources: Sources, model: Scripted | None, **settings: object) -> tuple[EvidenceSet, EvidenceSet]:
    """Gather with the plain reader and with escalation from it."""
    task = make_task(sources)
    hits = (tuple(task.context.documents),)
    found = []
    for name, own in (("plain", {}), ("escalate", {"to": ["rdr2"], **settings})):
        reader = READERS[name].settings.model_validate({"name": name, **own})
        method = "retrieval" if model else "rules"
        tools = Tools(sources, model, AnswerSettings(method, window=4096), reader)  # type: ignore[arg-type]
        found.append(asyncio.run(open_reader(tools).gather(task, hits)))
    return found[0], found[1]


def reply_with_support(supports: Sequence[str]) -> Scripted:
    """Make a model that drafts one sentence, rates the queries, and refuses everything else."""

    def say(request: Request) -> str:
        if request.purpose == "check_coverage":
            return json.dumps({"queries": [{"id": id, "support": one} for id, one in enumerate(supports)]})
        return json.dumps({"answer": [{"text": "Bees find flowers by colour.", "citations": [0]}]})

    return Scripted(say)


def test_a_covered_topic_is_not_escalated(sources: Sources) -> None:
    model = reply_with_support(["full", "full"])
    plain, found = escalate(sources, model)
    assert found.items == plain.items
    assert (found.stop, found.reader) == ("done", "escalate")
    assert [step.action for step in found.steps] == ["open: none"]
    assert "route" not in {request.purpose for request in model.requests}


def test_only_open_queries_are_escalated(sources: Sources) -> None:
    model = reply_with_support(["full", "partial"])
    _, found = escalate(sources, model)
    assert found.steps[0].action == "open: 1#1"
    assert {step.query_id for step in found.steps[1:]} == {"1#1"}


def test_a_reader_that_fails_gives_the_escalation_its_reason(sources: Sources) -> None:
    model = reply_with_support(["full", "partial"])
    say = model.say
    model.say = lambda request: Failure("no server") if request.purpose == "route" else say(request)
    _, found = escalate(sources, model)
    assert found.items
    assert found.stop == "llm_error"


def test_an_escalation_stops_with_the_reason_of_its_last_reader(sources: Sources) -> None:
    model = reply_with_support([])
    say, checked = model.say, list[Request]()

    def reply(request: Request) -> Said:
        if request.purpose == "check_coverage":
            checked.append(request)
            return json.dumps({"queries": [{"id": 0, "support": "full" if len(checked) > 1 else "none"}]})
        return Failure("no server") if request.purpose == "route" and len(checked) == 1 else say(request)

    model.say = reply
    _, found = escalate(sources, model, to=["rdr2", "rdr2"])
    assert [step.action for step in found.steps if step.purpose == "check"] == ["open: 1#0, 1#1", "open: 1#1"]
    assert found.stop == "done"


def test_the_research_agent_has_the_whole_share_for_all_open_queries(sources: Sources) -> None:
    model = reply_with_support(["none", "none"])
    say, number = model.say, count()

    def search(request: Request) -> Said:
        if request.purpose == "agent_judge":
            return json.dumps({"questions": [{"id": id, "found": "not"} for id in (0, 1)]})
        return (
            json.dumps({"tool": "search", "text": f"bees {next(number)}"})
            if request.purpose == "agent"
            else say(request)
        )

    model.say = search
    escalate(sources, model, to=["agent"], calls=11)
    assert sum(request.purpose in ("agent", "agent_judge") for request in model.requests) > 5


@pytest.mark.slow
def test_without_a_model_cosines_decide(sources: Sources) -> None:
    _, nothing_open = escalate(sources, None, least_cosine=-1.0)
    _, all_open = escalate(sources, None, least_cosine=1.0)
    assert nothing_open.steps[0].action == "open: none"
    assert all_open.steps[0].action == "open: 1#0, 1#1"
    assert all_open.by == "rules"


@pytest.mark.parametrize(("settings", "stop"), [({"calls": 1}, "budget"), ({"tokens": 1000}, "budget")])
def test_a_spent_allowance_ends_the_escalation(sources: Sources, settings: dict[str, int], stop: str) -> None:
    plain, found = escalate(sources, reply_with_support(["none", "none"]), **settings)
    assert found.stop == stop
    assert found.items == plain.items


@pytest.mark.parametrize("calls", [2, 3, 4, 5])
def test_all_open_queries_together_stay_within_the_calls(calls: int, sources: Sources) -> None:
    model = reply_with_support(["none", "none"])
    escalate(sources, model, calls=calls)
    assert sum(request.purpose in ("check_coverage", "route") for request in model.requests) <= calls


def test_an_unusable_check_ends_the_escalation_and_keeps_the_draft(sources: Sources) -> None:
    plain, found = escalate(sources, Scripted(lambda _request: "I would rather not."))
    assert (found.stop, found.items) == ("llm_error", plain.items)


@pytest.mark.parametrize(
    ("text", "still"),
    [
        ('{"queries": [{"id": 0, "support": "full"}, {"id": 1, "support": "partial"}]}', [1]),
        ('[{"id": 1, "support": "full"}]', [0]),
        ('{"queries": [{"id": true, "support": "full"}, {"id": [1], "support": "full"}, {"id": 7}]}', [0, 1]),
        ('{"queries": []}', [0, 1]),
    ],
)
def test_queries_that_a_reply_does_not_call_full_stay_open(text: str, still: list[int]) -> None:
    assert read_open(Reply(text), 2) == still


def test_a_reply_without_objects_is_refused() -> None:
    with pytest.raises(Unusable):
        read_open(Reply("all of them"), 2)


@pytest.mark.parametrize(
    ("name", "settings", "combined"),
    [
        ("plain", {}, []),
        ("rdr2", {}, []),
        ("fused", {"readers": ["plain", "agent"]}, ["plain", "agent"]),
        ("escalate", {"to": ["graphreader"]}, ["graphreader"]),
    ],
)
def test_readers_that_are_combined_have_their_defaults_and_the_same_evidence_tokens(
    name: str, settings: dict[str, object], combined: list[str]
) -> None:
    reader = READERS[name].settings.model_validate({"name": name, "evidence_tokens": 99, **settings})
    assert list_combined(reader) == combined
    for one in combined:
        plain = READERS[one].settings.model_validate({"name": one})
        assert set_combined(reader, one) == plain.model_copy(update={"evidence_tokens": 99})


def test_fused_readers_read_the_same_documents(sources: Sources) -> None:
    task = make_task(sources)
    hits = (tuple(task.context.documents),)
    reader = READERS["fused"].settings.model_validate({"name": "fused", "readers": ["plain", "rdr2"]})
    tools = Tools(sources, None, AnswerSettings("retrieval", window=400), reader)  # type: ignore[arg-type]
    found = asyncio.run(open_reader(tools).gather(task, hits))
    assert found.reader == "fused"
    spans = [item.span for item in found.items]
    assert spans
    assert len(set(spans)) == len(spans)
    for one, after in pairwise(spans):
        assert one.doc_id != after.doc_id or one.end < after.start


def test_notes_of_fused_readers_name_no_document_by_a_number_that_fusion_changes(sources: Sources) -> None:
    task = make_task(sources)
    reader = READERS["fused"].settings.model_validate({"name": "fused", "readers": ["plain", "disco_rag"]})
    tools = Tools(sources, None, AnswerSettings("retrieval", window=4096), reader)  # type: ignore[arg-type]
    found = asyncio.run(open_reader(tools).gather(task, (tuple(task.context.documents),)))
    (plan,) = [note.text for note in found.notes if note.kind == "plan"]
    assert plan.startswith('CHUNK[1] is the part that begins "')
    assert "document" not in plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("fused", {"readers": ["plain", "agent"]}), ("escalate", {"to": ["agent"], "least_cosine": 1})],
)
def test_the_research_agent_searches_the_documents_that_it_is_given(
    sources: Sources, name: str, settings: dict[str, object]
) -> None:
    task = make_task(sources)
    given = tuple(task.context.documents)[:6]
    reader = READERS[name].settings.model_validate({"name": name, **settings})
    tools = Tools(sources, None, AnswerSettings("rules", window=4096), reader)  # type: ignore[arg-type]
    found = asyncio.run(open_reader(tools).gather(task, (given,)))
    assert found.reader == name
    assert found.steps[-1].action.startswith("end: ")
    assert {note.query_id for note in found.notes if note.kind == NOTED} == {"1#0", "1#1"}
    own = {task.context.documents[row].id for row in given}
    assert {span.doc_id for note in found.notes for span in note.sources} <= own


LISTS = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=4)


@given(LISTS, st.integers(0, 12))
def test_interleaving_keeps_every_item_once_in_turn(lists: list[list[int]], most: int) -> None:
    found = interleave(lists)
    assert sorted(found) == sorted({item for own in lists for item in own})
    assert interleave(lists, most) == found[:most]
    for own in lists[:1]:
        assert not own or found[0] == own[0]


@given(LISTS, st.integers(1, 100))
def test_fused_scores_are_the_sums_of_reciprocal_ranks(lists: list[list[int]], k: int) -> None:
    distinct = [list(dict.fromkeys(own)) for own in lists]
    wanted = {
        item: sum(1 / (k + own.index(item) + 1) for own in distinct if item in own)
        for item in {item for own in lists for item in own}
    }
    found = fuse_reciprocal_ranks(lists, k)
    assert dict(found) == pytest.approx(wanted)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
