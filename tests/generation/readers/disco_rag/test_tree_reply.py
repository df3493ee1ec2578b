"""Trees of chunks: read from replies of every shape, grown by rules, shown and shuffled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.readers.disco_rag.tree_reply import grow_tree, read_tree, show_tree, show_units, shuffle_trees
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.tree import Tree, leaves
from tests.support.structures.discourse_trees import check_binary
from tests.support.structures.rhetoric import write_tree

TEXT = "Bees dance. They point at flowers, because others must find them. (Wasps do not.)"
UNITS = ["Bees dance.", "They point at flowers,", "because others must find them.", "(Wasps do not.)"]
LISTED = "EDUs:\n" + "\n".join(f"[{n}] {unit}" for n, unit in enumerate(UNITS, 1)) + "\nRST ANALYSIS:\n"
WHOLE = "CONTRAST(N:ELABORATION(N:1, S:CAUSE(N:2, S:3)), N:4)"
WELL = "RELATION([2], [3]): CAUSE NS\nRELATION([1], [2-3]): ELABORATION NS\nRELATION([1-3], [4]): CONTRAST NN"


def check_tree(tree: Tree, text: str) -> None:
    """Check a strictly binary tree whose units, one after another, are the text but for its spaces."""
    check_binary(tree)
    units = [text[leaf.start : leaf.end] for leaf in leaves(tree)]
    assert all(unit == unit.strip() != "" for unit in units)
    assert "".join("".join(units).split()) == "".join(text.split())


RELATIONS = {
    "well-formed": (WELL, WHOLE, 3),
    "paper's form": (
        "CAUSE(EDU2, EDU3)\nELABORATION(EDU1, EDU2)\nRELATION(EDU1, EDU4): CONTRAST\nTREE STRUCTURE:\n"
        "ROOT[1-4]\n|--- NUCLEUS[1] Bees dance. (N)",
        WHOLE,
        3,
    ),
    "fences and bold": (f"```\n{WELL.replace('RELATION', '**RELATION**').replace('CAUSE', '{CAUSE}')}\n```", WHOLE, 3),
    "smart dashes": (WELL.replace("2-3", "2\u20133").replace("1-3", "EDU1 \u2014 EDU3"), WHOLE, 3),
    "numbered lines": ("\n".join(f"{n}. {line}" for n, line in enumerate(WELL.split("\n"), 1)), WHOLE, 3),
    "outermost first": ("\n".join(reversed(WELL.split("\n"))), WHOLE, 3),
    "a thought before": (f"<think>RELATION([1], [2]): CAUSE</think>{WELL}", WHOLE, 3),
    "usual nuclei": (WELL.replace(" NS", "").replace(" NN", ""), WHOLE, 3),
    "sides in reverse": (
        WELL.replace("([2], [3]): CAUSE NS", "([3], [2]): CAUSE SN").replace("([1-3], [4])", "([4], [1-3])"),
        WHOLE,
        3,
    ),
    "a duplicate": (WELL.replace("\n", "\nRELATION([2], [3]): EVIDENCE NS\n", 1), WHOLE, 3),
    "with itself": (f"RELATION([2], [2]): CAUSE NS\n{WELL}", WHOLE, 3),
    "out of range": (f"RELATION([0], [1]): CAUSE NS\nRELATION([4], [9]): CAUSE NS\n{WELL}", WHOLE, 3),
    "an alias": (WELL.replace("CAUSE", "Because").replace("ELABORATION", "detail"), WHOLE, 3),
    "words behind the label": (WELL.replace("CAUSE NS", "CAUSE NS, since 3 tells why"), WHOLE, 3),
    "missing relations": (
        "RELATION([2], [3]): CAUSE NS",
        "ELABORATION(N:1, S:ELABORATION(N:CAUSE(N:2, S:3), S:4))",
        1,
    ),
    "no neighbours": (
        "RELATION([1], [4]): CAUSE NS",
        "ELABORATION(N:1, S:ELABORATION(N:2, S:ELABORATION(N:3, S:4)))",
        0,
    ),
    "a range that was not joined": (
        "RELATION([1-2], [3]): CAUSE NS",
        "ELABORATION(N:1, S:ELABORATION(N:2, S:ELABORATION(N:3, S:4)))",
        0,
    ),
}


@pytest.mark.parametrize(("relations", "shown", "joined"), RELATIONS.values(), ids=RELATIONS.keys())
def test_relations_join_neighbours_and_elaborations_join_the_rest(relations: str, shown: str, joined: int) -> None:
    thought = relations.startswith("<think>")
    text = relations.replace("</think>", f"</think>{LISTED}") if thought else LISTED + relations
    tree, remarks = read_tree(Reply(text), TEXT)
    check_tree(tree, TEXT)
    assert show_tree(tree) == shown
    assert f"{joined} of " in remarks[0]


def test_an_unknown_label_is_an_elaboration_and_a_remark_says_so() -> None:
    tree, remarks = read_tree(Reply(LISTED + WELL.replace("CAUSE", "zeugma").replace("CONTRAST", "CONTRASTS")), TEXT)
    assert show_tree(tree) == WHOLE.replace("CAUSE", "ELABORATION")
    assert remarks[1] == 'read "zeugma" as ELABORATION, "CONTRASTS" as CONTRAST'


COPIES = {
    "copied": (UNITS, 4),
    "without numbers' brackets": ([f"{n}. {unit}" for n, unit in enumerate(UNITS, 1)], 4),
    "over two lines": ([UNITS[0], UNITS[1].replace(" point", "\npoint"), *UNITS[2:]], 4),
    "in other case and marks": ([unit.upper().replace(".", "!") for unit in UNITS], 4),
    "a word changed": ([UNITS[0], UNITS[1].replace("flowers", "plants"), *UNITS[2:]], 4),
    "a word added": ([UNITS[0], UNITS[1] + " red", *UNITS[2:]], 4),
    "a unit left out": ([UNITS[0], *UNITS[2:]], 3),
    "a unit made up": ([*UNITS[:3], "Cats purr.", UNITS[3]], 4),
    "a unit within a word's marks": (
        ["Bees dance. They point at flowers, because others must find them. (", "Wasps do not.)"],
        2,
    ),
}


@pytest.mark.parametrize(("units", "count"), COPIES.values(), ids=COPIES.keys())
def test_units_that_are_nearly_copied_stand_where_their_words_do(units: list[str], count: int) -> None:
    numbered = units if units[0].startswith("1") else [f"[{n}] {unit}" for n, unit in enumerate(units, 1)]
    reply = "\n".join([*numbered, "RST ANALYSIS:", "RELATION([1], [2]): JOINT NN"])
    tree, _ = read_tree(Reply(reply), TEXT)
    check_tree(tree, TEXT)
    assert len(leaves(tree)) == count


def test_units_are_read_in_the_order_of_their_numbers_and_the_first_of_a_number_counts() -> None:
    first, *others = LISTED.split("\n")[1:5]
    reply = "\n".join(["EDUs:", *others, first, "[2] Something else.", WELL])
    assert show_tree(read_tree(Reply(reply), TEXT).value) == WHOLE


REFUSED = {
    "nothing": ("", "share 0 % of their words"),
    "prose": ("I see a text about bees.", "share 0 % of their words"),
    "other words": ("[1] Cats purr.\n[2] Dogs bark.\nRELATION([1], [2]): JOINT NN", "share 0 % of their words"),
    "half of the text": ("[1] Bees dance.\n[2] They point\nRELATION([1], [2]): JOINT NN", "of their words"),
    "no relation": (LISTED, "has no line such as RELATION"),
}


@pytest.mark.parametrize(("reply", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_reply_without_the_text_or_relations_is_refused_with_a_reason(reply: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        read_tree(Reply(reply), TEXT)


def test_a_reply_that_was_cut_is_refused() -> None:
    with pytest.raises(Unusable, match="cut before its end"):
        read_tree(Reply(LISTED + WELL, "length"), TEXT)


def test_one_unit_is_a_tree() -> None:
    assert show_tree(read_tree(Reply("[1] Bees dance."), "Bees dance.").value) == "1"


PROSE = st.lists(
    st.sampled_from(
        ["bees", "Dance.", "\u6f22\u5b57\u3002", "a_b", "_", '"x', "well-known,", "(1)", "3.5", "\n", "\u00e9t\u00e9!"]
    ),
    min_size=1,
    max_size=60,
).map(" ".join)


@given(PROSE.map(str.strip).filter(bool))
def test_trees_by_rules_hold_every_character_of_the_chunk(text: str) -> None:
    check_tree(grow_tree(text).value, text)


@given(PROSE.map(str.strip).filter(lambda text: any(map(str.isalnum, text))), st.data())
def test_units_cut_anywhere_hold_every_character_of_the_chunk(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=6)))
    units = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    reply = "\n".join([*(f"[{n}] {' '.join(unit.split())}" for n, unit in enumerate(units, 1)), "REL([1], [2]): LIST"])
    try:
        tree, _ = read_tree(Reply(reply), text)
    except Unusable:  # a cut within a word changes two words
        return
    check_tree(tree, text)


def test_connectives_give_the_relations_of_a_tree_by_rules() -> None:
    text = "The show opened. However, tickets were dear. Then prices fell."
    assert show_tree(grow_tree(text).value) == "CONTRAST(N:1, N:SEQUENCE(N:2, N:3))"
    assert show_units(grow_tree(text).value, text).startswith("[1] The show opened. [2] However,")


def test_shuffled_trees_keep_their_shape_and_their_labels_and_the_seed_decides() -> None:
    texts = [TEXT, "One came. However, two left. Then three came. Four sang. Finally all slept."]
    trees = [read_tree(Reply(LISTED + WELL), TEXT).value, grow_tree(texts[1]).value]
    shuffled = shuffle_trees(trees, 3)
    assert shuffled == shuffle_trees(trees, 3) != trees
    for tree, text in zip(shuffled, texts, strict=True):
        check_tree(tree, text)
    labels = [
        sorted((node.relation, node.nuclearity) for tree in each for node in tree.nodes) for each in (trees, shuffled)
    ]
    assert labels[0] == labels[1]


def test_a_long_chain_is_read_in_time_that_grows_with_its_length() -> None:
    text = " ".join(f"w{n}" for n in range(3000))
    units = "\n".join(f"[{n}] w{n - 1}" for n in range(1, 3001))
    links = "\n".join(f"REL([{n}], [{n + 1}]): CAUSE" for n in range(1, 3000))
    tree, remarks = read_tree(Reply(f"{units}\n{links}"), text)
    assert (len(leaves(tree)), remarks[0]) == (3000, "100 % of the words found, 2999 of 2999 relations joined")
    assert show_tree(tree).count("CAUSE") == 2999


def test_the_helper_writes_trees_that_are_read() -> None:
    assert len(leaves(read_tree(Reply(write_tree(TEXT)), TEXT).value)) == 3
