"""Retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): one answer a topic from its keystone documents.

One request asks for sentences with citations. Reference assignment then finds citations for the other sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keystone.generation.answers.cite import assign_citations
from keystone.generation.answers.sentences import (
    Passage,
    WordRange,
    allow_tokens,
    make_answer_reader,
    make_messages,
    show_notes,
    show_passages,
)
from keystone.generation.answers.shorten import shorten_answers
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import answer as prompt
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
    documents = show_passages(task.passages) + show_notes(task.notes)
    user = prompt.USER.format(narrative=task.narrative, documents=documents, low=low, high=high)
    return Request("answer", make_messages(prompt.SYSTEM, user), allow_tokens(high), prompt.SCHEMA)


async def write_answers(model: Model, tasks: Sequence[AnswerTask]) -> tuple[list[Answer | None], list[Fallback]]:
    """Write the answers to the tasks, in their order, within their word limits; None if the model gave no answer.

    Sentences cite document ids. If reference assignment finds no support for a sentence, the sentence cites nothing.
    """
    requests = [
        (task.topic_id, request_answer(task) if task.passages else None, make_answer_reader(task.passages))
        for task in tasks
    ]
    answers, fallbacks = await request_answers(model, "answer", requests)
    answers, too_long = await shorten_answers(model, answers, [task.words for task in tasks])
    answers, uncited = await assign_citations(model, answers, [task.passages for task in tasks])
    return answers, fallbacks + too_long + uncited


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
