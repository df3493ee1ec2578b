"""Evaluation of answer files on references, topic by topic, and judgments by a model of what use the answers are.

Wins of one answer file over another have intervals, from verdicts on both orders of each pair of answers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from math import isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from keystone.generation.grading.rate_answers import (
    AnswerPair,
    RatedAnswer,
    compare_answers,
    rate_answers,
    score_choices,
)
from keystone.generation.grading.rate_sentences import AskedAnswer, judge_use
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Failure
from keystone.indexing.errors import UserError
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.families import FAMILIES, JUDGED, Family, Given, choose_families
from keystone.runs.evaluation.answers.files import (
    REFERENCE_FIELDS,
    Asked,
    Context,
    Reference,
    Submission,
    find_narratives,
    read_judged_submission,
    read_references,
)
from keystone.runs.evaluation.cautions import caution_about_topics
from keystone.runs.evaluation.evaluate import Counts, Evaluation
from keystone.runs.evaluation.resample import NORMAL_QUANTILE
from keystone.runs.evaluation.use import UseRecord, list_texts, name_use_file, write_use_records
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing two answer files topic by topic."""

    first: str
    second: str
    outcomes: dict[str, float]
    """By topic: 1 if the first file wins, 0.5 for a tie, 0 if the second file wins."""
    first_slot_rate: float
    """The share of the model's choices that name the answer shown first; about 0.5 without bias. NaN: no choice."""
    unjudged: tuple[str, ...] = ()
    """The topics without a verdict, because the model gave none."""

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of wins, ties and losses of the first file."""
        outcomes = list(self.outcomes.values())
        return {"win": outcomes.count(1.0), "tie": outcomes.count(0.5), "loss": outcomes.count(0.0)}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of the shares of wins, ties and losses."""
        return {name: compute_wilson_interval(count, len(self.outcomes)) for name, count in self.counts.items()}

    def __str__(self) -> str:
        shares = [
            f"{plural(count, name, 'losses' if name == 'loss' else '')} ({low:.1%} to {high:.1%})"
            for (name, count), (low, high) in zip(self.counts.items(), self.intervals.values(), strict=True)
        ]
        slot = "-" if isnan(self.first_slot_rate) else f"{self.first_slot_rate:.1%}"
        between = f"{self.first} against {self.second}"
        found = f"{between}: {', '.join(shares)} of {plural(len(self.outcomes), 'topic')}; first slot {slot}"
        if not self.unjudged:
            return found
        return f"{found}; no verdict on {plural(len(self.unjudged), 'topic')}, such as {self.unjudged[0]}"


def report_comparison(comparison: Comparison) -> dict[str, Any]:
    """Report a comparison as values of JSON, with its counts and their intervals."""
    return asdict(comparison) | {"counts": comparison.counts, "intervals": comparison.intervals}


