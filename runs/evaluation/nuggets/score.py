"""The track's scores of answers, from nuggets that are assigned to them, or from the ratings of their citations."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from keystone.generation.types import Support
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import unicode_name
from keystone.runs.evaluation.answers.files import NamedRun, caution_about_names, name_apart
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.evaluate import Counts, Evaluation
from keystone.runs.evaluation.nuggets.cited import CitedAnswer, CitedText
from keystone.runs.evaluation.nuggets.files import Nugget, NuggetBank, read_nuggets


class Graded(Protocol):
    """The grades that somebody gave to parts of a run's answer to a topic."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def topic_id(self) -> str:
        """The topic."""

    @property
    def place(self) -> str:
        """The `file:line` that holds it, or its first part; empty if it comes from no file."""


T = TypeVar("T", bound=Graded)

NUGGET_MEASURES = ("A", "A_strict", "V", "V_strict", "W", "W_strict")
COVERAGE_MEASURES = ("coverage", "coverage_strict")
"""Taken beside `NUGGET_MEASURES` if nuggets name their sub-narratives."""
CITATION_MEASURES = (
    *("precision", "recall", "f1"),
    *("precision_hard", "recall_hard", "f1_hard"),
    *("precision_all", "recall_all", "f1_all"),
    "cited",
)
CREDIT: Mapping[str | None, float] = {"support": 1.0, "partial_support": 0.5}
"""The credit of an assigned nugget; any other assignment has none."""
OKAY_WEIGHT = 0.5
"""The weight of a nugget that is not vital, in the weighted scores."""
SUPPORT_CREDIT: Mapping[Support, float] = {"full": 1.0, "partial": 0.5, "none": 0.0}
HARD_CREDIT: Mapping[Support, float] = {"full": 1.0, "partial": 0.0, "none": 0.0}

FROM_FILES = (
    "the topics are those of these files alone, so a mean may change with a file, and a topic that nobody answered "
    "does not count: name all topics with --nuggets or --topics"
)


def name_runs(found: Sequence[tuple[Path, T]]) -> tuple[list[T], list[str]]:
    """Name runs as `name_apart` does, by files without folders if these differ; also cautions about shared ids."""
    named = [NamedRun(o.run_id, getattr(o, "team_id", ""), unicode_name(path), o.topic_id) for path, o in found]
    names, files = name_apart(named), {one.file: Path(one.file).name for one in named}
    if len({*files.values()}) == len(files):
        names = [name.replace(f"({o.file})", f"({files[o.file]})") for name, o in zip(names, named, strict=True)]
    records = [cast(T, replace(cast(Any, one), run_id=name)) for (_, one), name in zip(found, names, strict=True)]
    return records, caution_about_names(named, names)


def add_cautions(evaluations: list[Evaluation], cautions: Sequence[str]) -> list[Evaluation]:
    """Add cautions about all runs together; they are attached to the first run."""
    first, *others = evaluations
    return [replace(first, cautions=(*cautions, *first.cautions)), *others]


def score_cited(
    answers: Sequence[CitedAnswer], topics: Collection[str] = (), most_cited: int | None = None
) -> list[Evaluation]:
    """Score runs from the ratings of their citations. Of each sentence's citations, the first `most_cited` count.

    `None` counts all. `topics` and `UserError` are as for `score_runs`.
    """
    return score_runs(
        answers, CITATION_MEASURES, lambda one: score_citations(one.sentences, most_cited), "rating", topics
    )


def score_banks(banks: Sequence[NuggetBank], topics: Collection[str] = ()) -> list[Evaluation]:
    """Score runs from the nuggets that are assigned to their answers. `UserError` for a nugget that is not assigned.

    `topics` and further `UserError` are as for `score_runs`.
    """
    for bank in banks:
        for one in bank.nuggets:
            if one.assignment is None:
                place = f"{one.place}: " if one.place else ""
                raise UserError(
                    f"{place}topic {bank.topic_id!r}: {one.text!r} is not assigned to an answer: "
                    "`keystone nuggets assign` makes a file that can be scored"
                )
    covers = any(one.sub_narrative for bank in banks for one in bank.nuggets)

    def score(bank: NuggetBank) -> tuple[float, ...]:
        return score_nuggets(bank.nuggets) + score_coverage(bank.nuggets) * covers

    return score_runs(banks, NUGGET_MEASURES + COVERAGE_MEASURES * covers, score, "nugget", topics)


def read_assigned(path: Path) -> Iterator[NuggetBank]:
    """Read assigned nuggets. Those without a run get the name of the file."""
    for bank in read_nuggets(path):
        yield replace(bank, run_id=bank.run_id or unicode_name(path))


