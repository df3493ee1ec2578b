"""Retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): one answer a topic from its keystone documents.

One request asks for sentences with citations. Reference assignment then finds citations for the other sentences.

Answer-level fusion, step 1 (section 3.3.1), writes a cited sub-answer for each query in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from keystone.generation.answers.cite import assign_citations
from keystone.generation.answers.sentences import (
    Draft,
    Passage,
    WordRange,
    allow_tokens,
    make_answer_reader,
    make_messages,
    show_passages,
)
from keystone.generation.answers.shorten import shorten_answer
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import answer as prompt
from keystone.generation.prompts.answers import sub_answer as sub_prompt
from keystone.generation.structured import HELD_DRAFTS, note_drafts
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A topic's narrative, the passages for its answer, best first, and the range of the answer's words."""

    topic_id: str
    narrative: str
    passages: tuple[Passage, ...]
    words: WordRange
    notes: str = ""
    """The notes that the reader of the documents took. They guide the answer, and are no source."""


def request_answer(task: AnswerTask) -> Request:
    """Make a request for an answer. The narrative stands before and after the passages, which are numbered from 0."""
    low, high = task.words
    documents = show_passages(task.passages, task.notes)
    user = prompt.USER.format(narrative=task.narrative, documents=documents, low=low, high=high)
    return Request("answer", make_messages(prompt.SYSTEM, user), allow_tokens(high), prompt.SCHEMA)


async def draft_answer(model: Model, task: AnswerTask) -> Draft:
    """Write the answer to a task within its word limit; None if the model gave none. Its sentences cite document ids.

    If reference assignment finds no support for a sentence, the sentence cites nothing.
    """
    request = request_answer(task) if task.passages else None
    asked = [(task.topic_id, request, make_answer_reader(task.passages))]
    (answer,), fallbacks = await request_answers(model, "answer", asked)
    answer, missed = await shorten_and_cite(model, answer, task.words, task.passages)
    return answer, fallbacks + missed


async def shorten_and_cite(model: Model, answer: Answer | None, words: WordRange, passages: Sequence[Passage]) -> Draft:
    """Shorten an answer to its word limit, and assign citations to those of its sentences that have none."""
    answer, too_long = await shorten_answer(model, answer, words) if answer else (None, [])
    (answer,), uncited = await assign_citations(model, [answer], [passages])
    return answer, too_long + uncited


ReadSentences = Callable[[Reply], tuple[Sentence, ...]]
"""A reader of a reply: the sentences of an answer. `Unusable` if the reply holds none."""
NOTHING_TO_READ = "there is nothing to answer from"
"""The reason of a fallback if a topic has no documents."""


async def request_answers(
    model: Model, step: str, requests: Sequence[tuple[str, Request | None, ReadSentences]]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Request the answer to each (topic id, request, reader of its reply), in order; None if the model gave none.

    A request of None means that a topic has no documents. The model is not asked, because it would answer from memory.
    """
    sent = [(request, note_drafts(request, read)) for _, request, read in requests if request]
    replies = iter(await ask_all(model, sent))
    answers: list[Answer | None] = []
    fallbacks = []
    for topic_id, request, _ in requests:
        reply = next(replies) if request else Failure(NOTHING_TO_READ)
        if isinstance(reply, Failure):
            fallbacks.append(Fallback(topic_id, step, reply.reason))
        elif reply[1]:
            fallbacks.append(Fallback(topic_id, step, HELD_DRAFTS))
        answers.append(None if isinstance(reply, Failure) else Answer(topic_id, reply[0]))
    return answers, fallbacks


PromptWith = Literal["query", "narrative"]
"""The question of a sub-answer: its query (equation 3), or the whole narrative (equation 4; the paper's runs)."""

SUB_ANSWER_WORDS: WordRange = (350, 400)
"""The fewest and the most words that the prompt asks for."""


@dataclass(frozen=True, slots=True)
class SubTask:
    """One query of a topic, with the first documents of the query's own ranking, best first.

    The paper's run `base` takes 10 documents, its run `fewdoc` 5.
    """

    topic_id: str
    narrative: str
    query: str
    passages: tuple[Passage, ...]
    notes: str = ""
    """The notes that the reader of the documents took. They guide the answer, and are no source."""


def request_sub_answer(task: SubTask, prompt_with: PromptWith) -> Request:
    """Make a request for a sub-answer. The passages are numbered from 0."""
    question = task.query if prompt_with == "query" else task.narrative
    low, high = SUB_ANSWER_WORDS
    user = sub_prompt.USER.format(
        asked=question, documents=show_passages(task.passages, task.notes), low=low, high=high
    )
    return Request("sub_answer", make_messages(sub_prompt.SYSTEM, user), allow_tokens(high), prompt.SCHEMA)


async def write_sub_answers(
    model: Model, tasks: Sequence[SubTask], prompt_with: PromptWith = "query"
) -> tuple[list[Answer | None], list[Fallback]]:
    """Write the sub-answers to the tasks, in their order; None if the model gave no answer.

    Every sentence cites at least one document. If reference assignment finds none for a sentence, the sentence is left
    out, and a `Fallback` records that. The word limit holds for the final answer, not for a sub-answer.
    """
    sent = [request_sub_answer(task, prompt_with) if task.passages else None for task in tasks]
    requests = [
        (task.topic_id, request, make_answer_reader(task.passages)) for task, request in zip(tasks, sent, strict=True)
    ]
    answers, fallbacks = await request_answers(model, "sub_answer", requests)
    answers, uncited = await assign_citations(model, answers, [task.passages for task in tasks])
    return [_keep_cited(answer) for answer in answers], fallbacks + uncited


def _keep_cited(answer: Answer | None) -> Answer | None:
    kept = tuple(sentence for sentence in answer.sentences if sentence.citations) if answer else ()
    return replace(answer, sentences=kept) if answer and kept else None
