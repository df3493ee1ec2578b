"""The check of sentences against their segments: no verdict adds a number, an unknown source or a citation too many."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.cite import cite_segments, list_segments
from keystone.generation.answers.support import (
    GROUP_SENTENCES,
    Verdict,
    check_by_model,
    check_by_rules,
    complete_citations,
    drop_fillers,
    find_sources,
    list_unchecked,
    make_claims,
    read_verdicts,
)
from keystone.generation.context.topic import TopicContext
from keystone.generation.rules.support import rate_support, says_nothing, tells_gap
from keystone.generation.rules.words import find_names, find_numbers, make_weigher
from keystone.generation.types import MOST_CITATIONS, Answer, Failure, Reply, Request, Sentence, SupportCheck
from keystone.indexing.errors import Unusable
from keystone.retrieval.types import Query
from tests.support.models.answer_replies import JSON
from tests.support.models.scripted import Said, Scripted
from tests.support.structures.topic_segments import SEGMENTS, make_document, toward

DANCE = Sentence("Bees dance for food.", ("bees#0",))
EGGS = Sentence("A queen lays 2,000 eggs.", ("bees#1",))
WINTER = Sentence("Hornets winter in Florida.", ("bees#1",))
DRAFT = Answer("1", (DANCE, EGGS, WINTER))
VECTORS = toward(0, 2, 1)
CLAIMS = make_claims(DRAFT, VECTORS, SEGMENTS)
SOURCES = find_sources(CLAIMS, SEGMENTS)


def report(*items: tuple[Any, Any, Any, Any]) -> str:
    keys = ("id", "support", "citations", "text")
    return json.dumps({"sentences": [dict(zip(keys, item, strict=True)) for item in items]})


def place(segment_id: str) -> int:
    return SOURCES.index(SEGMENTS.ids.index(segment_id))


def check(reply: Said) -> tuple[Answer, list[str]]:
    found, fallbacks = asyncio.run(check_by_model(Scripted(lambda _: reply), DRAFT, VECTORS, SEGMENTS, 8000))
    return found, [fallback.reason for fallback in fallbacks]


def test_a_model_cites_anew_rewrites_and_drops() -> None:
    reply = report(
        (0, "full", [place("bees#0")], ""),
        (1, "none", [place("bees#2")], ""),
        (2, "partial", [place("bees#1")], "Drones leave in autumn."),
    )
    found, fallbacks = check(reply)
    assert found.sentences == (
        DANCE,
        Sentence(EGGS.text, ("bees#2",)),
        Sentence("Drones leave in autumn.", ("bees#1",)),
    )
    assert [(one.support, one.action) for one in found.checks] == [
        ("full", "kept"),
        ("none", "cited anew"),
        ("partial", "rewritten"),
    ]
    assert [one.text for one in found.checks] == [sentence.text for sentence in DRAFT.sentences]
    assert fallbacks == []


@pytest.mark.parametrize(
    ("item", "kept"),
    [
        pytest.param(("none", [], "Hornets winter somewhere."), None, id="no source: dropped, whatever the text"),
        pytest.param(("none", [99, "b", True], ""), None, id="unknown sources are none"),
        pytest.param(("none", [0], "They winter with 7 queens."), None, id="a number that no source has: dropped"),
        pytest.param(("partial", [0], "They dance in Paris."), WINTER.text, id="a name that no source has: refused"),
        pytest.param(("partial", [0], "Bees avoid Florida."), "Bees avoid Florida.",
                     id="a name of the old text may stay"),
        pytest.param(("partial", [0], "Drones leave in autumn, " + "all of them " * 4), WINTER.text,
                     id="many more words: refused"),
        pytest.param(("partial", [0], "Buy our honey at the market today."), WINTER.text,
                     id="terms that no source has: refused"),
        pytest.param(("none", [0], "Buy our honey at the market today."), None,
                     id="such terms without support: dropped"),
        pytest.param(("partial", [0], " \n"), WINTER.text, id="a blank text changes nothing"),
    ],
)  # fmt: skip
def test_a_new_text_holds_nothing_that_its_sources_lack(item: tuple[Any, Any, Any], kept: str | None) -> None:
    reply = Reply(report((0, "full", [0], ""), (1, "full", [0], ""), (2, *item)))
    verdict = read_verdicts(reply, CLAIMS, SOURCES, SEGMENTS)[2]
    assert (verdict.text if verdict.cited else None) == kept


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(report((0, "full", [0], "")), id="sentences are missing"),
        pytest.param(report(*((n, "full", [0], "") for n in (0, 1, 1))), id="an id comes twice"),
        pytest.param(report(*((n, "full", [0], "") for n in (0, 1, 3))), id="an id is unknown"),
        pytest.param(report(*((n, "yes", [0], "") for n in range(3))), id="a level is unknown"),
        pytest.param(report(*((n, ["full"], [0], "") for n in range(3))), id="a level is a list"),
        pytest.param(report(*((n, "full", 0, "") for n in range(3))), id="citations are no list"),
        pytest.param(report(*((n, "full", [0], None) for n in range(3))), id="a text is null"),
        pytest.param("{}", id="no list"),
    ],
)
def test_an_incomplete_reply_is_refused_and_rules_check(reply: str) -> None:
    with pytest.raises(Unusable):
        read_verdicts(Reply(reply), CLAIMS, SOURCES, SEGMENTS)
    found, reasons = check(reply)
    assert found == check_by_rules(DRAFT, VECTORS, SEGMENTS)
    assert [reason.endswith(": rules checked the sentences") for reason in reasons] == [True]


FLOOD = "The river rose by two metres in the night, and the town of Ulm was flooded after the rain."
FOREIGN = {
    "German": "Der Fluss stieg in der Nacht um zwei Meter, und die Stadt Ulm wurde nach dem Regen überflutet.",
    "Russian": "Река поднялась на два метра за ночь, и город был затоплен.",
    "Chinese": "河水一夜之间上涨了两米，城市被淹。",
}


@pytest.mark.parametrize("language", FOREIGN)
@pytest.mark.parametrize("turned", [False, True], ids=["foreign documents", "foreign sentences"])
def test_a_citation_in_another_language_is_kept_unchecked(language: str, turned: bool) -> None:
    """A document in the sentence's language says the same thing, so that a check by words would move the citation."""
    said, source = (FOREIGN[language], FLOOD) if turned else (FLOOD, FOREIGN[language])
    documents = {0: make_document("other", [source]), 1: make_document("own", [said])}
    every = np.eye(2, dtype=np.float32)
    segments = list_segments(
        TopicContext(documents, {0: every[:1], 1: every[1:]}, [Query("1", "1-1", "Q?", "Q", "Q")], every[:1])
    )
    draft = Answer("1", (Sentence(said, ("other#0",)), Sentence(said, ("own#0",))))
    found = check_by_rules(draft, every[[1, 1]], segments)
    assert found.sentences == draft.sentences
    assert [(one.support, one.action) for one in found.checks] == [("unchecked", "kept"), ("full", "kept")]
    assert list_unchecked(draft, segments).checks == found.checks[:1]
    cited = replace(draft, sentences=(Sentence(said, ("other",)),))
    answer, far = cite_segments(cited, every[1:], segments, "closest")
    assert (answer.sentences, far) == (draft.sentences[:1], [])


