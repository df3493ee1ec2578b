"""The demo prints the lines of the README on every Python, and goes on where a reply is missing."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import silent
from keystone.runs.demo import main
from tests.support import programs
from tests.support.pages import COMMAND, find_words
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone_here

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(2400)]

CORPUS_SHA256 = "000ba381be91659201aed460ae198fd4a0c2c48ac6ca14f193b829ee4c3f5e31"
"""The recorded replies and the judgments belong to these documents."""
NUMBER = re.compile(r"\d\.\d+")
"""A figure of the table. Its last digits depend on the processor, which rounds embeddings in its own way."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """The function that prints the demo. Its files lie in `demo-out` in the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("demo"))
        made = main.run_demo(Path("demo-out"), 2, silent)
        shutil.copytree("demo-out", "tutorial/demo-out")
        yield made


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
    assert printed.count(": valid for rag25, 1 warning\n") == 6
    _, _, story = printed.partition("\nNarrative 8 in keystone:\n")
    assert "\n  [1] Deployment checklist: Performance optimizations: 1, 6, 7\n" in story
    assert "\nFirst write separate production settings and run manage.py check --deploy\n" in story
    assert "\n  [9] Run manage.py check --deploy  Some of the checks described below can be\n" in story
    assert story.endswith("\nOpen in a browser, to see the runs side by side: demo-out/report.html\n")
    assert "<title>narrative, rules, listwise, keystone – Keystone</title>" in Path("demo-out/report.html").read_text()

    monkeypatch.setattr(main, "MODEL", "another-model")
    main.run_demo(Path("demo-out"), 2, silent)()
    printed = capsys.readouterr().out
    assert printed.count(main.MISSING_TEXT) == 2
    assert "keystone: another-model: no recorded reply to a request of 'contract', key " in printed
    assert printed.count(": valid for rag25, 1 warning\n") == 2
    assert "Narrative 8" not in printed
    assert "<title>narrative, rules – Keystone</title>" in Path("demo-out/report.html").read_text()


@pytest.mark.usefixtures("report")
def test_the_corpus_is_the_same_on_every_python() -> None:
    corpus = Path("demo-out/corpus.jsonl")
    assert hashlib.sha256(corpus.read_bytes()).hexdigest() == CORPUS_SHA256
    documents = [row for _, row in read_json_lines(corpus)]
    assert len({document["docid"] for document in documents}) == len(documents) == 800
    assert all(document["url"].startswith("https://docs.djangoproject.com/en/5.2/") for document in documents)


@pytest.mark.usefixtures("report")
def test_the_tutorial_prints_what_it_shows() -> None:
    folder, printed = Path("tutorial").resolve(), ""
    for name in ("narratives.jsonl", "qrels.txt"):
        shutil.copy(Path(main.__file__).with_name(name), folder)
    text = (ROOT / "docs" / "tutorial.md").read_text().partition("## 1.")[2]
    for kind, body in re.findall(r"```(console|text)\n(.*?)```", text, re.DOTALL):
        if kind == "text":
            for line in body.splitlines():
                assert NUMBER.sub("#", line) in NUMBER.sub("#", printed)
            continue
        printed = ""
        for command in COMMAND.findall(body):
            if words := find_words(command):
                done = keystone_here(*words, cwd=folder)
            else:
                done = programs.run(["bash", "-euc", command], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            printed += done.stdout
