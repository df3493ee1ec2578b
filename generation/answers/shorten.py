"""An answer that is too long, shortened without new facts (Keystone-Docs RAG, 3.2.2, "Answer Summarization")."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from keystone.generation.answers.sentences import (
    Draft,
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
