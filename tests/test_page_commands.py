"""Each command of each page is read by its parser, and runs on sample files, or a table says why it cannot run here.

If a block of output follows the commands, they print it. The demo and the tutorial print figures of the real demo:
tests/runs/demo compares these.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.pages import MODEL_URL, Block, find_words, list_blocks, parse, reply, write_sample_files
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import Server, serving
from tests.support.servers.shared import make_once

BLOCKS = list_blocks()

NOT_RUN = {
    r"^samples=|\$samples|keystone demo": "the demo: tests/runs/demo",
    r"^make |^\.venv/bin/|^source |^python -m (benchmarks|keystone)": "sets up, tests or measures a checkout",
    r"^pip install": "installs packages",
    r"^docker |opensearch": "needs a cluster of OpenSearch: tests/indexing/opensearch",
    r"^(vllm|curl|auto-judge) |^export ": "needs a program or a server of another project",
    r"keystone serve ": "runs until it is stopped: tests/runs/serving",
    r"keystone replay ": "needs the log of a server: tests/runs/serving",
    r"keystone reproduce-track ": "needs a published index: tests/runs/evaluation/test_reproduce_track.py",
    r"^keystone doctor$": "measures the speed of the machine: tests/runs/doctor",
    r"hf:|keystone (push|pull) |BAAI/|--drop bge": "needs the Hugging Face hub: tests/indexing/io/test_hub.py",
    r"intfloat/|models/my-encoder": "needs an encoder: tests/indexing/encoders",
    r"ir_datasets:|pyserini:": "downloads data: tests/indexing/corpora, tests/indexing/attached",
    r"(rest|routir):|climbmix|trec_rag_2026": "needs a server: tests/indexing/attached",
    r"--watch ": "runs until it is stopped: tests/runs/cli/test_watch_index.py",
    r"--recall \.95": "needs more than a thousand vectors: tests/indexing/vectors",
    r"backend=batch": "ends with exit code 3: tests/generation/llm/test_batch.py",
    r"my-agent": "needs a program: tests/generation/llm/test_command.py",
    r"task_a": "needs a model that judges: tests/runs/tracks/test_grounded.py",
    r"doctor --model": "measures a server: tests/runs/doctor/test_model_server.py",
    r"keystone-tiny|garden|best_rank|tiny26|pairs\.jsonl|FirstRank": "needs the page's package: tests/test_packages.py",
}


def find_reason(line: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, line)), None)


def expand(word: str, folder: Path) -> list[str]:
    """The files of a folder that a pattern names, as a shell expands it; another word as it is."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.glob(word)) if "*" in word else []
    return found or [word]


RUN = [
    pytest.param(
        block,
        id=block.place,
        # tests/test_readme.py runs these lines by bash, as they stand
        marks=pytest.mark.nightly if block.commands[0].startswith("source .venv/bin/activate") else (),
    )
    for block in BLOCKS
    if not all(map(find_reason, block.commands))
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_the_parser_of_its_command_reads_each_line(block: Block) -> None:
    for line in block.commands:
        if words := find_words(line):
            try:
                parse(words)
            except Exception as error:
                error.add_note(f"{block.place}: {line}")
                raise


@pytest.fixture(scope="module")
def model() -> Iterator[Server]:
    """A model by rules, which replies to what the pages ask."""
    with serving(model=reply) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN)
def test_the_commands_of_a_block_run_in_their_order(
    block: Block, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, model: Server
) -> None:
    made = make_once(tmp_path_factory, "page-samples", lambda folder: write_sample_files(folder, model.url))
    run_block(block, Path(shutil.copytree(made, tmp_path / "samples")), model)


def run_block(block: Block, folder: Path, model: Server) -> None:
    """Run the commands of a block in a folder, but those of `NOT_RUN`. `keystone` runs in this process, others by bash.

    A command that makes an index or answers finds none of them. The model is at the address of the server.
    """
    for config in (folder / "model.yaml", *folder.glob("demo-out/runs/*/config.yaml")):
        config.write_text(re.sub(r"http://127\.0\.0\.1:\d+/v1", model.url, config.read_text()))
    if any("runs/demo/" in command for command in block.commands):
        (folder / "runs/demo").mkdir()
        shutil.copy(folder / "demo.qrels", folder / "runs/demo/qrels.txt")
    printed = ""
    for command in block.commands:
        if find_reason(command):
            continue
        words = find_words(command.replace(MODEL_URL, model.url))
        if words[:1] == ["index"] and not {"--update", "--delete"} & {*words}:
            shutil.rmtree(folder / "index", ignore_errors=True)
        if words[:1] == ["answer"]:
            (folder / "answers.jsonl").unlink()
        if words:
            done = keystone_here(*(found for word in words for found in expand(word, folder)), cwd=folder)
        else:
            script = command.replace(MODEL_URL, model.url)
            done = programs.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout + done.stderr
        if words and (target := re.search(r" > (\S+)", command)):
            (folder / target[1]).write_text(done.stdout)
    if not block.place.startswith("tutorial.md"):
        assert set(block.output.splitlines()) <= set(printed.splitlines()), printed


def test_each_reason_names_a_command_of_a_page() -> None:
    lines = [line for block in BLOCKS for line in block.commands]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in lines)] == []
