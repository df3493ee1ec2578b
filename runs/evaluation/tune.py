"""The search for the best settings of queries and fusion: they are tried and cross-validated on judged topics."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from keystone.fusion.methods import METHODS
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.types import Progress, silent
from keystone.runs.config.read import lay_over, parse_value, read_config, shorten_option
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.bounds import treat_otherwise
from keystone.runs.evaluation.cautions import caution_about_sets
from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import Measure
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.model_runner import open_model_runner
from keystone.runs.pipeline.stage import StageKind, Work
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import QUERY_METHODS
from keystone.runs.pipeline.table import NARRATIVE_STAGES, list_rankings, list_wanted, perform
from keystone.runs.pipeline.values import MemoryValues, Values, convert_to_run
from keystone.runs.trec.arrays import Floats, Ints
from keystone.runs.trec.run_files import drop_own_documents, read_qrels
from keystone.runs.trec.types import Qrels
from keystone.runs.wording import plural

BASELINE = ("queries.method=narrative", "fusion.method=rrf", "fusion.norm=null", "fusion.parameters={}")
"""The baseline: the whole narrative as one query."""

RANKINGS_ALONE = ("answer.method=none", "ranking=documents")
"""The overrides that let a configuration rank documents, as deep as its track wants, and answer nothing."""

Setting = tuple[str, ...]
"""Overrides of a configuration, each `key=value`."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The measures of the configuration, of all settings, of settings chosen on other topics, and of a baseline."""

    configured: Evaluation
    trials: dict[Setting, Evaluation]
    """In the order of the tries, without settings that equal the configuration."""
    held_out: Evaluation
    whole: Evaluation | None = None
    """The whole narrative as one query."""
    by_fold: tuple[str, ...] = ()
    """If weights were chosen: the choice for each fold, in a line."""

    @property
    def measure(self) -> str:
        """The name of the measure that chooses: the first one."""
        return next(iter(self.configured.values))

    @property
    def beaten(self) -> bool:
        """Whether settings chosen on other topics have a better mean than the configuration."""
        return self.held_out.mean(self.measure) > self.configured.mean(self.measure)

    @property
    def compared(self) -> list[Evaluation]:
        """The configuration, and the recommended setting if it differs."""
        chosen = self.recommended
        others = [replace(self.trials[chosen], name=" ".join(chosen))] if chosen else []
        return [replace(self.configured, name="as configured"), *others]

    @property
    def recommended(self) -> Setting:
        """The best setting on all topics. It is `()`, no setting, if the configuration is not beaten."""
        candidates = {(): self.configured, **self.trials} if self.beaten else {(): self.configured}
        return max(candidates, key=lambda setting: candidates[setting].mean(self.measure))


def describe_tuning(tuning: Tuning) -> dict[str, object]:
    """Describe the means of all settings and the choice for JSON. An empty setting is the configuration."""
    evaluations = {(): tuning.configured, **tuning.trials}
    return {
        "trials": [{"settings": setting, "means": list_means(one)} for setting, one in evaluations.items()],
        "held_out": list_means(tuning.held_out),
        "whole_narrative": tuning.whole and list_means(tuning.whole),
        "recommended": tuning.recommended,
        "better": tuning.beaten,
        "yaml": write_snippet(tuning.recommended),
        **({"by_fold": tuning.by_fold} if tuning.by_fold else {}),
    }


def write_snippet(setting: Setting) -> str:
    """Write settings as a part of a run's YAML file; empty for none."""
    values: dict[str, object] = {}
    for override in setting:
        lay_over(values, override)
    return yaml.safe_dump(values, default_flow_style=None, sort_keys=False) if values else ""


def list_means(evaluation: Evaluation) -> dict[str, float]:
    """List the means of an evaluation. One that cannot be computed is NaN."""
    return {measure: evaluation.mean(measure) for measure in evaluation.values}


@dataclass(frozen=True, slots=True)
class Trials:
    """The settings to try, and how they are measured.

    `tries` are `key=[value, ...]`; None: those of `list_default_tries`. `measures` are computed on the topics of the
    `qrels` file; the first of them chooses. Cross-validation divides the topics into `folds` parts. With `skip_own`,
    a document that has its topic's id does not count.
    """

    qrels: Path
    measures: Sequence[Measure]
    tries: Sequence[str] | None = None
    folds: int = 5
    skip_own: bool = False


