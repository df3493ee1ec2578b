"""Hypothesis strategies: for each form, any content that the form can hold."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from keystone.indexing.types import Span
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.evaluation.nuggets.files import GoldAnswer, Nugget, NuggetBank, Source
from keystone.runs.exchange.types import Candidate, Handover, Request, Score

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(str.strip)
ANY = st.text(st.characters(codec="utf-8"), max_size=6)
ID = st.text("abz19#_-é", min_size=1, max_size=3).filter(lambda name: not name.startswith("#"))
PMID = st.integers(1, 99).map(str)
INTEGER = st.integers(-(2**53), 2**53)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.lists(st.text("abcde", min_size=3, max_size=4), min_size=1, max_size=3).map(" ".join)
EXTRA = st.dictionaries(ID, TEXT | INTEGER, max_size=2)
PARTS = st.dictionaries(st.sampled_from(["title", "url", "segment", "contents", "start_char"]), TEXT | INTEGER)
SUPPORT = st.sampled_from(["full", "partial", "none", None])


def tuples(one: st.SearchStrategy[Any], least: int = 0, by: Any = None) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, min_size=least, max_size=3, unique_by=by).map(tuple)


def named(one: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    return tuples(one, least, lambda each: each.topic_id)


def requests(candidates: st.SearchStrategy[Any], **parts: Any) -> st.SearchStrategy[Handover]:
    return named(st.builds(Request, ID, candidates=candidates, **parts)).map(Handover)


NUGGET_GRADES = st.dictionaries(ID, st.integers(-2, 4), min_size=1, max_size=2).map(lambda own: tuple(own.items()))
CANDIDATE = st.builds(
    Candidate,
    ID | st.just(""),
    NUMBER | st.none(),
    INTEGER | st.none(),
    PARTS,
    NUGGET_GRADES | st.just(()),
)
JUDGED = st.builds(
    Candidate, ID | st.just(""), grade=INTEGER, parts=st.builds(lambda text: {"segment": text}, TEXT) | st.just({})
)
GRADED = st.builds(Candidate, ID, grade=st.integers(-2, 4))
DOCUMENT = tuples(GRADED, 1, lambda each: each.doc_id).map(
    lambda own: tuple(sorted(own, key=lambda each: (each.grade, each.doc_id.encode()), reverse=True))
)
OF_NUGGETS = tuples(
    st.builds(Candidate, ID, subtopics=NUGGET_GRADES).map(
        lambda one: replace(one, grade=max(grade for _, grade in one.subtopics))
    ),
    1,
    lambda each: each.doc_id,
)


@st.composite
def runs(draw: Any) -> Handover:
    tag, found = draw(ID), []
    for topic in draw(st.lists(ID, min_size=1, max_size=3, unique=True)):
        docs = draw(st.lists(ID, min_size=1, max_size=3, unique=True))
        scores = sorted(
            draw(st.lists(st.integers(-99, 99), min_size=len(docs), max_size=len(docs), unique=True)), reverse=True
        )
        hits = tuple(Candidate(doc, float(score)) for doc, score in zip(docs, scores, strict=True))
        found.append(Request(topic, candidates=hits, run_id=tag))
    return Handover(tuple(found))


@st.composite
def stretches(draw: Any) -> Candidate:
    doc, start = draw(ID), draw(st.integers(0, 9))
    segments = draw(st.lists(ID, max_size=2, unique=True))
    parts = {"segment": draw(TEXT), "doc_id": doc, "start_char": start, "end_char": start + draw(st.integers(0, 9))}
    parts |= {"query_id": draw(ID)} | ({"segments": segments} if segments else {})
    parts |= {key: text for key in ("headings", "why") if (text := draw(ANY))}
    return Candidate(segments[0] if segments else doc, draw(NUMBER), parts=parts)


@st.composite
def answers(draw: Any, *keys: str, text: Any = ANY, ids: Any = ID, references: bool = True) -> CitedAnswer:
    """Draw an answer with a topic and a run, and the values of `keys`. Its references hold all that it cites."""
    scored = "scores" in keys and draw(st.booleans())
    citation = st.builds(Citation, ids, score=NUMBER if scored else st.none())
    citation = st.builds(Citation, ids, support=SUPPORT) if "support" in keys else citation
    cited = tuples(citation, int("cited" in keys), lambda each: each.doc_id)
    further = {key: tuples(ids) for key in ("contradicted", "existing") if key in keys}
    sentences = draw(tuples(st.builds(CitedText, text, cited, **further), 1))
    known = [each.doc_id for one in sentences for each in one.citations]
    listed = tuple(dict.fromkeys([*draw(st.lists(ids, max_size=2)), *known])) if references else ()
    values: dict[str, Any] = {key: draw(TEXT) for key in ("query", "team_id", "type", "description") if key in keys}
    values |= {"extra": draw(EXTRA)} if "extra" in keys else {}
    documents = (
        draw(st.dictionaries(st.sampled_from(known), st.builds(lambda text: {"text": text}, TEXT)))
        if ("documents" in keys and known)
        else {}
    )
    return CitedAnswer(draw(ID), sentences, listed, run_id=draw(TEXT), documents=documents, **values)


def reports(*keys: str, **parts: Any) -> st.SearchStrategy[Handover]:
    return named(answers(*keys, **parts)).map(lambda own: Handover(answers=own))


def add_kit(content: Handover) -> Handover:
    """Add what each answer of DRAGUN says: whether it was made with the starter kit."""
    return replace(
        content, answers=tuple(replace(one, extra={"use_starter_kit": 0, **one.extra}) for one in content.answers)
    )


def unnamed(one: CitedAnswer) -> CitedAnswer:
    return replace(one, run_id="")


@st.composite
def submissions(draw: Any) -> Handover:
    found = draw(named(answers(text=WORDS.map(lambda words: f"{words.capitalize()}."), ids=PMID)))
    same = {"team_id": draw(TEXT), "run_id": draw(TEXT), "extra": draw(st.just({}) | st.just({"contact_email": "a@b"}))}
    return Handover(answers=tuple(replace(one, **same) for one in found))


SOURCES = tuples(
    st.builds(Source, TEXT)
    | st.builds(
        lambda doc, start, size: Source(doc, Span(doc, start, start + size)), TEXT, INTEGER.map(abs), st.just(5)
    )
)
DOCUMENTS = tuples(st.builds(Source, TEXT))
IMPORTANCE = st.sampled_from(["vital", "okay", "failed", None])
ASSIGNMENT = st.sampled_from(["support", "partial_support", "not_support", "failed", None])


def banks(nuggets: st.SearchStrategy[Any], **parts: Any) -> st.SearchStrategy[Handover]:
    return named(st.builds(NuggetBank, TEXT, nuggets, **parts)).map(lambda own: Handover(nuggets=own))


def distinct(nugget: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return tuples(nugget, by=lambda one: one.text)


CLAIM = st.builds(Nugget, TEXT, IMPORTANCE, st.none(), TEXT, SOURCES)
QUESTION = st.builds(
    Nugget,
    TEXT,
    IMPORTANCE,
    name=TEXT,
    sources=SOURCES,
    answers=tuples(st.builds(GoldAnswer, TEXT, SOURCES), by=lambda one: one.text),
    aggregator=st.sampled_from(["AND", "OR", None]),
)
ASKED = st.builds(
    Nugget,
    TEXT,
    IMPORTANCE,
    answers=tuples(st.builds(GoldAnswer, TEXT, DOCUMENTS)),
    aggregator=st.sampled_from(["AND", "OR"]),
)
LINE = st.builds(Nugget, TEXT, IMPORTANCE, st.none(), TEXT, SOURCES.map(lambda own: own[:1]))
VALUE = NUMBER.map(str)


def tables(value: st.SearchStrategy[str]) -> st.SearchStrategy[Handover]:
    rows = st.dictionaries(
        st.tuples(ID, ID), st.dictionaries(ID, value, min_size=1, max_size=2), min_size=1, max_size=3
    )
    return rows.map(
        lambda found: Handover(
            scores=tuple(Score(*key, measure, one) for key, own in found.items() for measure, one in own.items())
        )
    )


CONTENTS: dict[str, st.SearchStrategy[Handover]] = {
    "requests": tuples(st.builds(Request, ID | st.just(""), ANY, tuples(CANDIDATE), ANY, EXTRA), 1).map(Handover),
    "umbrela": requests(tuples(JUDGED, 1), query=ANY),
    "run": runs(),
    "qrels": requests(DOCUMENT),
    "nugget-qrels": requests(OF_NUGGETS),
    "topics": requests(st.just(()), query=TEXT, extra=EXTRA),
    "topics-tsv": requests(st.just(()), query=WORDS),
    "evidence": requests(
        tuples(stretches()), extra=st.builds(lambda by: {"stop": "done", "reader": "x", "by": by}, TEXT)
    ),
    "answers": named(answers(references=False).map(unnamed)).map(lambda own: Handover(answers=own)),
    "rag24": reports("query"),
    "rag25": reports("query", "team_id", "type", "description", "extra"),
    "rag26": reports("query", "team_id", "type", "description", "extra"),
    "responses": reports("query", "team_id", "type", "description", "extra", "scores"),
    "dragun25": reports("query", "team_id", "type", "description", "extra").map(add_kit),
    "auto-judge": reports("query", "team_id", "description", "extra", "scores", "documents"),
    "biogen24": submissions(),
    "biogen-grounded": reports("query", "team_id", "extra", "contradicted", "existing", references=False),
    "ragdoll-answers": reports("query", references=False),
    "ragdoll-resolved": reports("query", "team_id", "type", "extra", "documents"),
    "ragdoll-support": reports("support", references=False),
    "ragdoll-pairs": reports("support", "cited", "documents", references=False),
    "nuggets": banks(tuples(LINE, 1)),
    "nuggetizer": banks(
        tuples(st.builds(Nugget, TEXT, IMPORTANCE, ASSIGNMENT)), query=ANY, run_id=TEXT, answer_text=ANY
    ),
    "nuggetbank": banks(st.builds(lambda a, b: a + b, distinct(QUESTION), distinct(CLAIM)), query=ANY),
    "ragtime-nuggets": banks(tuples(ASKED), run_id=TEXT, team_id=TEXT, description=ANY),
    "sub-narratives": banks(tuples(st.builds(Nugget, TEXT, IMPORTANCE)), query=ANY),
    "leaderboard": tables(VALUE | st.sampled_from(["True", "False"])),
    "ir-measures": tables(VALUE),
    "score-lines": tables(VALUE | st.sampled_from(["True", "False"])),
    "metrics": tables(VALUE),
}
"""The contents by the name of their form."""