def compute_wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95 % interval of a share (Wilson 1927). Without a trial it is (0, 1)."""
    if not trials:
        return 0.0, 1.0
    share, z = successes / trials, NORMAL_QUANTILE
    centre = share + z * z / (2 * trials)
    margin = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - margin) / scale), min(1.0, (centre + margin) / scale)


def compute_first_slot_rate(choices: Sequence[str]) -> float:
    """Compute the share of choices of a slot, `A` or `B`, that name the first one. NaN if none names a slot."""
    slots = [choice for choice in choices if choice in ("A", "B")]
    return slots.count("A") / len(slots) if slots else float("nan")


def evaluate_answer_files(
    paths: Sequence[Path], references_path: Path | None, names: Sequence[str], run_with_model: RunWithModel
) -> tuple[list[Evaluation], list[Comparison]]:
    """Evaluate answer files and run directories by the measures of these names; see `choose_families`.

    Without references, the topics are those of all files. Where neither a reference nor a run directory has the
    narrative, the question is unknown. Returns the measures of each file, and the comparisons of the first file with
    each other one. `LR` and `pairwise` ask the model. If a file cannot be read or has no topic of the references, or if
    a measure is unknown, the function raises `UserError`. If a named measure lacks its fields, its model or its second
    file, it also raises `UserError`.
    """
    submissions = [read_judged_submission(path) for path in paths]
    topic_ids = {topic_id for one in submissions for topic_id in one.answers}
    references = read_references(references_path) if references_path else list(map(Reference, topic_ids))
    references = _ask_narratives(sorted(references, key=lambda reference: reference.topic_id), paths)
    uses = [record.use for one in submissions for record in (one.uses or {}).values()]
    families = choose_families(names, references, any(one.contexts is not None for one in submissions), uses)
    judged = [name for name in JUDGED if name in names]
    if references_path and not names and not any(family.needs for family in families):
        raise UserError(f"{references_path}: no line has the fields of a measure: {', '.join(REFERENCE_FIELDS)}")
    if "pairwise" in judged and len(submissions) < 2:
        raise UserError("measure 'pairwise': found one answer file, expected two or more")
    evaluations = [evaluate_submission(one, references, families) for one in submissions]
    if any(family.of_use for family in families) and (differing := _find_differing_questions(submissions)):
        text = f"judged by other questions than another file: {plural(len(differing), 'topic')}, such as {differing[0]}"
        evaluations[0] = replace(evaluations[0], cautions=(*evaluations[0].cautions, text))
    if not judged:
        return evaluations, []
    ratings, comparisons = run_with_model(lambda model: judge_submissions(model, submissions, references, judged))
    if ratings:
        evaluations = [
            replace(one, values=rating.values | one.values, cautions=(*one.cautions, *rating.cautions))
            for one, rating in zip(evaluations, ratings, strict=True)
        ]
    return evaluations, comparisons


def _ask_narratives(references: Sequence[Reference], paths: Sequence[Path]) -> list[Reference]:
    """Where a reference has no question, take the narrative of a run directory as its question."""
    if all(reference.question for reference in references):
        return list(references)
    narratives = find_narratives(paths)
    return [replace(one, question=one.question or narratives.get(one.topic_id, "")) for one in references]


def _find_differing_questions(submissions: Sequence[Submission]) -> list[str]:
    """Find the topics whose answers were judged by different questions in different files."""
    asked: dict[str, set[tuple[str, ...]]] = {}
    for record in (record for one in submissions for record in (one.uses or {}).values()):
        asked.setdefault(record.topic_id, set()).add(record.questions)
    return sorted(topic_id for topic_id, questions in asked.items() if len(questions) > 1)


def evaluate_submission(
    submission: Submission, references: Sequence[Reference], families: Sequence[Family]
) -> Evaluation:
    """Measure the answers of a file on each topic of the references, which are in the order of topic ids.

    A missing topic counts as an empty answer, so its numbers are 0. If the references of a topic lack a field, or if
    the file comes without evidence, the value of measures that need it is NaN.
    """
    topics = tuple(reference.topic_id for reference in references)
    answered = [topic for topic in topics if topic in submission.answers]
    if not answered:
        own = next(iter(submission.answers), None)
        ids = f"its topics look like {own!r}, those of the references like {topics[0]!r}" if own else "it is empty"
        raise UserError(f"{submission.name}: none of its topics has references: {ids}")
    values = {column: np.full(len(topics), np.nan) for family in families for column in family.columns}
    for family in families:
        if family.of_context and submission.contexts is None:
            continue
        for place, reference in enumerate(references):
            if family.applies(reference):
                numbers = family.measure(reference, _get_given(submission, reference.topic_id))
                for column, value in zip(family.columns, numbers, strict=True):
                    values[column][place] = value
    found = caution_about_topics(submission.name, list(submission.answers), topics, "an answer", "reference")
    found += _caution_about_fields(references, families)
    found += _caution_about_use(submission, topics, families)
    return Evaluation(submission.name, topics, values, Counts(len(topics), len(answered)), tuple(found))


def _get_given(submission: Submission, topic_id: str) -> Given:
    answer = submission.answers.get(topic_id, Answer(topic_id, ()))
    judged = (submission.uses or {}).get(topic_id)
    context = (submission.contexts or {}).get(topic_id, Context())
    return Given(answer, context, judged.use if judged else None)


def _caution_about_fields(references: Sequence[Reference], families: Sequence[Family]) -> list[str]:
    """Caution about measures that only some topics have the fields for."""
    found = []
    for family in families:
        without = [reference.topic_id for reference in references if not family.applies(reference)]
        if without:
            share = f"{len(without):,} of {len(references):,}"
            columns, needs = ", ".join(family.columns), " or ".join(family.needs)
            found.append(f"{columns}: topics without {needs}, which are left out: {share}, such as {without[0]}")
    return found


def _caution_about_use(submission: Submission, topics: Sequence[str], families: Sequence[Family]) -> list[str]:
    """Caution about topics without a judgment of use, if a measure reads such judgments."""
    without = [topic for topic in topics if topic not in (submission.uses or {})]
    if not without or not any(family.of_use for family in families):
        return []
    share = f"{len(without):,} of {len(topics):,}"
    return [f"{submission.name}: topics whose answer now has no judgment of use: {share}, such as {without[0]}"]


RATINGS = ("LR-1", "LR-2")


async def judge_submissions(
    model: Model | None, submissions: Sequence[Submission], references: Sequence[Reference], names: Sequence[str]
) -> tuple[list[Evaluation], list[Comparison]]:
    """Make the ratings `LR` of all files, and the comparisons `pairwise`, if `names` has them.

    Both are asked together, so that a batch has the requests of both. `UserError` without a model, and if no topic has
    a question, and references for ratings.
    """
    if model is None:
        raise UserError(f"measure {names[0]!r}: needs a language model; expected one under the key model (--set)")
    for name in names:
        if not any(one.question and (one.references or name != "LR") for one in references):
            raise UserError(f"measure {name!r}: no line has question{' and references' if name == 'LR' else ''}")
    makers: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "LR": partial(_rate_submissions, model, submissions, references),
        "pairwise": partial(_compare_submissions, model, submissions, references),
    }
    found = dict(zip(names, await run_together(makers[name] for name in names), strict=True))
    return found.get("LR", []), found.get("pairwise", [])


async def _rate_submissions(
    model: Model, submissions: Sequence[Submission], references: Sequence[Reference]
) -> list[Evaluation]:
    """Rate the answers of each file. A missing or empty answer is rated 0 without asking.

    If a topic has no question or no reference text, or if the model gives no rating, the value is NaN.
    """
    fit = [place for place, one in enumerate(references) if one.question and one.references]
    asked = {
        (number, place): RatedAnswer(references[place].question, references[place].references, text)
        for number, place in product(range(len(submissions)), fit)
        if (text := submissions[number].get_text(references[place].topic_id))
    }
    ratings = await rate_answers(model, list(asked.values()))
    table = np.full((len(submissions), len(references), len(RATINGS)), np.nan)
    table[:, fit] = 0
    failures: list[list[str]] = [[] for _ in submissions]
    for (number, place), rating in zip(asked, ratings, strict=True):
        if isinstance(rating, Failure):
            failures[number].append(f"{references[place].topic_id}: {rating.reason}")
            rating = (np.nan, np.nan)
        table[number, place] = rating
    topics = tuple(reference.topic_id for reference in references)
    return [
        Evaluation(one.name, topics, dict(zip(RATINGS, own.T, strict=True)), cautions=_caution(one.name, failed))
        for one, own, failed in zip(submissions, table, failures, strict=True)
    ]


def _caution(name: str, failures: Sequence[str]) -> tuple[str, ...]:
    if not failures:
        return ()
    return (f"{name}: answers without a rating, which are left out: {len(failures):,}, such as {failures[0]}",)


async def _compare_submissions(
    model: Model, submissions: Sequence[Submission], references: Sequence[Reference]
) -> list[Comparison]:
    """Compare the first file with each other one. If one of two answers is missing, the other wins without asking.

    If both are missing, that is a tie. Topics without a question are left out.
    """
    first, *others = submissions
    asked = [
        (other, reference.topic_id, AnswerPair(reference.question, one_text, other_text))
        for other, reference in product(others, references)
        if reference.question
        and (one_text := first.get_text(reference.topic_id))
        and (other_text := other.get_text(reference.topic_id))
    ]
    choices = await compare_answers(model, [pair for _, _, pair in asked])
    found = []
    for other in others:
        own = {topic: choice for (owner, topic, _), choice in zip(asked, choices, strict=True) if owner is other}
        made = {topic: choice for topic, choice in own.items() if not isinstance(choice, Failure)}
        outcomes = {
            topic: score_choices(made[topic]) if topic in made else _score_presence(first, other, topic)
            for topic in (reference.topic_id for reference in references if reference.question)
            if topic in made or topic not in own
        }
        rate = compute_first_slot_rate([slot for choice in made.values() for slot in choice])
        unjudged = tuple(topic for topic in own if topic not in made)
        found.append(Comparison(first.name, other.name, outcomes, rate, unjudged))
    return found


def _score_presence(first: Submission, other: Submission, topic: str) -> float:
    """Score a topic for which one or both of two files lack an answer."""
    return 0.5 + 0.5 * (bool(first.get_text(topic)) - bool(other.get_text(topic)))


def judge_files(
    paths: Sequence[Path],
    asked: Mapping[str, Asked],
    references_path: Path | None,
    config: RunConfig,
    run_with_model: RunWithModel,
) -> list[Evaluation]:
    """Judge the answers to all topics of `asked`, and write the judgments of each file beside it.

    Returns the measures of use of each file. A missing answer answers nothing, and the model is not asked. Nor is it
    asked where the file has its judgment of the same sentences by the same questions, which a person may have
    corrected; the narrative and the texts of references are not compared. If the model gives no usable reply, a caution
    says why, and an older judgment of the answer stays. `UserError` without a model, for a file with none of the
    topics, and for a file without any judgment. Then the function writes nothing.
    """
    judge = config.require_model().name
    submissions = [read_judged_submission(path) for path in paths]
    references = {one.topic_id: one for one in read_references(references_path)} if references_path else {}
    for one in submissions:
        if not one.answers.keys() & asked.keys():
            ids = f"they look like {next(iter(one.answers))!r}, those with questions like {next(iter(asked))!r}"
            raise UserError(f"{one.name}: none of its topics has questions: {ids}")
    requests = [
        {topic_id: _make_request(one, topic_id, asked[topic_id], references) for topic_id in asked}
        for one in submissions
    ]
    missing = [
        [
            topic_id
            for topic_id, request in of_file.items()
            if not _stands((one.uses or {}).get(topic_id), request, judge)
        ]
        for one, of_file in zip(submissions, requests, strict=True)
    ]
    every = [of_file[topic_id] for of_file, topics in zip(requests, missing, strict=True) for topic_id in topics]
    found = iter(ask_model(run_with_model, lambda model: judge_use(model, every)))
    judged = list[tuple[Submission, list[str]]]()
    for one, of_file, topics in zip(submissions, requests, missing, strict=True):
        records, failures, replaced = dict(one.uses or {}), list[str](), 0
        for topic_id in topics:
            if isinstance(use := next(found), Failure):
                failures.append(f"{one.name}: {topic_id}: no judgment: {use.reason}")
            else:
                replaced += topic_id in records
                texts = tuple(of_file[topic_id].questions), tuple(of_file[topic_id].sentences)
                records[topic_id] = UseRecord(topic_id, judge, *texts, use)
        if len(failures) == len(of_file):
            raise UserError(failures[0])
        if replaced:
            failures.append(f"{one.name}: {plural(replaced, 'judgment')} by another judge or other questions replaced")
        ordered = {topic_id: records[topic_id] for topic_id in (*of_file, *records) if topic_id in records}
        judged.append((replace(one, uses=ordered), failures))
    for path, (one, _) in zip(paths, judged, strict=True):
        write_use_records(name_use_file(path), [*(one.uses or {}).values()])
    return _evaluate(judged, sorted(asked))


def _stands(record: UseRecord | None, request: AskedAnswer, judge: str) -> bool:
    """Return whether a judgment answers a request, so that the judge need not be asked."""
    if record is None or (record.judge, record.questions) != (judge, tuple(request.questions)):
        return False
    return not request.references or all(one.agrees for one in record.use.questions)


def _make_request(
    submission: Submission, topic_id: str, asked: Asked, references: Mapping[str, Reference]
) -> AskedAnswer:
    sentences = list_texts(submission.answers.get(topic_id, Answer(topic_id, ())))
    texts = references[topic_id].references if topic_id in references else ()
    return AskedAnswer(asked.narrative, asked.questions, sentences, texts)


def _evaluate(judged: Sequence[tuple[Submission, list[str]]], topics: Sequence[str]) -> list[Evaluation]:
    """Measure the use of the answers of each file, and add its failures to the cautions."""
    uses = [record.use for one, _ in judged for record in (one.uses or {}).values()]
    families = [family for family in FAMILIES.values() if family.of_use and family.can_be_taken(uses)]
    references = [Reference(topic_id) for topic_id in topics]
    found = [evaluate_submission(one, references, families) for one, _ in judged]
    return [replace(one, cautions=(*one.cautions, *own)) for one, (_, own) in zip(found, judged, strict=True)]
