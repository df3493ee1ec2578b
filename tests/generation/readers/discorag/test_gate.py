"""The gate: the questions of the paper and ours that it finds simple or complex."""

import time

import pytest

from keystone.generation.readers.discorag.read import find_marker


@pytest.mark.parametrize(
    "question",
    [
        "What year was the experiment conducted?",
        "Who is the chief of the Vasads?",
        "Where does the ship land?",
        "How many moons has the planet?",
        "How old is Sarna?",
        "When did the whyte knight showcase his horse?",
        "",
    ],
)
def test_a_question_for_one_fact_is_simple(question: str) -> None:
    assert not find_marker(question)


@pytest.mark.parametrize(
    ("question", "marker"),
    [
        ("Why did the rulers send Gurn away?", "cause: Why"),
        ("What caused Tinker Tim to quarrel with Dan?", "cause: caused"),
        ("How did Mary Alice's sheltered upbringing shape her talks with Jack?", "manner: How"),
        ("What is Gurn's role in the story?", "connection: role"),
        ("In what way do the two towns differ?", "comparison: differ"),
        ("What does the robe stand for as a symbol?", "interpretation: symbol"),
        ("What happens to the Misty Ones throughout the story?", "development: throughout"),
        ("Describe the valley.", "overview: Describe"),
        ("Who is he? Where is he?", "several: he? Where is he?"),
        ("What led   to the war?", "cause: led to"),
    ],
)
def test_a_question_for_causes_relations_or_a_whole_is_complex(question: str, marker: str) -> None:
    assert find_marker(question) == marker


@pytest.mark.slow
@pytest.mark.parametrize("part", ["how ", "? ", "led ", "why", "how many "])
def test_the_gate_takes_linear_time(part: str) -> None:
    begun = time.process_time()
    find_marker(part * 200_000)
    assert time.process_time() - begun < 5
