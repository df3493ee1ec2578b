"""Stretches of long documents: whole blocks under their headings, within the room that there is."""

import re
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.blocks import list_blocks
from keystone.generation.context.texts import count_tokens
from keystone.generation.context.topic import LONG_TOKENS, PlacedSegments, choose_stretches, join_spans
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.types import Document, Segment, Span

LIST = "Bees need:\n\n- nectar\n- pollen\n\n- water"
CODE = "Open the hive so:\n\n    lid.lift()\n\n    lid.close()"
TABLE = "| bee | eggs |\n|---|---|\n| queen | 2,000 |"
PARAGRAPH = "Bees dance for food. They do so in the dark."


def texts(text: str, headings: str = "") -> list[str]:
    return [text[one.start : one.end] for one in list_blocks(Document("d", text, headings=headings))]


@pytest.mark.parametrize("block", [LIST, CODE, TABLE, PARAGRAPH])
def test_a_block_is_never_cut(block: str) -> None:
    assert texts(f"{PARAGRAPH}\n\n{block}\n\n{PARAGRAPH}")[1] == block


@pytest.mark.parametrize("gap", ["\n\n", "\n \n", "\n\t\n", "\r\n\r\n", "\r\n \r\n"])
def test_a_blank_line_ends_a_paragraph(gap: str) -> None:
    assert [text.strip() for text in texts(f"{PARAGRAPH}{gap}{PARAGRAPH}")] == [PARAGRAPH] * 2


def test_a_block_stands_under_its_headings() -> None:
    text = "# Hive\n\nA hive has a lid.\n\n## Lid\n\nThe lid is of wood."
    found = list_blocks(Document("d", text))
    assert [(text[one.start : one.end], one.heading) for one in found] == [
        ("A hive has a lid.", "Hive"),
        ("The lid is of wood.", "Hive > Lid"),
    ]


WORDS = st.lists(st.sampled_from(["Bees dance.", "- item", "    code()", "", "A table:", "| a | b |", "Long " * 60]))


@given(WORDS.map("\n".join), st.integers(1, 400), st.integers(1, 3), st.integers(0, 99))
def test_stretches_are_disjoint_in_order_and_fit(text: str, tokens: int, queries: int, seed: int) -> None:
    document = cut_segments(Document("d", text, "Title"))
    cosines = np.random.default_rng(seed).random((queries, len(document.segments)), np.float32)
    found = choose_stretches(document, cosines, tokens)
    borders = [place for one in found for place in (one.start, one.end)]
    assert borders == sorted(borders)
    blocks = [*list_blocks(document, LONG_TOKENS), *list_blocks(document, tokens - count_tokens("Title"))]
    assert {one.start for one in found} <= {one.start for one in blocks}
    assert {one.end for one in found} <= {one.end for one in blocks}
    assert sum(count_tokens(text[one.start : one.end]) for one in found) <= tokens


def test_a_block_that_is_too_long_is_shown_by_its_best_lines() -> None:
    lines = [f"Line {n} tells of bees, of their hives and of honey, in a page without blank lines." for n in range(160)]
    document = cut_segments(Document("d", "\n".join(("Menu", "Bees", *lines)), headings="Bees"))
    cosines = np.zeros((1, len(document.segments)), np.float32)
    cosines[0, -1] = 1
    found = choose_stretches(document, cosines, LONG_TOKENS)
    assert lines[-1] in document.text[found[-1].start : found[-1].end]
    assert sum(count_tokens(document.text[one.start : one.end]) for one in found) > LONG_TOKENS / 2


@pytest.mark.parametrize("best", [0, 5, -1])
def test_a_room_too_small_for_the_best_block_shows_its_lines(best: int) -> None:
    lines = "\n".join(f"Line {n} tells of bees, of their hives and of honey." for n in range(40))
    document = cut_segments(Document("d", f"Menu\n\n{lines}\n\nWrite to us."))
    cosines = np.zeros((2, len(document.segments)), np.float32)
    cosines[:, best] = 1
    found = choose_stretches(document, cosines, 200)
    assert sum(count_tokens(document.text[one.start : one.end]) for one in found) > 100


PARTS = {
    "list": ("", "- item {n} is of wax. It is old,\n  and soft.", "\n", ""),
    "loose list": ("", "{n}. item {n} is of wax.", "\n\n", ""),
    "table": ("| queen | what she does |\n|---|---|\n", "| {n} | Queen {n} lays eggs. She rests. |", "\n", ""),
    "grid": ("+---+---+\n| a | b |\n+===+===+\n", "| {n} | Queen {n}. |\n|   | Eggs. |\n+---+---+", "\n", ""),
    "fence": ("```\n", "- egg: 'Wait. Rest. {n}'\n- if egg_{n}:\n    hatch()", "\n\n", "\n```"),
    "indented code": ("", "    egg_{n} = lay('Wait. Rest. {n}')\n    hatch(egg_{n})", "\n\n", ""),
    "paragraph": ("", "Bee {n} dances for food.", " ", ""),
}
"""Kinds of blocks in Markdown: what opens them, their parts, what stands between these, and what closes them."""


def make_block(kind: str, count: int) -> str:
    opening, part, between, closing = PARTS[kind]
    return f"{opening}{between.join(part.format(n=n) for n in range(count))}{closing}".strip()


BLOCKS = st.lists(st.tuples(st.sampled_from(sorted(PARTS)), st.integers(1, 120)), min_size=1, max_size=5)