def tune(
    config: Path, overrides: Sequence[str], trials: Trials, threads: int = 1, progress: Progress = silent
) -> Tuning:
    """Try all combinations of settings on the judged topics of a run's configuration. Nothing is written.

    `held_out` is an estimate for new topics. Each fold is measured with the setting (or the configuration) that has the
    best mean of the first measure on the other folds. A caution of the configuration counts settings that change
    no file up to `narrative.trec`. `UserError` if no topic is judged, if no judged topic has a relevant document, if no
    ranking has a judged document, for fewer topics than folds, and for a choice of rows among the tries.
    """
    judged = read_qrels(trials.qrels)
    as_it_is = read_config(config, [*overrides, *RANKINGS_ALONE])
    score = _Scorer(judged, trials, threads, progress)
    settings = {
        setting: read_config(config, [*overrides, *RANKINGS_ALONE, *setting])
        for setting in product(*map(parse_try, list_default_tries(as_it_is) if trials.tries is None else trials.tries))
    }
    if any(own.fusion.choice not in (None, as_it_is.fusion.choice) for own in settings.values()):
        raise UserError("--try fusion.depth: found a choice of submitted rows, expected numbers; see --calibrate")
    fold = draw_folds(len(judged.query_ids), trials.folds)
    whole = score(read_config(config, [*overrides, *RANKINGS_ALONE, *BASELINE]))
    configured = caution_about_later_steps(as_it_is, score(as_it_is))
    check_configured(trials, configured, whole)
    known, tried = [score.keys], dict[Setting, Evaluation]()
    for setting, other in settings.items():
        if other != as_it_is:
            tried[setting] = score(other)
            known.append(score.keys)
    alike = [" ".join(setting) for place, setting in enumerate(tried, 1) if known[place] in known[:place]]
    if alike:
        same = f"{plural(len(alike), 'setting')} with the same {NARRATIVE_FILE.name} as another, such as {alike[0]}"
        caution = f"{same}; keystone sweep shows what later steps make of it"
        configured = replace(configured, cautions=(*configured.cautions, caution))
    return Tuning(configured, tried, cross_validate([configured, *tried.values()], fold), whole)


def check_topics(job: Job, qrels: Qrels) -> None:
    """Raise `UserError` if no topic of a job is judged."""
    if not {topic.id for topic in job.topics} & set(qrels.query_ids):
        raise UserError(f"{job.config.topics}: none of its topics is judged")


def check_configured(trials: Trials, *found: Evaluation) -> None:
    """Raise `UserError` if the first measure has no value, or if no document that these rank is judged."""
    if np.isnan(found[0].mean(str(trials.measures[0]))):
        raise UserError(
            f"{trials.qrels}: no judged topic has a relevant document for {trials.measures[0]}, "
            "the measure that chooses"
        )
    if not any(one.counts.judged_rows for one in found):
        raise UserError(
            f"{trials.qrels}: judges none of the {found[0].counts.rows:,} ranked documents; "
            "expected judgments of documents of this corpus"
        )


def caution_about_later_steps(config: RunConfig, configured: Evaluation) -> Evaluation:
    """Add cautions if the run makes another ranking from the measured one, or submits only chosen rows of it."""
    found = caution_about_sets("as configured", configured) if config.fusion.choice else []
    last = list_rankings(config).narrative_rankings[-1]
    if last != NARRATIVE_FILE:
        found.append(f"as configured: {NARRATIVE_FILE.name}, from which the run makes {last.name}; see keystone sweep")
    return replace(configured, cautions=(*configured.cautions, *found))


def list_default_tries(config: RunConfig) -> list[str]:
    """List the settings that are tried if the user names none, each `key=[value, ...]`.

    The configuration reads these settings. `UserError` if it makes only one query for each topic.
    """
    own = QUERY_METHODS[config.queries.method].tuned
    if own is None:
        raise UserError(
            f"queries.method: found {config.queries.method!r}, which makes one query a topic and has nothing to tune; "
            "expected rules or model, or settings named with --try"
        )
    fusion = METHODS[config.fusion.method]
    return [
        *own,
        f"queries.narrative_weight={[1, 2, 4] if fusion.weighted else [0, 1]}",
        *(["fusion.k_narrative=[10, 20, 60]"] if "k" in fusion.parameters else []),
    ]


