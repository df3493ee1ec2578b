"""The same 200 short documents and 20 questions in five languages: rankings, and citations of English answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.prompts.answers import CHECK_SUPPORT
from keystone.generation.prompts.queries import TRANSLATE
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.indexing.types import MINILM
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.run import run
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.parallel import QUESTIONS, WORDS, make_documents, write_documents, write_questions
from tests.support.servers.chat import Server, serving

pytestmark = pytest.mark.slow

DOCUMENTS = make_documents()
BY_TEXT = {one.text: one for one in DOCUMENTS}
BY_REPORT = {one.report: one for one in DOCUMENTS}
_SHOWN = re.compile(r'<document id="([^"]*)">\n(.*?)\n</document>', re.DOTALL)


def say(body: dict[str, Any]) -> str:
    """Translate a question by the table, or report in English what each document says, and cite it."""
    system, user = body["messages"][0]["content"], body["messages"][1]["content"]
    if system == TRANSLATE.system:
        code = {"Arabic": "ar", "Spanish": "es", "Russian": "ru", "Chinese": "zh"}[
            re.findall(r"Language: (\w+)", user)[0]
        ]
        subject = next(n for n, word in enumerate(WORDS["en"]) if f"the {word}?" in user)
        return QUESTIONS[code].format(WORDS[code][subject])
    if system.startswith(CHECK_SUPPORT.system):
        return "{}"  # of no use, so that rules must do the step
    shown = [(int(number), BY_TEXT[text.strip()]) for number, text in _SHOWN.findall(user) if text.strip() in BY_TEXT]
    return json.dumps({"answer": [{"text": one.report, "citations": [number]} for number, one in shown]})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


@pytest.fixture(scope="module", params=["words", pytest.param("MiniLM", marks=pytest.mark.nightly)])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("parallel")
    embedding = MINILM if request.param == "MiniLM" else None
    settings = BuildSettings(language="field:lang", embedding=embedding, threads=2)
    return build_index(write_documents(folder / "c.jsonl"), folder / "index", settings)[0]


def make(index: Index, folder: Path, topics: Path, *changes: str) -> Path:
    settings = [
        *("run_id=p", "team_id=us", "track=ragtime26", "queries.method=narrative", "retrieval.systems=[bm25]"),
        *(f"index={index.folder}", f"topics={topics}", f"out={folder / 'out'}", *changes),
    ]
    return run(read_config(None, settings), threads=2)


def count_found(directory: Path) -> list[int]:
    """Count for each question how many of its ten documents are among the first ten."""
    ranked = read_run(directory / "narrative.trec").list_hits()
    subject = {one.id: f"q{one.subject:02d}" for one in DOCUMENTS}
    return [sum(subject[name] == topic for name, _ in hits[:10]) for topic, hits in ranked.items()]


def test_a_question_in_each_language_finds_the_documents_of_all(made: Index, tmp_path: Path) -> None:
    alone = make(
        made, tmp_path / "alone", write_questions(tmp_path / "q.jsonl", translated=False), "answer.method=none"
    )
    both = make(made, tmp_path / "both", write_questions(tmp_path / "t.jsonl"), "answer.method=none")
    assert count_found(both) == [10] * 20
    assert sum(count_found(alone)) <= 0.5 * sum(count_found(both))
    queries = [json.loads(line) for line in (both / "queries.jsonl").read_text().splitlines()]
    assert [code for code, _ in queries[0]["queries"][0]["translations"]] == ["es", "ru", "zh", "ar"]


def test_the_model_translates_as_the_topics_do(made: Index, tmp_path: Path, server: Server) -> None:
    model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
    given = make(made, tmp_path / "given", write_questions(tmp_path / "t.jsonl"), "answer.method=none")
    plain = write_questions(tmp_path / "q.jsonl", translated=False)
    asked = make(made, tmp_path / "asked", plain, "answer.method=none", "queries.translate=true", model)
    assert (asked / "narrative.trec").read_bytes() == (given / "narrative.trec").read_bytes()


@pytest.mark.parametrize("support", ["rules", "model", "none"])
def test_no_citation_is_moved_and_none_is_lost(support: str, made: Index, tmp_path: Path, server: Server) -> None:
    """A report has a sentence for each document that it read, and the sentence still cites that document alone."""
    topics = write_questions(tmp_path / "t.jsonl")
    model = f"model={{name: plain, urls: ['{server.url}'], window: 8192}}"
    settings = ("answer.method=retrieval", "answer.documents=10", f"answer.support={support}", model)
    directory = make(made, tmp_path, topics, *settings)
    records = [orjson.loads(line) for line in (directory / TRACKS["ragtime26"].answer_file).read_bytes().splitlines()]
    sentences = [one for record in records for one in record["responses"]]
    moved = [one for one in sentences if one["citations"] != [BY_REPORT[one["text"]].id]]
    assert moved == []
    assert len({one["text"] for one in sentences}) == len(sentences) == 200
    found = validate(directory / TRACKS["ragtime26"].answer_file, TRACKS["ragtime26"], read_topics(topics))
    assert [one for one in found if one.severity == "error"] == []
    asked = [body["messages"][0]["content"] for body in server.requests]
    written = [system for system in asked if system != TRANSLATE.system]
    assert written
    assert all("\nWrite in English, " in system for system in written)


def test_rules_copy_english_alone_and_cite_it(made: Index, tmp_path: Path) -> None:
    directory = make(made, tmp_path, write_questions(tmp_path / "t.jsonl"), "answer.documents=10")
    records = [orjson.loads(line) for line in (directory / TRACKS["ragtime26"].answer_file).read_bytes().splitlines()]
    sentences = [one for record in records for one in record["responses"]]
    assert sentences
    for one in sentences:
        document = BY_TEXT[one["text"]]
        assert document.language == "en"
        assert document.id in one["citations"]
