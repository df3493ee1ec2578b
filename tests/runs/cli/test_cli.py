"""The command line: exit codes, one-line errors, and an example in each help."""

import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.builds.settings import ENGINES
from keystone.indexing.corpora import forms
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands import index_command
from keystone.runs.cli.make_index import make_structures
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.manifest import warn_of_idle_model
from keystone.runs.wording import escape_controls, plural
from tests.support import programs
from tests.support.indexes.small_corpus import write_corpus
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.waiting import LIMIT_S

DISTINCT_TEXTS = 8
"""The documents of the small corpus, without the twin that repeats another's text."""
COMMANDS = ("index", "run", "fuse", "validate", "evaluate", "tune", "demo", "doctor")


def test_the_engines_of_a_build_are_those_of_the_table() -> None:
    """The command line has the names without importing the table that holds them, which takes time."""
    assert list(get_args(index_command.Engine)) == list(ENGINES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    shown = keystone_here(command, "--help")
    assert shown.returncode == 0
    assert f"Example: keystone {command}" in shown.stdout


@pytest.mark.slow
def test_doctor_finds_all_requirements_of_a_run() -> None:
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
            "expected one of b, best_passages, depth, faiss, feedback, first_passage_weight, k1, max_rate, runs, "
            "statistics, summarise, systems",
            id="typo",
        ),
        pytest.param(["run", "run.yaml", "--set", "index=topics.jsonl"], 1, "not an index", id="no index"),
        pytest.param(
            ["run", "run.yaml", "--set", "topics=qrels.txt"], 1, "qrels.txt:1: not a topic: expected", id="not topics"
        ),
        pytest.param(["run", "run.yaml", "--set", "out=corpus.jsonl"], 1, "cannot be written", id="out is a file"),
        *(
            pytest.param(
                ["run", "run.yaml", "--set", "model.name=m", "--budget", limit], 1, message, id=f"--budget {limit}"
            )
            for limit, message in [
                ("tokens", "error: --budget tokens: expected tokens=N, calls=N or dollars=N"),
                ("=5", "error: --budget =5: expected tokens=N, calls=N or dollars=N"),
                ("calls=", "error: --budget calls=: expected tokens=N, calls=N or dollars=N"),
                ("tokens=x", "error: --budget tokens: found 'x'; input should be a valid integer"),
                ("euros=5", "error: --budget euros: unknown key (value 5); expected one of calls, dollars, tokens"),
                ("dollars=5", "error: --budget dollars=5: model.budget.dollars: found without prices"),
            ]
        ),
        pytest.param(
            [*"run --preset uema2lab_narrative --set run_id=r --set index=i --set topics=t --budget tokens=5".split()],
            1,
            "error: --budget: found no model in --preset uema2lab_narrative, expected one under the key model",
            id="a budget and a preset without a model",
        ),
        pytest.param(
            ["run", "run.yaml", "--budget", "tokens=5"],
            1,
            "error: --budget: found no model in run.yaml, expected one under the key model",
            id="a budget without a model",
        ),
        pytest.param(["run"], 1, "found no YAML file, no --preset and no --set", id="no configuration and no settings"),
        pytest.param(
            ["run", "--set", "run_id=r", "--set", "topics=topics.jsonl"],
            1,
            "error: no YAML file: index: missing; expected a value",
            id="settings without an index",
        ),
        pytest.param(
            ["run", "run.yaml", "--set", "index=none"], 1, "error: index: none: no such file or folder in /", id="paths"
        ),
        *(
            pytest.param([*command, "--set", f"{key}=other"], 1, f"--set {key}=other: {key} is no setting of", id=id)
            for command, key, id in [
                (["answer", "run.yaml"], "index", "an index beside that of answer"),
                (["ask", "index", "Who?"], "index", "an index beside that of ask"),
                (["serve", "index"], "topics", "topics of serve"),
            ]
        ),
        pytest.param(
            ["run", "run.yaml", "--set", "topics=none.jsonl"],
            1,
            "from which the paths of a run go",
            id="the folder that paths are relative to",
        ),
        pytest.param(
            ["tune", "run.yaml", "--qrels", "qrels.txt", "--try", f"fusion.k={'[' * 3000}"],
            1,
            "expected KEY=[VALUE, ...]",
            id="a deeply nested value to try",
        ),
        pytest.param(["fuse", "none.trec", "--out", "x"], 1, "none.trec: cannot be read", id="no run"),
        pytest.param(
            ["validate", "qrels.txt", "--topics", "topics.jsonl"],
            1,
            "error: qrels.txt: its format fits no track, expected that of one of rag24, rag25, rag26, responses, "
            "ragtime25, ragtime26, dragun25, biogen, biogen-a; name the track with --track",
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
            "error: --fix qrels.txt: is qrels.txt, which the command reads; expected another place",
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
            "topics.jsonl:1: found a JSON object, expected 6 columns",
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
    shown = keystone_here(*arguments, cwd=tmp_path)
    assert shown.returncode == code, shown.stderr
    assert message in " ".join((shown.stdout + shown.stderr).split())
    assert "Traceback" not in shown.stderr
    assert [path for path in sorted(tmp_path.iterdir()) if path not in before] in ([], [tmp_path / "out"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "found"),
    [
        pytest.param("/nowhere", "found no Java runtime", id="a missing folder"),
        pytest.param("{tmp}/old", "found Java 17", id="a runtime that is too old"),
    ],
)
def test_a_wrong_java_home_is_one_error_line_with_advice(tmp_path: Path, home: str, found: str) -> None:
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
    *names, last = index_command.FORMATS.rstrip(".").replace(" or ", ", ").split(", ")
    assert [*names, last] == sorted(forms.FORMATS)


@pytest.mark.slow
def test_bad_records_are_left_out_reported_and_counted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    with corpus.open("a") as file:
        file.write('{"id": "bees", "text": "again"}\n{"id": "x y", "text": ""}\n' + "no\n" * 7)
    made, again, strict = (
        keystone("index", corpus, "--out", tmp_path / "i", "--no-dense", "-q", *more)
        for more in ((), (), ("--strict",))
    )
    lines = made.stderr.splitlines()
    summary = f"{tmp_path / 'i'}: records left out of the corpus: 9 (1 bad id, 7 not JSON, 1 repeated id)"
    assert made.stdout == f"{tmp_path / 'i'}: 9 documents\n"
    assert lines[0].startswith(f"left out: {corpus}:11: id: expected an id without space, found 'x y'")
    assert len(lines) == 6
    assert lines[-2].endswith("further ones are counted")
    assert lines[-1] == summary
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


@pytest.mark.slow
def test_progress_is_plain_lines_on_standard_error_unless_quiet(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl")
    loud = keystone("index", corpus, "--out", tmp_path / "a")
    quiet = keystone("index", corpus, "--out", tmp_path / "b", "--quiet")
    assert loud.stdout == f"{tmp_path / 'a'}: 9 documents\n"
    line = r"[A-Z][\w ]+: ([\d,]+ in )?[1-9]\S* s|Finished in .* s"
    assert all(re.fullmatch(line, shown) for shown in loud.stderr.splitlines()), loud.stderr
    assert (quiet.stdout, quiet.stderr) == (f"{tmp_path / 'b'}: 9 documents\n", "")
    assert keystone("index", corpus, "--out", tmp_path / "a", "-q").stdout.endswith("already indexed\n")


@pytest.mark.slow
def test_structures_are_built_ahead_also_for_an_index_that_is_there(tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path / "c.jsonl"), tmp_path / "i"
    wrong = keystone("index", corpus, "--out", out, "--structures", "sections,roots")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: --structures: found 'roots', expected sections, discourse")
    assert not out.exists()
    arguments = ("index", corpus, "--out", out, "--no-dense", "--quiet")
    assert keystone(*arguments).returncode == 0
    assert not (out / "structures.sqlite").exists()
    assert keystone(*arguments, "--structures", "sections, discourse").stdout.endswith(
        "already indexed, structures: sections, discourse\n"
    )
    with sqlite3.connect(out / "structures.sqlite") as file:
        assert file.execute("SELECT count(*) FROM by_text").fetchone() == (2 * DISTINCT_TEXTS,)


def test_structures_that_are_built_together_count_together(index: Index) -> None:
    ticks: list[int] = []
    make_structures(index, ["sections"], 1, lambda *_: nullcontext(ticks.append))
    assert ticks == [index.documents]


def test_the_version_is_printed() -> None:
    shown = keystone_here("--version")
    assert (shown.returncode, shown.stdout) == (0, f"keystone {version('keystone-rag')}\n")


def test_python_runs_the_package_as_the_command() -> None:
    shown = programs.run([sys.executable, "-m", "keystone", "--version"], capture_output=True, text=True)
    assert (shown.returncode, shown.stdout) == (0, f"keystone {version('keystone-rag')}\n")


@pytest.mark.slow
def test_settings_alone_describe_a_run(index: Index, topics: Path) -> None:
    settings = ("run_id=r", f"index={index.folder}", "topics=topics.jsonl", "track=none", "retrieval.depth=100")
    shown = keystone("run", "-q", *(part for one in settings for part in ("--set", one)), cwd=topics.parent)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "out/r\n", "")
    assert (topics.parent / "out/r/narrative.trec").exists()


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        pytest.param([], True, id="the default"),
        pytest.param(["team_id=mine"], False, id="a name of its own"),
        pytest.param(["track=rag24"], False, id="a track without teams"),
        pytest.param(["track=none"], False, id="no submission"),
        pytest.param(["answer.method=none"], False, id="no answers"),
    ],
)
def test_a_submission_of_the_default_team_draws_a_warning(settings: list[str], warned: bool) -> None:
    minimal = ["run_id=r", "index=i", "topics=t"]
    assert read_config(None, minimal + settings).has_default_team is warned


