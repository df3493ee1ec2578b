"""Graphs between chunks: read from replies of every shape, inferred by rules, and shuffled; and the inventories."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.readers.disco_rag.relations import (
    INTER,
    INTRA,
    Chunk,
    infer_graph,
    name_relation,
    read_graph,
    show_graph,
    shuffle_graph,
)
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.discourse import CONNECTIVES
from keystone.indexing.types import Span
from tests.support.structures.rhetoric import write_graph

WELL = "CHUNK[1] -> CHUNK[2]: SEQUENCE\nCHUNK[2] -> CHUNK[1]: UNRELATED\nCHUNK[3] -> CHUNK[1]: SUPPORT"
SHOWN = "CHUNK[1] -> CHUNK[2]: SEQUENCE\nCHUNK[3] -> CHUNK[1]: SUPPORT"

REPLIES = {
    "well-formed": (WELL, SHOWN, 3),
    "arrows": (WELL.replace("->", "\u2192"), SHOWN, 3),
    "long arrows and lower case": (WELL.replace("->", "-->").lower(), SHOWN, 3),
    "without the word": (WELL.replace("CHUNK", ""), SHOWN, 3),
    "without brackets": (WELL.replace("[", " ").replace("]", ""), SHOWN, 3),
    "fences, bold type and braces": (f"```\n{WELL.replace('SEQUENCE', '**{SEQUENCE}**')}\n```", SHOWN, 3),
    "a list": ("\n".join(f"- {line}." for line in WELL.split("\n")), SHOWN, 3),
    "prose around": (f"Here are the relations:\n\n{WELL}\n\nI hope this helps.", SHOWN, 3),
    "a thought before": (f"<think>CHUNK[1] -> CHUNK[2]: CAUSE</think>{WELL}", SHOWN, 3),
    "unordered": ("\n".join(reversed(WELL.split("\n"))), SHOWN, 3),
    "duplicates, of which the first counts": (f"{WELL}\nCHUNK[1] -> CHUNK[2]: CAUSE", SHOWN, 3),
    "itself": (f"CHUNK[1] -> CHUNK[1]: CAUSE\n{WELL}", SHOWN, 3),
    "out of range": (f"CHUNK[0] -> CHUNK[1]: CAUSE\nCHUNK[1] -> CHUNK[4]: CAUSE\n{WELL}", SHOWN, 3),
    "without a label": (f"CHUNK[3] -> CHUNK[2]\n{WELL}", SHOWN, 4),
    "an alias": (WELL.replace("SUPPORT", "Corroboration, as both say so"), SHOWN, 3),
    "missing": ("CHUNK[1] -> CHUNK[2]: SEQUENCE", SHOWN.split("\n")[0], 1),
}


@pytest.mark.parametrize(("reply", "shown", "given"), REPLIES.values(), ids=REPLIES.keys())
def test_a_reply_gives_each_ordered_pair_a_label_and_the_remarks_count_them(reply: str, shown: str, given: int) -> None:
    graph, remarks = read_graph(Reply(reply), 3)
    assert list(graph) == list(permutations((1, 2, 3), 2))
    assert show_graph(graph) == shown
    assert remarks[0] == f"{given} of 6 pairs labelled"


def test_an_unknown_label_is_unrelated_and_a_remark_says_so() -> None:
    graph, remarks = read_graph(Reply("CHUNK[1] -> CHUNK[2]: zeugma"), 2)
    assert (graph[1, 2], remarks[1]) == ("UNRELATED", 'read "zeugma" as UNRELATED')


@pytest.mark.parametrize(
    "reply", ["", "They are all about bees.", "CHUNK[1] -> CHUNK[1]: CAUSE", "CHUNK[7] -> CHUNK[1]: CAUSE"]
)
def test_a_reply_without_a_pair_is_refused_with_the_form_that_is_wanted(reply: str) -> None:
    with pytest.raises(Unusable, match=r"CHUNK\[1\] -> CHUNK\[2\]: UNRELATED, with numbers from 1 to 3"):
        read_graph(Reply(reply), 3)


def make_chunks(*texts: str, documents: str = "abcdef") -> list[Chunk]:
    return [
        Chunk(n, 0, Span(doc_id, 100 * n, 100 * n + len(text)), text, 0.9 - 0.1 * n)
        for n, (text, doc_id) in enumerate(zip(texts, documents, strict=False), 1)
    ]


INFERRED = {
    "an earlier year": (
        ["The musical opened in 1997.", "In 2006 the musical moved."],
        "ab",
        "CHUNK[1] -> CHUNK[2]: SEQUENCE",
    ),
    "a later year": (
        ["In 2006 the musical moved.", "The musical opened in 1997."],
        "ab",
        "CHUNK[2] -> CHUNK[1]: SEQUENCE",
    ),
    "years that overlap": (
        ["The musical ran from 1997 to 2010.", "In 2006 the musical moved."],
        "ab",
        "CHUNK[2] -> CHUNK[1]: ELABORATION",
    ),
    "words in common": (
        ["The musical is loud.", "That musical has a long first act."],
        "ab",
        "CHUNK[2] -> CHUNK[1]: ELABORATION",
    ),
    "no words in common": (["The musical is loud.", "Bees dance."], "ab", ""),
    "a connective in one document": (
        ["The musical is loud.", "However, bees dance."],
        "aa",
        "CHUNK[2] -> CHUNK[1]: CONTRAST",
    ),
    "a connective of time": (["The musical is loud.", "Then bees dance."], "aa", "CHUNK[1] -> CHUNK[2]: SEQUENCE"),
    "a connective between documents": (["The musical is loud.", "However, bees dance."], "ab", ""),
    "one chunk": (["The musical is loud."], "a", ""),
}


@pytest.mark.parametrize(("texts", "documents", "shown"), INFERRED.values(), ids=INFERRED.keys())
def test_rules_infer_labels_from_connectives_years_and_words(texts: list[str], documents: str, shown: str) -> None:
    assert show_graph(infer_graph(make_chunks(*texts, documents=documents)).value) == shown


@given(st.lists(st.sampled_from(["Bees dance.", "However, no.", "In 1997 bees sang.", "", "2006 bees"]), max_size=6))
def test_graphs_by_rules_have_all_ordered_pairs_and_labels_of_the_inventory(texts: list[str]) -> None:
    graph = infer_graph(make_chunks(*texts)).value
    assert len(graph) == len(texts) * (len(texts) - 1)
    assert set(graph.values()) <= set(INTER.relations)


def test_shuffled_graphs_keep_pairs_and_labels_and_the_seed_decides() -> None:
    graph = read_graph(Reply(write_graph(5)), 5).value
    shuffled = shuffle_graph(graph, 1)
    assert shuffled == shuffle_graph(graph, 1) != graph
    assert list(shuffled) == list(graph)
    assert sorted(shuffled.values()) == sorted(graph.values())
    assert shuffle_graph(graph, 2) != shuffled


def test_the_inventories_hold_the_paper_s_relations_and_every_alias_means_one_relation() -> None:
    visible = """ELABORATION EXPLANATION EVIDENCE EXAMPLE CONTRAST COMPARISON CONCESSION ANTITHESIS CAUSE RESULT
    CONSEQUENCE PURPOSE CONDITION TEMPORAL SEQUENCE BACKGROUND CIRCUMSTANCE SUMMARY RESTATEMENT EVALUATION
    INTERPRETATION ATTRIBUTION DEFINITION CLASSIFICATION""".split()
    assert list(INTRA.relations) == [*visible, "JOINT"]
    assert list(INTER.relations) == [*visible, "JOINT", "SUPPORT", "CONTRADICTION", "UNRELATED"]
    assert (INTRA.default, INTER.default) == ("ELABORATION", "UNRELATED")
    for inventory in (INTRA, INTER):
        assert all(name_relation(name, inventory) == (label, True) for name, label in inventory.labels.items())
        assert len(inventory.labels) > 3 * len(inventory.relations)


def test_every_relation_of_a_rule_is_a_label_or_an_alias() -> None:
    assert [relation for relation in CONNECTIVES.values() if not name_relation(relation, INTRA).known] == []
