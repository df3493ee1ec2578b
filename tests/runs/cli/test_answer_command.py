"""The command `answer`: topics as they come, the file that answers are appended to, and runs inside an event loop."""

import asyncio
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from keystone.generation.prompts.grading import UMBRELA_GRID
from keystone.indexing.builds.index import build_index
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.types import Embedding
from keystone.indexing.vectors import of_segments as kept
from keystone.indexing.vectors.embed import embed_passages
from keystone.runs.config.read import make_config, read_config
from keystone.runs.pipeline.answering import answer_to_file, open_answer_file
from keystone.runs.pipeline.run import run
from tests.support import programs
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_topics
from tests.support.models.plain_model import say
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import serving

DEADLINE_S = 240
"""The time of a process that starts Java and reads a model, beside others that do the same."""

LINES = [json.dumps({"id": name, "title": text}).encode() + b"\n" for name, text in NARRATIVES.items()]


def answer(index: Index, topics: Path, out: Path, *changes: str) -> list[str]:
    """Answer topics to a file; returns the notes."""
    notes = list[str]()
    answer_to_file(make_config(None, list(changes), None, topics, index.folder), out, threads=2, note=notes.append)
    return notes


def line_from(process: "subprocess.Popen[bytes]") -> bytes:
    """Read the next line of a process's output. Fail if none comes in time."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, f"waited {DEADLINE_S} s for the next answer"
    return process.stdout.readline()


def topic_of(line: bytes) -> str:
    return str(orjson.loads(line)["metadata"]["narrative_id"])


@pytest.mark.parametrize(
    ("line", "index", "expected"),
    [("index: own", None, "own"), ("index: own", Path("other"), "other"), ("team_id: us", None, "index")],
)
def test_the_index_of_the_file_is_meant_unless_the_command_names_one(
    tmp_path: Path, line: str, index: Path | None, expected: str
) -> None:
    (tmp_path / "run.yaml").write_text(f"run_id: a\n{line}\n")
    assert make_config(tmp_path, [], None, Path("-"), index).index == Path(expected)


@pytest.mark.slow
def test_an_answer_comes_while_the_pipe_is_open_and_a_bad_line_ends_it_there(index: Index) -> None:
    command = [sys.executable, "-m", "keystone.runs.cli.main", "answer", "--quiet", "--index", str(index.folder)]
    pipe = subprocess.PIPE
    with programs.started(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        for line, name in zip(LINES, NARRATIVES, strict=True):
            process.stdin.write(line)
            assert topic_of(line_from(process)) == name
        process.stdin.write(LINES[0].replace(b'"1"', b'"3"') + LINES[0])
        out, err = process.communicate(timeout=DEADLINE_S)
    assert topic_of(out) == "3", "the topics before a bad line are answered"
    assert err.decode() == "error: /dev/stdin:4: topic '1' occurs more than once\n"
    assert process.returncode == 1


@pytest.mark.slow
def test_a_pipe_without_topics_is_an_error(index: Index) -> None:
    command = [sys.executable, "-m", "keystone.runs.cli.main", "answer", "--quiet", "--index", str(index.folder)]
    shown = programs.run(command, input=b"", capture_output=True)
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, b"", b"error: /dev/stdin: holds no topic\n")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.BZ2", "a.Z"])
def test_a_file_of_answers_is_not_compressed(tmp_path: Path, name: str) -> None:
    answers = open_answer_file(tmp_path / name, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"{name}: answers are written as they come: expected a name without"), answers:
        pass


def test_a_run_refuses_topics_that_it_cannot_read_again(index: Index, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "topics")
    config = read_config(None, ["run_id=x", f"index={index.folder}", f"topics={tmp_path / 'topics'}"])
    with pytest.raises(UserError, match="topics: is a pipe or a device, expected a file of topics"):
        run(config)


@pytest.fixture(scope="module")
def answered(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with topics and their answers."""
    folder = tmp_path_factory.mktemp("answered")
    answer(index, write_topics(folder / "topics.jsonl"), folder / "answers.jsonl", "track=rag26")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 40])
