"""An answer from claims: they are collected for each query, merged, chosen for coverage, and written as prose."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from keystone.generation.answers.claims.choose import choose_claims, merge_claims
from keystone.generation.answers.claims.collect import ClaimTask, collect_claims
from keystone.generation.answers.claims.write import ProseTask, write_prose
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Fallback
from keystone.indexing.types import Document
from keystone.indexing.vectors.types import Vectors


async def answer_from_claims(
    model: Model,
    tasks: Sequence[ClaimTask],
    documents: Mapping[str, Document],
    embed: Callable[[Sequence[str]], Vectors],
    words: int,
) -> tuple[Answer | None, list[Fallback]]:
    """Answer a topic in at most `words` words. `tasks` are its queries, in order; None if there is no claim.

    `documents` are those of the passages, by id. `embed` embeds texts as float32[texts, d], unit vectors. The answer
    cites segments.
    """
    claims, fallbacks = await collect_claims(model, tasks, documents)
    vectors = await asyncio.to_thread(embed, [claim.text for claim in claims])
    chosen = choose_claims(merge_claims(claims, vectors), len(tasks), words)
    if not chosen:
        return None, fallbacks
    queries = tuple(task.query for task in tasks)
    answer, missed = await write_prose(
        model, ProseTask(tasks[0].topic_id, tasks[0].narrative, queries, tuple(chosen), words)
    )
    return answer, [*fallbacks, *missed]