def score_runs(
    records: Sequence[T],
    measures: Sequence[str],
    score: Callable[[T], tuple[float, ...]],
    noun: str,
    wanted: Collection[str],
) -> list[Evaluation]:
    """Score each record by `measures`, and gather the scores of each run. A topic that a run lacks counts 0.

    `score` gives NaN where a `noun` failed. Without `wanted`, the topics are those of all records, and a caution says
    so. `UserError` for a topic that recurs with the same run, and for a run with none of the topics.
    """
    runs: dict[str, dict[str, tuple[float, ...]]] = {}
    places: dict[str, str] = {}
    for one in records:
        own = runs.setdefault(one.run_id, {})
        places.setdefault(one.run_id, f"{one.place}: " if one.place else "")
        if one.topic_id in own:
            raise UserError(f"{places[one.run_id]}run {one.run_id!r}: topic {one.topic_id!r} occurs more than once")
        own[one.topic_id] = score(one)
    topics = tuple(sorted({*wanted} or {one.topic_id for one in records}))
    found = []
    for run_id, own in runs.items():
        table = np.array([own.get(topic, (0.0,) * len(measures)) for topic in topics])
        if not own.keys() & set(topics):
            ids = f"its topics look like {next(iter(own))!r}, those to score like {topics[0]!r}"
            raise UserError(f"{places[run_id]}run {run_id!r}: has none of the topics: {ids}")
        cautions = [] if wanted else [FROM_FILES]
        cautions += caution_about_topics(run_id, list(own), topics, "an answer", noun)
        if failed := [topic for topic in topics if topic in own and np.isnan(own[topic]).any()]:
            share = f"{len(failed):,} of {len(topics):,}"
            cautions.append(
                f"{run_id}: topics with a {noun} that failed, which are left out: {share}, such as {failed[0]}"
            )
        values = dict(zip(measures, table.T, strict=True))
        counts = Counts(len(topics), len(own.keys() & set(topics)))
        found.append(Evaluation(run_id, topics, values, counts, tuple(cautions)))
    return found


def score_nuggets(nuggets: Sequence[Nugget]) -> tuple[float, ...]:
    """Score the nuggets that are assigned to an answer, by `NUGGET_MEASURES`. NaN if an assignment failed.

    `A` is the mean credit of all nuggets, and `V` of the vital ones. `W` is the mean of all, where nuggets that are not
    vital have half the weight. Partial support has the credit 0.5, in strict scores none. Nuggets without an importance
    are vital. Without a vital nugget, `V` is 0. Source: Pradeep et al., SIGIR 2025, section 3.3; nuggetizer 0.0.6.
    """
    if any(one.assignment == "failed" for one in nuggets):
        return (nan,) * len(NUGGET_MEASURES)
    vital = [float(one.importance in ("vital", None)) for one in nuggets]
    weighted = [is_vital or OKAY_WEIGHT for is_vital in vital]
    credit = [CREDIT.get(one.assignment, 0.0) for one in nuggets]
    strict = [float(one == 1) for one in credit]
    every = [1.0] * len(nuggets)
    return tuple(_mean(own, weights) for weights in (every, vital, weighted) for own in (credit, strict))


def score_coverage(nuggets: Sequence[Nugget]) -> tuple[float, float]:
    """Score how many sub-narratives an answer covers, by `COVERAGE_MEASURES`. NaN if an assignment failed.

    The credit of a sub-narrative is the best credit of its nuggets. A nugget that names none counts as a sub-narrative.
    This definition is ours, since that of the track's overview of 2025 is not public.
    """
    if any(one.assignment == "failed" for one in nuggets):
        return nan, nan
    best: dict[str | int, float] = {}
    for place, one in enumerate(nuggets):
        part = one.sub_narrative or place
        best[part] = max(best.get(part, 0.0), CREDIT.get(one.assignment, 0.0))
    every = [1.0] * len(best)
    return _mean([*best.values()], every), _mean([float(credit == 1) for credit in best.values()], every)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Compute a weighted mean. It is 0 if there is no weight."""
    return sum(v * w for v, w in zip(values, weights, strict=True)) / (sum(weights) or 1.0)


def score_citations(sentences: Sequence[CitedText], most_cited: int | None = None) -> tuple[float, ...]:
    """Score the rated citations of an answer, by `CITATION_MEASURES`.

    The support of a sentence is the credit of its first citation; for `_hard`, partial support has no credit. For
    `_all`, it is the mean over its citations with a rating. Precision is the mean over sentences with citations. Recall
    is the mean over all sentences, where one without a citation counts 0. A sentence without a rating is left out of
    both. If no citation has a rating, they are NaN. `f1` is their harmonic mean, and `cited` the share of sentences
    with a citation. Only the first `most_cited` citations of a sentence count; None: all.
    Source: TREC RAG 2026, RAG task; RAGDoll at 1f06719. It has no F1 and no `cited`.
    """
    every = [[cited.support for cited in one.citations[:most_cited]] for one in sentences]
    first = [own[:1] for own in every]
    return (
        *_measure_support(first, SUPPORT_CREDIT),
        *_measure_support(first, HARD_CREDIT),
        *_measure_support(every, SUPPORT_CREDIT),
        sum(map(bool, every)) / (len(every) or 1),
    )


def _measure_support(
    sentences: Sequence[Sequence[Support | None]], credit: Mapping[Support, float]
) -> tuple[float, float, float]:
    rated = [[credit[one] for one in own if one is not None] for own in sentences]
    supported = sum(sum(own) / len(own) for own in rated if own)
    if any(sentences) and not any(rated):
        return nan, nan, nan
    cited, uncited = sum(map(bool, rated)), sum(not own for own in sentences)
    precision, recall = supported / (cited or 1), supported / (cited + uncited or 1)
    return precision, recall, 2 * precision * recall / (precision + recall or 1)
