"""The command line: exit codes, one-line errors, examples in every help, nothing heavy until it is needed."""

import sys
from pathlib import Path

import orjson
import pytest

from indexing import corpora
from indexing.build import Index
from runs import cli
from tests import programs
from tests.conftest import keystone, write_corpus

COMMANDS = ("index", "run", "fuse", "validate", "evaluate", "tune", "demo", "doctor")
HEAVY = ("numpy", "torch", "transformers", "pydantic", "yaml", "ranx", "numba", "faiss", "scipy", "orjson", "jnius")


def test_help_loads_nothing_heavy() -> None:
    code = f"import sys, runs.cli; print([name for name in {HEAVY} if name in sys.modules])"
    shown = programs.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    shown = keystone(command, "--help")
    assert shown.returncode == 0
    assert f"Example: keystone {command}" in shown.stdout


def test_doctor_finds_what_a_run_needs() -> None:
    shown = keystone("doctor")
    assert shown.returncode == 0, shown.stdout
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["ok"] * len(shown.stdout.splitlines())
    assert all(subject in shown.stdout for subject in ("Java", "FAISS", "embedding model", "memory"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["fly"], 2, "No such command", id="unknown command"),
        pytest.param(["index", "corpus.jsonl"], 2, "--out", id="missing option"),
        pytest.param(["index", "none.jsonl", "--out", "x"], 1, "error: none.jsonl: no such file", id="no corpus"),
        pytest.param(["index", "broken.jsonl", "--out", "x", "--strict"], 1, "broken.jsonl:2: not JSON", id="strict"),
        pytest.param(
            ["index", "empty.jsonl", "--out", "x"], 1, "error: empty.jsonl: holds no document", id="no document"
        ),
        pytest.param(["index", "corpus.jsonl", "--out", "x", "--format", "pdf"], 1, "found 'pdf'", id="unknown format"),
        pytest.param(["index", "corpus.jsonl", "--out", "topics.jsonl"], 1, "not an index", id="out is a file"),
        pytest.param(["run", "none.yaml"], 1, "none.yaml: cannot be read", id="no configuration"),
        pytest.param(
            ["run", "run.yaml", "--set", "retrieval.depht=5"],
            1,
            "error: --set retrieval.depht: unknown key (value 5); "
            "expected one of depth, faiss, feedback, statistics, summarise, systems",
            id="typo",
        ),
        pytest.param(["run", "run.yaml", "--set", "index=topics.jsonl"], 1, "not an index", id="no index"),
        pytest.param(
            ["run", "run.yaml", "--set", "topics=qrels.txt"], 1, "qrels.txt:1: not a topic: expected", id="not topics"
        ),
        pytest.param(["run", "run.yaml", "--set", "out=topics.jsonl"], 1, "cannot be written", id="out is a file"),
        pytest.param(["fuse", "none.trec", "--out", "x"], 1, "none.trec: cannot be read", id="no run"),
        pytest.param(
            ["validate", "qrels.txt", "--topics", "topics.jsonl"],
            1,
            "error: qrels.txt: its form tells no track: say --track, one of rag24, rag25",
            id="no submission",
        ),
        pytest.param(
            ["validate", "qrels.txt", "--topics", "topics.jsonl", "--track", "rag25"],
            1,
            "qrels.txt:1: error: expected 6 columns",
            id="no submission of a track",
        ),
        pytest.param(
            ["validate", "qrels.txt", "--topics", "topics.jsonl", "--track", "rag25", "--fix", "qrels.txt"],
            1,
            "error: --fix qrels.txt: is the file to be repaired",
            id="a repair over the file",
        ),
        pytest.param(
            ["validate", "qrels.txt", "--topics", "topics.jsonl", "--track", "rag99"],
            1,
            "--track rag99: unknown; expected one of rag24, rag25, rag26",
            id="unknown track",
        ),
        pytest.param(
            ["evaluate", "topics.jsonl", "--qrels", "qrels.txt"],
            1,
            "topics.jsonl:1: score: expected a finite number",
            id="not a run",
        ),
        pytest.param(["evaluate", "qrels.txt", "--qrels", "none.txt"], 1, "none.txt: cannot be read", id="no qrels"),
    ],
)
def test_an_error_is_one_message_and_an_exit_code(
    tmp_path: Path, topics: Path, index: Index, arguments: list[str], code: int, message: str
) -> None:
    assert topics.parent == tmp_path
    write_corpus(tmp_path / "corpus.jsonl")
    (tmp_path / "broken.jsonl").write_text('{"id": "a", "text": "b"}\n{"id": \n')
    (tmp_path / "empty.jsonl").write_text('{"id": \n')
    (tmp_path / "qrels.txt").write_text("1 0 bees 1\n")
    (tmp_path / "run.yaml").write_text(f"run_id: r\nindex: {index.folder}\ntopics: topics.jsonl\n")
    before = sorted(tmp_path.iterdir())
    shown = keystone(*arguments, cwd=tmp_path)
    assert shown.returncode == code, shown.stderr
    assert message in " ".join((shown.stdout + shown.stderr).split())
    assert "Traceback" not in shown.stderr
    assert [path for path in sorted(tmp_path.iterdir()) if path not in before] in ([], [tmp_path / "out"])


