"""One answer to a narrative, written freely from whole documents, and the check of these before it is written."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from keystone.generation.answers.answer import NOTHING_TO_READ, shorten_and_cite
from keystone.generation.answers.choose_segments import MOST_CITATIONS
from keystone.generation.answers.claims.quotes import find_quote
from keystone.generation.answers.sentences import (
    Draft,
    Passage,
    WordRange,
    allow_tokens,
    make_messages,
    make_sentences,
    read_citations,
    read_place,
    read_text,
    show_passages,
    tidy,
)
from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import check_evidence as check_prompt
from keystone.generation.prompts.answers import whole as prompt
from keystone.generation.prompts.answers.answer import CitedText
from keystone.generation.reply_types import read_parts
from keystone.generation.structured import HELD_DRAFTS, note_drafts, read_json
from keystone.generation.types import (
    Answer,
    Answered,
    Failure,
    Fallback,
    QuestionCheck,
    Reply,
    Request,
    Sentence,
)
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Span
from keystone.retrieval.types import Query

QUESTION_TOKENS = 192
"""The most tokens of a reply about one question."""


@dataclass(frozen=True, slots=True)
class WholeTask:
    """A topic's narrative and queries, the documents for its answer, best first, and the range of the answer's words.

    The queries are empty if the narrative's questions are not known.
    """

    topic_id: str
    narrative: str
    queries: Sequence[Query]
    passages: tuple[Passage, ...]
    words: WordRange
    notes: str = ""
    """The notes that the reader of the documents took. They guide the answer, and are no source."""
    gaps: bool = False
    """Whether the answer may tell what the documents leave open."""


def request_whole(task: WholeTask) -> Request:
    """Make a request for an answer. The narrative stands before and after the documents, which are numbered from 0.

    The model is not shown the list of questions: it would answer one after another, and lose the narrative's own frame.
    """
    user = prompt.USER.format(
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        high=task.words[1],
        most=MOST_CITATIONS,
        gaps=prompt.TOLD_GAPS if task.gaps else prompt.NO_GAPS,
        missing=prompt.MOST_MISSING_WORDS,
        faults=prompt.MOST_FAULTS,
    )
    return Request("answer", make_messages(prompt.SYSTEM, user), 2 * allow_tokens(task.words[1]), prompt.SCHEMA)


def list_questions(queries: Sequence[Query]) -> str:
    """List the questions of queries as JSON, one a line: their places from 0, and what each wants, if that is known."""
    lines = (
        {"id": place, "question": neutralise(query.question), **({"wants": query.ask.form} if query.ask else {})}
        for place, query in enumerate(queries)
    )
    return "[" + ",\n ".join(json.dumps(line, ensure_ascii=False) for line in lines) + "]"


def read_whole(reply: Reply, task: WholeTask) -> tuple[tuple[Sentence, ...], str]:
    """Read the sentences of an answer, and the sentence about what is missing; empty if nothing is.

    Sentences cite document ids; some may cite none.
    """
    found = read_parts(reply, "answer", CitedText)
    made = make_sentences(((item.text, read_citations(item.citations, task.passages)) for item in found), reply)
    value = read_json(reply, lambda one: isinstance(one, dict) and isinstance(one.get("answer"), list))
    missing = value.get("missing") if isinstance(value, dict) else None
    return tuple(made), read_text(missing, reply) if isinstance(missing, str) else ""


async def write_whole(model: Model, task: WholeTask) -> Draft:
    """Write the answer to a task within its word limit; None if the model gave none. Its sentences cite documents.

    If reference assignment finds no support for a sentence, the sentence cites nothing.
    """
    if not task.passages:
        return None, [Fallback(task.topic_id, "answer", NOTHING_TO_READ)]
    request = request_whole(task)
    (found,) = await ask_all(model, [(request, note_drafts(request, partial(read_whole, task=task)))])
    if isinstance(found, Failure):
        return None, [Fallback(task.topic_id, "answer", found.reason)]
    (sentences, missing), drafts = found
    made = Answer(task.topic_id, sentences, missing=missing)
    answer, missed = await shorten_and_cite(model, made, task.words, task.passages)
    several = [Fallback(task.topic_id, "answer", HELD_DRAFTS)] if drafts else []
    return answer, several + missed


def request_check(task: WholeTask) -> Request:
    """Make a request to check how far the documents of a task answer its questions."""
    user = check_prompt.USER.format(
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        questions=list_questions(task.queries),
        most=check_prompt.MOST_SEARCHES,
    )
    tokens = 1024 + QUESTION_TOKENS * len(task.queries)
    return Request("check", make_messages(prompt.SYSTEM, user), tokens, check_prompt.SCHEMA)


def read_check(
    reply: Reply, task: WholeTask, documents: Mapping[str, Document], spans: Sequence[Span]
) -> tuple[QuestionCheck, ...]:
    """Read how far each question is answered. `documents` are those of the passages, which show `spans` of them.

    A question whose quote does not stand there word by word counts as not answered. `Unusable` unless the reply has one
    item for each question.
    """
    found = dict[int, QuestionCheck]()
    for item in read_parts(reply, "questions", check_prompt.CheckedQuestion):
        place, level = read_place(item.id, len(task.queries)), item.found
        if place is None or place in found or level is None:
            levels = ", ".join(get_args(Answered))
            raise Unusable(f"each item needs the id of one of the questions, none of them twice, and {levels} as found")
        shown, span = read_place(item.document, len(task.passages)), None
        if shown is not None and item.quote is not None and level != "not":
            span = find_quote(documents[task.passages[shown].doc_id], spans, item.quote)
        distinct = tuple(dict.fromkeys(text for text in map(tidy, item.searches) if any(map(str.isalnum, text))))
        found[place] = QuestionCheck(
            task.queries[place].id, level if span else "not", span, distinct[: check_prompt.MOST_SEARCHES]
        )
    if len(found) < len(task.queries):
        raise Unusable(f"{len(task.queries) - len(found)} of {len(task.queries)} questions are missing")
    return tuple(found[place] for place in range(len(task.queries)))


async def check_evidence(
    model: Model, task: WholeTask, documents: Mapping[str, Document], spans: Sequence[Span]
) -> tuple[tuple[QuestionCheck, ...], list[Fallback]]:
    """Check how far the documents answer each question; no check, with a `Fallback`, if the model gave none."""
    read: Callable[[Reply], tuple[QuestionCheck, ...]] = partial(
        read_check, task=task, documents=documents, spans=spans
    )
    (found,) = await ask_all(model, [(request_check(task), read)])
    if isinstance(found, Failure):
        return (), [Fallback(task.topic_id, "check", f"{found.reason}: no question was searched again")]
    return found, []
