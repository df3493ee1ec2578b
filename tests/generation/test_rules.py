"""Queries and answers by rules: the promises of the paper's steps, without a model."""

import re
from dataclasses import replace
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.topic import Sources, TopicContext
from keystone.generation.queries.compose import compose_queries, is_narrative_query, make_narrative_query
from keystone.generation.rules.answer import (
    CandidateSentences,
    choose_documents,
    choose_sentences,
    gather_sentences,
    quote_closest_segment,
)
from keystone.generation.rules.queries import (
    Facets,
    TopicBy,
    UnderstandingRules,
    decompose,
    expand_topic,
    extract_topic,
    join_neighbours,
    split_into_questions,
    understand_by_rules,
)
from keystone.generation.rules.sentences import (
    SAME_COSINE,
    choose_likely,
    compute_utilities,
    embed_questions,
    find_holding_segments,
    find_sentences,
    group_same_sentences,
    include_subject,
    read_sentence,
)
from keystone.generation.types import Sentence, Understanding
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.index import ImpactSet, Index
from keystone.indexing.types import MINILM, Document, Segment, Span
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.words import find_content_words, find_words
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES

COMMUNITY = (
    "I want a thorough understanding of what makes up a community, including its definitions in various contexts like "
    "science and what it means to be a 'civilized community.' I'm also interested in related terms like 'grassroots "
    "organizations,' how communities set boundaries and priorities, and their roles in nation-building."
)
NARRATIVE = st.text(st.sampled_from("abc xyz,.;?'-éß\n") | st.characters(codec="utf-8"), max_size=200)


@pytest.mark.parametrize(
    ("narrative", "questions"),
    [
        pytest.param("How do bees dance?", ("How do bees dance?",), id="one question stays"),
        pytest.param(
            "I want to know how bees dance and how they find flowers.",
            ("How bees dance?", "How they find flowers?"),
            id="question words part a sentence",
        ),
        pytest.param(
            "Please explain the causes of the war; also its lasting effects.",
            ("What about the causes of the war?", "What about its lasting effects?"),
            id="a semicolon parts it",
        ),
        pytest.param("Tell me about ice. TELL ME ABOUT ICE!", ("What about ice?",), id="the same in any case is one"),
        pytest.param(
            "I need to keep bees, and why.", ("How to keep bees, and why?",), id="a scrap stays with its clause"
        ),
        pytest.param("Well, so?", ("Well, so?",), id="nothing to ask gives the narrative itself"),
        pytest.param(
            COMMUNITY,
            (
                "What makes up a community?",
                "What about its definitions in various contexts like science?",
                "What it means to be a 'civilized community?",
                "What about related terms like 'grassroots organizations?",
                "How communities set boundaries and priorities?",
                "What about their roles in nation-building?",
            ),
            id="the paper's example, one facet a question",
        ),
    ],
)
def test_decomposition(narrative: str, questions: tuple[str, ...]) -> None:
    simplify = str.maketrans("", "", "'.,")
    assert [q.translate(simplify) for q in decompose(narrative)] == [q.translate(simplify) for q in questions]


@given(NARRATIVE)
def test_decomposition_gives_distinct_questions_made_of_the_narrative(narrative: str) -> None:
    questions = decompose(narrative)
    assert questions
    assert len({question.lower() for question in questions}) == len(questions)
    added = {"what", "about", "how"}
    assert {w.lower() for q in questions for w in find_words(q)} <= {w.lower() for w in find_words(narrative)} | added


@pytest.mark.parametrize(
    ("narrative", "facets"),
    [
        pytest.param("Why bees? Because. BECAUSE", ("Why bees?",), id="a sentence without content is none"),
        pytest.param("Ice melts. Snow falls! ICE MELTS.", ("Ice melts.", "Snow falls!"), id="distinct in any case"),
        pytest.param(
            "I want to know how ice melts, and why", ("I want to know how ice melts, and why",), id="as it is"
        ),
        pytest.param("So what?", ("So what?",), id="no content gives the narrative"),
    ],
)
def test_sentences_as_facets(narrative: str, facets: tuple[str, ...]) -> None:
    assert decompose(narrative, "sentences") == facets


@given(NARRATIVE)
def test_a_topic_uses_only_words_of_the_narrative(narrative: str) -> None:
    topic = extract_topic(narrative, lambda terms: [len(word) % 3 for word in terms], 10)
    assert all(word in normalize("NFC", narrative) for word in topic.split())


@pytest.mark.parametrize(
    ("narrative", "topic"),
    [
        pytest.param(COMMUNITY.replace("communities", "community"), "community", id="the most frequent word"),
        pytest.param("I want to know.", "", id="no content, no topic"),
        pytest.param("The Pokémon café of Kurt Gödel", "Pokémon café", id="letters with accents"),
        pytest.param("Why do cafe\u0301s close?", "cafés close", id="accents of their own"),
    ],
)
def test_topic(narrative: str, topic: str) -> None:
    assert extract_topic(narrative, lambda terms: [1] * len(terms), 1000) == topic


