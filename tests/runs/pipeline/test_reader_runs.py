"""Runs with each structure-aware reader and a model: valid files, hard limits, and the same bytes after kills."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.readers.settings import READERS
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.runs.report.trace import format_trace, read_trace
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import write_topics
from tests.support.models.reading_model import say
from tests.support.runs.command_line import keystone
from tests.support.runs.model_runs import (
    answer_command,
    check_submissions,
    kill_run,
    read_run_content,
)
from tests.support.servers.chat import serving

pytestmark = pytest.mark.slow

PARTS = ("Bees", "Gardens", "Honey", "Winter")
SENTENCES = (
    "{0} matter to bees that look for flowers in spring.",
    "However, nobody in village {1} knew how {0} change the taste of honey.",
    "People write down words about {0} in the kitchen.",
    "Therefore the keepers of village {1} fly no kites near {0}.",
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Index twelve documents with headings and four paragraphs each, so that every structure has several parts."""
    folder = tmp_path_factory.mktemp("long")
    corpus = folder / "corpus.jsonl"
    with corpus.open("wb") as out:
        for number in range(12):
            body = "\n\n".join(
                f"{part}\n" + " ".join(sentence.format(part, number) for sentence in SENTENCES) for part in PARTS
            )
            record = {"id": f"d{number:02}", "title": f"Village {number}", "text": body, "headings": "\n".join(PARTS)}
            out.write(orjson.dumps(record) + b"\n")
    return build_index(corpus, folder / "index", BuildSettings(threads=2))[0]


STRUCTURED = [name for name in READERS if name != "plain"]
METHODS = ("whole", "claims", "answers", "retrieval")


def list_pairs() -> list[Any]:
    """Pair each reader with each method of answering. In `make test`, each reader has one method."""
    return [
        pytest.param(name, method, marks=[] if (place - turn) % len(METHODS) == 0 else pytest.mark.nightly)
        for place, name in enumerate(STRUCTURED)
        for turn, method in enumerate(METHODS)
    ]


def write_reader_option(name: str, *settings: str) -> list[str]:
    return ["--set", f"reader={{{', '.join([f'name: {name}', 'evidence_tokens: 300', *settings])}}}"]


@pytest.mark.parametrize(("name", "method"), list_pairs())
def test_a_run_with_each_reader_is_valid_and_repeats_nothing(
    name: str, method: str, index: Index, tmp_path: Path
) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), *write_reader_option(name)]
        made = keystone(*arguments, "--set", f"answer.method={method}")
        assert made.returncode == 0, made.stderr
        asked = len(server.answered)
        paid = Counter(map(orjson.dumps, server.answered))
        directory = tmp_path / "out/keystone"
        whole = read_run_content(directory)
        shutil.rmtree(directory)
        assert keystone(*arguments, "--set", f"answer.method={method}").returncode == 0
        assert len(server.answered) == asked, "the replies are kept"
    assert set(paid.values()) == {1}
    assert read_run_content(directory) == whole
    check_submissions(directory, read_topics(topics))
    evidence = [orjson.loads(line) for line in (directory / "evidence.jsonl").read_bytes().splitlines()]
    assert {(one["reader"], one["by"]) for one in evidence} == {(name, "plain")}
    assert all(one["items"] for one in evidence)
    assert list(format_trace(read_trace(directory)))


@pytest.mark.parametrize("name", ["rdr2", "discorag", "disco_rag", "graphreader", "agent"])
@pytest.mark.parametrize("calls", [1, *(pytest.param(calls, marks=pytest.mark.nightly) for calls in (2, 5))])
def test_no_reader_makes_more_calls_than_its_limit(name: str, calls: int, index: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        command = answer_command(index, tmp_path, server, "run")
        assert keystone(*command, *write_reader_option(name, f"calls: {calls}")).returncode == 0
        spent = orjson.loads((tmp_path / "out/keystone/usage.json").read_bytes())["purposes"]
    known = {
        "contract",
        "check",
        "mend",
        "decompose",
        "topic",
        "expand",
        "umbrela",
        "rerank",
        "answer",
        "cite",
        "shorten",
        "support",
        "passage",
        "total",
    }
    reading = sum(row["calls"] for purpose, row in spent.items() if purpose not in known)
    assert reading <= calls * 2, "there are two topics"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rdr2", marks=pytest.mark.nightly),
        "discorag",
        pytest.param("graphreader", marks=pytest.mark.nightly),
        "agent",
    ],
)
def test_a_reader_that_is_killed_in_mid_walk_ends_with_the_same_bytes(name: str, index: Index, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.jsonl")
    with serving(model=say, latency=0.02) as server:
        arguments = [*answer_command(index, tmp_path, server, "run"), "--set", "model.concurrency=2"]
        arguments += write_reader_option(name)
        kill_run(tmp_path / "out/keystone", *arguments, times=12, kills=6, server=server)
