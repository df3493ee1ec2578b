"""The blocks of commands in the pages, and the folder of sample files under the names that pages use."""

import json
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from keystone.runs.cli.main import app
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES
from tests.support.models import plain_model
from tests.support.places import ROOT
from tests.support.runs.answered_runs import judge
from tests.support.runs.command_line import keystone_here
from tests.support.runs.shared_task import write_scored_answers, write_shared_task

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
MODEL_URL = "http://localhost:8000/v1"
"""The address of a language model in the pages."""
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"\s*(?:keystone|pip|docker|vllm|export) ")
"""What a block of commands begins with, if it is marked as text: one that cannot be typed as it is."""
COMMAND = re.compile(r"^[^#\n].*<<'END'\n(?:.*\n)*?END$|^[^#\n].*$", re.MULTILINE)
"""A line, or several up to `END`, which are the contents of a file."""
RUNS = ("my-run", "a", "b", "c", "first", "second")
_BOARD = "--qrels qrels.txt -m nDCG@10 -m MAP --format csv --only-table".split()
DEMO_RUNS = {
    "narrative": ["run.yaml", "--set", "queries.method=narrative"],
    "rules": ["run.yaml"],
    "listwise": ["model.yaml", "--preset", "listwise"],
    "keystone": ["model.yaml", "--preset", "keystone"],
}
"""The runs of the demo, with what makes them here."""


@dataclass(frozen=True)
class Block:
    """A block of commands: its place, and its commands. A command may go on in further lines.

    `output` is the text block after it, which shows what the commands print; empty if there is none.
    """

    place: str
    commands: tuple[str, ...]
    output: str = ""


def list_blocks() -> list[Block]:
    """List the blocks of commands of all pages."""
    return [block for page in PAGES for block in _list_of_page(page)]


def list_commands(pattern: str) -> list[str]:
    """List the commands of all pages that match a pattern from their beginnings. Fail if there are none."""
    found = [command for block in list_blocks() for command in block.commands if re.match(pattern, command)]
    assert found, pattern
    return found


