"""Summaries of long documents. They are embedded in place of the text, and never cited (paper, section 2.2)."""

from collections.abc import Iterable
from functools import partial

from keystone.generation.context.texts import clip, count_tokens, delimit
from keystone.generation.llm.ask import ask
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import SUMMARISE
from keystone.generation.replies import strip_thought
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document

LONG_DOCUMENT_TOKENS = 8000
"""A document of more tokens is summarised, to at most this number."""

LEAST_SUMMARY_TOKENS = 256
"""The tokens that the summary of a part may always have, even if the document has many parts."""

LONGEST_WORD_CHARACTERS = 100
"""The most characters by which a part ends early, so that it ends with a whole word."""


def is_long(document: Document) -> bool:
    """Return whether a document is too long to be embedded without a summary."""
    return count_tokens(document.contents) > LONG_DOCUMENT_TOKENS


async def summarise(model: Model, documents: Iterable[Document], window: int) -> tuple[dict[str, str], list[Fallback]]:
    """Summarise the long ones among `documents`; returns the summaries by document id, each of at most 8,000 tokens.

    If a document does not fit half of the model's `window` (in tokens), its parts are summarised one by one. Their
    joined summaries are then summarised again, until the result is short enough. If the model gives no usable summary
    of a part, the part's first tokens replace it. A `Fallback` with the document's id as `topic_id` records that.
    """
    texts = {document.id: document.contents for document in documents if is_long(document)}
    fallbacks: list[Fallback] = []
    waiting = list(texts)
    while waiting:
        work = [(id, part, limit) for id in waiting for part, limit in split_document(texts[id], window)]
        requests = ((request_summary(id, part, limit), partial(read_summary, limit=limit)) for id, part, limit in work)
        found = {number: value async for number, value in ask(model, requests)}
        summaries: dict[str, list[str]] = {id: [] for id in waiting}
        for number, (id, part, limit) in enumerate(work):
            value = found[number]
            if isinstance(value, Failure):
                fallbacks.append(Fallback(id, "summarise", f"{value.reason}: its first {limit} tokens are used"))
                value = clip(part, limit)
            summaries[id].append(value)
        texts |= {id: "\n".join(own) for id, own in summaries.items()}
        waiting = [id for id in waiting if count_tokens(texts[id]) > LONG_DOCUMENT_TOKENS]
    return texts, fallbacks


def split_document(text: str, window: int) -> list[tuple[str, int]]:
    """Split a text into even parts of about half a window at most, each with the most tokens of its summary.

    A summary has at most a quarter of the window, because the estimate of tokens may be too low. It has at most three
    quarters of its part's tokens, so that repeated summaries become short enough.
    """
    count = -(-count_tokens(text) // (window // 2))
    limit = min(window // 4, max(LEAST_SUMMARY_TOKENS, LONG_DOCUMENT_TOKENS // count - 1))
    return [
        (part, max(1, min(limit, count_tokens(part) * 3 // 4))) for part in _cut_at_words(text, -(-len(text) // count))
    ]


def _cut_at_words(text: str, size: int) -> list[str]:
    cuts = [
        text.rfind(" ", at - min(LONGEST_WORD_CHARACTERS, size // 2), at) + 1 or at
        for at in range(size, len(text), size)
    ]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def request_summary(document_id: str, part: str, limit: int) -> Request:
    """Make a request for a summary. It asks for three quarters of `limit`, so that few summaries exceed the limit."""
    target = max(1, limit * 3 // 4)
    words, document = max(1, target * 3 // 4), delimit(document_id, part)
    return SUMMARISE.request(limit, document=document, target_tokens=target, target_words=words)


def read_summary(reply: Reply, limit: int) -> str:
    """Read a summary, and cut it after `limit` tokens. `Unusable` if it is empty."""
    text = strip_thought(reply.text).strip()
    if not text:
        raise Unusable("it is empty")
    return clip(text, limit)