@pytest.mark.parametrize("language", FOREIGN)
def test_a_new_text_may_say_what_a_source_in_another_language_says(language: str) -> None:
    every = np.eye(1, dtype=np.float32)
    documents = {0: make_document("other", [FOREIGN[language]])}
    segments = list_segments(TopicContext(documents, {0: every}, [Query("1", "1-1", "Q?", "Q", "Q")], every))
    claims = make_claims(
        Answer("1", (Sentence("Nobody in this valley had expected so wet a season.", ("other#0",)),)), every, segments
    )
    told = "The river rose by two metres in the night, and after the rain the town was flooded."
    (verdict,) = read_verdicts(Reply(report((0, "none", [0], told))), claims, [0], segments)
    assert (verdict.text, verdict.cited) == (told, (0,))


def test_rules_exchange_segments_and_drop_what_nothing_supports() -> None:
    found = check_by_rules(DRAFT, VECTORS, SEGMENTS)
    assert found.sentences == (DANCE, Sentence(EGGS.text, ("bees#2",)))
    assert [(one.support, one.action) for one in found.checks] == [
        ("full", "kept"),
        ("none", "cited anew"),
        ("none", "dropped"),
    ]


def test_rules_move_and_drop_no_citation_of_a_checked_quote() -> None:
    found = check_by_rules(DRAFT, VECTORS, SEGMENTS, quoted=True)
    assert [one.citations[0] for one in found.sentences] == [one.citations[0] for one in DRAFT.sentences]
    assert [one.action for one in found.checks].count("dropped") == 0