def test_an_unchanged_command_continues_its_file(answered: Path, index: Index, tmp_path: Path, cut: int) -> None:
    folder = Path(shutil.copytree(answered, tmp_path / "copy"))
    out, note = folder / "answers.jsonl", folder / ".answers.jsonl.made"
    whole = out.read_bytes()
    out.write_bytes(whole[: len(whole) - cut])
    note.write_bytes(note.read_bytes()[: len(note.read_bytes()) - cut])
    answer(index, folder / "topics.jsonl", out, "track=rag26")
    assert out.read_bytes() == whole
    assert note.read_bytes() == (answered / note.name).read_bytes()


RERANK = "rerank={method: endpoint, endpoint: {url: 'http://localhost:1/v1', name: letters}}"


@pytest.mark.slow
def test_settings_that_an_older_note_lacks_are_not_compared(answered: Path, index: Index, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(answered, tmp_path / "copy"))
    note = folder / ".answers.jsonl.made"
    first, *others = note.read_bytes().splitlines(keepends=True)
    settings = orjson.loads(first)
    del settings["rerank"]
    note.write_bytes(b"".join([orjson.dumps(settings) + b"\n", *others]))
    answer(index, folder / "topics.jsonl", folder / "answers.jsonl", "track=rag26", f"out={tmp_path}", RERANK)


def other_narrative(folder: Path, _index: Index) -> Path:
    topics = folder / "topics.jsonl"
    topics.write_bytes(topics.read_bytes().replace(b"honey bees", b"wasps"))
    return _index.folder


def other_index(folder: Path, _index: Index) -> Path:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": n, "text": text}) + "\n" for n, (_, text) in CORPUS.items()))
    return build_index(corpus, folder / "index")[0].folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "settings_now", "told"),
    [
        pytest.param(None, ["answer.documents=7"], r"jsonl: .*answer\.documents 20, found 7 now", id="a setting"),
        pytest.param(None, [RERANK], r"rerank None, found .*'letters'.* now", id="a reranker"),
        pytest.param(None, ["segments_per_document=2"], "segments_per_document 5, found 2 now", id="segments"),
        pytest.param(
            None, ["queries.translate=true", "model={name: plain, urls: ['http://localhost:1']}"],
            r"queries\.translate False, found True now", id="a setting that is left out by default",
        ),
        pytest.param(None, ["run_id=b"], r"answers\.jsonl:1: found no answer of run 'b'", id="the run"),
        pytest.param(other_index, [], r"answers\.jsonl: its answers were made with another index", id="the index"),
        pytest.param(
            other_narrative, [], r"answers\.jsonl:\d: answers topic '1' with another narrative than .*jsonl:1 has",
            id="a narrative",
        ),
    ],
)  # fmt: skip
def test_old_answers_are_not_mixed_with_new_ones(
    answered: Path,
    index: Index,
    tmp_path: Path,
    change: Callable[[Path, Index], Path] | None,
    settings_now: Sequence[str],
    told: str,
) -> None:
    folder = Path(shutil.copytree(answered, tmp_path / "copy"))
    out = folder / "answers.jsonl"
    where = change(folder, index) if change else index.folder
    before = out.read_bytes()
    with pytest.raises(UserError, match=told) as error:
        answer(open_index(where), folder / "topics.jsonl", out, "track=rag26", *settings_now)
    assert "expected a new" in str(error.value) or "with --out, or remove this one" in str(error.value)
    assert out.read_bytes() == before


