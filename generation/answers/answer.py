"""One answer a topic, written in one request, shortened to its limit, with citations of documents.

Retrieval-level fusion (Keystone-Docs RAG, section 3.2.2) asks for sentences with citations, from the keystone documents
or freely from whole documents. An answer that is too long is shortened without new facts ("Answer Summarization").
Reference assignment then finds citations for the other sentences. Answer-level fusion, step 1 (section 3.3.1), writes a
cited sub-answer for each query in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from keystone.generation.answers.cite import assign_citations
from keystone.generation.answers.quotes import find_quote
from keystone.generation.answers.sentences import (
    Draft,
    Passage,
    QueryTask,
    WordRange,
    allow_tokens,
    count_words,
    cut_to_words,
    list_as_json,
    list_sentences,
    read_answer,
    read_place,
    read_rewritten,
    show_passages,
    tidy,
)
from keystone.generation.context.texts import neutralise
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import HELD_DRAFTS, note_drafts, read_parts
from keystone.generation.types import (
    MOST_CITATIONS,
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

MOST_ROUNDS = 2
"""How often the model may shorten one answer."""


def request_shorter(sentences: Sequence[Sentence], words: WordRange) -> Request:
    """Make a request for the sentences in fewer words. It shows ids, not citations."""
    count = count_words(sentences)
    listed = list_sentences(sentences)
    return prompts.SHORTEN.request(allow_tokens(count), count=count, low=words[0], high=words[1], sentences=listed)


def read_shorter(reply: Reply, sentences: Sequence[Sentence], words: WordRange) -> tuple[Sentence, ...]:
    """Read the sentences that stay. `Unusable` unless they have fewer words than before, and at least `words[0]`."""
    found = read_rewritten(reply, sentences, may_drop=True)
    if not words[0] <= count_words(found) < count_words(sentences):
        raise Unusable(f"it has {count_words(found)} words, wanted are {words[0]} to {words[1]}")
    return found


async def shorten_answer(model: Model, answer: Answer, words: WordRange) -> Draft:
    """Shorten an answer to its word limit.

    If it is too long, the model shortens it, twice at most. If it is still too long, it is cut after its last sentence
    that fits; None if no sentence fits. Fallbacks record the model's failures and the cut.
    """
    fallbacks: list[Fallback] = []
    for _ in range(MOST_ROUNDS):
        if count_words(answer.sentences) <= words[1]:
            break
        read = partial(read_shorter, sentences=answer.sentences, words=words)
        (found,) = await ask_all(model, [(request_shorter(answer.sentences, words), read)])
        if isinstance(found, Failure):
            fallbacks.append(Fallback(answer.topic_id, "shorten", found.reason))
            break
        answer = replace(answer, sentences=found)
    kept, lost = cut_to_words(answer, words[1], "shorten")
    return kept, fallbacks + lost


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A topic's narrative, the passages for its answer, best first, and the range of the answer's words."""

    topic_id: str
    narrative: str
    passages: tuple[Passage, ...]
    words: WordRange
    notes: str = ""
    """The notes that the reader of the documents took. They guide the answer, and are no source."""
    queries: Sequence[Query] = ()
    """The narrative's questions, if they are known, to check the documents by."""
    gaps: bool = False
    """Whether the answer may tell what the documents leave open."""


def request_answer(task: AnswerTask) -> Request:
    """Make a request for an answer. The narrative stands before and after the passages, which are numbered from 0."""
    low, high = task.words
    documents = show_passages(task.passages, task.notes)
    return prompts.ANSWER.request(allow_tokens(high), narrative=task.narrative, documents=documents, low=low, high=high)


async def draft_answer(
    model: Model, task: AnswerTask, make_request: Callable[[AnswerTask], Request] = request_answer
) -> Draft:
    """Write the answer to a task within its word limit; None if the model gave none. Its sentences cite document ids.

    `make_request` is `request_answer` or `request_whole`. If reference assignment finds no support for a sentence, the
    sentence cites nothing.
    """
    request = make_request(task) if task.passages else None
    asked = task.topic_id, request, partial(read_answer, passages=task.passages)
    return await write_within(model, "answer", asked, task.words, task.passages)


AskedAnswer = tuple[str, Request | None, Callable[[Reply], tuple[tuple[Sentence, ...], str]]]
"""A topic's id; the request for its answer, or None if there is nothing to answer from; a reader such as `read_answer`.
"""


async def write_within(
    model: Model, step: str, asked: AskedAnswer, words: WordRange, passages: Sequence[Passage]
) -> Draft:
    """Write an answer, shorten it to its word limit, and assign citations to those of its sentences that have none."""
    (answer,), fallbacks = await request_answers(model, step, [asked])
    answer, too_long = await shorten_answer(model, answer, words) if answer else (None, [])
    (answer,), uncited = await assign_citations(model, [answer], [passages])
    return answer, fallbacks + too_long + uncited


