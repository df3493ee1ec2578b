"""Replies of a model that answers, good and hostile, and passages to answer from."""

import json
from typing import Any

from hypothesis import strategies as st

from keystone.generation.answers.sentences import Passage
from keystone.generation.types import Failure, Reply

BEES = Passage("bees", "Bees", "Bees dance.")

ANTS = Passage("ants", "", "Ants walk.")

PASSAGES = (BEES, ANTS)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["answer", "sentences", "id", "text", "citations"]), inner, max_size=4)
    ),
    max_leaves=12,
)

LINE = st.fixed_dictionaries(
    {"text": st.sampled_from(["One fact here.", "Ants walk far and wide in 1999.", "", "\ud800\x00"]) | JSON},
    optional={"id": st.integers(-1, 4) | JSON, "citations": st.lists(st.integers(-1, 3), max_size=3) | JSON},
)

SAID = (
    st.text(max_size=60)
    | JSON.map(json.dumps)
    | st.lists(LINE, max_size=5).map(lambda lines: json.dumps({"answer": lines}))
    | st.lists(LINE, max_size=5).map(lambda lines: json.dumps({"sentences": lines}))
)

REPLY = (
    st.builds(Reply, SAID, st.sampled_from(["stop", "length", "abort"]))
    | st.just(Failure("no endpoint answers"))
    | SAID
)


def make_reply(*sentences: tuple[str, Any]) -> str:
    return json.dumps({"answer": [{"text": text, "citations": citations} for text, citations in sentences]})


def make_rewritten_reply(*sentences: tuple[Any, Any]) -> str:
    return json.dumps({"sentences": [{"id": number, "text": text} for number, text in sentences]})