def _list_of_page(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found, after in pairwise([*_FENCE.finditer(text), None]):
        assert found
        if found[2] in ("console", "bash", "sh") or _has_commands(found):
            output = after[3] if after and after[2] == "text" and not _has_commands(after) else ""
            place = f"{page.name}:{text[: found.start()].count(chr(10)) + 1}"
            yield Block(place, tuple(COMMAND.findall(_join(found[3]))), textwrap.dedent(output))


def _has_commands(fence: re.Match[str]) -> bool:
    return fence[2] == "text" and bool(_SHELL.match(fence[3]))


def _join(block: str) -> str:
    return re.sub(r" *\\\n *", " ", textwrap.dedent(block))


def find_words(line: str) -> list[str]:
    """The words after `keystone` of a line that calls it, without what the shell does; empty for another program."""
    words = shlex.split(re.sub(r" > \S+", "", line), comments=True)
    while words and re.match(r"\w+=", words[0]):
        del words[0]
    return words[1:] if words[:1] == ["keystone"] else []


def parse(words: list[str]) -> None:
    """Read the words of a call with its command's own parser and types, without callbacks."""
    command: Any = get_command(app)
    context = None
    while True:
        context = command.context_class(command, parent=context)
        if words and words[0] not in getattr(command, "commands", words) and hasattr(command, "default"):
            words = [command.default, *words]
        values, words, _ = command.make_parser(context).parse_args(list(words))
        named = [parameter for parameter in command.get_params(context) if values.get(parameter.name)]
        for parameter in named:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(parameter, "callback", None)
                parameter.handle_parse_result(context, values, words)
        if not any(parameter.is_eager for parameter in named):
            assert {parameter.name for parameter in command.params if parameter.required} <= {one.name for one in named}
        if not hasattr(command, "commands"):
            assert not words, f"found {words[0]!r} too many"
            return
        _, command, words = command.resolve_command(context, words)


def write_sample_files(folder: Path, model_url: str) -> None:
    """Write what pages name: the files of the demo, runs, judgments, answers, and the files of a shared task.

    The demo's index and runs are made here from a few documents.
    """
    write_shared_task(folder, runs=9, topics=6, depth=60)
    write_scored_answers(folder, runs=4, topics=6)
    documents = {**CORPUS, "topics/cache": ("Caching", "A cache keeps a page."), "faq/models": ("Models", "Bees fly.")}
    _write(
        folder / "corpus.jsonl", [{"id": id, "title": title, "text": text} for id, (title, text) in documents.items()]
    )
    themes = [
        {"id": str(100 + number), "narrative": f"What does theme {number} mean to people?"} for number in range(6)
    ]
    narratives = [{"id": id, "narrative": text} for id, text in zip("128345", cycle(NARRATIVES.values()), strict=False)]
    _write(folder / "narratives.jsonl", narratives)
    _write(folder / "topics.jsonl", [*narratives, *themes])
    judged = {"bees": 2, "beekeeping": 2, "flowers": 1, "volcano": 2, "weather": 1, "faq/models": 0}
    lines = [f"{topic['id']} 0 {id} {grade}\n" for topic in narratives for id, grade in judged.items()]
    with (folder / "qrels.txt").open("a") as file:
        file.writelines(lines)
    (folder / "demo.qrels").write_text("".join(lines))
    for name, members in (("nuggets", "nuggets"), ("rubrics", "criteria")):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        rows += [rows[0] | {"qid": topic["id"]} for topic in narratives]
        for row in rows:
            row[members] = [one | {"references": ["bees"]} for one in row[members]]
        _write(folder / f"{name}.jsonl", rows)
    _write(folder / "references.jsonl", [_refer(topic) for topic in narratives])
    _write_corpora(folder)
    settings = {"run_id": "my-run", "team_id": "my-team", "index": "demo-out/index", "topics": "narratives.jsonl"}
    model = {"name": "my-model", "urls": [model_url], "window": 8192}
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    (folder / "model.yaml").write_text(yaml.safe_dump({**settings, "run_id": "with-model", "model": model}))
    (folder / "bin").mkdir()
    (folder / "bin/my-agent").write_text("#!/bin/sh\ncat >/dev/null\necho Bees live in colonies.\n")
    (folder / "bin/my-agent").chmod(0o755)
    (folder / "trec_rag_2026_queries.tsv").write_text("1\tWhere do honey bees live, and how do they find flowers?\n")
    (folder / "demo-out").mkdir()
    shutil.copy(folder / "corpus.jsonl", folder / "demo-out")
    _keystone(folder, "index", "corpus.jsonl", "--out", "demo-out/index")
    shutil.copytree(folder / "demo-out/index", folder / "index")
    _write_grounding(folder)
    for name in RUNS:
        _keystone(folder, "run", "run.yaml", "--set", f"run_id={name}")
    for name, k in product(("my-run", "first"), ("10", "60")):
        given = [f"run_id={name}", f"out=out/{name}.sweep/{k}", f"fusion.k_narrative={k}"]
        _keystone(folder, "run", "run.yaml", *(word for one in given for word in ("--set", one)))
    for name, made_by in DEMO_RUNS.items():
        _keystone(folder, "run", *made_by, "--set", f"run_id={name}", "--set", "out=demo-out/runs")
    (folder / "demo-out/runs/replies.sqlite").unlink()
    board = keystone_here("evaluate", "runs", *_BOARD, cwd=folder)
    (folder / "board.csv").write_text(board.stdout)
    for name in ("a", "b"):
        shutil.copy(folder / "out" / name / "narrative.trec", folder / f"{name}.trec")
    _keystone(
        folder,
        "judge",
        "a.trec",
        "b.trec",
        "--config",
        "model.yaml",
        "--against",
        "demo.qrels",
        "--out",
        "judged.qrels",
    )
    for name, run in (("answers", "my-run"), ("other", "c")):
        shutil.copy(folder / f"out/{run}/rag_output_trec_rag_2025.jsonl", folder / f"{name}.jsonl")


def _write_corpora(folder: Path) -> None:
    """Write small corpora in several forms, what an update adds and removes, and files of other tools."""
    for name in ("website", "disk4-and-5", "more", "scifact/qrels"):
        (folder / name).mkdir(parents=True)
    (folder / "website/bees.html").write_text("<html><body><p>Honey bees live in colonies.</p></body></html>")
    (folder / "disk4-and-5/ft911").write_text("<DOC>\n<DOCNO>FT911-3</DOCNO>\n<TEXT>\nBees.\n</TEXT>\n</DOC>\n")
    stories = [("s1", "en", "Honey bees live in colonies."), ("s2", "zh", "蜜蜂生活在蜂群中。")]
    _write(folder / "stories.jsonl", [{"id": id, "lang": lang, "text": text} for id, lang, text in stories])
    _write(folder / "new.jsonl", [{"id": "ants", "text": "Ants build hills."}])
    _write(folder / "more/more.jsonl", [{"id": "moths", "text": "Moths fly at night."}])
    (folder / "old-ids.txt").write_text("volcano\n")
    bees = {"_id": "bees", "title": "Bees", "text": "Honey bees live in colonies."}
    _write(folder / "scifact/corpus.jsonl", [bees])
    _write(folder / "scifact/queries.jsonl", [{"_id": "1", "text": "Where do bees live?"}])
    (folder / "scifact/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tbees\t1\n")
    query = {"qid": "1", "text": "Where do bees live?"}
    candidates = [
        {"docid": id, "score": score, "doc": {"segment": "Bees."}} for id, score in (("bees", 2), ("flowers", 1))
    ]
    _write(folder / "reranked.jsonl", [{"query": query, "candidates": candidates}])
    judged = {
        "qid": "1",
        "query": query["text"],
        "docid": "bees",
        "passage": "Bees.",
        "judgment": 2,
        "result_status": 1,
    }
    _write(folder / "judgments.jsonl", [judged])


def _refer(topic: Mapping[str, str]) -> dict[str, Any]:
    return {"id": topic["id"], "question": topic["narrative"], "references": ["Bees dance."], "answers": [["bees"]]}


def _write_grounding(folder: Path) -> None:
    """Write an index of documents with PMIDs, and the topics and judgments of BioGen's task A."""
    _write(folder / "pubmed.jsonl", [{"id": "11", "text": "Honey lowers cough in children."}])
    _keystone(folder, "index", "pubmed.jsonl", "--out", "pubmed", "--no-dense")
    answer = [{"text": "Honey lowers cough.", "existing_supported_citations": [15]}]
    topics = [{"metadata": {"qa_id": "116", "question": "Is honey good?"}, "answer": answer}]
    (folder / "task_a.json").write_text(json.dumps(topics))
    head = "qid,answer_sentence,citation,judgement"
    (folder / "judgements.csv").write_text(f"{head}\n116,Honey lowers cough .,PMID: 11,Supports\n")


def answer_batches(folder: Path) -> Iterator[str]:
    """Answer each file of requests that waits, in the form of OpenAI's batch service; gives the name of each."""
    for requests in sorted(folder.glob("*.requests.jsonl")):
        name = requests.name.removesuffix(".requests.jsonl")
        replies = folder / f"{name}.replies.jsonl"
        if not replies.exists():
            asked = [json.loads(line) for line in requests.read_text().splitlines()]
            _write(replies, [{"custom_id": one["custom_id"], "response": _respond(one["body"])} for one in asked])
            yield name


def _respond(body: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply(body)}}
    return {"status_code": 200, "body": {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}}


def reply(body: dict[str, Any]) -> str:
    """Reply to any prompt of the pages: by rules where tests have them, or by the least that satisfies the schema."""
    with suppress(LookupError, ValueError):
        return plain_model.say(body)
    with suppress(LookupError, ValueError):
        if body["messages"][0]["content"].startswith(("You judge of what use", "Two systems")):
            return judge(body["messages"][1]["content"])
    if "response_format" not in body:
        return "[[A]]"  # the verdict of a battle
    wanted = body["response_format"]["json_schema"]["schema"]
    return json.dumps(_fill(wanted, wanted))


def _fill(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    """The least value that satisfies a JSON schema, whose lists have one member if they may."""
    if "$ref" in schema:
        return _fill(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return _fill(schema["anyOf"][0], whole)
    if schema.get("type") == "object":
        return {name: _fill(one, whole) for name, one in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        return [_fill(schema["items"], whole)] * max(1, schema.get("minItems", 0))
    return {"string": "Bees live in colonies.", "boolean": True}.get(schema.get("type", ""), schema.get("minimum", 1))


def _keystone(folder: Path, *arguments: str) -> None:
    done = keystone_here(*arguments, "--quiet", cwd=folder)
    assert done.returncode == 0, (arguments, done.stderr)


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
