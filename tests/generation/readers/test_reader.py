"""Readers: their table, and the promises that each one keeps with any model."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
from pydantic import TypeAdapter

from keystone.generation.answers.support import SupportMethod
from keystone.generation.context.topic import Sources, read_context
from keystone.generation.prompts.answers import MOST_MISSING_WORDS
from keystone.generation.readers.reader import (
    AnswerSettings,
    Task,
    Tools,
    choose_hits,
    list_rows,
    open_reader,
)
from keystone.generation.readers.settings import READERS, AnswerMethod, ReaderSettings
from keystone.generation.readers.structure_reader import Question, StructureReader
from keystone.generation.readers.write import WRITERS
from keystone.generation.rules.answer import MISSING
from keystone.generation.types import Answer, EvidenceSet, Request, Stop
from keystone.indexing.index import Index
from keystone.indexing.types import Span
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.indexes.small_corpus import CORPUS
from tests.support.models.scripted import Said, Scripted, by_purpose

FILLER = "The sources say little about bees in the kitchen."
SETTINGS: TypeAdapter[ReaderSettings] = TypeAdapter(ReaderSettings)


def task_over(sources: Sources, rows: list[int]) -> Task:
    asked = ("How do bees find flowers?", "Who says words about sugar in the kitchen?")
    queries = [Query("1", f"1#{number}", text, text, text) for number, text in enumerate(asked)]
    return Task(Topic("1", " ".join(asked)), read_context(sources, rows, queries), 60, list)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_the_table_answers_from_its_evidence_by_rules(name: str, index: Index) -> None:
    sources = Sources(index, open_store(index))
    reader = open_reader(Tools(sources, None, AnswerSettings("rules"), SETTINGS.validate_python({"name": name})))
    task = task_over(sources, list(range(len(sources.store))))
    found = asyncio.run(reader.gather(task, (tuple(task.context.documents),)))
    assert (found.stop, found.reader, found.by) == ("done", name, "rules")
    answer = asyncio.run(reader.answer(task, found))
    texts = [" ".join(item.text.split()) for item in found.items]
    assert answer.sentences
    said = [re.sub(r"^[^?:]*[?:] ", "", sentence.text) for sentence in answer.sentences]  # without a question's line
    assert all(any(sentence in text for text in texts) for sentence in said)
    assert ("twin-a#w0_0", "twin-b#w0_0") in [sentence.citations for sentence in answer.sentences]
    first = answer.sentences[0].text
    fewer = EvidenceSet(tuple(item for item, text in zip(found.items, texts, strict=True) if said[0] not in text))
    assert first not in [sentence.text for sentence in asyncio.run(reader.answer(task, fewer)).sentences]
    assert asyncio.run(reader.gather(task_over(sources, []), ((),))).stop == "empty"


@pytest.mark.parametrize("name", ["rdr2", "discorag", "disco_rag", "graphreader"])
def test_text_beyond_the_last_segment_is_no_evidence(name: str, index: Index) -> None:
    sources = Sources(index, open_store(index))
    task = task_over(sources, list(range(len(sources.store))))
    ends = {row: Span(one.id, 0, len(one.text) // 3) for row, one in task.context.documents.items()}
    documents = {
        row: replace(one, segments=(replace(one.segments[0], span=ends[row]),))
        for row, one in task.context.documents.items()
    }
    segments = {row: own[:1] for row, own in task.context.segments.items()}
    task = replace(task, context=replace(task.context, documents=documents, segments=segments))
    reader = open_reader(Tools(sources, None, AnswerSettings("rules"), SETTINGS.validate_python({"name": name})))
    found = asyncio.run(reader.gather(task, (tuple(documents),)))
    assert found.items
    assert all(any(span.overlaps(item.span) for span in ends.values()) for item in found.items)


@pytest.mark.parametrize(("stop", "expected"), [("done", "empty"), ("budget", "budget")])
def test_a_reader_whose_evidence_cannot_be_cited_has_found_nothing(stop: Stop, expected: str, index: Index) -> None:
    async def read(_tools: Tools, question: Question) -> EvidenceSet:
        document = question.documents[0]
        return EvidenceSet((question.quote(Span(document.id, 4, 9)),), stop=stop)

    sources = Sources(index, open_store(index))
    task = task_over(sources, [0])
    (document,) = task.context.documents.values()
    document = replace(document, segments=(replace(document.segments[0], span=Span(document.id, 0, 3)),))
    task = replace(task, context=replace(task.context, documents={0: document}))
    tools = Tools(sources, None, AnswerSettings("rules"), SETTINGS.validate_python({"name": "rdr2"}))
    found = asyncio.run(StructureReader(read, tools).gather(task, ((0,),)))
    assert (found.items, found.stop) == ((), expected)


@pytest.mark.parametrize("method", ["retrieval", "whole", "answers", "claims"])
def test_if_the_model_gives_nothing_rules_answer_and_that_is_recorded(method: AnswerMethod, index: Index) -> None:
    sources = Sources(index, open_store(index))
    task = task_over(sources, [0, 1, 2, 3])
    hits = choose_hits(AnswerSettings(method), [0, 1, 2], [[0, 1], [2, 3]])
    by_rules = open_reader(Tools(sources, None, AnswerSettings("rules")))
    wanted = asyncio.run(by_rules.answer(task, asyncio.run(by_rules.gather(task, hits))))
    silent = Scripted(lambda _request: "I would rather not.")
    reader = open_reader(Tools(sources, silent, AnswerSettings(method, window=4096)))
    found = asyncio.run(reader.gather(task, hits))
    assert {item.query_id for item in found.items} <= {query.id for query in task.context.queries}
    answer = asyncio.run(reader.answer(task, found))
    assert answer.sentences == wanted.sentences
    assert (answer.fallbacks[-1].step, answer.fallbacks[-1].reason) == ("answer", "its sentences are chosen by rules")


QUOTED = "They tell each other where flowers are by dancing."


def say_claims(request: Request) -> Said:
    """Claim a sentence of the document on bees in answer to each query, and write it down as it is."""
    if request.purpose == "claims":
        (number,) = re.findall(r'<document id="(\d+)">\nBees\n', request.messages[1][1]) or [0]
        return json.dumps({"claims": [{"text": "Bees dance.", "document": int(number), "quote": QUOTED}]})
    if request.purpose == "write_claims":
        return json.dumps({"sentences": [{"claims": [0], "text": "Bees are dancing."}]})
    return json.dumps({"answer": [{"text": "Bees live in colonies.", "citations": [0]}]})


def read_by(say: Callable[[Request], Said], index: Index, rows: list[list[int]]) -> tuple[Answer, Scripted]:
    """Answer a task by claims, from these documents of its two queries."""
    sources, model = Sources(index, open_store(index)), Scripted(say)
    settings = AnswerSettings("claims", window=4096)
    reader = open_reader(Tools(sources, model, settings))
    task = task_over(sources, sorted({row for own in rows for row in own}))
    hits = choose_hits(settings, [], rows)
    return asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, hits)))), model


def test_an_answer_from_claims_cites_the_segments_of_its_quotes(index: Index) -> None:
    store = open_store(index)
    bees, wasps = (int(row) for row in store.rows(["bees", "wasps"]))
    answer, model = read_by(say_claims, index, [[wasps, bees], [wasps]])
    (document,) = store.get([bees])
    at = document.text.index(QUOTED)
    holding = [one.id for one in document.segments if one.span.start <= at and at + len(QUOTED) <= one.span.end]
    assert [request.purpose for request in model.requests] == ["claims", "claims", "claims", "write_claims"]
    assert [(sentence.text, sentence.citations) for sentence in answer.sentences] == [
        ("Bees are dancing.", (holding[0],))
    ]
    assert [fallback.reason[:24] for fallback in answer.fallbacks] == ["query 2 has no claims: n"]


def test_without_any_claim_the_answer_is_written_from_all_documents(index: Index) -> None:
    bees, wasps = (int(row) for row in open_store(index).rows(["bees", "wasps"]))
    answer, model = read_by(
        lambda request: '{"claims": []}' if request.purpose == "claims" else say_claims(request),
        index,
        [[bees, wasps], [wasps]],
    )
    assert [request.purpose for request in model.requests] == ["claims", "claims", "answer"]
    assert model.requests[-1].messages[1][1].count("<document id=") == 2, "each document is shown once"
    assert [sentence.text for sentence in answer.sentences] == ["Bees live in colonies."]
    assert answer.sentences[0].citations[0].startswith("bees#")
    assert [fallback.reason for fallback in answer.fallbacks] == [
        "there is no claim: the answer is written from all documents"
    ]


def test_without_any_claim_the_notes_of_disco_rag_name_no_document_of_another_prompt(index: Index) -> None:
    sources = Sources(index, open_store(index))
    model = Scripted(lambda request: '{"claims": []}' if request.purpose == "claims" else say_claims(request))
    settings = SETTINGS.validate_python({"name": "disco_rag"})
    tools, task = (
        Tools(sources, model, AnswerSettings("claims", window=4096), settings),
        task_over(sources, [0, 1, 2, 3]),
    )
    found = asyncio.run(open_reader(replace(tools, model=None)).gather(task, ((0, 1), (2, 3))))
    asyncio.run(open_reader(tools).answer(task, found))
    assert "is the part of document 0 that begins" in model.requests[0].messages[1][1]
    assert model.requests[-1].purpose == "answer"
    assert "CHUNK[1] is the part that begins" in model.requests[-1].messages[1][1]
    assert "is the part of document" not in model.requests[-1].messages[1][1]


@pytest.mark.parametrize("method", ["retrieval", "whole", "answers"])
@pytest.mark.parametrize("support", get_args(SupportMethod))
def test_sentences_are_checked_against_their_segments(
    method: AnswerMethod, support: SupportMethod, index: Index
) -> None:
    """The model cites a document that says one sentence, not the next one. The third says nothing, as `whole` asks."""
    sources = Sources(index, open_store(index))
    rows = sources.store.rows(["bees"]).tolist()
    said = [" ".join(CORPUS["bees"]).split(". ")[0] + ".", "Zebras of Nairobi paint 77 murals.", FILLER]
    sentences = [{"text": text, "citations": [0]} for text in said]
    gaps = [FILLER] if method == "whole" else []
    kept = {"none": said, "rules": [said[0], *gaps], "model": [said[0], "Zebras dance.", *gaps]}[support]
    checked = [
        {"id": 0, "support": "full", "citations": [0], "text": ""},
        {"id": 1, "support": "partial", "citations": [0], "text": "Zebras dance."},
        *({"id": 2, "support": "none", "citations": [], "text": ""} for _ in gaps),
    ]
    edited = [{"id": place, "text": text} for place, text in enumerate(said if support == "none" else said[:2])]
    model = Scripted(
        by_purpose(
            answer=[{"answer": sentences}],
            sub_answer=[{"answer": sentences}],
            edit=[{"sentences": edited}],
            support=[{"sentences": checked}],
        )
    )
    task = task_over(sources, rows)
    reader = open_reader(Tools(sources, model, AnswerSettings(method, window=4096, support=support, gaps=True)))
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, (tuple(rows),)))))
    assert sorted(sentence.text for sentence in answer.sentences) == sorted(kept)
    assert all(citation.startswith("bees#") for sentence in answer.sentences for citation in sentence.citations)
    dropped = {check.text for check in answer.checks if check.action == "dropped"}
    assert (
        dropped == {"none": set(), "rules": {*said[1:]}.difference(gaps), "model": {FILLER}.difference(gaps)}[support]
    )
    assert len(answer.checks) == (0 if support == "none" else 3 - len(gaps))


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        pytest.param("The documents do not name a price.", True, id="a gap"),
        pytest.param("**The documents do not name a price.**", True, id="a gap with marks"),
        pytest.param("**The documents do not name the 12 keepers.**", False, id="a number of its own"),
        pytest.param("Buy honey at the market.", False, id="something else"),
        pytest.param("The documents name no price, but honey is good.", False, id="a gap and something else"),
        *(
            pytest.param(f"The documents name no price, so see {own}.", False, id=own)
            for own in ("WWW.BEES.EXAMPLE", "http://bees", "bees.example/buy", "buy@bees.example")
        ),
        pytest.param(f"The documents name no price{' or age' * MOST_MISSING_WORDS}.", False, id="too long"),
        pytest.param("****", None, id="no word"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_an_answer_ends_with_what_the_documents_lack_and_with_nothing_else(
    missing: str, told: bool | None, index: Index
) -> None:
    sources = Sources(index, open_store(index))
    task = task_over(sources, sources.store.rows(["bees"]).tolist())
    said = " ".join(CORPUS["bees"]).split(". ")[0] + "."
    model = Scripted(by_purpose(answer=[{"answer": [{"text": said, "citations": [0]}], "missing": missing}]))
    reader = open_reader(Tools(sources, model, AnswerSettings("whole", window=4096, gaps=True)))
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, ((*task.context.documents,),)))))
    assert [one.text for one in answer.sentences] == [said, missing.strip("*")][: 2 if told else 1]
    assert [one.step for one in answer.fallbacks] == (["missing"] if told is False else [])


ENGLISH = "Honey bees live in colonies of many thousand workers, and they find the flowers by dancing for each other."
GERMAN = "Die Bienen leben mit vielen in einer Kolonie, und sie finden die Blumen durch einen Tanz, der nicht kurz ist."


@pytest.mark.parametrize(
    ("narrative", "language", "said", "told"),
    [
        pytest.param(
            "Where do the bees of a hive live, and how do they dance?", "", GERMAN, "German, expected English"
        ),
        pytest.param(GERMAN, "", ENGLISH, "English, expected German"),
        pytest.param(GERMAN, "English", GERMAN, "German, expected English"),
        pytest.param(
            "\u0643\u064a\u0641 \u064a\u0631\u0642\u0635 \u0627\u0644\u0646\u062d\u0644", "English", ENGLISH, ""
        ),
        pytest.param(GERMAN, "", GERMAN, ""),
        pytest.param(
            "\u6771\u4eac\u4e94\u8f2a",
            "",
            "\u871c\u8702\u306f\u82b1\u306e\u5834\u6240\u3092\u8e0a\u308b\u3002",
            "",
            id="letters of two languages",
        ),
        pytest.param("Bees?", "", GERMAN, "", id="a narrative without a sure language"),
        pytest.param(
            "Where do the bees of a hive live, and how do they dance?", "", "Bienen tanzen.", "", id="few words"
        ),
        pytest.param(ENGLISH, "English", "Ludwig van Beethoven.", "", id="names"),
        pytest.param(ENGLISH, "English", "No.", "", id="one word"),
    ],
)
def test_an_answer_in_another_language_is_told(
    narrative: str, language: str, said: str, told: str, index: Index
) -> None:
    sources = Sources(index, open_store(index))
    task = replace(task_over(sources, sources.store.rows(["bees"]).tolist()), topic=Topic("1", narrative))
    model = Scripted(by_purpose(answer=[{"answer": [{"text": said, "citations": [0]}]}]))
    reader = open_reader(Tools(sources, model, AnswerSettings("whole", window=4096, language=language)))
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, ((*task.context.documents,),)))))
    assert [one.text for one in answer.sentences] == [said]
    reasons = [one.reason for one in answer.fallbacks if one.step == "language"]
    assert reasons == ([f"the answer is in {told}"] if told else [])


@pytest.mark.parametrize("method", ["rules", "whole"])
@pytest.mark.parametrize(("gaps", "words", "ends"), [(True, 60, True), (True, 24, False), (False, 60, False)])
def test_answers_by_rules_end_with_what_the_documents_lack(
    method: AnswerMethod, gaps: bool, words: int, ends: bool, index: Index
) -> None:
    sources = Sources(index, open_store(index))
    texts = ("How do honey bees live in colonies?", "Who wrote Hamlet?")
    queries = [Query("1", f"1#{number}", text, text, text) for number, text in enumerate(texts)]
    context = read_context(sources, sources.store.rows(["bees"]).tolist(), queries)
    task = Task(Topic("1", " ".join(texts)), context, words, list)
    silent = Scripted(lambda _request: "I would rather not.")
    reader = open_reader(Tools(sources, silent, AnswerSettings(method, window=4096, gaps=gaps)))
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, ((*context.documents,),)))))
    *sentences, last = answer.sentences
    assert all(sentence.citations for sentence in sentences)
    assert (last.text, last.citations) == (f"{MISSING} Who wrote Hamlet.", ()) if ends else last.citations
    assert sum(len(sentence.text.split()) for sentence in answer.sentences) <= words
    assert answer.missing
    assert answer.list_texts() == [one.text for one in (sentences if ends else answer.sentences)]


def test_marks_are_taken_off_an_answer_once(index: Index) -> None:
    sources = Sources(index, open_store(index))
    task = task_over(sources, sources.store.rows(["bees"]).tolist())
    said = {"text": "**Bees** dance by `f(*a*)`:\n```c#\r\nx = 1\n```", "citations": [0]}
    reader = open_reader(
        Tools(
            sources, Scripted(by_purpose(answer=[{"answer": [said]}])), AnswerSettings("whole", window=4096, mend=True)
        )
    )
    answer = asyncio.run(reader.answer(task, asyncio.run(reader.gather(task, ((*task.context.documents,),)))))
    assert [one.text for one in answer.sentences] == ["Bees dance by f(*a*): x = 1"]


def test_tables_name_every_method() -> None:
    assert set(WRITERS) == set(get_args(AnswerMethod))
    assert {name: kind.name for name, kind in READERS.items()} == {name: name for name in READERS}


def test_hits_are_those_of_the_topic_or_of_each_query() -> None:
    selected, of_queries = [4, 5, 6], [[1, 2, 3], [2, 7]]
    assert choose_hits(AnswerSettings("retrieval", documents=2), selected, of_queries) == ((4, 5),)
    each = choose_hits(AnswerSettings("answers", documents=2), selected, of_queries)
    assert each == choose_hits(AnswerSettings("claims", documents=2), selected, of_queries) == ((1, 2), (2, 7))
    assert list_rows(each) == [1, 2, 7]
