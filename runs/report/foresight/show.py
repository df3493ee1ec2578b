"""A run before it is made, as lines for people and as values of JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from keystone.generation.llm.usage import Prices, add_usage, compute_cost
from keystone.generation.types import Usage
from keystone.runs.pipeline.stages.answer_cost import SENTENCE_WORDS
from keystone.runs.report.foresight.foresee import Foresight
from keystone.runs.wording import plural

NUMBERS = ("calls", "prompt_tokens", "completion_tokens")
"""The fields of `Usage` that can be foreseen."""


def format_foresight(found: Foresight) -> Iterator[str]:
    """Format the stages with their fate, and a table of calls, tokens and cost by purpose."""
    yield f"{found.directory}: {plural(found.topics, 'topic')}; nothing is written, no model is asked"
    width = max(len(stage.name) for stage in found.stages)
    for stage in found.stages:
        yield f"{stage.name:{width}}  {stage.plan}: {', '.join(stage.artifacts)}"
    if found.calls:
        rows = [(one.stage, one.purpose, one.most) for one in found.calls]
        total = _add([one.most for one in found.calls])
        yield ""
        yield from _format_table([*rows, ("total", "", total)], found.prices)
        likely = _add([one.likely for one in found.calls])
        cost = "" if found.prices is None else f", ${compute_cost(likely, found.prices):,.2f}"
        tokens = f"{likely.prompt_tokens:,} tokens of prompts and {likely.completion_tokens:,} of replies"
        assumed = f"without repairs, with four characters a token and {SENTENCE_WORDS} words a sentence"
        yield f"{assumed}: {likely.calls:,} calls, {tokens}{cost}"
    else:
        yield "the run needs no language model"
    if found.budget:
        limits = ", ".join(f"{key} {value:,}" for key, value in found.budget.model_dump(exclude_none=True).items())
        yield f"the budget allows at most: {limits}"
    if found.reranker:
        most = found.reranker.most
        yield f"reranker {found.reranker.purpose}: {most.calls:,} requests, {most.prompt_tokens:,} tokens at most"


def list_foresight(found: Foresight) -> dict[str, Any]:
    """List the same facts as values of JSON."""

    def count(usage: Usage) -> dict[str, float]:
        cost = {} if found.prices is None else {"cost": compute_cost(usage, found.prices)}
        return {name: getattr(usage, name) for name in NUMBERS} | cost

    return {
        "directory": found.directory,
        "topics": found.topics,
        "stages": [asdict(stage) for stage in found.stages],
        "calls": [
            {"stage": one.stage, "purpose": one.purpose, "most": count(one.most), "likely": count(one.likely)}
            for one in found.calls
        ],
        "total": {
            "most": count(_add([one.most for one in found.calls])),
            "likely": count(_add([one.likely for one in found.calls])),
        },
        "reranker": found.reranker
        and {"name": found.reranker.purpose, "requests": found.reranker.most.calls}
        | {"tokens": found.reranker.most.prompt_tokens},
        "budget": found.budget and found.budget.model_dump(),
    }


def _add(usages: Sequence[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total


def _format_table(rows: Sequence[tuple[str, str, Usage]], prices: Prices | None) -> Iterator[str]:
    """Format the rows of calls. Columns of numbers end together."""
    head = ["stage", "purpose", "calls at most", "prompt tokens", "reply tokens", *(["dollars"] if prices else [])]
    lines = [head]
    for stage, purpose, usage in rows:
        cost = [] if prices is None else [f"{compute_cost(usage, prices):,.2f}"]
        lines.append([stage, purpose, *(f"{getattr(usage, name):,}" for name in NUMBERS), *cost])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = (f"{cell:{'<' if place < 2 else '>'}{widths[place]}}" for place, cell in enumerate(line))
        yield "  ".join(cells).rstrip()