async def request_answers(
    model: Model, step: str, requests: Sequence[AskedAnswer]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Request the answer to each topic, in order; None if the model gave none.

    A request of None means that a topic has no documents. The model is not asked, because it would answer from memory.
    """
    sent = [(request, note_drafts(request, read)) for _, request, read in requests if request]
    replies = iter(await ask_all(model, sent))
    answers: list[Answer | None] = []
    fallbacks = []
    for topic_id, request, _ in requests:
        reply = next(replies) if request else Failure("there is nothing to answer from")
        if isinstance(reply, Failure):
            fallbacks.append(Fallback(topic_id, step, reply.reason))
        elif reply[1]:
            fallbacks.append(Fallback(topic_id, step, HELD_DRAFTS))
        answers.append(None if isinstance(reply, Failure) else Answer(topic_id, reply[0][0], missing=reply[0][1]))
    return answers, fallbacks


PromptWith = Literal["query", "narrative"]
"""The question of a sub-answer: its query (equation 3), or the whole narrative (equation 4; the paper's runs)."""

SUB_ANSWER_WORDS: WordRange = (350, 400)
"""The fewest and the most words that the prompt asks for."""


def request_sub_answer(task: QueryTask, prompt_with: PromptWith) -> Request:
    """Make a request for a sub-answer. The passages are numbered from 0."""
    question = task.query if prompt_with == "query" else task.narrative
    low, high = SUB_ANSWER_WORDS
    documents = show_passages(task.passages, task.notes)
    return prompts.SUB_ANSWER.request(allow_tokens(high), asked=question, documents=documents, low=low, high=high)


async def write_sub_answers(
    model: Model, tasks: Sequence[QueryTask], prompt_with: PromptWith = "query"
) -> tuple[list[Answer | None], list[Fallback]]:
    """Write the sub-answers to the tasks, in their order; None if the model gave no answer.

    Every sentence cites at least one document. If reference assignment finds none for a sentence, the sentence is left
    out, and a `Fallback` records that. The word limit holds for the final answer, not for a sub-answer.
    """
    requests = [
        (
            task.topic_id,
            request_sub_answer(task, prompt_with) if task.passages else None,
            partial(read_answer, passages=task.passages),
        )
        for task in tasks
    ]
    answers, fallbacks = await request_answers(model, "sub_answer", requests)
    answers, uncited = await assign_citations(model, answers, [task.passages for task in tasks])
    return [_keep_cited(answer) for answer in answers], fallbacks + uncited


def _keep_cited(answer: Answer | None) -> Answer | None:
    kept = tuple(sentence for sentence in answer.sentences if sentence.citations) if answer else ()
    return replace(answer, sentences=kept) if answer and kept else None


QUESTION_TOKENS = 192
"""The most tokens of a reply about one question."""


def request_whole(task: AnswerTask) -> Request:
    """Make a request for an answer. The narrative stands before and after the documents, which are numbered from 0.

    The model is not shown the list of questions: it would answer one after another, and lose the narrative's own frame.
    """
    return prompts.WHOLE.request(
        2 * allow_tokens(task.words[1]),
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        high=task.words[1],
        most=MOST_CITATIONS,
        gaps=prompts.TOLD_GAPS if task.gaps else prompts.NO_GAPS,
        missing=prompts.MOST_MISSING_WORDS,
        faults=prompts.MOST_FAULTS,
    )


def list_questions(queries: Sequence[Query]) -> str:
    """List the questions of queries as JSON, one a line: their places from 0, and what each wants, if that is known."""
    return list_as_json(
        {"id": place, "question": neutralise(query.question), **({"wants": query.ask.form} if query.ask else {})}
        for place, query in enumerate(queries)
    )


def request_check(task: AnswerTask) -> Request:
    """Make a request to check how far the documents of a task answer its questions."""
    return prompts.CHECK_EVIDENCE.request(
        1024 + QUESTION_TOKENS * len(task.queries),
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        questions=list_questions(task.queries),
        most=prompts.MOST_SEARCHES,
    )


def read_check(
    reply: Reply, task: AnswerTask, documents: Mapping[str, Document], spans: Sequence[Span]
) -> tuple[QuestionCheck, ...]:
    """Read how far each question is answered. `documents` are those of the passages, which show `spans` of them.

    A question whose quote does not stand there word by word counts as not answered. `Unusable` unless the reply has one
    item for each question.
    """
    found = dict[int, QuestionCheck]()
    for item in read_parts(reply, "questions", prompts.CheckedQuestion):
        place, level = read_place(item.id, len(task.queries)), item.found
        if place is None or place in found or level is None:
            levels = ", ".join(get_args(Answered))
            raise Unusable(f"each item needs the id of one of the questions, none of them twice, and {levels} as found")
        shown, span = read_place(item.document, len(task.passages)), None
        if shown is not None and item.quote is not None and level != "not":
            span = find_quote(documents[task.passages[shown].doc_id], spans, item.quote)
        distinct = tuple(dict.fromkeys(text for text in map(tidy, item.searches) if any(map(str.isalnum, text))))
        found[place] = QuestionCheck(
            task.queries[place].id, level if span else "not", span, distinct[: prompts.MOST_SEARCHES]
        )
    if len(found) < len(task.queries):
        raise Unusable(f"{len(task.queries) - len(found)} of {len(task.queries)} questions are missing")
    return tuple(found[place] for place in range(len(task.queries)))


async def check_evidence(
    model: Model, task: AnswerTask, documents: Mapping[str, Document], spans: Sequence[Span]
) -> tuple[tuple[QuestionCheck, ...], list[Fallback]]:
    """Check how far the documents answer each question; no check, with a `Fallback`, if the model gave none."""
    read = partial(read_check, task=task, documents=documents, spans=spans)
    (found,) = await ask_all(model, [(request_check(task), read)])
    if isinstance(found, Failure):
        return (), [Fallback(task.topic_id, "check", f"{found.reason}: no question was searched again")]
    return found, []
