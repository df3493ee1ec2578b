"""A track's language is named in every request of its answers, and in no other track's."""

from keystone.generation.llm.model import name_language
from keystone.generation.types import Request
from keystone.runs.track_rules import LATER_RULES, TRACKS, encode_rules


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