def test_expansion_prefers_words_that_are_frequent_here_and_rare_elsewhere() -> None:
    feedback = ["nectar pollen hive the honey", "nectar hive queen honey", "hive nectar system honey"]
    frequency = {"nectar": 3, "hive": 3, "queen": 1, "pollen": 90, "system": 101}
    found = expand_topic("honey bees", feedback, lambda terms: [frequency[word] for word in terms], 1000, 5)
    assert found == ("hive", "nectar", "queen", "pollen"), "a word of more than a tenth of the corpus is left out"


@given(st.lists(st.text(st.sampled_from("abcde "), max_size=60), max_size=4), st.integers(0, 5))
def test_expansion_is_distinct_and_new(feedback: list[str], count: int) -> None:
    found = expand_topic("abc dab", feedback, lambda terms: [1] * len(terms), 10, count)
    assert len(set(found)) == len(found) <= count
    assert not set(found) & set(find_content_words("abc dab"))


@pytest.mark.slow
def test_all_narratives_are_understood_on_a_real_index(index: Index) -> None:
    found = understand_by_rules(
        [Topic(i, text) for i, text in NARRATIVES.items()],
        Sources(index, open_store(index)),
        UnderstandingRules("clauses", "phrase", variants=3),
    )
    assert [len(u.questions) for u in found] == [4, 2]
    assert [u.topic_id for u in found] == ["1", "2"]
    assert all(len(u.variants) == 3 and u.topic for u in found)
    assert "colonies" in found[0].variants or "workers" in found[0].variants or "nectar" in found[0].variants


@pytest.mark.parametrize(("topic_by", "topic"), [("lead", "Ice melts."), ("phrase", "Ice melts"), (None, "")])
def test_the_rules_for_the_topic(topic_by: TopicBy | None, topic: str, index: Index) -> None:
    rules = UnderstandingRules("sentences", topic_by, variants=0)
    (found,) = understand_by_rules([Topic("7", "Well. Ice melts. Why?")], Sources(index, open_store(index)), rules)
    assert (found.questions, found.topic, found.variants) == (("Ice melts.",), topic, ())


@pytest.mark.parametrize(
    ("facets", "topic_by", "questions", "topic"),
    [
        ("sentences", "lead", ("Ice melts here. Why does ice melt?",), ""),
        ("sentences", "phrase", ("Ice melts here. Why does ice melt?",), "Ice"),
        ("clauses", "lead", ("What about Ice melts here?", "Why does ice melt?"), "Ice melts here."),
    ],
)
def test_two_sentences_are_one_question_without_a_lead(
    facets: Facets, topic_by: TopicBy, questions: tuple[str, ...], topic: str, index: Index
) -> None:
    sources, rules = Sources(index, open_store(index)), UnderstandingRules(facets, topic_by)
    (found,) = understand_by_rules([Topic("7", " Ice melts here. Why does ice melt?")], sources, rules)
    assert (found.questions, found.topic) == (questions, topic)


def test_rules_that_count_no_words_need_no_bm25(index: Index) -> None:
    """An index of impacts in place of words has none."""
    held = replace(index, at={"backend": "pyserini"}, impacts={"s": ImpactSet("m", "w")})
    sources, topics = Sources(held, open_store(index)), [Topic("7", "Well. Ice melts. Why?")]
    (found,) = understand_by_rules(topics, sources, UnderstandingRules("sentences", "lead"))
    assert found.topic == "Ice melts."
    for rules in (UnderstandingRules(topic="phrase"), UnderstandingRules(variants=2)):
        with pytest.raises(UserError, match=r"impacts in place of the terms of BM25.* and queries\.variants: 0"):
            understand_by_rules(topics, sources, rules)


def test_each_question_has_its_closest_document_among_those_of_an_answer(index: Index) -> None:
    store = open_store(index)
    ids = ["wasps", "glacier", "twin-a", "volcano", "flowers", "bees", "weather", "beekeeping"]
    row_of = dict(zip(store.ids(range(len(CORPUS))), range(len(CORPUS)), strict=True))

    def choose(question: str, number: int) -> list[str]:
        query, rows = Query("1", "1#1", question, question, question), [row_of[doc_id] for doc_id in ids]
        return store.ids(choose_documents(Sources(index, store), [query], rows, number))

    assert choose("How does lava escape from a volcano?", 2) == ["wasps", "volcano"]
    assert choose("How does lava escape from a volcano?", 4) == ids[:4]
    assert choose("How do honey bees live, and how do glaciers move?", 3) == ["wasps", "glacier", "bees"]
    assert choose("How do honey bees live?", 2) == ["wasps", "glacier"]
    assert choose("How do honey bees live?", 20) == ids


