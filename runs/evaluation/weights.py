"""The search for the weights of the systems of a run, by coordinate ascent on judged topics.

Each system searches once. Only the fusion of its rankings is made again for other weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from keystone.indexing.errors import UserError
from keystone.indexing.types import Progress, silent
from keystone.retrieval.search import KINDS
from keystone.retrieval.types import Query, Rankings
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import Measure
from keystone.runs.evaluation.tune import (
    RANKINGS_ALONE,
    Setting,
    Trials,
    Tuning,
    caution_about_later_steps,
    check_configured,
    check_topics,
    draw_folds,
    perform_in_memory,
    take_from_folds,
)
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.ranking.fuse_narratives import (
    choose_first_stage,
    fuse_each_narrative,
    fuse_each_query,
    list_ranks_alone,
    weigh_systems,
)
from keystone.runs.pipeline.stages import queries, search
from keystone.runs.pipeline.values import convert_to_run
from keystone.runs.trec.arrays import Flags, Floats
from keystone.runs.trec.run_files import drop_own_documents, read_qrels
from keystone.runs.trec.types import Qrels

FACTORS = (0, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2.5, 5)
"""The weights that are tried for a system, as multiples of the mean weight of the others. 0 leaves the system out."""
LEAST_GAIN = 0.001
"""A weight changes only if the mean of the measure rises by more than this, since smaller gains are chance."""
DIGITS = 3
"""How many decimals a weight has."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A first stage of fusion, and the weights of the systems in their order; 0 leaves a system out."""

    method: str
    weights: tuple[float, ...]


class Weigher:
    """Measures the rankings of narratives under any choice of weights of the systems of a job."""

    def __init__(self, job: Job, qrels: Qrels, trials: Trials) -> None:
        self.config, self.names = job.config, list(job.config.make_systems())
        self._qrels, self._trials, self._job = qrels, trials, job
        self._queries, self._rankings = _search(job)
        self._first: dict[Choice, Floats] = {}

    def __call__(self, choice: Choice | None) -> Evaluation:
        """Measure a choice on all judged topics. None: the configuration as it is."""
        return self._measure(choice, self._trials.measures)

    def score(self, choice: Choice, topics: Flags) -> float:
        """Compute the mean of the first measure over `topics` (bool[topics]). A choice is measured once."""
        if choice not in self._first:
            (self._first[choice],) = self._measure(choice, self._trials.measures[:1]).values.values()
        return float(self._first[choice][topics].mean())

    def _measure(self, choice: Choice | None, measures: Sequence[Measure]) -> Evaluation:
        config = self.config if choice is None else self._lay_over(choice)
        hybrid = fuse_each_query(config, {name: self._rankings[name] for name in config.list_systems()})
        ranking = fuse_each_narrative(config, self._job.topics, self._queries, hybrid)
        run = convert_to_run(self._job.store, ranking, config.run_id)
        run = drop_own_documents(run) if self._trials.skip_own else run
        return evaluate(config.run_id if choice is None else self.describe(choice), run, self._qrels, measures)

    def _lay_over(self, choice: Choice) -> RunConfig:
        """Lay a choice over the configuration, as the setting from `set` does."""
        weighed = zip(self.config.make_systems().items(), choice.weights, strict=True)
        systems = {name: system.model_copy(update={"weight": weight}) for (name, system), weight in weighed if weight}
        sections = {
            "retrieval": self.config.retrieval.model_copy(update={"systems": systems}),
            "fusion": self.config.fusion.model_copy(update={"systems": choice.method}),
        }
        return self.config.model_copy(update=sections)

    def settle(self, method: str, weights: Sequence[float]) -> Choice:
        """Scale weights to a sum of 1. Beside given runs, whose weight is 1, they stay as they are."""
        whole = 1 if self.config.retrieval.runs else sum(weights)
        return Choice(method, tuple(round(weight / whole, DIGITS) for weight in weights))

    def set(self, choice: Choice) -> Setting:
        """Make the setting of a choice: the systems in the long form, and the first stage of fusion."""
        section = self.config.retrieval.model_dump(mode="json")
        systems = {
            name: _describe_system(system.model_dump(mode="json"), section, weight)
            for (name, system), weight in zip(self.config.make_systems().items(), choice.weights, strict=True)
            if weight
        }
        value = yaml.safe_dump(systems, default_flow_style=True, sort_keys=False, width=float("inf")).strip()
        return f"retrieval.systems={value}", f"fusion.systems={choice.method}"

    def describe(self, choice: Choice) -> str:
        """Describe a choice in a line."""
        held = (f"{name} {weight:g}" for name, weight in zip(self.names, choice.weights, strict=True) if weight)
        return f"{choice.method}: {', '.join(held)}"


