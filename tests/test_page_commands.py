"""Each command of each page is read by its parser, and runs on sample files, or a table says why it cannot run here."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.models import plain_model
from tests.support.pages import MODEL_URL, Block, find_words, list_blocks, parse, write_sample_files
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import Server, serving
from tests.support.servers.shared import make_once

BLOCKS = list_blocks()

NOT_RUN = {
    r"^make |^\.venv/bin/|^source |^python -m (benchmarks|keystone)": "sets up, tests or measures a checkout",
    r"^pip install": "installs packages",
    r"^docker |opensearch": "needs a cluster of OpenSearch: tests/indexing/opensearch",
    r"^(vllm|curl|auto-judge) |^export ": "needs a program or a server of another project",
    r"keystone serve ": "runs until it is stopped: tests/runs/serving",
    r"keystone (push|pull) |\bhf:|ir_datasets:|scifact": "needs a hub of data sets: tests/indexing/io/test_hub.py",
    r"pyserini:|rest:http|routir:http": "needs an index or a server of another project: tests/indexing/attached",
    r"--embedding-url ": "needs a server of embeddings: tests/indexing/vectors",
    r"--engine ray": "needs Ray: tests/indexing/builds",
    r"--watch": "runs until it is stopped",
    r"backend=batch": "waits for the replies of a batch: tests/generation/llm/test_batch.py",
    r"backend: command": "needs a program that replies as a model",
    r"keystone-tiny|garden|best_rank|pairs|FirstRank": "needs the package of the page: tests/test_packages.py",
}


def find_reason(line: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, line)), None)


def expand(word: str, folder: Path) -> list[str]:
    """The files of a folder that a pattern names, as a shell expands it; another word as it is."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.glob(word)) if "*" in word else []
    return found or [word]


RUN = [block for block in BLOCKS if not all(map(find_reason, block.lines))]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_the_parser_of_its_command_reads_each_line(block: Block) -> None:
    for line in block.lines:
        if words := find_words(line):
            try:
                parse(words)
            except Exception as error:
                error.add_note(f"{block.place}: {line}")
                raise


@pytest.fixture(scope="module")
def model() -> Iterator[Server]:
    """A model by rules, which replies to what the pages ask."""
    with serving(model=plain_model.say) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
def test_the_commands_of_a_block_run_in_their_order(
    block: Block, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, model: Server
) -> None:
    made = make_once(tmp_path_factory, "page-samples", write_sample_files)
    run_block(block, Path(shutil.copytree(made, tmp_path / "samples")), model)


def run_block(block: Block, folder: Path, model: Server) -> None:
    """Run the lines of a block in a folder, but those of `NOT_RUN`. `keystone` runs in this process, others by bash.

    A line that makes an index makes it where there was none. The model is at the address of the server.
    """
    config = folder / "model.yaml"
    config.write_text(config.read_text().replace(MODEL_URL, model.url))
    for line in block.lines:
        words = find_words(line.replace(MODEL_URL, model.url))
        if find_reason(line):
            continue
        if words[:1] == ["index"] and not {"--update", "--delete"} & {*words}:
            shutil.rmtree(folder / "index", ignore_errors=True)
        if words:
            done = keystone_here(*(found for word in words for found in expand(word, folder)), cwd=folder)
        else:
            done = programs.run(["bash", "-euc", line], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if words and (target := re.search(r" > (\S+)", line)):
            (folder / target[1]).write_text(done.stdout)


def test_each_reason_names_a_command_of_a_page() -> None:
    lines = [line for block in BLOCKS for line in block.lines]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in lines)] == []
