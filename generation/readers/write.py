"""The answer to a topic from any reader's evidence: sentences chosen by rules, or prose that a model writes.

A model writes from all evidence at once (section 3.2.2), an answer to each query (section 3.3), or prose from quoted
claims. If the model gives no answer within the track's limits, sentences are chosen by rules, and a `Fallback` records
that.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from keystone.generation.answers.answer import AnswerTask, draft_answer, request_whole, write_sub_answers
from keystone.generation.answers.cite import cite_segments, limit_references, list_segments
from keystone.generation.answers.claims import answer_from_claims
from keystone.generation.answers.mend import mend_answer, strip_marks
from keystone.generation.answers.sentences import Draft, Passage, QueryTask, WordRange, count_words
from keystone.generation.answers.support import check_by_model, check_by_rules, drop_fillers, list_unchecked
from keystone.generation.answers.synthesise import SynthesisTask, edit, join_sub_answers, resynthesise, select_edit
from keystone.generation.context.texts import clip, count_tokens, share_window
from keystone.generation.context.topic import TopicContext, join_spans, keep_language
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import MOST_MISSING_WORDS
from keystone.generation.readers.reader import Task, Tools
from keystone.generation.readers.settings import AnswerMethod
from keystone.generation.rules.answer import choose_sentences, find_candidates, gather_sentences, quote_closest_segment
from keystone.generation.rules.sentences import ask_each_clause
from keystone.generation.rules.support import denies_sources, tells_gap
from keystone.generation.types import Answer, Evidence, EvidenceSet, Fallback, Note, Sentence
from keystone.indexing.corpora.languages import SHARING_LETTERS, differ_in_language, guess_language, is_surely_in
from keystone.indexing.types import Span
from keystone.indexing.vectors.embed import embed_passages

LEAST_WORDS_SHARE = 0.75
"""The fewest words of an answer as a share of the most: 300 of 400 in the paper."""
NOTED = "claim"
"""The kind of notes that are claims, each with the stretch that says it. The method `claims` writes from these."""
_ADDRESS = re.compile(r"://|\bwww\.|\w@\w|\w\.[a-z]{2,}/", re.IGNORECASE)
"""A URL or an address of mail, which no sentence about what the documents lack needs."""
UNSHOWN_NOTES = frozenset(("tree", NOTED, "read", "seen", "found"))
"""Kinds of notes that a writer from documents is not shown: a tree names units by numbers that the documents lack, the
documents hold what claims quote, and what an agent has merely read, seen or found is no evidence."""


async def write_answer(tools: Tools, task: Task, evidence: EvidenceSet, within: bool = True) -> Answer:
    """Write the answer to a topic from its evidence. It cites segments.

    If `within` is true, a sentence cites segments that hold evidence; otherwise any segment of a document.
    """
    write = WRITERS[tools.settings.method]
    if write is None:
        return await asyncio.to_thread(_choose_answer, tools, task, evidence.items)
    made, fallbacks = await write(tools, task, evidence)
    fallbacks = [*evidence.fallbacks, *fallbacks]
    if made is None and tools.settings.method == "claims":
        tools = replace(tools, settings=replace(tools.settings, method="retrieval"))
        answer = await write_answer(tools, task, _keep_best(evidence, tools.evidence_tokens), within)
        without = Fallback(task.topic.id, "claims", "there is no claim: the answer is written from all documents")
        return replace(answer, fallbacks=(*fallbacks, without, *answer.fallbacks))
    if made and tools.settings.mend:
        made = _strip_marks(made)
        words = make_word_range(task.words)
        made, unmended = await mend_answer(_require_model(tools), task.topic.narrative, made, words)
        fallbacks += unmended
    if made and tools.settings.support != "none" and not tools.settings.tells_gaps:
        made = drop_fillers(made)
    if made is None or not task.cut_to_limits(made.sentences):
        chosen = await _choose_from_all(tools, task, fallbacks)
        return replace(chosen, checks=made.checks if made else ())
    spans = [item.span for item in evidence.items] if within else None
    answer, missed = await _cite_and_check(tools, task, made, spans)
    answer = _strip_marks(answer, {one.text for one in made.sentences}) if tools.settings.mend else answer
    if all(tells_gap(one.text) or (not one.citations and denies_sources(one.text)) for one in answer.sentences):
        return replace(await _choose_from_all(tools, task, [*fallbacks, *missed]), checks=answer.checks)
    kept = task.cut_to_limits(answer.sentences)
    if len(kept) < len(answer.sentences):
        lost = f"{len(answer.sentences) - len(kept)} of {len(answer.sentences)} sentences exceed the track's length"
        missed.append(Fallback(task.topic.id, "limits", lost))
    if wrong := _find_wrong_language(answer, task.topic.narrative, tools.settings.language):
        missed.append(Fallback(task.topic.id, "language", wrong))
    if tools.settings.gaps and answer.missing:
        told = strip_marks(answer.missing)
        denied = denies_sources(told, task.topic.narrative) and not _ADDRESS.search(told)
        if len(told.split()) > MOST_MISSING_WORDS or not denied:
            why = "the sentence about what the documents lack says something else, or too much: it is left out"
            answer, missed = replace(answer, missing=""), [*missed, Fallback(task.topic.id, "missing", why)]
        else:
            answer = _end_with_missing(task, replace(answer, missing=told))
    return replace(answer, fallbacks=(*fallbacks, *missed))


def _end_with_missing(task: Task, answer: Answer) -> Answer:
    """End an answer with its sentence about what the documents lack, if that keeps the limits of the task."""
    longer = (*answer.sentences, Sentence(answer.missing, ()))
    fits = count_words(longer) <= task.words and len(task.cut_to_limits(longer)) == len(longer)
    return replace(answer, sentences=longer) if fits else answer


def _find_wrong_language(answer: Answer, narrative: str, language: str) -> str:
    """Say in which language an answer is, if that is surely not `language`, or without one the narrative's own."""
    text = " ".join(sentence.text for sentence in answer.sentences)
    own, wanted = guess_language(text), language or guess_language(narrative)
    if not own or not wanted or own == wanted or {own, wanted} in SHARING_LETTERS:
        return ""
    differ = differ_in_language(text, narrative) and differ_in_language(narrative, text)
    sure = is_surely_in(own, text, wanted) if language else differ
    return f"the answer is in {own}, expected {wanted}" if sure else ""