def test_a_question_leans_on_the_others_of_its_narrative(index: Index) -> None:
    def embed(*questions: str) -> Vectors:
        asked = [Query("1", "1#1", text, text, text) for text in questions]
        own = load_embedder(MINILM).embed(list(questions))
        return embed_questions(Sources(index, open_store(index)), asked, own)

    vague, clear = "Where is it kept?", "How do bees make honey?"
    alone, together = np.concatenate([embed(vague), embed(clear)]), embed(vague, clear)
    assert together[0] @ alone[1] > alone[0] @ alone[1] + 0.1, "the vague question has come closer to the clear one"
    assert np.argmax(together @ alone.T, axis=1).tolist() == [0, 1], "each is still closest to itself"
    assert np.allclose(alone, load_embedder(MINILM).embed([vague, clear]), atol=2**-11), "an only question stays"


def test_composition_of_queries() -> None:
    made = compose_queries(Understanding("7", ("How?", "Why ice?"), "ice", ("glacier", "snow")), question_weight=2)
    assert made[1] == Query("7", "7#2", "Why ice?", "Why ice? Why ice? ice glacier snow", "Why ice? ice")
    plain = compose_queries(Understanding("7", ("Why ice?",)), dense_topic=False)
    assert plain == [Query("7", "7#1", "Why ice?", "Why ice?", "Why ice?")]
    assert [is_narrative_query(query) for query in [make_narrative_query(Topic("7", "Tell me.")), *made]] == [
        True,
        False,
        False,
    ]


