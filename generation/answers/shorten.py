"""Answers that are too long, shortened without new facts (Keystone-Docs RAG, 3.2.2, "Answer Summarization")."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from keystone.generation.answers.sentences import (
    WordRange,
    allow_tokens,
    count_words,
    cut_to_words,
    list_sentences,
    make_messages,
    read_rewritten,
)
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import shorten as prompt
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.errors import Unusable

MOST_ROUNDS = 2
"""How often the model may shorten one answer."""


def request_shorter(sentences: Sequence[Sentence], words: WordRange) -> Request:
    """Make a request for the sentences in fewer words. It shows ids, not citations."""
    user = prompt.USER.format(
        count=count_words(sentences), low=words[0], high=words[1], sentences=list_sentences(sentences)
    )
    return Request("shorten", make_messages(prompt.SYSTEM, user), allow_tokens(count_words(sentences)), prompt.SCHEMA)


def read_shorter(reply: Reply, sentences: Sequence[Sentence], words: WordRange) -> tuple[Sentence, ...]:
    """Read the sentences that stay, with their citations.

    `Unusable` unless they have fewer words than before, and at least the fewest of `words`.
    """
    found = read_rewritten(reply, sentences, may_drop=True)
    if not words[0] <= count_words(found) < count_words(sentences):
        raise Unusable(f"it has {count_words(found)} words, wanted are {words[0]} to {words[1]}")
    return found


async def shorten_answers(
    model: Model, answers: Sequence[Answer | None], words: Sequence[WordRange]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Shorten each answer to its word limit.

    If an answer is too long, the model shortens it, twice at most. If it is still too long, it is cut after its last
    sentence that fits; None if no sentence fits. Fallbacks record the model's failures and the cuts.
    """
    now, fallbacks = list(answers), list[Fallback]()
    open_places = {place for place, answer in enumerate(now) if answer}
    for _ in range(MOST_ROUNDS):
        long = [
            (place, answer, words[place])
            for place, answer in enumerate(now)
            if answer and place in open_places and count_words(answer.sentences) > words[place][1]
        ]
        requests = [
            (request_shorter(answer.sentences, wanted), partial(read_shorter, sentences=answer.sentences, words=wanted))
            for _, answer, wanted in long
        ]
        for (place, answer, _), found in zip(long, await ask_all(model, requests), strict=True):
            if isinstance(found, Failure):
                fallbacks.append(Fallback(answer.topic_id, "shorten", found.reason))
                open_places.discard(place)
            else:
                now[place] = replace(answer, sentences=found)
    for place, rest in enumerate(now):
        if rest:
            now[place], lost = cut_to_words(rest, words[place][1], "shorten")
            fallbacks += lost
    return now, fallbacks