def _strip_marks(answer: Answer, plain: Container[str] = ()) -> Answer:
    """Take the marks of Markdown off all sentences but the `plain` ones, so that all answers of a run look alike."""
    now = (one if one.text in plain else replace(one, text=strip_marks(one.text)) for one in answer.sentences)
    return replace(answer, sentences=tuple(one for one in now if one.text))


async def _cite_and_check(
    tools: Tools, task: Task, made: Answer, spans: Sequence[Span] | None
) -> tuple[Answer, list[Fallback]]:
    """Cite segments in place of documents, and check each sentence against them as the settings say."""
    settings, texts = tools.settings, [sentence.text for sentence in made.sentences]
    vectors = await asyncio.to_thread(embed_passages, tools.sources.embedding, texts, tools.sources.threads)
    segments = await asyncio.to_thread(list_segments, task.context, spans)
    answer, missed = made, list[Fallback]()
    if settings.method != "claims":  # whose quotes have named the segments
        answer, missed = cite_segments(made, vectors, segments, settings.segments, tools.sources.embedding.is_local)
    if settings.support == "model":
        model = _require_model(tools)
        most = task.words - (count_words([Sentence(made.missing, ())]) if settings.gaps else 0)
        answer, failed = await check_by_model(
            model, answer, vectors, segments, settings.window, most, settings.tells_gaps
        )
        missed += failed
    elif settings.support == "rules":
        answer = check_by_rules(answer, vectors, segments, settings.method == "claims")
    else:
        answer = list_unchecked(answer, segments)
    if settings.segments == "words":
        answer = replace(answer, sentences=tuple(limit_references(answer.sentences, task.references)))
    return answer, missed


async def _choose_from_all(tools: Tools, task: Task, fallbacks: Sequence[Fallback]) -> Answer:
    items = await asyncio.to_thread(gather_all_sentences, tools, task)
    chosen = await asyncio.to_thread(_choose_answer, tools, task, items)
    by_rules = Fallback(task.topic.id, "answer", "its sentences are chosen by rules")
    return replace(chosen, fallbacks=(*fallbacks, by_rules, *chosen.fallbacks))


