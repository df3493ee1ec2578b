"""The demo prints the lines of the README, goes on where a reply is missing, and its corpus fits any machine.

Each reader answers its narratives from recorded replies.
"""

import json
import lzma
import re
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import orjson
import pytest

from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import silent
from keystone.runs.config.read import read_config
from keystone.runs.demo import main
from keystone.runs.pipeline.stages import run
from keystone.runs.tracks.rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.topics import read_topics
from tests.support import programs
from tests.support.indexes.small_corpus import TRIAL_WARNINGS
from tests.support.places import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

RECORDED = ROOT / "tests" / "generation" / "readers" / "recorded" / "demo.replies.jsonl.xz"
"""The replies that structure-aware readers got to their prompts, besides those of the demo.

A model read the prompts and replied; docs/readers.md has the figures. If a prompt changes, make its replies again.
"""
SETTINGS: dict[str, dict[str, int]] = {
    "plain": {},
    "rdr2": {"documents": 2, "max_expand": 1},
    "discorag": {"entries": 2, "entries_per_document": 1, "steps": 4},
    "disco_rag": {"chunks": 4},
    "graphreader": {"nodes": 2, "functions": 4},
}
"""The settings of each reader, small because every reply was written by reading."""

of_python_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the replies belong to the documentation of CPython 3.11"
)

NUMBER = re.compile(r"\d\.\d+")
"""A figure of the table. Its last digits depend on the processor, which rounds embeddings in its own way."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """The function that prints the demo. Its files lie in `demo-out` in the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("demo"))
        yield main.run_demo(Path("demo-out"), 2, silent)


@of_python_3_11
def test_the_demo_prints_the_table_of_the_readme_and_one_narrative(
    report: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report()
    printed = capsys.readouterr().out
    _, _, after = (ROOT / "README.md").read_text().partition("```text\n")
    shown = after.partition("```")[0]
    assert NUMBER.sub("#", shown) in NUMBER.sub("#", printed)
    for expected, found in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False):
        is_p = len(expected) == len("0.466")
        assert float(found) == pytest.approx(float(expected), abs=0.01 if is_p else 0.0005)
    assert printed.count(": valid for rag25, 1 warning\n") == 4
    _, _, story = printed.partition("\nNarrative 8 in keystone:\n")
    assert "\n  [1] shutil: 3\n" in story
    assert "\nFolders are walked most easily with pathlib, " in story
    assert story.endswith("\nOpen in a browser, to see the runs side by side: demo-out/report.html\n")
    assert "<title>narrative, rules, keystone – Keystone</title>" in Path("demo-out/report.html").read_text()

    monkeypatch.setattr(main, "MODEL", "another-model")
    main.run_demo(Path("demo-out"), 2, silent)()
    printed = capsys.readouterr().out
    assert "The run keystone is left out" in printed
    assert "(another-model: no recorded reply to a request of 'decompose', key " in printed
    assert printed.count(": valid for rag25, 1 warning\n") == 2
    assert "Narrative 8" not in printed
    assert "<title>narrative, rules – Keystone</title>" in Path("demo-out/report.html").read_text()


@of_python_3_11
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.usefixtures("report")
def test_recorded_replies_lead_each_reader_to_valid_answers(name: str, tmp_path: Path) -> None:
    package, replies = files("keystone.runs.demo"), tmp_path / "replies.jsonl"
    topics = str(package / "narratives.jsonl")
    of_demo = [orjson.dumps(row) for _, row in read_json_lines(Path(str(package / "replies.jsonl.zst")))]
    replies.write_bytes(b"\n".join([*of_demo, lzma.decompress(RECORDED.read_bytes())]))
    settings = {
        "index": str(Path("demo-out/index").resolve()),
        "topics": topics,
        "out": str(tmp_path),
        "queries.passages": "none",
        "grading.pool": 8,
        "answer": {"method": "retrieval", "documents": 3, "segments": "closest", "support": "none"},
        "reader": {"name": name, "evidence_tokens": 1500, **SETTINGS[name]},
        "model": {"backend": "replay", "name": main.MODEL, "replies": str(replies)},
    }
    overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    directory = run(read_config(None, overrides, preset="keystone"), threads=2)
    track, narratives = TRACKS["rag25"], read_topics(Path(topics))
    found = {violation.kind for violation in validate(directory / track.answer_file, track, narratives)}
    assert found <= TRIAL_WARNINGS
    answers = [row for _, row in read_json_lines(directory / "answers.jsonl")]
    assert len(answers) == len(narratives)
    assert all(len(answer["sentences"]) >= 5 for answer in answers)
    evidence = [row for _, row in read_json_lines(directory / "evidence.jsonl")]
    assert {one["stop"] for one in evidence} <= {"done", "max_steps"}


def test_no_page_names_the_folder_of_this_python(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    programs.run([sys.executable, "-m", "keystone.runs.demo.corpus", corpus], check=True, cwd=ROOT)
    found = corpus.read_text()
    assert "module.platform" in found
    assert sys.prefix not in found
    assert " at 0x" not in found