def perform_in_memory(job: Job, stages: Sequence[StageKind]) -> Values:
    """Perform these stages of a job; returns what they made, which is only kept in memory."""
    values = MemoryValues(job)
    with open_model_runner(job.config, None) as run_with_model:
        perform(values, run_with_model, stages.__contains__)
    return values


class _Scorer:
    """Measures the rankings of narratives. A stage whose key is still the one in `keys` is not performed again."""

    def __init__(self, qrels: Qrels, trials: Trials, threads: int, progress: Progress) -> None:
        self._qrels, self._trials = qrels, trials
        self._open: Callable[[RunConfig], Job] = lambda config: open_job(config, threads, progress)
        self.keys: dict[str, str] = {}
        self._values: Values | None = None

    def __call__(self, config: RunConfig) -> Evaluation:
        job = self._open(config)
        check_topics(job, self._qrels)
        values = self._rank(job)
        run = convert_to_run(values.job.store, values.get(NARRATIVE_FILE), config.run_id)
        run = drop_own_documents(run) if self._trials.skip_own else run
        found = evaluate(config.run_id, run, self._qrels, self._trials.measures)
        return treat_otherwise(found, run, self._qrels, self._trials.measures)

    def _rank(self, job: Job) -> Values:
        """Rank the narratives, by the stages of a run up to that one."""
        last, known = self._values, self.keys
        if last and last.job.index.key == job.index.key:  # the rows of kept rankings are those of their store
            job = replace(job, store=last.job.store)
        values, keys = MemoryValues(job), dict[str, str]()
        with open_model_runner(job.config, None) as run_with_model:
            for kind, before in list_wanted(job.config):
                if kind not in NARRATIVE_STAGES:
                    continue
                key = digest([kind.name, kind.key(job, before), [keys[file.name] for file in kind.reads(before)]])
                made = kind.makes(before)
                if last and all(known.get(file.name) == key for file in made):
                    for file in made:
                        values.put(file, last.get(file))
                else:
                    kind.work(Work(values, run_with_model, before))
                keys.update(dict.fromkeys((file.name for file in made), key))
        self._values, self.keys = values, keys
        return values


def parse_try(attempt: str) -> Iterator[str]:
    """Parse `KEY=[VALUE, ...]` to an override for each value. `UserError` for any other text."""
    key, equals, text = attempt.partition("=")
    try:
        values = parse_value(text)
    except ValueError:
        values = None
    if not (key and equals and isinstance(values, list) and values):
        raise UserError(
            f"--try {shorten_option(attempt)}: expected KEY=[VALUE, ...], such as fusion.k_narrative=[10, 60]"
        )
    for value in values:
        yield f"{key}={yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}"


def draw_folds(topics: int, folds: int, seed: int = 0) -> Ints:
    """Draw the fold of each topic by a fixed seed: int64[topics]. `UserError` if there are more folds than topics."""
    if topics < folds:
        raise UserError(f"--folds {folds}: more than the {topics} judged topics")
    return np.random.default_rng(seed).permutation(topics) % folds


def cross_validate(trials: Sequence[Evaluation], fold: Ints) -> Evaluation:
    """Take for each topic the values of the trial that is best, by the first measure, on the other folds.

    `fold` is int64[topics]. Ties go to the earlier trial. A value that is NaN counts for no trial.
    """
    table: Floats = np.array([next(iter(trial.values.values())) for trial in trials])
    measured = np.isfinite(table).all(axis=0)
    best = (int(np.argmax(table[:, measured & (fold != number)].sum(axis=1))) for number in range(int(fold.max()) + 1))
    return take_from_folds([trials[number] for number in best], fold)


def take_from_folds(trials: Sequence[Evaluation], fold: Ints) -> Evaluation:
    """Take the values of each topic from the trial of its fold. `fold` is int64[topics]."""
    first, topics = trials[0], np.arange(len(fold))
    values = {measure: np.array([trial[measure] for trial in trials])[fold, topics] for measure in first}
    return Evaluation(f"chosen on the other {len(trials) - 1} of {len(trials)} folds", first.topics, values)
