"""The printed trace of a reader: its lines for a hand-made trace, and its errors."""

from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from keystone.generation.types import Step
from keystone.indexing.errors import UserError
from keystone.indexing.types import Span
from keystone.runs.pipeline.evidence_files import TopicStep
from keystone.runs.report.trace import format_trace, read_trace, tell_path

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
    with pytest.raises(UserError, match=r"trace\.jsonl:1: expected a step of a trace: query_id: missing$"):
        read_trace(tmp_path / "trace.jsonl")
    with pytest.raises(UserError, match="topic '9': not in the trace, expected one of 1, 2"):
        list(format_trace(read_trace(write_trace(tmp_path)), "9"))
    with pytest.raises(UserError, match="topic '9': not in the trace, which is empty"):
        list(format_trace([], "9"))


NOTES = '{"notes": [{"document": 0, "quote": "Danko Jones came from Toronto.", "claim": "He is from Toronto."}]}'
HITS = "Search 'Danko Jones': 9 documents found, 2 new ones shown.\n<document id=\"0\">\nDanko Jones\n</document>"
RESEARCH = (
    Step("1#0", "", 0, 0, "agent", HITS, NOTES, "read 0", "Document 0, page 1 of 1:", (Span("d", 0, 30),), 90, 8),
    Step(
        "1#0", "", 0, 1, "agent", "", '{"notes": []}', "search castle", HITS.replace("Danko Jones", "it's"), (), 95, 7
    ),
    Step("1#0", "", 0, 2, "agent", "", "castle!", "", "Error: no JSON.", (), 95, 7, "max_steps"),
    Step("1#1", "", 1, 0, "agent", "", '{"notes": []}', "done", "", (), 90, 7, "done"),
    Step("", "", 0, 0, "agent_judge", "[0] He is from Toronto.", "{}", "1#0: answered; 1#1: not", "", (), 90, 7),
    Step("1#1", "", 3, 0, "agent", "", '{"notes": []}', "done", "", (), 90, 7, "done"),
    Step("", "", 2, 0, "agent_judge", "[0] He is from Toronto.", "{}", "1#1: not", "", (), 90, 7),
    Step("", "", 2, 0, "agent", "", "", "end: nothing new", "", (), 0, 0, "stalled"),
)


def test_the_path_of_an_agent_has_a_line_for_each_walk() -> None:
    assert list(tell_path(RESEARCH)) == [
        "round 1, query 1#0: searched for 'Danko Jones' (2 new), 'it's' (2 new); looked into documents 1 time; 1 note; "
        "max_steps",
        "round 1, query 1#1: searched for nothing; 0 notes; done",
        "round 1, the judge: 1#0: answered; 1#1: not",
        "round 2, query 1#1: searched for nothing; 0 notes; done",
        "round 2, the judge: 1#1: not",
        "Ended: nothing new",
    ]


def test_the_trace_of_an_agent_shows_notes_in_place_of_json() -> None:
    lines = list(format_trace([TopicStep("1", step) for step in RESEARCH]))
    assert lines[1:10] == [
        "  round 1, query 1#0",
        "    step 1, agent, 90 tokens asked, 8 answered",
        "      note: He is from Toronto.",
        "        | Danko Jones came from Toronto.",
        "      shown:",
        "        | Search 'Danko Jones': 9 documents found, 2 new ones shown.",
        '        | <document id="0">',
        "        | Danko Jones",
        "        | </document>",
    ]
    text = "\n".join(lines)
    assert "castle!" in text, "a reply that cannot be read is shown as it is"
    assert '{"notes"' not in text
    assert lines[-3:] == ["    step 1, agent", "      action: end: nothing new", "      ended: stalled"]


def test_a_brief_trace_leaves_out_the_documents_that_were_shown() -> None:
    lines = list(format_trace([TopicStep("1", step) for step in RESEARCH], brief=True))
    assert lines[1:9] == [
        "  round 1, query 1#0",
        "    step 1, agent, 90 tokens asked, 8 answered",
        "      note: He is from Toronto.",
        "        | Danko Jones came from Toronto.",
        "      shown:",
        "        | Search 'Danko Jones': 9 documents found, 2 new ones shown.",
        "      action: read 0",
        "      result: Document 0, page 1 of 1:",
    ]
    assert not [line for line in lines if "<document" in line or "evidence:" in line]
