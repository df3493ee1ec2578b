"""Any text of a model gives a valid tree, graph and plan, or `Unusable` with a reason."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.texts import count_tokens
from keystone.generation.readers.disco_rag.read import PLAN_TOKENS, read_plan
from keystone.generation.readers.disco_rag.relations import INTER, INTRA, Graph, read_graph
from keystone.generation.readers.disco_rag.tree_reply import read_tree
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.tree import Tree, leaves
from tests.support.mutation import FUZZ_CASES, mutate
from tests.support.structures.discourse_trees import check_binary
from tests.support.structures.rhetoric import write_graph, write_tree

TEXT = (
    "The musical began with previews in 1997. Critics praised it, but tickets were dear. (Some seats were not.) "
    "In 2006 it moved to another theatre; the move made room for a newer show. It still runs."
)
MUTATIONS = FUZZ_CASES or 1_000


def check_tree(tree: Tree) -> None:
    check_binary(tree)
    assert "".join("".join(TEXT[leaf.start : leaf.end] for leaf in leaves(tree)).split()) == "".join(TEXT.split())
    assert {node.relation for node in tree.nodes} <= {"", *INTRA.relations}


def check_graph(graph: Graph) -> None:
    assert list(graph) == list(permutations(range(1, 6), 2))
    assert set(graph.values()) <= set(INTER.relations)


def check_plan(plan: str) -> None:
    assert plan == " ".join(plan.split()) != ""
    assert count_tokens(plan) <= PLAN_TOKENS


READERS: dict[str, tuple[str, Callable[[Reply], None]]] = {
    "tree": (write_tree(TEXT), lambda reply: check_tree(read_tree(reply, TEXT).value)),
    "graph": (write_graph(5), lambda reply: check_graph(read_graph(reply, 5).value)),
    "plan": (
        "**Notes**\nPLAN: Begin with CHUNK[1], then use CHUNK[3].\n\nANSWER: it began in 1997.",
        lambda reply: check_plan(read_plan(reply)),
    ),
}


def read(reply: Reply, name: str) -> str:
    """Read a reply and check the outcome; returns whether it was used."""
    try:
        READERS[name][1](reply)
    except Unusable as refusal:
        return "refused" if str(refusal) else "refused without a reason"
    return "used"


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_mutated_replies_are_valid_or_refused_and_some_are_each(name: str) -> None:
    good, chance = READERS[name][0], Random(13)
    assert read(Reply(good), name) == "used"
    outcomes = Counter(
        read(Reply(mutate(good.encode(), chance).decode("utf-8", "surrogateescape")), name) for _ in range(MUTATIONS)
    )
    assert outcomes.keys() == {"used", "refused"}
    assert min(outcomes["used"], outcomes["refused"]) > MUTATIONS // 50


@pytest.mark.parametrize("name", READERS)
@given(
    text=st.text(st.sampled_from("[](),:->\u2192 \nEDUCHNKRLATIOPnsed0123456789\u0663") | st.characters(), max_size=200)
)
def test_any_text_is_valid_or_refused(name: str, text: str) -> None:
    assert read(Reply(text), name) in ("used", "refused")
