"""Published baselines of tracks, from `baselines.yaml`: how Keystone makes each, its figures, and their source."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

DATA = "baselines.yaml"


class Baseline(BaseModel):
    """A published run. Keystone makes it by a preset over an index, or `left_out` says why it does not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    expected: Mapping[str, Mapping[str, float | None]]
    """Measure -> figure, by the judgments; None if no figure was published."""
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
