"""Facts of chunks: by rules, or by one request to the model for each chunk (GraphReader, section 3.2).

The request depends on nothing but the chunk, so that the cache of replies serves every question about the document.
"""

from collections.abc import Callable, Sequence
from functools import partial

from keystone.generation.answers.sentences import make_messages
from keystone.generation.ask import run_together
from keystone.generation.context.delimit import delimit
from keystone.generation.llm.model import Model
from keystone.generation.prompts.readers import graphreader as prompt
from keystone.generation.readers.allowance import Allowance, Asked, ask_within, count_prompt_tokens
from keystone.generation.readers.graphreader.material import Chunk, ChunkFact, find_parts, find_support
from keystone.generation.readers.graphreader.replies import disarm, read_facts
from keystone.generation.readers.graphreader.start import record_start
from keystone.generation.readers.question import Question
from keystone.generation.types import Failure, Reply, Request, Step
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.facts import Fact, find_fact_spans
from keystone.indexing.types import Span

FACTS_TOKENS = 1024
"""The most tokens of the facts of a chunk (paper, Figure 6)."""
REPAIR_TOKENS = 256
"""The tokens of the words that ask for a repair."""


def make_rule_facts(chunks: Sequence[Chunk], facts: Sequence[Sequence[Fact]]) -> dict[int, list[ChunkFact]]:
    """Sort the facts that rules found in each document into its chunks. `facts` has the documents' order."""
    found: dict[int, list[ChunkFact]] = {}
    documents = dict.fromkeys(chunk.row for chunk in chunks)
    by_row = dict(zip(documents, facts, strict=True))
    for chunk in chunks:
        text, doc_id = chunk.document.text, chunk.document.id
        found[chunk.number] = [
            ChunkFact(chunk.number, Span(doc_id, fact.start, fact.end), text[fact.start : fact.end], fact.keys)
            for fact in by_row[chunk.row]
            if chunk.start <= fact.start < chunk.end
        ]
    return found


async def ask_for_facts(
    question: Question, model: Model, chunks: Sequence[Chunk], allowance: Allowance
) -> tuple[dict[int, list[ChunkFact]], list[Step]]:
    """Ask the model for the facts of each chunk; a chunk without usable facts is not in the result.

    The first chunks are asked for, as many as the allowance surely holds with their repairs. What they do not use stays
    in the allowance.
    """
    work, shares = [], []
    for chunk in chunks:
        request = request_facts(chunk)
        most = 2 * count_prompt_tokens(request) + 3 * FACTS_TOKENS + REPAIR_TOKENS
        if allowance.calls < 2 or allowance.tokens < most:
            break
        share = Allowance(2, most)
        allowance.calls, allowance.tokens = allowance.calls - share.calls, allowance.tokens - share.tokens
        shares.append(share)
        work.append(partial(ask_within, model, request, make_facts_reader(chunk), share))
    asked: list[Asked[list[ChunkFact]]] = await run_together(work)
    for share in shares:
        allowance.calls, allowance.tokens = allowance.calls + share.calls, allowance.tokens + share.tokens
    found = {
        chunk.number: one.found for chunk, one in zip(chunks, asked, strict=False) if not isinstance(one.found, Failure)
    }
    steps = [
        record_start(question, "graph_facts", chunk.id, one, f"{len(found[chunk.number])} facts")
        if chunk.number in found
        else record_start(question, "graph_facts", chunk.id, one, "facts by rules")
        for chunk, one in zip(chunks, asked, strict=False)
    ]
    return found, steps


def request_facts(chunk: Chunk) -> Request:
    """Make the request for the facts of a chunk."""
    shown = delimit("chunk", disarm(chunk.text), disarm(chunk.document.title))
    messages = make_messages(prompt.FACTS_SYSTEM, prompt.FACTS.format(chunk=shown))
    return Request("graph_facts", messages, FACTS_TOKENS)


def make_facts_reader(chunk: Chunk) -> Callable[[Reply], list[ChunkFact]]:
    """Make the reader of a chunk's facts. A fact without a sentence of the chunk that it can rest on is dropped."""
    text, doc_id = chunk.document.text, chunk.document.id
    spans = [Span(doc_id, *span) for span in find_fact_spans(text, chunk.start, chunk.end)]
    parts = [find_parts(text[span.start : span.end]) for span in spans]

    def read(reply: Reply) -> list[ChunkFact]:
        facts = [
            ChunkFact(chunk.number, spans[places[0]], fact, keys)
            for fact, keys in read_facts(reply)
            if (places := find_support(fact, parts))
        ]
        if not facts:
            raise Unusable("its facts do not stand in the text")
        return facts

    return read
