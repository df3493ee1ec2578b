"""The reader rdr2 over a real index: its evidence, its fallbacks, and the citations of an answer from it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from keystone.generation.context.passages import merge_spans
from keystone.generation.context.topic import Sources, TopicContext, read_context
from keystone.generation.readers.rdr2.read import LEAST_COSINE, Rdr2, read_routed
from keystone.generation.readers.reader import AnswerSettings, Task, Tools
from keystone.generation.readers.settings import Rdr2Settings
from keystone.generation.readers.structure_reader import list_questions
from keystone.generation.types import EvidenceSet, Failure, Reply, Request
from keystone.indexing.errors import Waits
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Segment, Span
from keystone.indexing.vectors.embed import embed_passages
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Said, Scripted

ASKED = "How do honey bees find flowers and keep the hive warm?"
TEXT = """Bees

Honey bees are insects that live in large colonies. A colony has one queen and many workers.

Finding food

Honey bees tell each other where flowers are by dancing in the hive. The dance shows direction and distance.

Workers collect nectar and pollen from flowers.

Winter

Honey bees keep the hive warm by moving their muscles. They cluster around the queen.

Steel

Steel is made of iron and carbon in a furnace. Mills roll it into sheets."""
HEADINGS = "Finding food\nWinter\nSteel"


def make_document(doc_id: str, segmented: int | None = None) -> Document:
    """A document of four sections, whose three segments end after `segmented` characters."""
    end = len(TEXT) if segmented is None else segmented
    cuts = [0, end // 3, 2 * end // 3, end]
    spans = [Span(doc_id, start, stop) for start, stop in pairwise(cuts)]
    segments = tuple(Segment(f"{doc_id}#{number}", span) for number, span in enumerate(spans))
    return Document(doc_id, TEXT, "Bees", headings=HEADINGS, segments=segments)


def make_task(sources: Sources, *documents: Document) -> Task:
    texts = [[document.segment_text(segment) for segment in document.segments] for document in documents]
    vectors = {row: embed_passages(sources.embedding, own) for row, own in enumerate(texts)}
    empty = read_context(sources, [], [Query("1", "1#0", ASKED, ASKED, ASKED)])
    context = TopicContext(dict(enumerate(documents)), vectors, empty.queries, empty.query_vectors)
    return Task(Topic("1", ASKED), context, 60, list)


def open_tools(sources: Sources, say: Callable[[Request], Said] | None = None, **settings: object) -> Tools:
    chosen = Rdr2Settings.model_validate({"name": "rdr2", **settings})
    answers = AnswerSettings("retrieval" if say else "rules", window=8192)
    return Tools(sources, Scripted(say) if say else None, answers, chosen)


def read(tools: Tools, *documents: Document) -> EvidenceSet:
    task = make_task(tools.sources, *documents)
    (question,) = list_questions(tools, task, (tuple(task.context.documents),))
    return asyncio.run(read_routed(tools, question))


def seek(*beginnings: str) -> Callable[[Request], Said]:
    """Answers with the paragraphs that begin so, and expands the heading `Finding food`."""

    def say(request: Request) -> Said:
        lines = re.findall(r"^\t+(\d+): (.*)$", request.messages[1][1], re.MULTILINE)
        found = [f"[ANSWER] {id}" for id, said in lines if said.startswith(beginnings)]
        return "\n".join([*found, *(f"[EXPAND] {id}" for id, said in lines if said == "==Finding food==")])

    return say


@pytest.fixture
def sources(index: Index) -> Sources:
    return Sources(index, open_store(index))


def test_answered_paragraphs_are_evidence_and_each_step_gives_its_closest_in_turn(sources: Sources) -> None:
    tools = open_tools(sources, seek("Honey bees tell", "Steel is", "They cluster"), hits=1)
    found = read(tools, make_document("a"), make_document("b"))
    assert [(item.span.doc_id, item.text[:15], item.heading) for item in found.items] == [
        ("a", "Honey bees tell", "Finding food"),
        ("b", "Honey bees tell", "Finding food"),
    ]
    assert all(re.fullmatch(r"answered node \d+ in step \d", item.why) for item in found.items)
    assert [item.text for item in found.items] == [TEXT[item.span.start : item.span.end] for item in found.items]
    assert {(step.agent, step.doc_id) for step in found.steps} == {(0, "a"), (1, "b")}
    more = read(open_tools(sources, seek("Steel", "Honey bees tell", "Workers")), make_document("a"))
    steps = [item.why.rpartition(" ")[2] for item in more.items]
    assert len(steps) == 3
    assert len(set(steps)) == 2
    assert len(set(steps[:2])) == 2, "each step gives its best in turn"
    for step in set(steps):
        scores = [item.score for item, own in zip(more.items, steps, strict=True) if own == step]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_without_a_model_similarity_routes_within_the_same_limits(sources: Sources) -> None:
    found = read(open_tools(sources, hits=1), make_document("a"))
    assert found.stop == "done"
    assert {item.heading for item in found.items} >= {"Finding food", "Winter"}
    assert "Steel" not in {item.heading for item in found.items}
    assert all(item.score >= LEAST_COSINE for item in found.items)
    fewer = read(open_tools(sources, hits=1, max_expand=1), make_document("a"))
    assert (len(fewer.steps), fewer.stop) == (2, "max_steps")
    assert len(read(open_tools(sources, hits=1, expand=False), make_document("a")).steps) == 1


@pytest.mark.slow
def test_if_the_router_chooses_nothing_the_hits_are_the_evidence_unless_the_settings_say_nothing(
    sources: Sources,
) -> None:
    document = make_document("a")
    tools = open_tools(sources, lambda _request: "[REFUSE]", hits=2)
    (question,) = list_questions(tools, make_task(sources, document), ((0,),))
    hits = merge_spans([(span.start, span.end) for span in question.find_closest_segments(0, 2)])
    refused = read(tools, document)
    assert sorted((item.span.start, item.span.end) for item in refused.items) == hits
    assert (refused.stop, {step.action for step in refused.steps}) == ("done", {"hits: refuse"})
    without_router = read(open_tools(sources, seek("Honey"), hits=2, router=False, all_refused="nothing"), document)
    assert (without_router.items, without_router.steps) == (refused.items, ())
    nothing = read(open_tools(sources, lambda _request: "[REFUSE]", all_refused="nothing"), document)
    assert (nothing.items, nothing.stop) == ((), "empty")
    assert read(tools).stop == "empty"


def test_without_structure_no_heading_is_seen(sources: Sources) -> None:
    found = read(open_tools(sources, structure=False), make_document("a"))
    assert {item.heading for item in found.items} == {""}
    assert all("==" not in step.shown for step in found.steps)


def test_each_document_has_its_own_share_of_the_allowance(sources: Sources) -> None:
    tools = open_tools(sources, lambda _request: "[EXPAND] 0", hits=1, calls=3)
    found = read(tools, *(make_document(doc_id) for doc_id in "abcd"))
    assert [step.doc_id for step in found.steps if step.reply] == ["a", "b", "c"]
    assert found.stop == "budget"
    assert isinstance(tools.model, Scripted)
    assert len(tools.model.requests) == 3


class Late(Scripted):
    """Replies after a moment that a seed draws."""

    def __init__(self, say: Callable[[Request], Said], seed: int) -> None:
        super().__init__(say)
        self.chance = Random(seed)

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        await asyncio.sleep(self.chance.random() / 50)
        async for reply in super().complete(requests):
            yield reply


@pytest.mark.slow
def test_the_order_of_replies_changes_nothing(sources: Sources) -> None:
    tools = open_tools(sources, seek("Honey", "Workers", "Steel"))
    documents = [make_document(doc_id) for doc_id in "abc"]
    found = [
        read(replace(tools, model=Late(seek("Honey", "Workers", "Steel"), seed)), *documents) for seed in (1, 2, 3)
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("segmented", [120, 333])
def test_text_beyond_the_last_segment_is_no_evidence_and_citations_are_valid(sources: Sources, segmented: int) -> None:
    document = make_document("a", segmented)
    for say in (None, seek("Honey", "Workers", "They", "A colony")):
        found = read(open_tools(sources, say), document)
        assert found.items
        assert all(item.span.start < segmented for item in found.items)
    task = make_task(sources, document)
    reader = Rdr2(open_tools(sources))
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, ((0,),)))))
    cited = [citation for sentence in answer.sentences for citation in sentence.citations]
    assert cited
    assert set(cited) <= {segment.id for segment in document.segments}


class Elsewhere(Scripted):
    """Has its replies made by another program, which has made none yet."""

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        self.requests += requests
        raise Waits("later")
        yield


def test_the_first_requests_of_all_documents_wait_for_another_program_together(sources: Sources) -> None:
    model = Elsewhere(lambda _request: "")
    tools = replace(open_tools(sources, lambda _request: ""), model=model)
    with pytest.raises(Waits):
        read(tools, *(make_document(doc_id) for doc_id in "abc"))
    shown = [re.findall('<document id="(.)">', request.messages[1][1]) for request in model.requests]
    assert {doc_id for one in shown for doc_id in one} == set("abc")
    assert len(shown) > 3