@pytest.mark.slow
def test_a_budget_belongs_to_the_answer_file_and_may_be_raised(index: Index, tmp_path: Path) -> None:
    topics, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "answers.jsonl"
    note = tmp_path / ".answers.jsonl.made"
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"
        settings = (model, "queries.method=model", "answer.method=retrieval", f"out={tmp_path / 'out'}")
        assert not answer(index, topics, out, *settings, "model.budget={calls: 1}")
        assert len(server.requests) == 1
        assert (tmp_path / ".answers.jsonl.costs").exists()
        assert not (tmp_path / "out/costs.jsonl").exists()
        (told,) = answer(index, topics, out, *settings, "model.budget={calls: 1000}")
        assert "answers all topics, and model.budget pays only for those without an answer" in told
        assert len(server.requests) == 1
        first, *others = note.read_bytes().splitlines(keepends=True)
        made = orjson.loads(first)
        made["model"][1]["budget"] = {"calls": 1}
        note.write_bytes(b"".join([orjson.dumps(made) + b"\n", *others[:1]]))  # as older versions wrote it
        out.write_bytes(out.read_bytes().splitlines(keepends=True)[0])
        assert not answer(index, topics, out, *settings, "model.budget={calls: 1000}")
        asked = len(server.requests)
        assert asked > 1
        answers = out.read_bytes()
        out.unlink()
        answer(index, topics, out, *settings[:-1], f"out={tmp_path / 'anew'}", "model.budget={calls: 1}")
        assert len(server.requests) == asked + 1, "the costs of a removed file are removed"
    assert sorted(map(topic_of, answers.splitlines())) == sorted(NARRATIVES)


@pytest.mark.slow
def test_a_budget_that_ends_within_the_grades_leaves_a_part_for_answers_and_is_told(
    index: Index, tmp_path: Path
) -> None:
    """Without a budget the command makes 25 calls, of which 15 grade."""
    topics, out = write_topics(tmp_path / "topics.jsonl"), tmp_path / "answers.jsonl"
    with serving(model=say) as server:
        model = f"model={{name: plain, urls: ['{server.url}'], window: 4096, budget: {{calls: 12}}}}"
        changes = model, "queries.method=rules", "queries.passages=none", "grading.pool=8", f"out={tmp_path / 'out'}"
        given = "--preset", "keystone", "--index", index.folder, "--topics", topics, "--out", out
        shown = keystone_here("answer", *given, *(one for change in changes for one in ("--set", change)))
        asked = [body["messages"][0]["content"] for body in server.requests]
    assert (shown.returncode, len(asked), asked.count(UMBRELA_GRID.system)) == (0, 12, 6), "half pays for grades"
    told = [line for line in shown.stderr.splitlines() if ": umbrela: no grade for " in line]
    assert told
    assert all(line.endswith(": the budget is spent, except the part for later steps") for line in told)
    answers = {topic_of(line): orjson.loads(line)["answer"] for line in out.read_bytes().splitlines()}
    assert sorted(answers) == sorted(NARRATIVES)
    assert all(answers.values())


def test_a_file_is_not_changed_while_another_process_writes(answered: Path, index: Index, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(answered, tmp_path / "copy"))
    out = folder / "answers.jsonl"
    out.write_bytes(out.read_bytes()[:-40])
    before = out.read_bytes()
    with out.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is writing to it"):
            answer(index, folder / "topics.jsonl", out, "track=rag26")
    assert out.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("preset", [None, "keystone"])
def test_a_run_can_be_made_inside_an_event_loop(index: Index, tmp_path: Path, preset: str | None) -> None:
    topics = write_topics(tmp_path / "topics.jsonl")
    with serving(model=say) as server:
        model = [f"model={{name: plain, urls: ['{server.url}'], window: 4096}}"] if preset else ["run_id=rules"]
        config = read_config(None, [*model, f"index={index.folder}", f"topics={topics}", f"out={tmp_path}"], preset)

        async def cell() -> Path:
            return run(config, threads=2)

        directory = asyncio.run(cell())
    assert len((directory / "answers.jsonl").read_bytes().splitlines()) == len(NARRATIVES)


@pytest.mark.slow
def test_a_sentence_is_embedded_once(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = open_index(Path(shutil.copytree(index.folder, tmp_path / "index")))
    embedded: list[str] = []

    def counted(embedding: Embedding, texts: Sequence[str], *more: Any) -> Vectors:
        embedded.extend(texts)
        return embed_passages(embedding, texts, *more)

    monkeypatch.setattr(kept, "embed_passages", counted)
    texts = ["Bees dance.", "Ants walk.", "Bees dance."]
    assert own.embedding
    wanted = embed_passages(own.embedding, texts)
    for part in (texts[:1], texts, texts[::-1]):
        assert np.array_equal(kept.sentence_vectors(own, part), wanted[[texts.index(text) for text in part]])
    assert sorted(embedded) == sorted(set(texts))
