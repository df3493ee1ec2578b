"""Pictures of run directories: a measure against the values of a setting, and against cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import Measure
from keystone.runs.evaluation.sweep import measure_rankings, read_cost
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.report.plots import draw_costs, draw_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES = ("out", "run_id", "model.cache")
"""Keys that say where a run is, and nothing about its rankings."""


def plot_setting(runs: Sequence[Path], qrels: Path, measure: Measure, key: str) -> "Figure":
    """Plot a measure against a setting. Runs that are equal in all other settings make a line.

    Numbers are in the order of size, other values in that of the runs.

    `UserError` if a folder is no run, if a configuration lacks the key, or if two runs have the same settings.
    """
    lines: dict[str, dict[Any, Evaluation]] = {}
    described = [dict(_list_settings(config.model_dump(mode="json"))) for config in map(_read_run_config, runs)]
    names = dict.fromkeys(name for one in described for name in one if name != key)
    differing = [name for name in names if len({str(one.get(name)) for one in described}) > 1]
    for directory, settings in zip(runs, described, strict=True):
        if key not in settings:
            raise UserError(f"{directory / CONFIG}: has no key {key}, expected one of {', '.join(settings)}")
        name = ", ".join(f"{other}={settings.get(other)}" for other in differing)
        line = lines.setdefault(name, {})
        if settings[key] in line:
            raise UserError(f"{directory}: has the same settings as another of the runs, expected it once")
        line[settings[key]] = _measure(directory, qrels, measure)
    values = list(dict.fromkeys(value for line in lines.values() for value in line))
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    return draw_settings(lines, values, key, str(measure))


def plot_costs(runs: Sequence[Path], qrels: Path, measure: Measure, unit: str) -> "Figure":
    """Plot a measure against the cost of the calls, in `unit`: a field of `Cost`. `UserError` if a folder is no run."""
    evaluations = [replace(_measure(path, qrels, measure), name="/".join(path.parts[-2:])) for path in runs]
    return draw_costs(evaluations, [getattr(read_cost(path), unit) for path in runs], unit, str(measure))


def _measure(directory: Path, qrels: Path, measure: Measure) -> Evaluation:
    return measure_rankings(qrels, [measure])(directory, _read_run_config(directory))


def _read_run_config(directory: Path) -> RunConfig:
    if not (directory / CONFIG).is_file():
        raise UserError(f"{directory}: holds no {CONFIG}, expected the directory of a run")
    return read_config(directory / CONFIG)


def _list_settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List the settings of a configuration by their dotted keys. A list is shown as text."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _list_settings(value, f"{key}.")
        elif key not in PLACES:
            yield key, value if isinstance(value, int | float | str) else str(value)