def gather_all_sentences(tools: Tools, task: Task) -> list[Evidence]:
    """Gather distinct sentences of the task's documents."""
    readable = keep_language(task.context, tools.settings.language)
    if not readable.documents:
        return []
    context = ask_each_clause(readable, tools.sources)
    return gather_sentences(context, find_candidates(context, tools.sources))


def _choose_answer(tools: Tools, task: Task, evidence: Sequence[Evidence]) -> Answer:
    """Choose sentences of the evidence by rules, for coverage of the queries."""
    language = tools.settings.language
    readable = keep_language(task.context, language)
    if task.context.documents and not readable.documents:
        why = f"no document is in {language}, and rules translate nothing: the answer is empty"
        return Answer(task.topic.id, (), fallbacks=(Fallback(task.topic.id, "answer", why),))
    context = ask_each_clause(readable, tools.sources)
    own = context.by_id
    evidence = [item for item in evidence if item.span.doc_id in own]
    candidates = find_candidates(context, tools.sources, evidence)
    measured = tools.sources.embedding.is_local
    choose = partial(choose_sentences, task.topic.id, context, evidence, candidates, measured=measured)
    made = choose(words=task.words)
    if tools.settings.gaps and made.missing:
        shorter = choose(words=task.words - len(made.missing.split()))
        made = _end_with_missing(task, shorter if shorter.missing == made.missing else made)
    return made if made.sentences else quote_closest_segment(task.topic.id, readable, task.words)


async def _write_from_all(tools: Tools, task: Task, evidence: EvidenceSet) -> Draft:
    """Write one answer from all documents (paper, section 3.2.2)."""
    passages, notes = make_passages(task.context, evidence.items), _join_notes(evidence.notes)
    topic = task.topic
    answer_task = AnswerTask(topic.id, topic.narrative, passages, make_word_range(task.words), notes)
    return await draft_answer(_require_model(tools), answer_task)


async def _write_freely(tools: Tools, task: Task, evidence: EvidenceSet) -> Draft:
    passages, notes = make_passages(task.context, evidence.items), _join_notes(evidence.notes)
    gaps, (low, high) = tools.settings.gaps, make_word_range(task.words)
    words = (low, max(low, high - MOST_MISSING_WORDS)) if gaps else (low, high)
    whole = AnswerTask(task.topic.id, task.topic.narrative, passages, words, notes, gaps=gaps)
    return await draft_answer(_require_model(tools), whole, request_whole)


async def _write_from_each(tools: Tools, task: Task, evidence: EvidenceSet) -> Draft:
    """Write an answer to each query from its own documents, and one answer from these (paper, section 3.3)."""
    topic, settings = task.topic, tools.settings
    sub_tasks = _list_query_tasks(task, evidence)
    sub_answers, fallbacks = await write_sub_answers(_require_model(tools), sub_tasks, settings.prompt_with)
    filled = [one and drop_fillers(one) if settings.support != "none" else one for one in sub_answers]
    sub_answers = [one if one and one.sentences else None for one in filled]
    queries = tuple(one.query for one in sub_tasks)
    synthesis = SynthesisTask(topic.id, topic.narrative, queries, tuple(sub_answers), make_word_range(task.words))
    made, missed = await _synthesise(tools, task, synthesis, [shown for one in sub_tasks for shown in one.passages])
    dropped = tuple(check for one in filled if one for check in one.checks)
    return made and replace(made, checks=dropped), [*fallbacks, *missed]


async def _write_from_claims(tools: Tools, task: Task, evidence: EvidenceSet) -> Draft:
    """Write an answer from claims that quote each query's own documents. It cites segments."""
    sources, claim_tasks = tools.sources, _list_query_tasks(task, evidence)
    documents = {document.id: document for document in task.context.documents.values()}
    embed = partial(embed_passages, sources.embedding, threads=sources.threads)
    places = {query.id: place for place, query in enumerate(task.context.queries)}
    taken = [note for note in evidence.notes if note.kind == NOTED]
    noted = [(places[note.query_id], note.text, span) for note in taken for span in note.sources]
    return await answer_from_claims(_require_model(tools), claim_tasks, documents, embed, task.words, noted)