@pytest.mark.parametrize("citations", [(), ("bees#0",)])
def test_a_sentence_that_only_tells_a_gap_stays_whatever_the_model_says(citations: tuple[str, ...]) -> None:
    gap = Sentence("The sources do not say why bees dance.", citations)
    model = Scripted(lambda _: report((0, "none", [], "Bees dance for honey.")))
    found, _ = asyncio.run(check_by_model(model, Answer("1", (gap,)), toward(0), SEGMENTS, 8000, most_words=99))
    assert (found.sentences, found.checks) == ((gap,), ())
    assert check_by_rules(Answer("1", (gap,)), toward(0), SEGMENTS).sentences == (gap,)


@pytest.mark.parametrize(
    ("sentence", "gap"),
    [
        ("The reports do not say how it ended.", True),
        ("The reports mention neither a price nor a date.", True),
        ("No source gives a date.", True),
        ("The ship sank in 1912, the reports do not say how it ended.", False),
        ("The documents do not name a price, so run the repair now.", False),
        ("The police report mentions no casualties.", False),
        ("Saved reports do not include archived fields.", False),
        ("The police reports show no sign of forced entry.", False),
        ("The retrieved documents say nothing about the cost.", True),
        ("The sources do not show how many died.", True),
        ("No source reports how many died.", True),
        ("The reports do not show a fault.", False),
        ("The documents show no sign of forced entry.", False),
    ],
)
def test_a_sentence_tells_a_gap_if_it_says_nothing_else(sentence: str, gap: bool) -> None:
    assert tells_gap(sentence) == gap


def test_new_texts_are_refused_that_the_answer_has_no_room_for() -> None:
    longer, longest = "Drones leave in the autumn.", "Bees dance for food, and bees dance."

    def check_within(words: int) -> list[str]:
        reply = report((0, "partial", [place("bees#0")], longest), (1, "full", [1], ""), (2, "partial", [1], longer))
        model = Scripted(lambda _: reply)
        found, _ = asyncio.run(check_by_model(model, DRAFT, VECTORS, SEGMENTS, 8000, most_words=words))
        return [sentence.text for sentence in found.sentences]

    before = len(" ".join(sentence.text for sentence in DRAFT.sentences).split())
    assert check_within(before + 4) == [longest, EGGS.text, longer]
    assert check_within(before + 3) == [DANCE.text, EGGS.text, longer]
    assert check_within(0) == [sentence.text for sentence in DRAFT.sentences]


