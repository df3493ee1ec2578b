"""Inputs that are no regular files, hold more than their size suggests, or are links; the tests make each of them."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import zstandard

from keystone.indexing.corpora import text, wikitext
from keystone.indexing.corpora.corpus import read_corpus
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.io import reading
from keystone.indexing.io.reading import hash_file, open_binary, read_byte_lines, read_bytes, read_text
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Document, is_id
from keystone.runs.tracks import violations
from keystone.runs.tracks.violations import read_lines
from keystone.runs.trec import topics as topic_files
from keystone.runs.trec.topics import read_topics
from tests.support import programs
from tests.support.indexes.small_corpus import NARRATIVES, write_corpus, write_topics
from tests.support.runs.command_line import keystone_here

pytestmark = pytest.mark.slow

DEADLINE_S = 120
WRAPPED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".txt": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}
READERS: list[Any] = [open_binary, read_bytes, read_text, hash_file, read_topics, read_lines]
READERS += [lambda path: list(read_byte_lines(path)), lambda path: list(read_corpus(path, "jsonl"))]


def bomb(path: Path, size: int) -> Path:
    """A small Zstandard file of `size` bytes of zeros."""
    frame = zstandard.ZstdCompressor(1).compressobj()
    with path.open("wb") as out:
        for _ in range(size >> 20):
            out.write(frame.compress(bytes(2**20)))
        out.write(frame.flush())
    return path


def test_a_decompression_bomb_is_read_in_linear_time_and_little_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path / "c.zst", 2**29)
    assert path.stat().st_size < 20_000
    started, size = process_time(), 0
    with open_binary(path) as file:
        while piece := file.read(2**16):
            size += len(piece)
    assert size == 2**29
    assert process_time() - started < DEADLINE_S  # it takes seconds; copied for every piece that is read, minutes


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_file_held_in_memory_has_a_size_limit(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap = WRAPPED[ending]
    limit = 5_000
    for name, own in ((topic_files, "TOPICS_LIMIT_BYTES"), (violations, "SUBMISSION_LIMIT_BYTES")):
        monkeypatch.setattr(name, own, limit)
    path = tmp_path / f"f{ending}"
    lines = b"".join(b'{"id": "%04d", "title": "bees"}\n' % n for n in range(limit // 32))
    for content in (lines, lines + bytes(limit)):
        path.write_bytes(wrap(content))
        for read in (lambda: read_bytes(path, limit), lambda: read_topics(path), lambda: read_lines(path)):
            if len(content) <= limit:
                read()
                continue
            with pytest.raises(UserError, match=f"f{ending}: expected a file of at most {limit} bytes, found more"):
                read()


@pytest.mark.parametrize("name", ["b.txt", "b.html.gz", "b.md.zst"])
def test_a_text_file_that_is_too_long_is_left_out(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reading, text, wikitext):
        monkeypatch.setattr(module, "LONGEST_LINE_BYTES", 1_000)
    wrap = WRAPPED[Path(name).suffix]
    (tmp_path / "a.txt").write_text("Bees.\n" * 150)
    (tmp_path / name).write_bytes(wrap(b"Bees.\n" * 200))
    told: list[BadRecord] = []
    assert [document.id for document in read_corpus(tmp_path, "folder", report=told.append)] == ["a.txt"]
    assert [error.kind for error in told] == ["too long"]
    (tmp_path / "w.tokens").write_text(" = A = \n" + "Bees.\n" * 300 + "\n = B = \n\nBees.\n")
    told.clear()
    (found,) = read_corpus(tmp_path / "w.tokens", "wikitext", report=told.append)
    assert (found.title, [error.kind for error in told]) == ("B", ["too long"])


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", ["a folder", "a named pipe", "a device"])
def test_a_path_that_is_no_file_is_refused_at_once(tmp_path: Path, read: Any, kind: str) -> None:
    path = tmp_path / "input"
    match kind:
        case "a folder":
            path.mkdir()
            (path / "empty").write_text("")
        case "a named pipe":
            os.mkfifo(path)
        case _:
            path = Path("/dev/null")
    if kind == "a folder" and read is READERS[-1]:
        kind = "holds no jsonl file"  # a corpus may be a folder
    with pytest.raises(UserError, match=f"{path}: (is )?{kind}"):
        read(path)


PIPED = """
import sys
from pathlib import Path
from keystone.indexing.corpora.forms import make_corpus_key
from keystone.indexing.io.reading import hash_file, read_bytes
from keystone.runs.trec.topics import read_topics
from keystone.runs.track_rules import TRACKS, set_topic_limits
path = Path(sys.argv[1])
assert read_bytes(path).size == read_bytes(path).size > 0
assert make_corpus_key(path, None) == make_corpus_key(path, None)
for _ in range(3):
    topics = read_topics(path)
    print(len(topics), hash_file(path)[:8], len(set_topic_limits(TRACKS["ragtime26"], topics).limits))