@pytest.mark.slow
def test_a_run_of_the_default_team_prints_a_warning(index: Index, topics: Path) -> None:
    (topics.parent / "run.yaml").write_text(f"run_id: r\nindex: {index.folder}\ntopics: topics.jsonl\n")
    shown = keystone("run", "run.yaml", cwd=topics.parent)
    assert (shown.returncode, shown.stdout) == (0, "out/r\n")
    assert "warning: team_id: 'keystone' is the default: set your team's name before you submit\n" in shown.stderr


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        pytest.param(["model.name=m"], True, id="a model that nothing asks"),
        pytest.param(["model.name=m", "rerank.method=listwise"], False, id="a model that a step asks"),
        pytest.param([], False, id="no model"),
    ],
)
def test_a_model_that_no_step_asks_draws_a_warning(settings: list[str], warned: bool) -> None:
    shown = warn_of_idle_model(read_config(None, ["run_id=r", "index=i", "topics=t", *settings]))
    assert ("no step of this run asks 'm'" in shown) is bool(shown) is warned


def test_a_run_prints_the_warning_of_a_model_that_no_step_asks(index: Index, topics: Path) -> None:
    (topics.parent / "model.yaml").write_text(
        f"run_id: r\nindex: {index.folder}\ntopics: topics.jsonl\nmodel: {{name: my-model, backend: batch}}\n"
    )
    idle, asked = (
        keystone_here("run", "model.yaml", "--dry-run", *more, cwd=topics.parent)
        for more in ([], ["--preset", "listwise"])
    )
    assert (idle.returncode, asked.returncode) == (0, 0)
    assert idle.stderr.startswith("warning: model: no step of this run asks 'my-model': choose a preset")
    assert asked.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "arguments", "effect"),
    [
        pytest.param(
            "index", ["corpus", "--out", "x"], "the same command continues from the finished work", id="index"
        ),
        pytest.param("answer", ["--out", "x"], "with --out, the same command continues", id="answer"),
        pytest.param("tune", [], "measurements are lost; the same command begins anew", id="tune"),
        pytest.param("fuse", [], "nothing was written; the same command begins anew", id="fuse"),
    ],
)
@pytest.mark.parametrize("body", ["raise KeyboardInterrupt", "signal.raise_signal(signal.SIGINT); time.sleep(60)"])
def test_an_interrupted_command_reports_once_the_effect_of_running_it_again(
    command: str, arguments: list[str], effect: str, body: str
) -> None:
    code = f"""if True:
        import signal, sys, time
        from keystone.runs.cli import main as cli
        sys.argv = ["keystone", {command!r}, *{arguments!r}]
        def app():
            try:
                {body}
            except KeyboardInterrupt:
                raise SystemExit(130)
        cli.app = app
        cli.main()
    """
    shown = programs.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr.count("\n")) == (130, 1), shown.stderr
    assert shown.stderr.startswith("interrupted: ")
    assert effect in shown.stderr