def _search(job: Job) -> tuple[Sequence[Query], Mapping[str, Rankings]]:
    """Make the queries of a job, and rank documents for them by each of its systems."""
    values = perform_in_memory(job, (queries.STAGE, search.STAGE))
    files = zip(job.config.list_systems(), search.list_system_files(job.config), strict=True)
    return queries.get_queries(values), {name: values.get(file) for name, file in files}


def _describe_system(own: Mapping[str, Any], section: Mapping[str, Any], weight: float) -> dict[str, Any]:
    """Describe a system in the long form, without its defaults and what it takes from `retrieval`."""
    default = {key: field.default for key, field in KINDS[own["kind"]].model_fields.items()}
    set_by_itself = {key: value for key, value in own.items() if value != section.get(key, default[key])}
    return {"kind": own["kind"]} | set_by_itself | {"weight": weight}


def tune_weights(
    config: Path, overrides: Sequence[str], trials: Trials, threads: int = 1, progress: Progress = silent
) -> Tuning:
    """Choose the weights of the systems of a run by coordinate ascent on its judged topics. Nothing is written.

    `held_out` measures each fold with what the ascent chooses on the other folds. `UserError` as from `tune`, and if
    there are fewer than two systems or if `queries.passages` adds systems.
    """
    measure = open_weigher(config, overrides, trials, threads, progress)
    configured = caution_about_later_steps(measure.config, measure(None))
    check_configured(trials, configured)
    fold = draw_folds(len(configured), trials.folds)
    measured = np.isfinite(configured[str(trials.measures[0])])
    chosen = ascend(measure, measured)
    by_fold = [measure(ascend(measure, measured & (fold != number))) for number in range(trials.folds)]
    equal = (measure.settle(method, [1] * len(measure.names)) for method in _list_first_stages(measure.config))
    tried = {measure.set(one): measure(one) for one in (*equal, chosen) if one != _find_own(measure)}
    return Tuning(configured, tried, take_from_folds(by_fold, fold), by_fold=tuple(one.name for one in by_fold))


def open_weigher(
    config: Path, overrides: Sequence[str], trials: Trials, threads: int = 1, progress: Progress = silent
) -> Weigher:
    """Read a configuration and search its topics by each of its systems. `UserError` as from `tune_weights`."""
    as_it_is, qrels = read_config(config, [*overrides, *RANKINGS_ALONE]), read_qrels(trials.qrels)
    if as_it_is.queries.passages is not None:
        raise UserError(
            f"queries.passages: found {as_it_is.queries.passages!r}, which adds systems, expected none, and "
            "all systems in the long form of retrieval.systems"
        )
    if len(names := as_it_is.make_systems()) < 2:
        raise UserError(f"retrieval.systems: found {', '.join(names) or 'none'}, expected 2 or more to weigh")
    job = open_job(as_it_is, threads, progress)
    check_topics(job, qrels)
    return Weigher(job, qrels, trials)


def ascend(measure: Weigher, topics: Flags) -> Choice:
    """Find the choice with the best mean of the first measure over `topics` (bool[topics]) by coordinate ascent.

    One weight after another becomes the best multiple of the others' mean, until none changes (Metzler and Croft,
    Information Retrieval 2007, section 5.3). The ascent begins at the configured weights, or at equal ones if these
    are better. Unless the configuration names `fusion.systems`, it fuses by scores and by RRF, and the better counts.
    """

    def score(choice: Choice) -> float:
        return measure.score(choice, topics)

    def climb(best: Choice) -> Choice:
        for place in range(len(best.weights)):
            tried = max([best, *_vary(measure, best, place)], key=score)
            best = tried if score(tried) > score(best) + LEAST_GAIN else best
        return best

    own, found = _find_own(measure), []
    for method in _list_first_stages(measure.config):
        equal = measure.settle(method, [1] * len(measure.names))
        best = max([own, equal] if own.method == method else [equal], key=score)
        while (better := climb(best)) != best:
            best = better
        found.append(best)
    return max(found, key=score)


def _vary(measure: Weigher, choice: Choice, place: int) -> Iterator[Choice]:
    """Yield choices with another weight of one system. A system that another one searches within stays."""
    others = [weight for at, weight in enumerate(choice.weights) if at != place and weight]
    needed = measure.names[place] in (system.base for system in measure.config.make_systems().values())
    for factor in FACTORS if others else ():
        if factor or not needed:
            weights = list(choice.weights)
            weights[place] = factor * sum(others) / len(others)
            yield measure.settle(choice.method, weights)


def _list_first_stages(config: RunConfig) -> list[str]:
    """List the first stages to try: both, unless the configuration names one or only ranks can be fused."""
    if config.fusion.systems is not None:
        return [config.fusion.systems]
    return ["rrf"] if config.retrieval.runs or list_ranks_alone(config, config.list_systems()) else ["scores", "rrf"]


def _find_own(measure: Weigher) -> Choice:
    """Find the choice that the configuration makes."""
    config = measure.config
    return measure.settle(choose_first_stage(config, measure.names), weigh_systems(config, measure.names))