@given(BLOCKS, st.integers(100, 3000), st.integers(0, 99))
def test_stretches_begin_and_end_with_blocks_or_with_parts_of_those_that_are_too_long(
    kinds: list[tuple[str, int]], tokens: int, seed: int
) -> None:
    blocks = [make_block(*kind) for kind in kinds]
    text = "\n\n".join(f"## Hive {number}\n\n{block}" for number, block in enumerate(blocks))
    document = cut_segments(Document("d", text, "Title"))
    cosines = np.random.default_rng(seed).random((2, len(document.segments)), np.float32)
    found = choose_stretches(document, cosines, tokens)
    shown = join_spans(document, [(one.start, one.end) for one in found], [one.above for one in found])
    assert count_tokens(shown) <= tokens
    for one in found:
        place = int(one.heading.removeprefix("Hive "))
        (kind, _), block = kinds[place], blocks[place]
        stretch = text[one.start : one.end]
        assert stretch in block
        if stretch != block:
            assert count_tokens(f"{one.heading}\n{block}\n[...]\n") > tokens - count_tokens("Title")
            opening, part, _, closing = (re.escape(piece.strip()).replace(r"\{n\}", r"\d+") for piece in PARTS[kind])
            assert re.fullmatch(rf"({opening}\s+)?{part}(\s+{part})*(\s+{closing})?", stretch.strip())
            if kind in ("table", "grid"):
                assert stretch.startswith(PARTS[kind][0]) != (one.head == PARTS[kind][0].rstrip())


def show(text: str, tokens: int) -> list[str]:
    """Show the best stretches of a text, all of whose segments are equally close."""
    document = cut_segments(Document("d", text))
    found = choose_stretches(document, np.ones((1, len(document.segments)), np.float32), tokens)
    return [text[one.start : one.end] for one in found]


def test_a_long_table_fills_its_room_whatever_its_head() -> None:
    rows = "\n".join(f"| {n} | Queen {n} lays eggs. |" for n in range(300))
    for words in (2, 100):
        (shown,) = show(f"|{'queen ' * words}|\n|---|\n{rows}", 400)
        assert 300 < count_tokens(shown) <= 400
    (shown,) = show(f"|{'queen ' * 400}|\n|---|\n{rows}", 400)
    assert shown.startswith("| 1 | Queen 1 ")


def test_a_long_sentence_is_cut_only_if_it_alone_is_too_long() -> None:
    sentences = [f"Bee {n} dances{' and flies' * 200}." for n in range(12)]
    (shown,) = show(" ".join(sentences), LONG_TOKENS)
    assert shown == " ".join(sentences[:3])
    shown = "".join(show(" ".join(sentences), 300))
    assert 200 < count_tokens(shown) <= 300


@pytest.mark.parametrize(
    "text",
    [
        "# Bees\n\n- nectar\n  - of lime\n\n- pollen",
        "== Bees ==\n* nectar\n** of lime\n* pollen",
        "# Bees\n\n1. nectar\n\n2. pollen",
        "Bees\n\n```\nfly()\n\nland()\n```",
    ],
)
def test_a_list_keeps_its_first_mark_and_a_fence_its_blank_lines(text: str) -> None:
    *_, (start, end, heading, _) = list_blocks(
        Document("d", text, headings="" if "#" in text or "=" in text else "Bees")
    )
    assert (text[start:end], heading) == (text.partition("\n")[2].strip(), "Bees")


def test_hidden_text_between_two_blocks_does_not_exceed_the_room() -> None:
    hidden = f"<script>{'bees() ' * 400}</script>"
    document = cut_segments(Document("d", f"<h1>Bees</h1><p>Bees dance.</p>{hidden}<p>Bees fly.</p>"))
    found = choose_stretches(document, np.ones((1, len(document.segments)), np.float32), 100)
    assert [document.text[one.start : one.end] for one in found] == ["Bees dance.", "Bees fly."]


def test_lists_that_are_never_closed_are_read_in_linear_time() -> None:
    started = process_time()
    assert len(texts(f"<p>Bees need:</p>{'<ul><li>nectar' * 16_000}")) == 1
    assert process_time() - started < 20  # it takes a second; in quadratic time, a minute


PLACES = st.tuples(st.integers(0, 20), st.integers(0, 8))


@given(st.lists(PLACES, max_size=12), PLACES)
def test_the_segments_around_a_stretch_are_found_in_any_order_of_segments(
    places: list[tuple[int, int]], stretch: tuple[int, int]
) -> None:
    spans = [Span("d", start, start + size) for start, size in places]
    segments = tuple(Segment(f"d#{number}", span) for number, span in enumerate(spans))
    placed, start, end = PlacedSegments(Document("d", " " * 28, segments=segments)), stretch[0], sum(stretch)
    holding = [number for number, span in enumerate(spans) if span.start <= start and end <= span.end]
    assert placed.find_holding(start, end) == holding
    overlapping = [number for number, span in enumerate(spans) if span.start < end and start < span.end]
    assert placed.find_overlapping(start, end) == overlapping


def test_the_best_block_of_each_query_comes_first() -> None:
    paragraphs = [f"Paragraph {n} tells of bees, hives and honey in many words." for n in range(9)]
    document = cut_segments(Document("d", "\n\n".join(paragraphs)))
    document = Document("d", document.text, segments=document.segments)
    cosines = np.zeros((2, len(document.segments)), np.float32)
    cosines[0, 0] = cosines[1, -1] = 1
    found = choose_stretches(document, cosines, 2 * count_tokens(paragraphs[0]) + 12)
    shown = [document.text[one.start : one.end] for one in found]
    assert "Paragraph 0" in shown[0]
