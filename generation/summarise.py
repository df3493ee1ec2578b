"""Summaries that stand in for long documents when they are embedded, never as text to cite (paper, section 2.2)."""

from collections.abc import Iterable
from functools import partial

from generation.ask import ask
from generation.context.delimit import delimit
from generation.context.tokens import clip, count_tokens
from generation.llm.model import Model
from generation.prompts import summarise as prompt
from generation.structured import strip_thought
from generation.types import Failure, Fallback, Reply, Request
from indexing.errors import Unusable
from indexing.types import Document

LONG_DOCUMENT_TOKENS = 8000
"""Tokens above which a document is summarised; its summary has at most as many."""

LEAST_SUMMARY_TOKENS = 256
"""Tokens that the summary of a part may have, however many parts a document has."""

LONGEST_WORD_CHARACTERS = 100
"""Characters by which a part may end early, so that it ends with a word."""


def is_long(document: Document) -> bool:
    """Whether a document is too long to be embedded without a summary."""
    return count_tokens(document.contents) > LONG_DOCUMENT_TOKENS


async def summarise(model: Model, documents: Iterable[Document], window: int) -> tuple[dict[str, str], list[Fallback]]:
    """The summaries of the long ones among `documents`, by document id, each of at most 8,000 tokens.

    If a document does not fit half of the model's `window` (in tokens), its parts are summarised one by one, and then
    their joined summaries, until the result is short enough. If a part gets no usable summary, its beginning takes the
    place, and a `Fallback` with the document's id as `topic_id` says so.
    """
    texts = {document.id: document.contents for document in documents if is_long(document)}
    fallbacks: list[Fallback] = []
    waiting = list(texts)
    while waiting:
        work = [(id, part, limit) for id in waiting for part, limit in split_document(texts[id], window)]
        asked = ((request_summary(id, part, limit), partial(read_summary, limit=limit)) for id, part, limit in work)
        found = {number: value async for number, value in ask(model, asked)}
        summaries: dict[str, list[str]] = {id: [] for id in waiting}
        for number, (id, part, limit) in enumerate(work):
            value = found[number]
            if isinstance(value, Failure):
                fallbacks.append(Fallback(id, "summarise", f"{value.reason}: its first {limit} tokens are used"))
                value = clip(part, limit)
            summaries[id].append(value)
        texts |= {id: "\n".join(said) for id, said in summaries.items()}
        waiting = [id for id in waiting if count_tokens(texts[id]) > LONG_DOCUMENT_TOKENS]
    return texts, fallbacks


def split_document(text: str, window: int) -> list[tuple[str, int]]:
    """A text cut into even parts of at most about half a window, each with the tokens that its summary may have.

    A summary has at most a quarter of the window, because the estimate of tokens may be too low. It has at most three
    quarters of its part, so that summaries of summaries come to an end.
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
    """A request for a summary under three quarters of its limit, so that few summaries are too long."""
    target = max(1, limit * 3 // 4)
    user = prompt.USER.format(
        document=delimit(document_id, part), target_tokens=target, target_words=max(1, target * 3 // 4)
    )
    return Request("summarise", (("system", prompt.SYSTEM), ("user", user)), limit)


def read_summary(reply: Reply, limit: int) -> str:
    """The summary; a summary above the limit loses its end. `Unusable` if it is empty."""
    text = strip_thought(reply.text).strip()
    if not text:
        raise Unusable("it is empty")
    return clip(text, limit)
