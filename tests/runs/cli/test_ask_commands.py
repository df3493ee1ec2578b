"""The commands `search`, `ask` and `show`: they agree with the Python API and `keystone answer`, as text and JSON."""

import re
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

import keystone
from keystone.generation.rules.answer import MISSING, NOTHING
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.ask_commands import ask, search, show
from keystone.runs.config.read import make_config
from keystone.runs.pipeline.answering import answer_to_file
from tests.support.indexes.small_corpus import CORPUS
from tests.support.models.plain_model import say
from tests.support.servers.chat import serving

QUESTION = "How do honey bees find flowers?"


def read_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = orjson.loads(capsys.readouterr().out)
    assert list(found) == ["command", "index", "input", "passages", "sentences", "fallbacks"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_search_ranks_as_the_python_api_does(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    query = keystone.Query("q", "q", QUESTION, QUESTION, QUESTION)
    runs = keystone.search(index, [query])
    wanted = keystone.fuse(runs, [query]).list_hits()["q"][:3]
    assert set(runs) == {"bm25", "dense"}
    search(index.folder, QUESTION, top=3, json=True)
    found = read_json(capsys)
    assert [(one["document"], one["score"]) for one in found["passages"]] == wanted
    assert (found["command"], found["index"], found["input"]) == ("search", str(index.folder), QUESTION)
    search(index.folder, QUESTION, top=3)
    shown = capsys.readouterr().out
    first = found["passages"][0]
    assert shown.startswith(f"[1] {first['title']} ({first['id']})\n    ")
    assert " ".join(first["text"].split()) in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) < 80


def test_search_takes_settings_and_says_that_it_found_nothing(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    search(index.folder, "zyzzyva", set=["retrieval.systems=[bm25]"])
    assert capsys.readouterr() == ("", "no document was found\n")


def test_search_prints_as_many_documents_as_are_asked_for(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["retrieval.systems=[bm25]", "retrieval.depth=2", "fusion.depth=1", "answer.documents=1"]
    search(index.folder, QUESTION, top=4, set=few, json=True)
    assert len(read_json(capsys)["passages"]) == 4
    search(index.folder, QUESTION, set=few, json=True)
    assert len(read_json(capsys)["passages"]) == 1


@pytest.mark.slow
def test_ask_answers_as_the_command_answer_does(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics, out = tmp_path / "topics.jsonl", tmp_path / "answers.jsonl"
    topics.write_bytes(orjson.dumps({"id": "1", "title": QUESTION}))
    answer_to_file(make_config(None, [], None, topics, index.folder), out)
    wanted = orjson.loads(out.read_bytes())
    ask(index.folder, QUESTION, json=True)
    found = read_json(capsys)
    cited = [
        (one["text"], [found["passages"][number - 1]["id"] for number in one["citations"]])
        for one in found["sentences"]
    ]
    assert cited == [
        (one["text"], [wanted["references"][place] for place in one["citations"]]) for one in wanted["answer"]
    ]
    for sentence in found["sentences"]:
        assert any(sentence["text"] in found["passages"][number - 1]["text"] for number in sentence["citations"])
    ask(index.folder, QUESTION)
    shown = capsys.readouterr().out
    assert f"{found['sentences'][0]['text']} [1]" in " ".join(shown.split())
    for number, passage in enumerate(found["passages"], 1):
        assert f"\n\n[{number}] {passage['title']} ({passage['id']})\n" in shown


@pytest.mark.slow
@pytest.mark.parametrize("colour", [True, False])
def test_ask_on_a_terminal_prints_prose_and_the_sentences_of_its_sources(
    index: Index, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    ask(index.folder, QUESTION, json=True)
    found = read_json(capsys)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    ask(index.folder, QUESTION)
    shown = capsys.readouterr().out
    assert ("\x1b[36m" in shown) == colour
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 50
    plain = " ".join(" ".join(lines).split())
    first, passage = found["sentences"][0], found["passages"][0]
    assert plain.startswith(f"{first['text']} [1]")
    assert f"Sources [1] {passage['title']} {passage['id']} {first['text']}" in plain
    ask(index.folder, QUESTION, json=True)
    assert read_json(capsys) == found


@pytest.mark.slow
def test_ask_says_that_no_sentence_seems_to_answer(
    index: Index, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "What is the capital of France?"
    ask(index.folder, question)
    assert capsys.readouterr() == (f"{NOTHING}\n", "")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ask(index.folder, question)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.strip() == NOTHING


@pytest.mark.slow
def test_ask_names_the_parts_of_a_question_that_no_sentence_answers(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(index.folder, "How do honey bees live in colonies? Who wrote Hamlet?")
    shown = capsys.readouterr()
    assert shown.err == f"{MISSING} Who wrote Hamlet.\n"
    assert "[1]" in shown.out


@pytest.mark.slow
def test_ask_takes_a_preset_and_a_model(index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(model=say) as server:
        config = tmp_path / "model.yaml"
        config.write_text(f"model: {{name: plain, urls: ['{server.url}'], window: 4096}}\nout: {tmp_path}\n")
        ask(index.folder, QUESTION, config, "keystone", json=True)
    found = read_json(capsys)
    assert found["sentences"]
    assert found["fallbacks"] == []


def test_show_prints_a_document_or_a_segment(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    title, text = CORPUS["bees"]
    show(index.folder, "bees", json=True)
    (passage,) = read_json(capsys)["passages"]
    assert passage == {"id": "bees", "document": "bees", "title": title, "url": "", "text": text, "score": None}
    show(index.folder, "bees#w0_0", json=True)
    (passage,) = read_json(capsys)["passages"]
    assert (passage["id"], passage["document"]) == ("bees#w0_0", "bees")
    assert text.startswith(passage["text"])
    show(index.folder, "bees")
    assert capsys.readouterr().out.split() == f"{title} bees {text}".split()


def test_an_error_is_a_message_that_names_its_cause(index: Index, tmp_path: Path) -> None:
    for name in ("wolves", "bees#w9_9", "\udcff"):
        with pytest.raises(UserError, match="found no document and no segment") as error:
            show(index.folder, name)
        assert repr(name) in str(error.value)
    for command in (show, search, ask):
        with pytest.raises(UserError, match=f"{tmp_path}: not an index"):
            command(tmp_path, "bees")
    with pytest.raises(UserError, match="TEXT: found none, expected words"):
        search(index.folder, " ")
    with pytest.raises(UserError, match=r"QUESTION: found '\\udcff', expected UTF-8"):
        ask(index.folder, "\udcff")
