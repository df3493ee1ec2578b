"""No command writes over its inputs, under any name, or into them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.options import check_outputs, check_run_outputs, name_config
from keystone.runs.config.read import read_config
from tests.support.indexes.small_corpus import write_corpus, write_topics
from tests.support.runs.command_line import keystone, keystone_here

SAME: dict[str, Callable[[Path], None]] = {
    "its name": lambda _: None,
    "another spelling": lambda path: (path.parent / "d").mkdir(),
    "a link": lambda path: (path.parent / "link").symlink_to(path.name),
    "a hard link": lambda path: os.link(path, path.parent / "hard"),
    "a linked folder": lambda path: (path.parent / "folder").symlink_to(path.parent),
}
NAMES = {"its name": "{}", "another spelling": "d/../{}", "a link": "link", "a hard link": "hard"}
NAMES |= {"a linked folder": "folder/{}"}

COMMANDS = {
    "record": ["record", "r.sqlite", "--out", "{out}"],
    "fuse": ["fuse", "b.trec", "a.trec", "--out", "{out}"],
    "report": ["report", "out/run", "--qrels", "qrels.txt", "--out", "{out}"],
    "evaluate, a run": ["evaluate", "a.trec", "b.trec", "--qrels", "qrels.txt", "--out", "{out}"],
    "evaluate, judgments": ["evaluate", "a.trec", "--qrels", "qrels.txt", "--out", "{out}"],
    "evaluate, answers": ["evaluate", "a.trec", "--answers", "--references", "topics.jsonl", "--out", "{out}"],
    "evaluate, references": ["evaluate", "a.trec", "--answers", "--references", "topics.jsonl", "--out", "{out}"],
    "evaluate, the cache": [
        *("evaluate", "a.trec", "--answers", "--references", "topics.jsonl"),
        *("--set", "model={{name: m, cache: {out}}}"),
    ],
    "validate, the file": ["validate", "a.trec", "--topics", "topics.jsonl", "--track", "rag25", "--fix", "{out}"],
    "validate, topics": ["validate", "a.trec", "--topics", "topics.jsonl", "--track", "rag25", "--fix", "{out}"],
    "index": ["index", "corpus.jsonl", "--out", "{out}"],
    "index, segments": ["index", "corpus.jsonl", "--segments", "a.trec", "--out", "{out}"],
    "answer, topics": ["answer", "--topics", "topics.jsonl", "--index", "{index}", "--out", "{out}"],
    "answer, the file": ["answer", "run.yaml", "--topics", "topics.jsonl", "--index", "{index}", "--out", "{out}"],
    "run, the cache": ["run", "run.yaml", "--set", "model={{name: m, cache: {out}}}"],
    "tune, the cache": ["tune", "run.yaml", "--qrels", "qrels.txt", "--set", "model={{name: m, cache: {out}}}"],
    "nuggets, the cache": [
        *("nuggets", "assign", "a.trec", "--nuggets", "qrels.txt", "--out", "{out}"),
        *("--set", "model={{name: m, cache: r.sqlite}}"),
    ],
    "judge, judgments": [
        "judge",
        "a.trec",
        "--config",
        "run.yaml",
        "--against",
        "qrels.txt",
        "--out",
        "{out}",
        "--set",
        "model={{name: m, urls: ['http://127.0.0.1:9']}}",
    ],
}
READ = {
    "record": "r.sqlite",
    "fuse": "a.trec",
    "report": "qrels.txt",
    "evaluate, a run": "b.trec",
    "evaluate, judgments": "qrels.txt",
    "evaluate, answers": "a.trec",
    "evaluate, references": "topics.jsonl",
    "evaluate, the cache": "topics.jsonl",
    "validate, the file": "a.trec",
    "validate, topics": "topics.jsonl",
    "index": "corpus.jsonl",
    "index, segments": "a.trec",
    "answer, topics": "topics.jsonl",
    "answer, the file": "run.yaml",
    "run, the cache": "topics.jsonl",
    "tune, the cache": "qrels.txt",
    "nuggets, the cache": "r.sqlite",
    "judge, judgments": "qrels.txt",
}


def write_inputs(folder: Path, index: Index) -> None:
    for name in ("r.sqlite", "a.trec", "b.trec", "qrels.txt"):
        (folder / name).write_text(f"{name}\n")
    write_topics(folder / "topics.jsonl")
    write_corpus(folder / "corpus.jsonl")
    (folder / "run.yaml").write_text(f"run_id: r\nindex: {index.folder}\ntopics: topics.jsonl\n")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", ["its name", "a hard link"])
def test_no_command_writes_over_its_inputs(tmp_path: Path, index: Index, command: str, way: str) -> None:
    write_inputs(tmp_path, index)
    SAME[way](tmp_path / READ[command])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    out = NAMES[way].format(READ[command])
    shown = keystone_here(*(part.format(out=out, index=index.folder) for part in COMMANDS[command]), cwd=tmp_path)
    assert shown.returncode == 1
    assert f"{out}: is {READ[command]}, which the command reads; expected another place\n" in shown.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("way", SAME)
def test_a_file_is_recognised_under_each_of_its_names(tmp_path: Path, way: str) -> None:
    path = tmp_path / "a.trec"
    path.write_text("kept")
    SAME[way](path)
    out = tmp_path / NAMES[way].format("a.trec")
    for one, other in ((path, out), (out, path)):
        with pytest.raises(UserError, match="which the command reads"):
            check_outputs([tmp_path / "else", one, None], {"--other": tmp_path / "new", "--out": other, "--no": None})
    check_outputs([path], {"--out": tmp_path / "b.trec"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["index", "texts", "--out", "texts/index"], "--out texts/index: lies in texts,", id="in a corpus"),
        pytest.param(["index", ".", "--out", "index"], "--out index: lies in .,", id="in the working directory"),
        pytest.param(
            ["index", "texts/a.txt", "--out", "texts"], "--out texts: holds texts/a.txt,", id="the folder of a corpus"
        ),
        pytest.param(
            ["run", "run.yaml", "--set", "out={index}"],
            "the run directory {index}/r: lies in {index},",
            id="in an index",
        ),
        pytest.param(
            ["run", "run.yaml", "--set", "topics=out/r/t.jsonl"],
            "the run directory out/r: holds out/r/t.jsonl,",
            id="topics in the run directory",
        ),
        pytest.param(
            ["answer", "--topics", "topics.jsonl", "--index", "{index}", "--out", "{index}/a.jsonl"],
            "--out {index}/a.jsonl: lies in {index},",
            id="an answer in an index",
        ),
    ],
)
def test_no_command_writes_into_its_inputs(tmp_path: Path, index: Index, arguments: list[str], message: str) -> None:
    write_inputs(tmp_path, index)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("Bees.")
    (tmp_path / "out/r").mkdir(parents=True)
    write_topics(tmp_path / "out/r/t.jsonl")
    shown = keystone_here(*(part.format(index=index.folder) for part in arguments), cwd=tmp_path)
    assert shown.returncode == 1
    assert shown.stderr.startswith(f"error: {message.format(index=index.folder)}"), shown.stderr


@pytest.mark.slow
def test_a_run_can_be_made_again_from_the_configuration_in_its_directory(tmp_path: Path, index: Index) -> None:
    write_inputs(tmp_path, index)
    assert keystone("run", "run.yaml", "-q", "--set", "track=none", cwd=tmp_path).returncode == 0
    shown = keystone("run", "out/r/config.yaml", "-q", cwd=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "out/r\n", "")
    shown = keystone("run", "out/r", "-q", cwd=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "out/r\n", "")


def test_a_run_directory_that_is_a_configuration_may_be_written_into(tmp_path: Path) -> None:
    (run := tmp_path / "r").mkdir()
    (run / "config.yaml").write_text(f"run_id: r\nindex: i\ntopics: t\nout: {tmp_path}\n")
    check_run_outputs(read_config(run), [name_config(run)], {"the run directory": run})
    with pytest.raises(UserError, match="which the command reads"):
        check_run_outputs(read_config(run), [name_config(run), run], {"--out": run / "config.yaml"})


def test_a_path_of_any_letters_is_one_of_a_run(tmp_path: Path) -> None:
    shown = keystone_here("run", "--preset", "bm25", "--index", "a \N{HONEYBEE}", "--topics", "t", cwd=tmp_path)
    assert shown.stderr.startswith("error: index: a \N{HONEYBEE}: no such file or folder")


PARTS = st.lists(st.sampled_from(["a", "b", "..", "."]), min_size=1, max_size=4).map("/".join)


@given(PARTS, PARTS)
def test_paths_are_compared_whatever_their_spelling(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "x/y/z/u"
    found, out = Path(os.path.normpath(root / one)), Path(os.path.normpath(root / other))
    apart = found != out and found not in out.parents and out not in found.parents
    try:
        check_outputs([root / one], {"--out": root / other})
    except UserError:
        assert not apart
    else:
        assert apart


@pytest.mark.parametrize("corpus", ["ir_datasets:x", "pyserini:y", "rest:http://z/y", "opensearch:http://z/y"])
def test_a_corpus_that_is_no_path_overlaps_no_output(corpus: str) -> None:
    check_outputs([corpus], {"--out": Path.cwd()})
