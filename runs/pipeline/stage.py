"""What a stage of a run is: a row of the table of stages, with everything that the program knows about it.

A module of `pipeline/stages/` has the whole of a stage, or of two that do the same work at different places.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.searches import ALONE, Means
from keystone.runs.pipeline.values import Artifact, Values

Step = Literal["queries", "rankings", "grades", "chosen", "research", "sentence", "run"]
"""A step of one answer, in order, with its value:

* `queries`: a tuple of `Query`.
* `rankings`: the best `Hits` of each query, by the query's id, and those of the narrative before a reranker.
* `grades`: a list of `Judgment`, if the configuration has grades.
* `chosen`: the ids of the documents that the answer is made from.
* `research`: a `Step` of the research agent. This step occurs once for each of its steps.
* `sentence`: a `Sentence` of the answer. This step occurs once for each sentence.
* `run`: the `Hits` of the run file that the track demands, documents or segments.
"""
Watch = Callable[[Step, Any], None]


def tell_nobody(_step: Step, _value: Any) -> None:
    """Ignore a step."""


@dataclass(frozen=True, slots=True)
class Before:
    """A configuration at one stage, with the last rankings that the stages before it make."""

    config: RunConfig
    query_rankings: tuple[Artifact[Rankings], ...] = ()
    """The rankings of the queries, one after another."""
    narrative_rankings: tuple[Artifact[Rankings], ...] = ()
    """The rankings of the narratives, one after another."""

    @property
    def query_ranking(self) -> Artifact[Rankings]:
        """The last ranking of each query."""
        return self.query_rankings[-1]

    @property
    def narrative_ranking(self) -> Artifact[Rankings]:
        """The last ranking of each narrative."""
        return self.narrative_rankings[-1]


@dataclass(frozen=True, slots=True)
class Work:
    """What a stage works with: the values of the run, its model, and the configuration at this stage.

    `means` says how the stage searches. `watch` is told of the steps of an answer that no artifact has.
    """

    values: Values
    run_with_model: RunWithModel
    before: Before
    means: Means = ALONE
    watch: Watch = tell_nobody

    @property
    def job(self) -> Job:
        """The job of the run."""
        return self.values.job


def _always(_: Any) -> bool:
    return True


def _nothing(*_: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKind:
    """A row of the table of stages.

    The files of a stage depend on the configuration, and on the rankings that the stages before it make.
    """

    name: str
    makes: Callable[[Before], tuple[Artifact[Any], ...]]
    work: Callable[[Work], None]
    """Gets what it reads from the values of the run, and puts what it makes."""
    key: Callable[[Job, Before], Any]
    """What the result depends on besides the artifacts that it reads, as values of JSON."""
    wanted: Callable[[RunConfig], bool] = _always
    answers_need: Callable[[Job], bool] = _always
    """Whether answers need the stage, if nothing else is made of the run."""
    reads: Callable[[Before], tuple[Artifact[Any], ...]] = _nothing
    ranks_queries: Callable[[RunConfig], Artifact[Rankings]] | None = None
    """The file with the ranking of each query that the stage makes, if it makes one."""
    ranks_narratives: Callable[[RunConfig], Artifact[Rankings]] | None = None
    """The file with the ranking of each narrative that the stage makes, if it makes one."""
    losses: Mapping[str, str] = field(default_factory=dict)
    """The words of `keystone diagnose` for two losses, by name; if there are none, the documents count as not selected.

    In the first loss, documents are too low in the ranking before the stage; in the second, in the stage's ranking.
    """
    asks: tuple[str, ...] = ()
    """The settings by which the stage asks the model, as `RunConfig.list_model_steps` has them."""
    foresee: Callable[[Asked, AskedTopic], Iterable[Ask | Foreseen]] = _nothing
    """The calls that the stage may make for a topic."""
    records: Callable[[Before], tuple[Artifact[list[Any]], ...]] = _nothing
    """The artifacts whose records tell in which steps the model gave no usable reply."""
    why_kept: Callable[[RunConfig], str] = lambda _: ""
    """Why no bundle can make the stage again; empty if it can."""
    describe: Callable[[Before], Iterable[Mapping[str, Any]]] = _nothing
    """The steps of the ranking that the metadata of a run describe."""
    notes: Callable[[Before], tuple[Artifact[Any], ...]] = _nothing
    """Those of the files that only tell how the stage was made."""
