"""Weights of systems: measured as their runs would be, and chosen without the topics that judge them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import settle_embedding
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.tune import Trials, write_snippet
from keystone.runs.evaluation.weights import LEAST_GAIN, Choice, _vary, ascend, open_weigher, tune_weights
from keystone.runs.pipeline.file_names import NARRATIVE
from keystone.runs.pipeline.run import run
from tests.support.indexes.small_corpus import write_corpus
from tests.support.models.checkpoints import write_checkpoint
from tests.support.runs.command_line import keystone

pytestmark = pytest.mark.slow

MEASURES = [parse_measure("nDCG@5"), parse_measure("R@5")]
SYSTEMS = {
    "bm25": {"kind": "bm25", "k1": 1.2},
    "minilm": {"kind": "dense"},
    "letters": {"kind": "dense", "vectors": "letters", "depth": 7},
    "close": {"kind": "dense", "within": "bm25"},
    "sparse": {"kind": "impact", "impacts": "sparse"},
}
JUDGED = {
    "Who harms a colony of bees?": "beekeeping wasps", "Which insects live alone?": "wasps",
    "What makes the weather cold?": "weather volcano", "Where is ice?": "glacier", "What do bees eat?": "flowers bees",
    "Honey and sugar.": "twin-a twin-b beekeeping",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with two sets of vectors and a set of impacts, judged topics, and a run of five systems."""
    made = tmp_path_factory.mktemp("weights")
    model = str(write_checkpoint(made / "letters", pooling="mean"))
    letters = settle_embedding(Embedding(model), (), print)
    sparse = settle_impacts(str(write_checkpoint(made / "sparse", head="words")))
    settings = BuildSettings(vectors={"letters": letters}, impacts={"sparse": sparse})
    build_index(write_corpus(made / "corpus.jsonl"), made / "index", settings)
    topics = [{"id": str(number), "narrative": text} for number, text in enumerate(JUDGED, 1)]
    (made / "topics.jsonl").write_text("".join(json.dumps(topic) + "\n" for topic in topics))
    judged = [f"{number} 0 {name} 1\n" for number, own in enumerate(JUDGED.values(), 1) for name in own.split()]
    (made / "qrels.txt").write_text("".join(judged))
    values: dict[str, Any] = {"run_id": "r", "index": str(made / "index"), "topics": str(made / "topics.jsonl")}
    values |= {"out": str(made / "out"), "track": "none"}
    values |= {"retrieval": {"systems": SYSTEMS, "depth": 9}, "fusion": {"depth": 9}}
    (made / "run.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return made


def measure_run(folder: Path, overrides: list[str]) -> dict[str, list[float]]:
    directory = run(read_config(folder / "run.yaml", overrides))
    (found,) = evaluate_files([directory / NARRATIVE], folder / "qrels.txt", MEASURES)
    return {name: values.tolist() for name, values in found.values.items()}


@pytest.mark.parametrize(
    "choice",
    [
        Choice("scores", (0.1, 0.4, 0.2, 0.1, 0.2)),
        Choice("rrf", (0.3, 0.4, 0, 0, 0.3)),
        Choice("scores", (0, 0, 0, 0, 1)),
        None,
    ],
)
def test_a_choice_is_measured_as_its_run_would_be(choice: Choice | None, folder: Path) -> None:
    measure = open_weigher(folder / "run.yaml", [], Trials(folder / "qrels.txt", MEASURES))
    found = measure(choice)
    expected = measure_run(folder, list(measure.set(choice)) if choice else [])
    assert {name: values.tolist() for name, values in found.values.items()} == expected


def test_the_weights_of_the_short_form_are_those_of_its_long_form(folder: Path) -> None:
    short = ["retrieval.systems=[bm25, dense]", "retrieval.k1=0.7"]
    measure = open_weigher(folder / "run.yaml", short, Trials(folder / "qrels.txt", MEASURES))
    setting = measure.set(Choice("scores", (0.15, 0.85)))
    assert yaml.safe_load(write_snippet(setting)) == {
        "retrieval": {
            "systems": {"bm25": {"kind": "bm25", "weight": 0.15}, "dense": {"kind": "dense", "weight": 0.85}}
        },
        "fusion": {"systems": "scores"},
    }
    assert measure_run(folder, [*short, *setting]) == measure_run(folder, short)


def test_the_chosen_weights_are_a_local_optimum(folder: Path) -> None:
    segments = ["track=rag25", "ranking=segments", "answer.documents=9"]
    trials = Trials(folder / "qrels.txt", MEASURES)
    measure = open_weigher(folder / "run.yaml", ["fusion.systems=scores", *segments], trials)
    topics = np.array([True, True, False, True, True, False])
    best = ascend(measure, topics)
    found = measure.score(best, topics)
    assert found >= max(
        measure(None)["nDCG@5"][topics].mean(), measure.score(measure.settle("scores", [1] * 5), topics)
    )
    assert best.weights[0] > 0, "another system searches within this one"
    for place in range(5):
        assert all(measure.score(one, topics) <= found + LEAST_GAIN for one in _vary(measure, best, place))


def test_no_topic_has_a_part_in_the_choice_that_it_measures(folder: Path, tmp_path: Path) -> None:
    short = ["retrieval.systems=[bm25, dense]"]
    found = tune_weights(folder / "run.yaml", short, Trials(folder / "qrels.txt", MEASURES, folds=2))
    fold = np.random.default_rng(0).permutation(6) % 2
    lines = (folder / "qrels.txt").read_text().splitlines()
    for number in (0, 1):
        others = [f"{line[0]} 0 glacier 1" if fold[int(line[0]) - 1] == number else line for line in lines]
        (tmp_path / "qrels.txt").write_text("\n".join(sorted(set(others))) + "\n")
        changed = tune_weights(folder / "run.yaml", short, Trials(tmp_path / "qrels.txt", MEASURES, folds=2))
        assert changed.by_fold[number] == found.by_fold[number]


def test_given_runs_keep_their_weight_and_allow_ranks_alone(folder: Path) -> None:
    directory = run(read_config(folder / "run.yaml"))
    overrides = [f"retrieval.runs=[{directory / 'minilm.trec'}]", "queries.method=narrative", "run_id=given"]
    measure = open_weigher(folder / "run.yaml", overrides, Trials(folder / "qrels.txt", MEASURES))
    best = ascend(measure, np.full(6, True))
    assert best.method == "rrf"
    assert measure.settle("rrf", [2, 1, 1, 1, 0]).weights == (2, 1, 1, 1, 0)
    found = {name: values.tolist() for name, values in measure(best).values.items()}
    assert found == measure_run(folder, [*overrides, *measure.set(best)])


def test_the_command_writes_the_weights_as_a_part_of_the_run(folder: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        "tune",
        folder / "run.yaml",
        "--qrels",
        folder / "qrels.txt",
        "--weights",
        "--folds",
        "2",
    ]
    command += ["-q", "--set", "fusion.systems=scores"]
    weak = (f"retrieval.systems.{name}.weight=0.001" for name in ("minilm", "close", "bm25"))
    own = [part for setting in weak for part in ("--set", setting)]
    done = keystone(*command, *own, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert len(result["by_fold"]) == 2
    shown = keystone(*command, *own)
    assert all(f"chosen without fold {number}: " in shown.stdout for number in (1, 2))
    assert result["better"], "the configuration all but leaves the best systems out"
    assert result["yaml"] in shown.stdout
    (tmp_path / "part.yaml").write_text(result["yaml"])
    assert yaml.safe_load(result["yaml"])["retrieval"]["systems"].keys() <= SYSTEMS.keys()
    assert all(line.startswith("scores: ") for line in result["by_fold"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["retrieval.systems=[bm25]"], "retrieval.systems: found bm25, expected 2 or more to weigh"),
        (
            [
                "retrieval.systems=[bm25, dense]",
                "queries.passages=hyde",
                "model={name: m, backend: replay, replies: r}",
            ],
            "queries.passages: found 'hyde', which adds systems",
        ),
    ],
)
def test_systems_that_cannot_be_weighed_are_named(overrides: list[str], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message):
        tune_weights(folder / "run.yaml", overrides, Trials(folder / "qrels.txt", MEASURES))


def test_weights_and_tries_exclude_each_other(folder: Path) -> None:
    done = keystone("tune", folder / "run.yaml", "--qrels", folder / "qrels.txt", "--weights", "--try", "fusion.k=[1]")
    assert (done.returncode, done.stderr) == (1, "error: --weights: found with --try, expected it without\n")