@pytest.mark.parametrize(
    ("home", "found"),
    [
        pytest.param("/nowhere", "found no Java runtime", id="a folder that is not there"),
        pytest.param("{tmp}/old", "found Java 17", id="a runtime that is too old"),
    ],
)
def test_a_wrong_java_home_is_one_line_that_says_what_to_set(tmp_path: Path, home: str, found: str) -> None:
    for part in ("bin", "lib/server"):
        (tmp_path / "old" / part).mkdir(parents=True)
    (tmp_path / "old/bin/java").touch()
    (tmp_path / "old/release").write_text('JAVA_VERSION="17.0.15"\n')
    named = home.format(tmp=tmp_path)
    shown = keystone("index", write_corpus(tmp_path / "c.jsonl"), "--out", tmp_path / "i", "-q", JAVA_HOME=named)
    assert shown.returncode == 1
    assert shown.stderr.count("\n") == 1
    assert f"error: JAVA_HOME={named}: {found}, expected Java 21 or newer: set JAVA_HOME" in shown.stderr
    assert not (tmp_path / "i").exists()


def test_the_help_names_every_corpus_format() -> None:
    *names, last = cli.FORMATS.rstrip(".").replace(" or ", ", ").split(", ")
    assert [*names, last] == sorted(corpora.FORMATS)


def test_bad_records_are_left_out_told_and_counted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    with corpus.open("a") as file:
        file.write('{"id": "bees", "text": "again"}\n{"id": "x y", "text": ""}\n' + "no\n" * 7)
    made, again, strict = (
        keystone("index", corpus, "--out", tmp_path / "i", "--no-dense", "-q", *more)
        for more in ((), (), ("--strict",))
    )
    told = made.stderr.splitlines()
    summary = f"{tmp_path / 'i'}: records left out of the corpus: 9 (1 bad id, 7 not JSON, 1 repeated id)"
    assert made.stdout == f"{tmp_path / 'i'}: 9 documents\n"
    assert told[0].startswith(f"left out: {corpus}:11: id: expected an id without space, found 'x y'")
    assert len(told) == 6
    assert told[-2].endswith("further ones are counted")
    assert told[-1] == summary
    assert (again.returncode, again.stdout, again.stderr) == (
        0,
        f"{tmp_path / 'i'}: 9 documents, already indexed\n",
        f"{summary}\n",
    )
    assert (strict.returncode, strict.stderr) == (1, f"error: {summary}; --strict expects none\n")
    assert orjson.loads((tmp_path / "i/index.json").read_bytes())["left_out"] == {
        "bad id": 1,
        "not JSON": 7,
        "repeated id": 1,
    }


def test_progress_goes_to_standard_error_and_quiet_is_quiet(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    loud = keystone("index", corpus, "--out", tmp_path / "a")
    quiet = keystone("index", corpus, "--out", tmp_path / "b", "--quiet")
    assert loud.stdout == f"{tmp_path / 'a'}: 9 documents\n"
    assert "Embedding documents" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == (f"{tmp_path / 'b'}: 9 documents\n", "")
    assert keystone("index", corpus, "--out", tmp_path / "a", "-q").stdout.endswith("already indexed\n")
