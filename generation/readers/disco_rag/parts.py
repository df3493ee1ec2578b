"""The trees, the graph and the plan: each is asked for within its share of the allowance, or made by rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from keystone.generation.llm.model import Model
from keystone.generation.readers.allowance import Allowance, Asked, ask_within
from keystone.generation.readers.disco_rag.blueprint import Blueprint
from keystone.generation.readers.disco_rag.chunks import Chunk
from keystone.generation.readers.disco_rag.graph import Graph, infer_graph, read_graph
from keystone.generation.readers.disco_rag.plan import make_plan, read_plan
from keystone.generation.readers.disco_rag.replies import Found
from keystone.generation.readers.disco_rag.requests import request_graph, request_plan, request_tree
from keystone.generation.readers.disco_rag.tree import grow_tree
from keystone.generation.readers.disco_rag.tree_reply import read_tree
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.structures.tree import Tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A tree or a graph with remarks for its step, and the outcome of the request for it."""

    value: T
    remarks: list[str]
    asked: Asked[Any]


def share_allowance(calls: int, tokens: int, chunks: int) -> list[Allowance]:
    """Share an allowance between the graph, the plan and the tree of each chunk, in this order.

    Calls are dealt out one by one. The graph and the plan see all chunks, so each gets a quarter of the tokens.
    """
    shares = [tokens // 4, tokens // 4, *[tokens // 2 // chunks] * chunks]
    fewest, more = divmod(calls, len(shares))
    return [Allowance(fewest + (place < more), share) for place, share in enumerate(shares)]


async def make_tree(model: Model | None, chunk: Chunk, allowance: Allowance) -> Part[Tree]:
    """Make the tree of a chunk."""
    read = partial(read_tree, text=chunk.text)
    return await _make(model, request_tree(chunk), read, partial(grow_tree, chunk.text), allowance)


async def make_graph(model: Model | None, chunks: Sequence[Chunk], allowance: Allowance) -> Part[Graph]:
    """Make the graph between chunks."""
    read = partial(read_graph, count=len(chunks))
    return await _make(model, request_graph(chunks), read, partial(infer_graph, chunks), allowance)


async def make_plans(
    model: Model | None, question: str, blueprint: Blueprint, allowance: Allowance
) -> list[Asked[str]]:
    """Plan the answer; returns the outcome of each request. Only the last one may be a plan.

    If no reply holds a plan, it is asked for once more without trees and graph. Without a model it is a template.
    """
    if model is None:
        return [Asked(make_plan(blueprint.chunks, blueprint.graph or {}))]
    plans: list[Asked[str]] = []
    for shown in dict.fromkeys(
        [request_plan(question, blueprint), request_plan(question, Blueprint(blueprint.chunks))]
    ):
        plans.append(await ask_within(model, shown, read_plan, allowance))
        if isinstance(plans[-1].found, str):
            break
    return plans


async def _make(
    model: Model | None,
    request: Request,
    read: Callable[[Reply], Found[T]],
    infer: Callable[[], Found[T]],
    allowance: Allowance,
) -> Part[T]:
    """Ask for a part; if there is no model, or no usable reply, rules make it."""
    if model is None:
        made = infer()
        return Part(made.value, made.remarks, Asked(made))
    asked = await ask_within(model, request, read, allowance)
    if isinstance(asked.found, Failure):
        made = infer()
        return Part(made.value, [asked.found.reason, *made.remarks], asked)
    return Part(asked.found.value, asked.found.remarks, asked)