@given(st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_sentences_that_say_the_same_are_merged_once(seed: int, count: int) -> None:
    vectors = round_to_grid(np.random.default_rng(seed).normal(size=(count, 3)))
    groups = group_same_sentences(vectors)
    assert sorted(i for group in groups for i in group) == list(range(count))
    heads = vectors[[group[0] for group in groups]]
    assert np.all(np.triu(heads @ heads.T, 1) < SAME_COSINE)


def test_an_answer_covers_the_questions_within_its_words_and_cites_its_sources() -> None:
    model = load_embedder(MINILM)
    documents = [cut_segments(Document(name, text, title)) for name, (title, text) in CORPUS.items()]
    segments = [model.embed([d.segment_text(s) for s in d.segments]) for d in documents]
    asked = ("How do bees find flowers?", "Who says words about sugar in the kitchen?", "How do glaciers move?")
    queries = [Query("1", f"1-{n}", text, text, text) for n, text in enumerate(asked)]
    vectors = model.embed(asked)
    context = TopicContext(dict(enumerate(documents)), dict(enumerate(segments)), queries, vectors)
    spans = find_sentences(context)
    text_of = {document.id: document.text for document in documents}
    said = model.embed([text_of[span.doc_id][span.start : span.end] for span in spans])
    evidence = gather_sentences(context, CandidateSentences(spans, said))
    made = choose_sentences("1", context, evidence, CandidateSentences(spans, said), 60)
    assert sum(len(sentence.text.split()) for sentence in made.sentences) <= 60
    held = {s.id: " ".join(d.segment_text(s).split()) for d in documents for s in d.segments}
    opening = re.compile(
        r"^How do (?:bees find flowers|glaciers move)\? |^Who says words about sugar in the kitchen\? "
    )
    plain = [(opening.sub("", sentence.text), sentence.citations) for sentence in made.sentences]
    assert all(text in held[citation] for text, citations in plain for citation in citations)
    cited = [sentence.citations for sentence in made.sentences]
    assert ("twin-a#w0_0", "twin-b#w0_0") in cited, "both documents that say it"
    assert any(c[0].startswith("glacier#") for c in cited)
    assert any(c[0].startswith("bees#") for c in cited)
    assert {e.query_id for e in evidence} == {query.id for query in queries}
    assert compute_utilities(vectors, said).shape == (3, len(spans))


@given(st.lists(st.text("ab", min_size=1), max_size=60), st.integers(1, 30))
def test_joined_questions_are_at_most_so_many_and_lose_nothing(questions: list[str], most: int) -> None:
    joined = join_neighbours(questions, most)
    assert len(joined) == min(most, len(questions))
    assert " ".join(joined) == " ".join(questions)
    sizes = [len(one.split()) for one in joined]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_queries_of_thousands_of_questions_are_not_split() -> None:
    short, long = (Query("1", "1", " ".join(f"How is a{n}?" for n in range(count)), "", "") for count in (9, 3000))
    assert len(split_into_questions([short])) == 9
    assert split_into_questions([short, long]) == [short, long]


def test_lines_of_lists_are_sentences_of_their_own() -> None:
    text = "A hive is a home of bees.\n\ncount() - count all bees of a hive\nfly() - leave\n\nIt is warm in hives.\n"
    document = cut_segments(Document("hive", text, "hive"))
    empty = np.zeros((len(document.segments), 2), np.float32)
    found = find_sentences(TopicContext({0: document}, {0: empty}, [], np.zeros((0, 2), np.float32)))
    assert {text[span.start : span.end] for span in found} == {
        "A hive is a home of bees.",
        "count() - count all bees of a hive",
    }


@pytest.mark.parametrize(
    ("borders", "held"),
    [
        pytest.param([(0, 30), (10, 30), (0, 10)], [0], id="with the line of the name"),
        pytest.param([(10, 30), (0, 10), (12, 30)], [0], id="the sentence alone"),
        pytest.param([(0, 10), (15, 30)], [0, 1], id="none holds the sentence"),
    ],
)
def test_a_citation_holds_the_name_that_a_sentence_explains(borders: list[tuple[int, int]], held: list[int]) -> None:
    text = "fly(self)\nLeave the warm hive."
    segments = tuple(Segment(f"hive#{n}", Span("hive", *border)) for n, border in enumerate(borders))
    document, span = Document("hive", text, "hive", segments=segments), Span("hive", 10, 30)
    assert read_sentence(document, span) == "fly() of hive - Leave the warm hive."
    assert find_holding_segments(document, include_subject(document, span), span) == held


def test_a_sentence_below_no_name_is_its_own_subject() -> None:
    document = Document("hive", "Bees fly.\nThey rest.", "hive")
    assert [include_subject(document, Span("hive", start, 20)) for start in (0, 10)] == [
        Span("hive", 0, 20),
        Span("hive", 10, 20),
    ]


@pytest.mark.parametrize("most", [0, 1, 3, 6, 100])
def test_the_likely_sentences_are_the_best_of_each_query_in_turn(most: int) -> None:
    documents = [cut_segments(Document(name, text, title)) for name, (title, text) in CORPUS.items()]
    segments = [np.zeros((len(document.segments), 2), np.float32) for document in documents]
    asked = ("sugar in the kitchen", "the ash of an eruption")
    queries = [Query("1", f"1-{n}", text, text, text) for n, text in enumerate(asked)]
    vectors = np.zeros((2, 2), np.float32)
    context = TopicContext(dict(enumerate(documents)), dict(enumerate(segments)), queries, vectors)
    spans = find_sentences(context)
    text_of = {document.id: document.text for document in documents}
    chosen = choose_likely(context, spans, most)
    assert chosen == [span for span in spans if span in chosen]
    assert len(chosen) == min(most, len(spans))
    told = [text_of[span.doc_id][span.start : span.end].lower() for span in chosen]
    assert most < 1 or any("kitchen" in text or "eruption" in text for text in told)
    assert most < 3 or (any("kitchen" in text for text in told) and any("eruption" in text for text in told))


def test_no_evidence_gives_an_empty_answer() -> None:
    model = load_embedder(MINILM)
    query = Query("1", "1-1", "Why?", "Why?", "Why?")
    context = TopicContext({}, {}, [query], model.embed(["Why?"]))
    nothing = CandidateSentences([], model.embed([]))
    assert gather_sentences(context, nothing) == []
    assert choose_sentences("1", context, [], nothing, 40).sentences == ()


def test_without_sentences_the_closest_segment_is_the_answer() -> None:
    text = "a | b | c " * 20
    cut = tuple(Segment(f"d#{n}", Span("d", 50 * n, 50 * n + 50)) for n in range(4))
    document = Document("d", text=text, segments=cut)
    vectors = np.eye(4, dtype=np.float32)
    query = Query("1", "1-1", "Why?", "Why?", "Why?")
    made = quote_closest_segment("1", TopicContext({4: document}, {4: vectors}, [query], vectors[2:3]), 7)
    assert made.sentences == (Sentence("a | b | c a |", ("d#2",)),)
    assert quote_closest_segment("1", TopicContext({}, {}, [query], vectors[:1]), 7).sentences == ()


def test_no_segment_without_text_is_the_answer() -> None:
    blank = Document("b", " \n ", "Title", segments=(Segment("b#0", Span("b", 0, 3)),))
    other = Document("d", "So it is.", segments=(Segment("d#0", Span("d", 0, 9)),))
    vectors = np.eye(2, dtype=np.float32)
    query = Query("1", "1-1", "Why?", "Why?", "Why?")
    only = TopicContext({3: blank}, {3: vectors[:1]}, [query], vectors[:1])
    assert quote_closest_segment("1", only, 7).sentences == ()
    both = replace(only, documents={3: blank, 4: other}, segments={3: vectors[:1], 4: vectors[1:]})
    assert quote_closest_segment("1", both, 7).sentences == (Sentence("So it is.", ("d#0",)),)
