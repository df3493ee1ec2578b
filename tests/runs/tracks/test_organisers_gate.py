"""The organisers' own gate, `auto-judge-report verify` of autojudge-base, beside ours: ours refuses what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from tests.support.runs.answer_files import IDS, NEWS, WHY, A, B, make_record

SPECS = ("rag25", "rag26", "ragtime25", "ragtime26", "dragun25")
"""The tracks that have rules there. BioGen has none."""
Gate = Callable[[dict[str, Any], str], bool]


@pytest.fixture(scope="module")
def is_refused(stop_words: None, tmp_path_factory: pytest.TempPathFactory) -> Gate:  # noqa: ARG001
    """The gate."""
    main = pytest.importorskip("autojudge_base.report_tool").main
    path = tmp_path_factory.mktemp("gate") / "answers.jsonl"

    def ask(record: dict[str, Any], spec: str) -> bool:
        path.write_text(json.dumps(record) + "\n")
        try:
            main(["verify", str(path), "--spec", spec], standalone_mode=False)
        except (SystemExit, ValueError, RuntimeError, TypeError):  # it ends with code 255, or by a traceback
            return True
        return False

    return ask


def find_errors(record: dict[str, Any], name: str, folder: Path) -> set[str]:
    (folder / "own.jsonl").write_text(json.dumps(record) + "\n")
    return {v.kind for v in validate(folder / "own.jsonl", TRACKS[name], [WHY]) if v.severity == "error"}


@pytest.mark.parametrize("name", SPECS)
def test_the_gate_takes_what_keystone_writes(is_refused: Gate, name: str, tmp_path: Path) -> None:
    assert not is_refused(make_record(name), name)
    assert find_errors(make_record(name), name, tmp_path) == set()


def change(record: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """Replace the value at a place such as `metadata.run_id`; the value `...` removes the key."""
    *outer, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
    inner: Any = record
    for key in outer:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return record


REFUSED: dict[str, list[tuple[str, Any]]] = {
    "a run id that is too long": [("metadata.run_id", "x" * 31)],
    "no team": [("metadata.team_id", ...)],
    "an empty team": [("metadata.team_id", " ")],
    "a topic that is no id": [("metadata.TOPIC", ["1"])],
    "no metadata": [("metadata", ...)],
    "no sentences": [("SENTENCES", ...)],
    "a sentence that is a text": [("SENTENCES", ["So."])],
    "a sentence without text": [("SENTENCES", [{"text": "So.", "citations": []}, {"text": " ", "citations": []}])],
    "references that are a text": [("references", "a")],
    "a reference that is a number": [("references", [7])],
    "a reference of another corpus": [("references.0", "elsewhere")],
    "citations that are a text": [("SENTENCES.0.citations", "a")],
    "a citation that is a fraction": [("SENTENCES.0.citations", [0.5])],
    "a position outside": [("SENTENCES.0.citations", [2])],
    "a cited id of another corpus": [("SENTENCES.0.citations", ["elsewhere"])],
    "a score that is a word": [("SENTENCES.0.citations", {NEWS[0]: "high"})],
    "a task that nobody knows": [("metadata.task", "generation")],
    "a limit that is a word": [("metadata.limit", "long")],
    "collections that are a text": [("metadata.collection_ids", "climbmix")],
    "a creator that is a text": [("metadata.creator", "me")],
    "no creator": [("metadata.creator", None)],
    "another topic beside the topic": [("metadata.topic_id", "2"), ("metadata.narrative_id", "1")],
    "documents that are a list": [("documents", [])],
    "a document without text": [("documents", {"a": {"id": "a"}})],
    "metadata of a sentence that are a text": [("SENTENCES.0.metadata", "a")],
    "a second list of sentences": [("answer", [{"text": 1}]), ("responses", [{"text": 1}])],
}
"""Changes of a valid answer, of which the gate refuses each for at least one track."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_gate_refuses_is_an_error_here(is_refused: Gate, case: str, tmp_path: Path) -> None:
    refused = []
    for name in SPECS:
        record, track = make_record(name), TRACKS[name]
        for place, value in REFUSED[case]:
            named = place.replace("SENTENCES", track.sentences).replace("TOPIC", track.topic_key)
            record = change(record, named, value)
        if is_refused(record, name):
            refused.append(name)
            assert find_errors(record, name, tmp_path), name
    assert refused


VALUES = st.sampled_from(
    [
        *("", " ", "1", "2", "x" * 20, "x" * 21, "x" * 26, ".x", "automatic", "rag", "elsewhere"),
        *(A, B, *IDS["rag26"], *NEWS),
        *(None, 0, 1, 2, -1, 0.5, True, [], {}, ..., "Why?"),
        *([A], [0], [0, 0], [0, A], [*NEWS], {NEWS[0]: 1}, {NEWS[0]: "x"}, list(IDS["rag26"]), [1, IDS["rag26"][0]]),
        *([{"text": "So.", "citations": []}], [{"text": "", "citations": []}]),
        [{"text": "w " * 1025, "citations": [0]}],
        *([{"text": "So.", "citations": {}}, {"text": "So.", "citations": []}],),
        *([{"text": "So."}], {"id": "a", "text": "b"}),
    ]
)  # fmt: skip
PLACES = st.sampled_from(
    [
        *("metadata", "references", "SENTENCES", "SENTENCES.0.text", "SENTENCES.0.citations", "SENTENCES.0.metadata"),
        *(f"metadata.{key}" for key in ("team_id", "run_id", "topic_id", "narrative_id", "narrative", "run_desc")),
        *(f"metadata.{key}" for key in ("type", "task", "limit", "description", "creator", "collection_ids", "prompt")),
        *("evaldata", "documents", "ranking", "answer", "responses", "is_ragtime", "more", "references.0"),
    ]
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SPECS), st.lists(st.tuples(PLACES, VALUES), min_size=1, max_size=3))
def test_whatever_the_gate_refuses_is_an_error_here(
    is_refused: Gate, tmp_path: Path, name: str, changes: list[tuple[str, Any]]
) -> None:
    """Only a file of `rag25` over another corpus altogether is taken here, as the track's own checker does."""
    record = json.loads(json.dumps(make_record(name)))
    for place, value in changes:
        try:
            copied = value if value is ... else json.loads(json.dumps(value))
            record = change(record, place.replace("SENTENCES", TRACKS[name].sentences), copied)
        except (KeyError, TypeError, IndexError):
            continue  # an earlier change removed the place
    if is_refused(record, name) and not find_errors(record, name, tmp_path):
        found = {v.kind for v in validate(tmp_path / "own.jsonl", TRACKS[name], [WHY])}
        assert (name, "id of another corpus" in found) == ("rag25", True)
