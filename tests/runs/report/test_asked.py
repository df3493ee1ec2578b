"""The answer to one question on a terminal."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from keystone.generation.rules.support import DOUBT
from keystone.runs.report.asked import print_answer, print_doubt
from keystone.runs.report.passages import CitedSentence, Passage, Result

URL = "https://example.org/a/very/long/address/that/no/line/of/a/narrow/terminal/holds"
RESULT = Result(
    "ask",
    "index",
    "Why?",
    (
        Passage("d1#w0_0", "d1", "蜜蜂はどのように花を見つけるか \x1b[31m", "", "Text."),
        Passage("d2#w1_9", "d2", "", URL, "Text [bold]."),
        Passage("d1#w1_9", "d1", "蜜蜂", "", "Text."),
    ),
    (
        CitedSentence("Bees see\x1b[2J far.", (1, 2)),
        CitedSentence("Flowers smell, and [red]bees[/red] know it.", (2, 3)),
    ),
)


def show(width: int, doubtful: bool = False, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False
    )
    if doubtful:
        print_doubt(console, RESULT)
    else:
        print_answer(console, RESULT, [["Bees see far."], ["Flowers smell.", "Bees [red] know."], ["Text."]])
    return out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("doubtful", [False, True])
def test_no_line_but_an_address_is_wider_than_the_terminal(width: int, doubtful: bool) -> None:
    lines = show(width, doubtful).splitlines()
    assert all(cell_len(line) <= width for line in lines if URL not in line)
    assert any(URL in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_the_answer_is_prose_with_numbered_sources_below() -> None:
    shown = show(200)
    prose, _, sources = shown.partition("\n\n")
    assert prose == "Bees see\\x1b[2J far. [1] [2] Flowers smell, and [red]bees[/red] know it. [2] [3]"
    assert sources.splitlines()[:2] == ["Sources", "[1]  蜜蜂はどのように花を見つけるか \\x1b[31m"]
    assert f"[2]  d2#w1_9\n     {URL}\n     Flowers smell.\n     Bees [red] know.\n" in sources


def test_a_doubtful_answer_names_each_document_once_and_no_sentence() -> None:
    shown = show(200, doubtful=True)
    assert shown.startswith(f"{DOUBT}\n\n")
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("  - ")] == [
        "蜜蜂はどのように花を見つけるか",
        "d2",
    ]
    assert "Bees" not in shown


def test_only_a_console_with_colours_has_escapes() -> None:
    assert "\x1b" not in show(80)
    assert "\x1b[36m [1]" in show(80, colour=True)
    assert "\x1b[2J" not in show(80, colour=True)
