"""A sweep: a run for each combination of settings. They share finished stages, and judged topics choose the best."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.writing import append, lock_folder
from keystone.indexing.types import Progress, silent
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.evaluate_answers import evaluate_answer_files
from keystone.runs.evaluation.bounds import treat_otherwise
from keystone.runs.evaluation.evaluate import Evaluation, evaluate_files
from keystone.runs.evaluation.measures import Measure
from keystone.runs.evaluation.tune import Setting, Tuning, cross_validate, draw_folds, parse_try
from keystone.runs.pipeline.directory import Stage, read_entries
from keystone.runs.pipeline.file_names import STAGE_COSTS
from keystone.runs.pipeline.model_runner import open_model_runner, read_total_usage
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.table import find_last_ranking

CONFIGURED = "configured"
"""The folder of the run as configured. The other folders have names made from their settings."""

TakeMeasures = Callable[[Path, RunConfig], Evaluation]
"""Measures a run: `take_measures(directory, config)`. The configuration has the model that judges all runs alike."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of stages. A kept reply of the model counts as a call without tokens; `seconds` are clock time."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.calls + other.calls, self.tokens + other.tokens, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True)
class Point:
    """A run of a sweep: its directory, and the cost of its stages, which other runs may have paid."""

    directory: Path
    cost: Cost


@dataclass(frozen=True, slots=True)
class Sweep:
    """The runs of a sweep by setting, and their measures. The setting of the run as configured is `()`."""

    points: dict[Setting, Point]
    tuning: Tuning


def sweep(
    config: Path,
    overrides: Sequence[str],
    tries: Sequence[str],
    take_measures: TakeMeasures,
    folds: int = 5,
    threads: int = 1,
    progress: Progress = silent,
) -> Sweep:
    """Make the run as configured and a run for each combination of settings, in the folder `<out>/<run_id>.sweep`.

    `tries` are settings, each `key=[value, ...]`. Cross-validation divides the topics into `folds` parts.

    A stage is made once for all runs in which its inputs are the same. An interrupted sweep continues. Its runs share
    the replies of the model with the runs in `out`. `UserError` if the first measure has no value for any topic, for
    fewer judged topics than folds, and for a budget.
    """
    plain = read_config(config, list(overrides))
    others = {one: read_config(config, [*overrides, *one]) for one in product(*map(parse_try, tries))}
    if any(own.model and own.model.budget for own in (plain, *others.values())):
        raise UserError(
            "model.budget: found a budget, expected none: runs that share stages would spend it differently"
        )
    configs = {(): plain} | {setting: own for setting, own in others.items() if own != plain}
    folder = plain.out / f"{plain.run_id}.sweep"
    directories: dict[Setting, Path] = {}
    evaluations: list[Evaluation] = []
    with lock_folder(folder), progress("Sweeping", len(configs)) as tick:
        for setting, own in configs.items():
            name = digest(setting)[:8] if setting else CONFIGURED
            model = own.model and own.model.model_copy(update={"cache": own.model.replies_in(own.out)})
            own = own.model_copy(update={"out": folder / name, "model": model})
            directories[setting] = _make_run(own, folder, threads)
            evaluations.append(take_measures(directories[setting], plain))
            if not setting:
                fold = draw_folds(len(evaluations[0].topics), folds)
                first, values = next(iter(evaluations[0].values.items()))
                if np.isnan(values).all():
                    problem = "no topic has a value of this measure, which chooses; expected another as the first"
                    raise UserError(f"{first}: {problem}")
            tick(1)
    points = {setting: Point(path, read_cost(path)) for setting, path in directories.items()}
    trials = dict(zip(list(configs)[1:], evaluations[1:], strict=True))
    return Sweep(points, Tuning(evaluations[0], trials, cross_validate(evaluations, fold)))


def measure_rankings(qrels: Path, measures: Sequence[Measure], skip_own: bool = False) -> TakeMeasures:
    """Make the function that measures a run by its last ranking of documents; see `evaluate_files`."""
    measure = partial(evaluate_files, qrels_path=qrels, measures=measures, skip_own=skip_own, add=treat_otherwise)
    return lambda directory, _config: measure([find_last_ranking(directory)])[0]


def measure_answers(references: Path, names: Sequence[str]) -> TakeMeasures:
    """Make the function that measures a run by its answers; see `evaluate_answer_files`."""

    def take_measures(directory: Path, config: RunConfig) -> Evaluation:
        with open_model_runner(config, None) as run_with_model:
            return evaluate_answer_files([directory], references, names, run_with_model)[0][0]

    return take_measures


def _make_run(config: RunConfig, folder: Path, threads: int) -> Path:
    """Make a run of the sweep in `folder`, and note the cost of each stage that is made."""
    directory = config.out / config.run_id
    lenders = [path for path in sorted(folder.glob(f"*/{config.run_id}")) if path != directory]
    begun: list[tuple[str | None, Cost]] = []

    def announce(stage: Stage | None = None, reused: bool = False) -> None:
        name = stage.artifacts[0] if stage and not reused else None
        begun.append((name, replace(read_usage_cost(directory), seconds=time.perf_counter())))

    try:
        return run(config, threads, announce=announce, lenders=lenders)
    finally:
        announce()
        entries = read_entries(directory)
        with (folder / STAGE_COSTS).open("ab", buffering=0) as out:
            for (name, start), (_, end) in pairwise(begun):
                if name in entries:
                    # the cost of another model is counted anew
                    known = start if start.calls <= end.calls else Cost(seconds=start.seconds)
                    spent = end.calls - known.calls, end.tokens - known.tokens, end.seconds - known.seconds
                    append(out, b"\n" + orjson.dumps([entries[name]["key"], *spent]))


def read_usage_cost(directory: Path) -> Cost:
    """Read the cost of the calls of a run from `usage.json`. A run that asked no model has no cost."""
    total = read_total_usage(directory)
    if not total:
        return Cost()
    calls, tokens = total["calls"] + total["cache_hits"], total["prompt_tokens"] + total["completion_tokens"]
    return Cost(int(calls), int(tokens), total["seconds"])


def read_cost(directory: Path) -> Cost:
    """Read the cost of a run: in a sweep, the sum over its stages by their keys; else the cost in `usage.json`."""
    path = directory.resolve().parent.parent / STAGE_COSTS
    if not path.exists():
        return read_usage_cost(directory)
    costs: dict[str, Cost] = {}
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, TypeError):  # a line that was cut
            key, *spent = orjson.loads(line)
            costs[key] = Cost(*spent)
    keys = {entry["key"] for entry in read_entries(directory).values()}
    return sum((costs.get(key, Cost()) for key in sorted(keys)), Cost())
