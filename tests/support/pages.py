"""The blocks of commands in the pages, and the folder of sample files under the names that pages use."""

import json
import re
import shlex
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from keystone.runs.cli.main import app
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone_here
from tests.support.runs.shared_task import write_scored_answers, write_shared_task

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
MODEL_URL = "http://localhost:8000/v1"
"""The address of a language model in the pages."""
_BLOCK = re.compile(r"^( *)```(?:console|bash|sh)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
RUNS = ("my-run", "other-run", "a", "b", "c", "first", "second")


@dataclass(frozen=True)
class Block:
    """A block of commands: its place, and its lines, of which one that ends with a backslash is joined to the next."""

    place: str
    lines: tuple[str, ...]


def list_blocks() -> list[Block]:
    """List the blocks of commands of all pages."""
    return [
        Block(f"{page.name}:{text[: found.start()].count(chr(10)) + 1}", tuple(_join(found[2])))
        for page in PAGES
        for text in [page.read_text()]
        for found in _BLOCK.finditer(text)
    ]


def _join(block: str) -> list[str]:
    lines = re.sub(r" *\\\n *", " ", textwrap.dedent(block)).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def find_words(line: str) -> list[str]:
    """The words after `keystone` of a line that calls it, without what the shell does; empty for another program."""
    words = shlex.split(re.sub(r" > \S+", "", line), comments=True)
    while words and re.match(r"\w+=", words[0]):
        del words[0]
    return words[1:] if words[:1] == ["keystone"] else []


def parse(words: list[str]) -> None:
    """Read the words of a call by its command's own parser and types, without what a call does before it begins."""
    command: Any = get_command(app)
    context = None
    while True:
        context = command.context_class(command, parent=context)
        if words and words[0] not in getattr(command, "commands", words) and hasattr(command, "default"):
            words = [command.default, *words]
        values, words, _ = command.make_parser(context).parse_args(list(words))
        named = [parameter for parameter in command.get_params(context) if values.get(parameter.name)]
        for parameter in named:
            parameter.callback = None
            parameter.handle_parse_result(context, values, words)
        if not any(parameter.is_eager for parameter in named):
            assert {parameter.name for parameter in command.params if parameter.required} <= {one.name for one in named}
        if not hasattr(command, "commands"):
            assert not words, f"found {words[0]!r} too many"
            return
        _, command, words = command.resolve_command(context, words)


def write_sample_files(folder: Path) -> None:
    """Write what pages name: a corpus, its index, runs, judgments, answers, and the files of a shared task."""
    write_shared_task(folder, runs=9, topics=6, depth=60)
    write_scored_answers(folder, runs=4, topics=6)
    documents = {**CORPUS, "topics/cache": ("Caching", "A cache keeps a page, so that Django need not make it again.")}
    _write(
        folder / "corpus.jsonl", [{"id": id, "title": title, "text": text} for id, (title, text) in documents.items()]
    )
    _write(folder / "topics.jsonl", [{"id": id, "narrative": text} for id, text in NARRATIVES.items()])
    _write(folder / "new.jsonl", [{"id": "ants", "title": "Ants", "text": "Ants build hills."}])
    (folder / "old-ids.txt").write_text("wasps\n")
    with (folder / "qrels.txt").open("a") as file:
        file.writelines(f"1 0 {id} 2\n" for id in ("bees", "beekeeping", "flowers"))
        file.writelines(f"2 0 {id} 1\n" for id in ("volcano", "weather"))
    facts = [{"text": "Bees live in colonies.", "importance": "vital"}, {"text": "Bees dance.", "importance": "okay"}]
    with (folder / "nuggets.jsonl").open("a") as file:
        file.write(json.dumps({"qid": "1", "query": "Bees?", "nuggets": facts}) + "\n")
    settings = {"run_id": "my-run", "index": "index", "topics": "topics.jsonl"}
    model = {"name": "my-model", "urls": [MODEL_URL], "window": 8192}
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    (folder / "model.yaml").write_text(yaml.safe_dump({**settings, "run_id": "with-model", "model": model}))
    _keystone(folder, "index", "corpus.jsonl", "--out", "index")
    for name in RUNS:
        _keystone(folder, "run", "run.yaml", "--set", f"run_id={name}")
    (folder / "demo-out").mkdir()
    shutil.copytree(folder / "index", folder / "demo-out" / "index")
    shutil.copy(folder / "corpus.jsonl", folder / "demo-out")
    for name in ("narrative", "rules"):
        _keystone(
            folder,
            "run",
            "run.yaml",
            "--set",
            f"run_id={name}",
            "--set",
            "out=demo-out/runs",
            "--set",
            "index=demo-out/index",
        )
    for name in ("a", "b"):
        shutil.copy(folder / "out" / name / "narrative.trec", folder / f"{name}.trec")
    shutil.copy(folder / "out/my-run/rag_output_trec_rag_2025.jsonl", folder / "submission.jsonl")


def _keystone(folder: Path, *arguments: str) -> None:
    done = keystone_here(*arguments, "--quiet", cwd=folder)
    assert done.returncode == 0, (arguments, done.stderr)


def _write(path: Path, records: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
