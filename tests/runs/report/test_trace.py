"""The printed trace of a reader: its lines for a hand-made trace, and its errors."""

from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from keystone.generation.types import Step
from keystone.indexing.errors import UserError
from keystone.indexing.types import Span
from keystone.runs.report.trace import format_trace, read_trace

STEPS = (
    ("1", Step("1#0", "d1", 0, 0, "route", "0: Title\n\t3: ==History==", "[EXPAND] 3", "EXPAND 3", "", (), 120, 8)),
    (
        "1",
        Step("1#0", "d1", 0, 1, "route", "4: Text", "[ANSWER] 4", "ANSWER 4", "", (Span("d1", 5, 9),), 90, 7, "done"),
    ),
    ("2", Step("", "d2", 1, 0, "walk", "", "", "Move[3]", "a\nb")),
)


def write_trace(folder: Path) -> Path:
    lines = (orjson.dumps({"topic_id": topic, **asdict(step)}) for topic, step in STEPS)
    (folder / "trace.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def test_a_trace_shows_views_actions_costs_and_the_end(tmp_path: Path) -> None:
    steps = read_trace(write_trace(tmp_path))
    assert list(format_trace(steps, "1")) == [
        "topic 1: 2 steps, 210 tokens asked, 15 tokens answered",
        "  query 1#0, document d1, walk 1",
        "    step 1, route, 120 tokens asked, 8 answered",
        "      shown:",
        "        | 0: Title",
        "        |   3: ==History==",
        "      reply:",
        "        | [EXPAND] 3",
        "      action: EXPAND 3",
        "    step 2, route, 90 tokens asked, 7 answered",
        "      shown:",
        "        | 4: Text",
        "      reply:",
        "        | [ANSWER] 4",
        "      action: ANSWER 4",
        "      evidence: d1[5:9]",
        "      ended: done",
    ]
    assert list(format_trace(steps))[-4:] == [
        "    step 1, walk",
        "      action: Move[3]",
        "      result: a",
        "        b",
    ]


def test_a_trace_that_is_missing_or_damaged_or_lacks_the_topic_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file, expected the trace of a run"):
        read_trace(tmp_path)
    (tmp_path / "trace.jsonl").write_text('{"topic_id": "1"}\n')
    with pytest.raises(UserError, match=r"trace\.jsonl:1: expected a step"):
        read_trace(tmp_path / "trace.jsonl")
    with pytest.raises(UserError, match="topic '9': not in the trace, expected one of 1, 2"):
        list(format_trace(read_trace(write_trace(tmp_path)), "9"))
