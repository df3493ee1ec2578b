"""First drafts of many answers at once, from documents or from sub-answers."""

from collections.abc import Callable, Sequence

from generation.ask import ask_all
from generation.llm.model import Model
from generation.types import Answer, Failure, Fallback, Reply, Request, Sentence

ReadSentences = Callable[[Reply], tuple[Sentence, ...]]


async def request_answers(
    model: Model, step: str, asked: Sequence[tuple[str, Request | None, ReadSentences]]
) -> tuple[list[Answer | None], list[Fallback]]:
    """The model's answer for each (topic id, request, its reader), in order; None if it gave no answer.

    A request of None has no documents: the model would answer from memory and is not asked.
    """
    open_ones = [(request, read) for _, request, read in asked if request]
    replies = iter(await ask_all(model, open_ones))
    answers: list[Answer | None] = []
    fallbacks = []
    for topic_id, request, _ in asked:
        reply = next(replies) if request else Failure("there is nothing to answer from")
        if isinstance(reply, Failure):
            fallbacks.append(Fallback(topic_id, step, reply.reason))
        answers.append(None if isinstance(reply, Failure) else Answer(topic_id, reply))
    return answers, fallbacks
