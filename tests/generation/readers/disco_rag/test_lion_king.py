"""The paper's case (Disco-RAG, figure 5) in our own words: when did The Lion King open on Broadway?"""

import asyncio
import json

import pytest

from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import RhetoricalSettings
from keystone.generation.types import Answer, EvidenceSet, Request
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.models.scripted import Said, Scripted
from tests.support.structures.rhetoric import write_tree

QUESTION = "When did The Lion King open on Broadway?"
CORPUS = {
    "premiere": "The first Broadway audience saw The Lion King in previews at the New Amsterdam Theatre on 15 October "
    "1997. The official opening of The Lion King on Broadway followed on 13 November 1997.",
    "move": "The Broadway production of The Lion King changed houses later. On 13 June 2006 it moved to the Minskoff "
    "Theatre, where the musical still plays.",
}
EDGE = "CHUNK[1] -> CHUNK[2]: SEQUENCE"
PLAN = "Tell the dates of CHUNK[1] first, previews before opening, then the later move of CHUNK[2]."
ANSWER = [
    ("The Lion King began with previews on Broadway on 15 October 1997 and opened on 13 November 1997.", [0]),
    ("On 13 June 2006 the Broadway production of The Lion King moved to the Minskoff Theatre.", [1]),
]


def say(request: Request) -> Said:
    if request.purpose == "rst_tree":
        shown = request.messages[1][1]
        return write_tree(next(text for text in CORPUS.values() if text in shown))
    if request.purpose == "rhetorical_graph":
        return f"{EDGE}\nCHUNK[2] -> CHUNK[1]: UNRELATED"
    if request.purpose == "rhetorical_plan":
        return f"PLAN: {PLAN}"
    return json.dumps({"answer": [{"text": text, "citations": numbers} for text, numbers in ANSWER]})


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("lion_king")
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": id, "title": "", "text": text}) + "\n" for id, text in CORPUS.items()))
    index = build_index(corpus, folder / "index", BuildSettings())[0]
    return Sources(index, open_store(index))


def answer(sources: Sources, model: Scripted | None) -> tuple[EvidenceSet, Answer]:
    rows = sources.store.rows(list(CORPUS)).tolist()
    task = Task(
        Topic("1", QUESTION), read_context(sources, rows, [Query("1", "1#1", QUESTION, QUESTION, QUESTION)]), 60, list
    )
    settings = AnswerSettings("retrieval" if model else "rules", window=8192)
    reader = open_reader(Tools(sources, model, settings, RhetoricalSettings(name="disco_rag")))
    evidence = asyncio.run(reader.gather(task, (tuple(rows),)))
    return evidence, asyncio.run(reader.answer(task, evidence))


def test_a_sequence_reaches_the_plan_and_the_writer_and_the_answer_cites_both_documents(sources: Sources) -> None:
    model = Scripted(say)
    evidence, answered = answer(sources, model)
    purposes = [request.purpose for request in model.requests]
    assert sorted(purposes[:3]) == ["rhetorical_graph", "rst_tree", "rst_tree"]
    assert purposes[3:] == ["rhetorical_plan", "answer"]
    planned, written = (request.messages[1][1] for request in model.requests[3:])
    assert EDGE in planned
    assert EDGE in written
    assert PLAN in written
    assert "SEQUENCE(N:1, N:2)" in planned
    assert "SEQUENCE(" not in written
    assert all(f'CHUNK[{n + 1}] is the part of document {n} that begins "The ' in written for n in (0, 1))
    assert [sentence.citations for sentence in answered.sentences] == [("premiere#w0_0",), ("move#w0_0",)]
    assert (evidence.stop, evidence.by, answered.fallbacks) == ("done", "scripted", ())


def test_rules_find_the_same_sequence_by_the_years(sources: Sources) -> None:
    evidence, answered = answer(sources, None)
    assert EDGE in evidence.notes[-1].text
    assert (evidence.stop, evidence.by, evidence.notes[-1].kind) == ("done", "rules", "plan")
    assert {citation.split("#")[0] for sentence in answered.sentences for citation in sentence.citations} == set(CORPUS)
