"""One request for the answer to each topic, from documents or from sub-answers."""

from collections.abc import Callable, Sequence

from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.structured import HELD_DRAFTS, note_drafts
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence

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