@pytest.mark.slow
def test_an_interrupt_while_a_command_reads_is_one_line(index: Index) -> None:
    arguments = ["answer", "--index", str(index.folder), "-q"]
    with programs.started(
        [sys.executable, "-m", "keystone.runs.cli.main", *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(b"\n" * 2**20)  # more than a pipe can hold: after this write, the command is reading
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    line = (
        b"interrupted: with --out, the same command continues from the finished work; without it, no answer is kept\n"
    )
    assert (process.returncode, said) == (130, line)


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    name = "\x1b[2J\x07\u202e\x9b.trec"
    shown = keystone("evaluate", name, "--qrels", name, cwd=tmp_path)
    assert shown.returncode == 1
    assert r"error: \x1b[2J\x07\u202e\x9b.trec: cannot be read" in shown.stderr
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown.stderr)


@given(st.text())
def test_plain_text_keeps_letters_and_escapes_control_characters(text: str) -> None:
    shown = escape_controls(text)
    assert escape_controls(shown) == shown
    assert "".join(letter for letter in shown if letter in "\n\t") == "".join(x for x in text if x in "\n\t")
    assert all(letter in "\n\t" or letter.isprintable() or letter.isspace() for letter in shown if letter < "\u0600")
    shown.encode()


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 warnings"), (1, "1 warning"), (2, "2 warnings"), (10500, "10,500 warnings")],
)
def test_a_number_is_joined_with_the_right_form_of_its_noun(number: int, words: str) -> None:
    assert plural(number, "warning") == words
    assert plural(number, "reply", "replies") == words.replace("warnings", "replies").replace("warning", "reply")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (".index.partial/store: damaged", "index/store: damaged"),
        ("a/b/.index.partial/vectors/.00000002.npy.123.partial: x", "a/b/index/vectors/00000002.npy: x"),
        ("[Errno 28] No space: 'out/.x.trec.4711.partial'", "[Errno 28] No space: 'out/x.trec'"),
        ("x.partial: stays, and so does ./a.partial.gz", "x.partial: stays, and so does ./a.partial.gz"),
        ("/home/.cache/a: stays", "/home/.cache/a: stays"),
    ],
)
def test_no_error_names_a_temporary_file(message: str, expected: str) -> None:
    assert str(UserError(message)) == expected
    assert str(BadRecord(message, "kind")) == expected
