"""The published baselines of a track, made again where their indexes, topics and judgments are on this machine."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.agreement import read_board

DATA = "baselines.yaml"


class Baseline(BaseModel):
    """A published run. Keystone makes it by a preset over an index, or `left_out` says why it does not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    expected: Mapping[str, Mapping[str, float | None]]
    """Judgments -> measure -> figure; None if no figure was published."""
    source: str
    preset: str = ""
    settings: Sequence[str] = ()
    index: str = ""
    """The name of the prebuilt index."""
    server: str = ""
    """The corpus of the first command, if the index is on a server."""
    impacts: str = ""
    """`NAME=MODEL`, if the index holds the impacts of a model."""
    left_out: str = ""


class TrackBaselines(BaseModel):
    """The baselines of a track, and the names of its files of topics and of judgments, in which `*` is anything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topics: str
    judgments: Mapping[str, str]
    baselines: Sequence[Baseline]


@cache
def read_baselines() -> Mapping[str, TrackBaselines]:
    """Read the published baselines of each track."""
    text = files(__package__ or "").joinpath(DATA).read_text(encoding="utf-8")
    return TypeAdapter(Mapping[str, TrackBaselines]).validate_python(yaml.safe_load(text))


MOST_DIFFERENCE = 0.001
"""The most that a figure may differ from the published one. Ties in another order change the fourth decimal."""
CACHE = Path("~/.cache/pyserini")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the inputs of baselines are, and the folder for what is made.

    `indexes` maps the name of a prebuilt index to a folder with an index of Lucene or of Keystone. `data` has topics
    and judgments, under the names by which they were published.
    """

    out: Path
    indexes: Mapping[str, Path]
    data: Path


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a baseline: as published, and as found here. None if it was not published, or not found."""

    judgments: str
    measure: str
    expected: float | None
    found: float | None = None

    @property
    def differs(self) -> bool:
        """Whether both are known, and differ by more than `MOST_DIFFERENCE`."""
        return (
            self.expected is not None and self.found is not None and abs(self.found - self.expected) > MOST_DIFFERENCE
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A command, by its words after `keystone`, with published names for unknown places.

    `lacks` says what is missing; it is empty if the command can run.
    """

    words: Sequence[str]
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a baseline is made: the steps that make its ranking, and for each judgments, the step that measures it."""

    baseline: Baseline
    made_by: Sequence[Step]
    measured_by: Mapping[str, Step]
    scores: Mapping[str, Path]
    """The file of figures that each of `measured_by` writes."""

    @property
    def steps(self) -> list[Step]:
        """All steps in their order."""
        return [*self.made_by, *self.measured_by.values()]

    @property
    def lacks(self) -> list[str]:
        """What this machine lacks for the steps, and the reason if Keystone does not make the baseline."""
        left_out = [self.baseline.left_out] if self.baseline.left_out else []
        return left_out + list(dict.fromkeys(one.lacks for one in self.steps if one.lacks))

    @property
    def runs(self) -> bool:
        """Whether the ranking can be made here, and measured by some judgments."""
        judged = any(not one.lacks for one in self.measured_by.values())
        return judged and not any(one.lacks for one in self.made_by)

    def list_figures(self) -> list[Figure]:
        """List published figures, beside those from existing files of figures. `UserError` for a damaged file."""
        found = {name: _read_means(path) for name, path in self.scores.items() if path.is_file()}
        return [
            Figure(judgments, measure, expected, found.get(judgments, {}).get(measure))
            for judgments, own in self.baseline.expected.items()
            for measure, expected in own.items()
        ]


def plan_track(track: str, places: Places) -> list[Plan]:
    """Plan all baselines of a track. `UserError` for an unknown track, and for an index that no baseline uses."""
    known = read_baselines()
    if track not in known:
        raise UserError(f"{track}: has no published baselines; expected one of {', '.join(known)}")
    names = {one.index for one in known[track].baselines if one.index}
    for name, folder in places.indexes.items():
        if name not in names:
            raise UserError(
                f"--index {name}: no baseline of {track} uses it; expected one of {', '.join(sorted(names))}"
            )
        if not folder.is_dir():
            raise UserError(f"--index {name}={folder}: found no folder; expected an index of Lucene or of Keystone")
    return [_plan(track, one, known[track], places) for one in known[track].baselines]


def perform(plan: Plan, quiet: bool = False) -> str:
    """Run the steps of a plan that lack nothing. Returns the error of the first one that fails; empty if none does.

    An index or a run that an earlier call completed is kept. The figures are always computed again.
    """
    for step in plan.steps:
        if step.lacks:
            continue
        command = [sys.executable, "-m", "keystone.runs.cli.main", *step.words, *(["--quiet"] if quiet else [])]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return f"keystone {step.words[0]}: {lines[-1].removeprefix('error: ')}"
    return ""


def find_prebuilt(name: str) -> Path | None:
    """Find the folder of a prebuilt index in the caches of Pyserini and Anserini; None if it was not fetched."""
    own = Path(os.environ.get("PYSERINI_CACHE") or CACHE.expanduser(), "indexes")
    pattern = re.compile(rf"lucene-(index|inverted)\.{re.escape(name)}\.\d{{8}}\.[0-9a-f]+\.[0-9a-f]+")
    for folder in (Path(os.environ.get("ANSERINI_INDEX_CACHE") or own), own):
        if found := sorted(path for path in folder.glob("lucene-*") if path.is_dir() and pattern.fullmatch(path.name)):
            return found[-1]
    return None


def _plan(track: str, baseline: Baseline, own: TrackBaselines, places: Places) -> Plan:
    if baseline.left_out:
        return Plan(baseline, [], {}, {})
    run_id = f"{track}-{baseline.name}".replace("+", "-")
    run, attach, index = places.out / run_id, list[Step](), places.indexes.get(baseline.index)
    if index is None or not (index / "index.json").is_file():
        place = index or find_prebuilt(baseline.index)
        index = places.out / "indexes" / baseline.index
        prebuilt = [f"pyserini:{place or baseline.index}", "--in-place"]
        words = ["index", *([baseline.server] if baseline.server and not place else prebuilt)]
        words += ["--no-dense", "--out", str(index)]
        words += ["--impacts", baseline.impacts] if baseline.impacts else []
        lacks = f"found no index {baseline.index}; expected --index {baseline.index}=FOLDER"
        attach = [Step(words, "" if place else lacks)]
    topics, no_topics = _find_file(places.data, own.topics)
    settings = [f"run_id={run_id}", "track=none", *baseline.settings]
    words = ["run", "--preset", baseline.preset, "--index", str(index), "--topics", topics, "--out", str(places.out)]
    make = Step([*words, *(word for one in settings for word in ("--set", one))], no_topics)
    scores = {name: run.with_name(f"{run_id}.{name}.json") for name in baseline.expected}
    measured = {}
    for name, figures in baseline.expected.items():
        qrels, lacks = _find_file(places.data, own.judgments[name])
        measures = [word for one in figures for word in ("-m", one)]
        measured[name] = Step(["evaluate", str(run), "--qrels", qrels, *measures, "--out", str(scores[name])], lacks)
    return Plan(baseline, [*attach, make], measured, scores)


def _find_file(folder: Path, pattern: str) -> tuple[str, str]:
    """Find a file by its published name at any depth of a folder; returns it, or else what is lacking."""
    found = min(folder.rglob(pattern), default=None)
    lacks = f"found no {pattern} in {folder}; expected --data with its folder"
    return str(found or pattern), "" if found else lacks


def _read_means(path: Path) -> dict[str, float]:
    """Read the mean of each measure of the one run of a file."""
    return {measure: mean for measure, own in (read_board(path) or {}).items() for mean in own.values()}