"""


@pytest.mark.parametrize("name", ["/dev/fd/0", "/proc/self/fd/0", "/dev/stdin"])
def test_a_pipe_is_read_once_and_can_be_opened_often(name: str) -> None:
    many = "".join(json.dumps({"id": str(n), "title": "bees " * 100, "limit": 9}) + "\n" for n in range(2_000))
    shown = programs.run([sys.executable, "-c", PIPED, name], input=many, capture_output=True, text=True, check=True)
    counts = [line.split() for line in shown.stdout.splitlines()]
    assert [(read, limits) for read, _, limits in counts] == [("2000", "2000")] * 3
    assert len({digest for _, digest, _ in counts}) == 1


def test_standard_input_from_a_file_goes_on_where_it_was_read_before(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"id": n, "title": "bees"}) + "\n" for n in "123"))
    with (tmp_path / "t.jsonl").open("rb", buffering=0) as source:
        source.readline()
        shown = programs.run(
            [sys.executable, "-c", PIPED, "/dev/stdin"], stdin=source, capture_output=True, text=True, check=True
        )
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["2"] * 3


def test_commands_take_pipes_of_a_shell(tmp_path: Path) -> None:
    write_topics(tmp_path / "t.jsonl")
    write_corpus(tmp_path / "c.jsonl")
    rows = "".join(f"{topic} Q0 bees 1 1.0 x\n" for topic in NARRATIVES)
    (tmp_path / "r.trec").write_text(rows)
    (tmp_path / "q.txt").write_text("".join(f"{topic} 0 bees 1\n" for topic in NARRATIVES))
    commands = [
        "validate <(cat r.trec) --topics <(cat t.jsonl) --track rag25",
        "evaluate <(cat r.trec) --qrels <(cat q.txt) -m P@1",
        "index <(cat c.jsonl) --out i --no-dense -q",
        "index <(cat c.jsonl) --out i --no-dense -q",
        "convert /dev/stdin r.jsonl --to requests < <(cat r.trec)",
    ]
    expected = ["valid for rag25: 0 errors", "1.0000", "9 documents", "9 documents, already indexed", "r.jsonl"]
    for command, line in zip(commands, expected, strict=True):
        shown = programs.run(
            ["bash", "-c", f"exec {sys.executable} -m keystone.runs.cli.main {command}"],
            capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert (shown.returncode, line in shown.stdout) == (0, True), shown.stdout + shown.stderr


def test_links_out_of_a_folder_and_to_folders_are_reported_and_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "corpus", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("A secret.")
    (folder / "a.txt").write_text("Bees.")
    (folder / "b.txt").symlink_to("a.txt")
    (folder / "c.txt").symlink_to(outside / "secret.txt")
    (folder / "d").symlink_to(outside)
    (folder / "e.txt").symlink_to("nowhere")
    (folder / ".hidden").symlink_to(outside)
    told: list[BadRecord] = []
    assert [d.id for d in read_corpus(folder, report=told.append)] == ["a.txt", "b.txt"]
    assert [error.kind for error in told] == ["link not followed"] * 2
    assert [str(error).partition(": ")[0] for error in told] == [f"{folder}/c.txt", f"{folder}/d"]
    for name in ("a.txt", "b.txt", "e.txt"):
        (folder / name).unlink()
    with pytest.raises(UserError, match=r"holds no jsonl file; links that are not followed: 2"):
        list(read_corpus(folder, "jsonl"))
    (tmp_path / "linked").symlink_to(outside)
    assert [d.id for d in read_corpus(tmp_path / "linked")] == ["secret.txt"], "a corpus may be named by a link"


def test_the_longest_id_of_a_document_leaves_room_for_its_segments(tmp_path: Path) -> None:
    name = "x" * LONGEST_DOCUMENT_ID
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": "Bees."}) + "\n" for n in (name, name + "x"))
    )
    told: list[BadRecord] = []
    (found,) = read_corpus(tmp_path / "c.jsonl", report=told.append)
    assert [error.kind for error in told] == ["bad id"]
    late = cut_segments(Document(found.id, "Bees hum here. " * 100_000)).segments[-1]
    assert is_id(late.id)
    assert is_id(f"{name}#w9999999999_9999999999999")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["run", "folder"], id="run"),
        pytest.param(["run", "r.yaml", "--set", "topics=folder"], id="topics of a run"),
        pytest.param(["answer", "folder", "--topics", "t.jsonl", "--index", "i"], id="the file of answer"),
        pytest.param(["answer", "--topics", "folder", "--index", "i"], id="topics of answer"),
        pytest.param(["record", "folder", "--out", "o"], id="replies"),
        pytest.param(["fuse", "folder", "folder", "--out", "o"], id="runs to fuse"),
        pytest.param(["validate", "folder", "--topics", "t.jsonl", "--track", "rag25"], id="validate"),
        pytest.param(["validate", "t.jsonl", "--topics", "folder"], id="topics of validate"),
        pytest.param(["evaluate", "folder", "--qrels", "q.txt"], id="evaluate"),
        pytest.param(["evaluate", "t.jsonl", "--qrels", "folder"], id="judgments"),
        pytest.param(["tune", "folder", "--qrels", "q.txt"], id="tune"),
        pytest.param(["index", "c.jsonl", "--segments", "folder", "--out", "o", "--no-dense"], id="segments"),
    ],
)
def test_a_folder_where_a_file_is_expected_is_one_message(tmp_path: Path, arguments: list[str]) -> None:
    write_topics(tmp_path / "t.jsonl")
    write_corpus(tmp_path / "c.jsonl")
    (tmp_path / "folder").mkdir()
    (tmp_path / "q.txt").write_text("1 0 bees 1\n")
    (tmp_path / "r.yaml").write_text("run_id: r\nindex: i\ntopics: t.jsonl\n")
    shown = keystone_here(*arguments, cwd=tmp_path)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr
    assert "folder" in shown.stderr or "i: not an index" in shown.stderr