@pytest.mark.parametrize(
    ("text", "cited", "full"),
    [
        pytest.param("A queen lays 2,000 eggs.", ["bees#0"], ["bees#0", "bees#2"], id="a number"),
        pytest.param("A queen lays 2,000 eggs.", ["bees#2"], ["bees#2"], id="nothing is missing"),
        pytest.param("The nest has Soldiers.", ["bees#0"], ["bees#0"], id="only another document has the name"),
        pytest.param("The nest has Soldiers.", ["ants#0"], ["ants#0", "ants#1"], id="a name"),
        pytest.param("A queen of the Wax lays 2,000 eggs.", ["bees#0"], ["bees#0", "bees#2", "bees#3"], id="two"),
        pytest.param(
            "A queen of 2,000.", ["bees#0", "bees#1", "bees#3"], ["bees#0", "bees#1", "bees#3"], id="no more citations"
        ),
        pytest.param("A queen lays 2,000 eggs.", [], [], id="a sentence without support"),
    ],
)
def test_segments_are_cited_for_names_and_numbers_that_are_missing(
    text: str, cited: list[str], full: list[str]
) -> None:
    (claim,) = make_claims(Answer("1", (Sentence(text, tuple(cited)),)), toward(0), SEGMENTS)
    found = complete_citations(text, Verdict("partial", claim.cited, text), claim, SEGMENTS)
    assert {SEGMENTS.ids[one] for one in found} == set(full)


def test_a_long_answer_is_checked_in_groups_with_all_cited_segments() -> None:
    def reply(request: Request) -> str:
        listed = json.loads(request.messages[1][1].partition("at present:\n")[2].partition("\n\nReport")[0])
        return report(*((one["id"], "full", one["citations"], "") for one in listed))

    model, many = Scripted(reply), Answer("1", (DANCE,) * (2 * GROUP_SENTENCES + 1))
    found, _ = asyncio.run(check_by_model(model, many, toward(*[0] * len(many.sentences)), SEGMENTS, 8000))
    assert (len(model.requests), found.sentences) == (3, many.sentences)
    assert {check.action for check in found.checks} == {"kept"}


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("The reports name no price, and they cannot show who paid.", True),
        ("On prices, these reports say nothing direct.", True),
        ("The reports name no price, but Ulm paid for the honey.", False),
        ("The reports name no price of the 9,000 jars.", False),
        ("Doctors report no deaths, and people took it in Ulm.", False),
        ("Wasps buy no honey.", False),
    ],
)
def test_without_a_source_a_sentence_stays_if_gaps_are_told_and_it_tells_one(text: str, gap: bool, gaps: bool) -> None:
    model, answer = Scripted(lambda _: report((0, "full", [], ""))), Answer("1", (Sentence(text, ()),))
    found, _ = asyncio.run(check_by_model(model, answer, toward(0), SEGMENTS, 8000, most_words=99, gaps=gaps))
    stays = gap and gaps
    assert found.sentences == (answer.sentences if stays else ())
    assert [(one.support, one.action) for one in found.checks] == [("full", "kept" if stays else "dropped")]


@pytest.mark.parametrize(
    ("item", "cited"),
    [
        pytest.param(("full", [], ""), WINTER.citations, id="no fact that needs a source"),
        pytest.param(("full", [99], ""), None, id="a source that was not shown"),
        pytest.param(("full", [], "Drones leave."), None, id="a new text without a source"),
    ],
)
def test_full_support_without_a_source_keeps_the_citations(item: tuple[Any, Any, Any], cited: Any) -> None:
    reply = report((0, "full", [0], ""), (1, "full", [0], ""), (2, *item))
    found = {one.text: one.citations for one in check(reply)[0].sentences}
    assert found.get(WINTER.text) == cited


def test_fillers_are_dropped_and_recorded() -> None:
    filler = Sentence("The references say little about wasps.", ("bees",))
    found = drop_fillers(Answer("1", (DANCE, filler)))
    assert (found.sentences, found.checks) == ((DANCE,), (SupportCheck(filler.text, "none", "dropped"),))


