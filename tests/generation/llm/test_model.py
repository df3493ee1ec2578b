"""The interface of models: cut prompts are found by their counts of tokens, and a track's language is named."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.llm.model import LEAST_CHARACTERS, LEAST_TOKENS, CutPrompt, PromptSizes, name_language
from keystone.generation.types import Request, Usage
from keystone.runs.track_rules import LATER_RULES, TRACKS, encode_rules


def note(*prompts: tuple[int, int]) -> CutPrompt | None:
    """Note prompts of these characters and counts of tokens; returns the cut one."""
    sizes = PromptSizes()
    for characters, tokens in prompts:
        sizes.note(Request("step", (("system", "a"), ("user", "a" * (characters - 1))), 10), Usage(1, tokens))
    return sizes.find_cut()


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        pytest.param([(840, 200), (2_384, 200), (400, 100)], CutPrompt(200, 2_384), id="the same largest count"),
        pytest.param([(2_384, 200), (840, 200), (400, 100)], CutPrompt(200, 2_384), id="the longer one first"),
        pytest.param([(30_000, 2_048), (400, 100)], CutPrompt(2_048, 30_000), id="far fewer tokens than characters"),
        pytest.param([(2_384, 600), (840, 210)], None, id="whole"),
        pytest.param([(2_384, 600), (2_300, 600)], None, id="about as long"),
        pytest.param([(840, 200), (1_900, 200), (4_000, 900)], None, id="a larger count"),
        pytest.param([(300, 120), (500, 120)], None, id="short prompts"),
        pytest.param([(2_384, 10), (840, 10)], None, id="a server that always counts ten"),
        pytest.param([(2_384, 0), (840, 0)], None, id="a server that does not count"),
        pytest.param([], None, id="none"),
    ],
)
def test_prompts_that_a_server_cuts_are_found(prompts: list[tuple[int, int]], found: CutPrompt | None) -> None:
    assert note(*prompts) == found


LENGTHS = st.lists(st.integers(1, 50_000), min_size=2, unique=True)


@given(LENGTHS, st.integers(1, 6))
def test_whole_prompts_are_never_cut_ones(lengths: list[int], characters_per_token: int) -> None:
    spread = [length - length % characters_per_token + characters_per_token for length in lengths]
    assert note(*((length, length // characters_per_token) for length in spread)) is None


@given(LENGTHS, st.integers(LEAST_TOKENS, 10_000))
def test_a_window_is_found_as_soon_as_two_lengths_differ_by_half(lengths: list[int], window: int) -> None:
    cut = sorted(length for length in lengths if length // 4 > window)
    found = note(*((length, min(length // 4, window)) for length in lengths))
    if len(cut) > 1 and cut[-1] > max(1.5 * cut[0], LEAST_CHARACTERS):
        assert found == CutPrompt(window, cut[-1])
    if not cut:
        assert found is None


def test_the_order_of_prompts_does_not_matter() -> None:
    prompts = [(840, 200), (2_384, 200), (9_000, 200), (300, 75)]
    assert {note(*prompts[start:], *prompts[:start]) for start, _ in zip(count(), prompts, strict=False)} == {
        CutPrompt(200, 9_000)
    }


def test_the_language_ends_the_first_message_alone() -> None:
    asked = Request("answer", (("system", "You write."), ("user", "Why?")), 9)
    named = name_language(asked, "English")
    assert named.messages[0][1].startswith("You write.\nWrite in English, ")
    assert named.messages[1:] == asked.messages[1:]
    assert (named.purpose, named.max_tokens) == ("answer", 9)


def test_the_tracks_of_ragtime_ask_for_english() -> None:
    assert {name for name, track in TRACKS.items() if track.language == "English"} == {"ragtime25", "ragtime26"}


def test_later_rules_stay_out_of_the_keys_of_other_tracks() -> None:
    assert not encode_rules(TRACKS["rag25"]).keys() & set(LATER_RULES)
    assert encode_rules(TRACKS["ragtime25"])["language"] == "English"