def _keep_best(evidence: EvidenceSet, tokens: int) -> EvidenceSet:
    """Keep the best evidence of all queries within `tokens` tokens: each document for the first query that has it.

    One prompt numbers the documents of all queries, so the notes name no numbers.
    """
    ranked = sorted(evidence.items, key=lambda item: -item.score)
    query_of = {item.span.doc_id: item.query_id for item in reversed(ranked)}
    own = [item for item in ranked if item.query_id == query_of[item.span.doc_id]]
    kept = {(item.query_id, item.span) for item in cut_to_tokens(own, tokens)}
    return replace(
        evidence,
        items=tuple(item for item in evidence.items if (item.query_id, item.span) in kept),
        notes=tuple(map(leave_out_document_numbers, evidence.notes)),
    )


_NUMBERED = re.compile(r"^(CHUNK\[\d+\] is the part) of document \d+(?= that begins )", re.MULTILINE)


def leave_out_document_numbers(note: Note) -> Note:
    """Leave the numbers of documents out of a note of Disco-RAG, for a prompt that numbers them in another way."""
    return replace(note, text=_NUMBERED.sub(r"\1", note.text))


def cut_to_tokens(items: Sequence[Evidence], tokens: int) -> list[Evidence]:
    """Keep the first pieces of evidence, as long as all together have at most `tokens` tokens.

    A piece that does not fit is left out, and smaller ones after it may still fit. `tokens` of 0 sets no limit.
    """
    kept, left = [], tokens
    for item in items:
        cost = count_tokens(f"{item.heading}\n{item.text}")
        if not tokens or cost <= left:
            kept.append(item)
            left -= cost
    return kept


async def _synthesise(tools: Tools, task: Task, synthesis: SynthesisTask, passages: Sequence[Passage]) -> Draft:
    """Make one answer of the answers to queries, in the way that the settings name."""
    model, sources, way = _require_model(tools), tools.sources, tools.settings.synthesis
    if way == "edit":
        return await edit(model, synthesis)
    if way == "resynthesise":
        by_id = {passage.doc_id: passage for passage in passages}
        limit = share_window(tools.settings.window, len(by_id))
        shown = [passage._replace(text=clip(passage.text, limit)) for passage in by_id.values()]
        return await resynthesise(model, synthesis, shown)
    if way == "select_edit":
        texts = [sentence.text for sentence in join_sub_answers(synthesis)]
        vectors = await asyncio.to_thread(embed_passages, sources.embedding, texts, sources.threads)
        return await select_edit(model, synthesis, task.context.query_vectors, vectors)
    assert_never(way)


def _list_query_tasks(task: Task, evidence: EvidenceSet) -> list[QueryTask]:
    """List the queries, each with its own evidence: the passages, the reader's notes, and the stretches."""
    tasks = []
    for query in task.context.queries:
        items = [item for item in evidence.items if item.query_id == query.id]
        notes = _join_notes([note for note in evidence.notes if note.query_id == query.id])
        passages, spans = make_passages(task.context, items), tuple(item.span for item in items)
        tasks.append(QueryTask(task.topic.id, task.topic.narrative, query.question, passages, notes, spans))
    return tasks


def make_passages(context: TopicContext, evidence: Sequence[Evidence]) -> tuple[Passage, ...]:
    """Join the evidence of each document into the passage that the model is shown."""
    items: dict[str, list[Evidence]] = {}
    for item in evidence:
        items.setdefault(item.span.doc_id, []).append(item)
    by_id = context.by_id
    return tuple(
        Passage(
            doc_id,
            "",
            join_spans(
                by_id[doc_id][0], [(item.span.start, item.span.end) for item in own], [item.heading for item in own]
            ),
        )
        for doc_id, own in items.items()
    )


def _join_notes(notes: Sequence[Note]) -> str:
    return "\n".join(note.text for note in notes if note.kind not in UNSHOWN_NOTES)


def make_word_range(words: int) -> WordRange:
    """Make the fewest and the most words of an answer that may have so many."""
    return int(words * LEAST_WORDS_SHARE), words


def _require_model(tools: Tools) -> Model:
    assert tools.model is not None  # the configuration has been checked
    return tools.model


WRITERS: Mapping[AnswerMethod, Callable[[Tools, Task, EvidenceSet], Awaitable[Draft]] | None] = {
    "rules": None,
    "retrieval": _write_from_all,
    "whole": _write_freely,
    "answers": _write_from_each,
    "claims": _write_from_claims,
}
"""The way in which each method of answers writes. None: rules choose sentences."""