@pytest.mark.parametrize(
    ("sentence", "nothing"),
    [
        ("The references say little about when threads fit.", True),
        ("The documents do not explain why this is so.", True),
        ("The provided sources don't mention a price.", True),
        ("None of the documents discusses costs.", True),
        ("There is nothing in the passages about rain.", True),
        ("No source gives a date.", True),
        ("This is not described in the documents.", True),
        ("The sources are silent on taxes.", True),
        ("The documents do not name a price, but the market sets one.", False),
        ("Although the sources say little, bees dance.", False),
        ("The XML documents do not support nested comments.", False),
        ("Weak references do not keep an object alive.", False),
        ("A weak reference does not hold its object.", False),
        ("The user variable is not available in the template context.", False),
        ("A template context does not contain the request.", False),
        ("The context does not contain the request.", False),
        ("The context does not contain any information about requests.", True),
        ("Its price is not explicitly given in the provided context.", True),
        ("The context documents provided do not address the reasons.", True),
        ("The context provided does not mention a price.", True),
        ("The text provided does not specify a price.", True),
        ("The text above contains no price.", True),
        ("The context does not give the date.", True),
        ("Its price is not given in the context provided.", True),
        ("Documents 1 and 3 do not mention it.", True),
        ("Documents [1], [2], and [3] do not contain any information on it.", True),
        ("Document 12 has no signature.", False),
        ("The context given to a template does not contain the request.", False),
        ("No document is loaded until it is needed.", False),
        ("Bees dance.", False),
    ],
)
def test_a_sentence_says_nothing_if_it_only_says_that_sources_lack_something(sentence: str, nothing: bool) -> None:
    assert says_nothing(sentence) == nothing


def test_numbers_and_names_are_found() -> None:
    assert find_numbers("In 1,000 of 20 cases, utf8 fails.") == {"1000", "20", "8"}
    assert find_names("Most Bees of Rome use SharedMemory, run_all and utf8.") == {
        "bee",
        "rome",
        "sharedmemory",
        "run_all",
        "utf8",
    }


@pytest.mark.parametrize(
    ("sentence", "source", "support"),
    [
        pytest.param("A queen lays 2000 eggs.", "Each queen lays 2,000 eggs a day.", "full", id="all of it"),
        pytest.param("A queen lays 3,000 eggs.", "Each queen lays 2,000 eggs a day.", "partial", id="another number"),
        pytest.param("The queen of Rome lays eggs.", "The queen lays eggs.", "partial", id="a name is missing"),
        pytest.param("Volcanoes erupt in winter.", "The queen lays eggs.", "none", id="nothing of it"),
        pytest.param("Volcanoes erupt in winter.", "", "none", id="no source"),
        pytest.param(
            "The queen of Schro\u0308dinger lays eggs.", "Schr\u00f6dinger's queen lays eggs.", "full", id="spellings"
        ),
    ],
)
def test_support_is_rated(sentence: str, source: str, support: str) -> None:
    assert rate_support(sentence, source, make_weigher([])) == support


ITEM = st.fixed_dictionaries(
    {
        "id": st.integers(-1, 3) | JSON,
        "support": st.sampled_from(["full", "partial", "none"]) | JSON,
        "citations": st.lists(st.integers(-1, 9), max_size=6) | JSON,
        "text": st.sampled_from(["", "Bees dance.", "In 1999 bees dance.", "\ud800\x00"]) | JSON,
    }
)
WHOLE = st.lists(ITEM, min_size=3, max_size=3).map(lambda items: [{**one, "id": n} for n, one in enumerate(items)])
SAID = (WHOLE | st.lists(ITEM, max_size=5)).map(lambda items: json.dumps({"sentences": items})) | JSON.map(json.dumps)


@pytest.mark.slow
@given(SAID | st.just(Failure("no endpoint answers")) | st.builds(Reply, SAID, st.sampled_from(["stop", "length"])))
def test_no_reply_breaks_a_check(reply: Said) -> None:
    found, _ = check(reply)
    assert len(found.checks) == len(DRAFT.sentences)
    assert len(found.sentences) == sum(one.action != "dropped" for one in found.checks)
    for sentence in found.sentences:
        assert 0 < len(sentence.citations) <= MOST_CITATIONS
        assert set(sentence.citations) <= set(SEGMENTS.ids)
        assert "1999" not in sentence.text
