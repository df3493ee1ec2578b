"""A score sheet: each part by the function of its own command, the join of all parts, and what calls can cost."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from keystone.generation.llm.model import Model
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import NoCitedTexts, NoVerdict, UserError, Waits
from keystone.indexing.index import open_index
from keystone.indexing.io.writing import make_folder
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.answers.files import Submission, find_narratives, holds_texts
from keystone.runs.evaluation.arena.answers import AnswerSet, read_answer_sets
from keystone.runs.evaluation.arena.play import RULES, Tournament, foresee_battles, run_battles, write_arena
from keystone.runs.evaluation.arena.tournament import Judgment, Leaderboard, Settings
from keystone.runs.evaluation.bounds import treat_otherwise
from keystone.runs.evaluation.compare import collect_cautions, join_cautions
from keystone.runs.evaluation.evaluate import Evaluation, check_run, evaluate_files
from keystone.runs.evaluation.nuggets.cited import CitedAnswer, write_cited_answers
from keystone.runs.evaluation.nuggets.files import NuggetBank, read_nuggets, write_nuggets
from keystone.runs.evaluation.nuggets.judge import assign_banks, rate_files, read_submissions
from keystone.runs.evaluation.nuggets.score import FROM_FILES, score_banks, score_cited
from keystone.runs.evaluation.rubrics import Rubric, assign_rubrics, read_rubrics, score_rubrics, write_rubrics
from keystone.runs.pipeline.foresight import Ask, Foreseen, foresee
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.table import find_last_ranking
from keystone.runs.track_rules import Track, set_topic_limits
from keystone.runs.tracks.validate import find_files, validate
from keystone.runs.trec.run_files import read_qrels, read_unsorted_run
from keystone.runs.trec.topics import read_topics

Row = dict[str, str | int | float | None]
"""A run's row by the heads of the columns. None: the run lacks this number."""

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "nuggets": {"V_strict": "V_strict", "A_strict": "A_strict"},
    "rubrics": {"rubric": "rubric", "rubric_binary": "rubric_binary"},
    "support": {
        f"{name}{kind}": f"support_{name}{kind}" for kind in ("", "_hard", "_all") for name in ("precision", "recall")
    },
}
"""The measures of a part of the sheet, each with the head of its column. Another part shows all of its measures."""
STRICT_COVERAGE = "coverage_strict"
"""The further column of nuggets that name their sub-narratives."""
BATTLES = ("rating", "battles", "wins", "losses", "ties")
"""The columns of a tournament."""


def join_scores(
    entries: Sequence[Row], evaluations: Mapping[str, Sequence[Evaluation]], board: Leaderboard | None = None
) -> list[Row]:
    """Join the means of evaluations, by the part of the sheet, and the ratings of a tournament to a row for each run.

    The names of evaluations are the ids of runs. `entries` are the first columns of the rows, in their order, each with
    its `run`. All rows have the same columns.
    """
    rows = [{**one} for one in entries]
    for part, found in evaluations.items():
        by_run = {one.name: one for one in found}
        measures = COLUMNS.get(part) or {name: name for one in found for name in one}
        measures = {**measures, **{name: name for one in found for name in one if name == STRICT_COVERAGE}}
        for row in rows:
            own = by_run.get(str(row["run"]))
            row |= {head: _find_mean(own, measure) for measure, head in measures.items()}
    if board is not None:
        standings = {one.run_id: one for one in board.standings if one.battles}
        for row in rows:
            standing = standings.get(str(row["run"]))
            row |= {head: getattr(standing, head) if standing else None for head in BATTLES}
    return rows


def _find_mean(evaluation: Evaluation | None, measure: str) -> float | None:
    mean = math.nan if evaluation is None else float(evaluation.mean(measure))
    return None if math.isnan(mean) else mean


T = TypeVar("T")

NO_JUDGE = "found no judge; expected --judge with the YAML file of a model"
NOT_BY_RULES = "rules do not judge this part; expected --judge with the YAML file of a model"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sheet is made from: answer files or run directories, the rules of a track, and what judges them.

    Answer files may hold rows of RAGDoll, which have no citations. `judge` is the configuration whose model judges.
    If it is None and `rules` is true, rules judge rubrics and battles.
    """

    answers: Sequence[Path]
    track: Track
    topics: Path | None = None
    nuggets: Path | None = None
    rubrics: Path | None = None
    qrels: Path | None = None
    judge: RunConfig | None = None
    rules: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """The files of a sheet as they were read, the narratives, and the reason for each part that cannot be made."""

    submissions: Sequence[Submission]
    topics: Sequence[Topic]
    sets: Sequence[AnswerSet]
    banks: Sequence[NuggetBank]
    rubrics: Sequence[Rubric]
    left_out: Mapping[str, str]
    topics_told: bool = True
    """Whether `topics` are all topics, by their file or a run directory. Otherwise they are those of the answers."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The rows of a sheet, the reason for each part that it lacks, and cautions about its numbers."""

    rows: Sequence[Row]
    left_out: Mapping[str, str]
    cautions: Sequence[str]
    evaluations: Mapping[str, Sequence[Evaluation]]
    """The values of each topic, by the part of the sheet."""
    battles: Sequence[Judgment] = ()


def read_given(asked: Asked) -> Given:
    """Read all files of a sheet before anything is judged. `UserError` names the first bad one."""
    submissions = read_submissions(asked.answers)
    listed = read_topics(asked.topics) if asked.topics else []
    known = told = {one.id: one.narrative for one in listed} or find_narratives(asked.answers)
    judged, left_out = asked.judge is not None, dict[str, str]()
    no_model = NOT_BY_RULES if asked.rules else NO_JUDGE
    if asked.nuggets is None or not judged:
        left_out["nuggets"] = no_model if asked.nuggets else "expected --nuggets"
    if asked.rubrics is None or not (judged or asked.rules):
        left_out["rubrics"] = no_model if asked.rubrics else "expected --rubrics"
    if all(map(holds_texts, asked.answers)):
        left_out["support"] = "expected answers with citations"
    elif reason := _find_index_fault(asked.judge) if asked.judge else no_model:
        left_out["support"] = reason
    sets: Sequence[AnswerSet] = []
    try:
        sets, known = read_answer_sets(asked.answers, told)
        if listed:
            texts_of = [{topic: text for topic, text in one.texts.items() if topic in told} for one in sets]
            sets = [replace(one, texts=texts) for one, texts in zip(sets, texts_of, strict=True)]
    except UserError as error:  # of narratives, which no other part needs
        left_out["battles"] = str(error)
    if len(asked.answers) < 2:
        left_out["battles"] = "expected two runs or more"
    elif not (judged or asked.rules):
        left_out["battles"] = no_model
    rankings = [ranking for path in asked.answers if (ranking := _find_ranking(path))]
    if asked.qrels is None or not rankings:
        left_out["ranking"] = "found no run directory with a ranking" if asked.qrels else "expected --qrels"
    else:
        qrels = read_qrels(asked.qrels)
        for path in rankings:
            check_run(path, read_unsorted_run(path), asked.qrels, qrels)
    return Given(
        submissions,
        listed or [Topic(*one) for one in known.items()],
        sets,
        read_nuggets(asked.nuggets) if asked.nuggets else [],
        read_rubrics(asked.rubrics) if asked.rubrics else [],
        left_out,
        bool(told),
    )


def _find_index_fault(config: RunConfig) -> str:
    """Find out why the index of a configuration has no texts of citations; empty if it can be opened."""
    try:
        open_store(open_index(config.index))
    except UserError as error:
        return f"expected an index with the cited texts under the key index of --judge: {error}"
    return ""


def _find_ranking(path: Path) -> Path | None:
    """Find the last ranking of a run directory; None for a file and for a folder without one."""
    return ranking if path.is_dir() and (ranking := find_last_ranking(path)).is_file() else None


@dataclass(slots=True)
class Judged:
    """What a judge has said of the answers, by part, its cautions, and why it cannot judge a part."""

    banks: Sequence[NuggetBank] = ()
    rubrics: Sequence[Rubric] = ()
    cited: Sequence[CitedAnswer] = ()
    cautions: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def judge_answers(asked: Asked, given: Given, run_with_model: RunWithModel | None) -> Judged:
    """Judge answers by nuggets, rubrics and citations, each with the function of its own command.

    `Waits` is raised last, so that the requests of all parts are in one file.
    """
    found, cautions, waits, left_out = Judged(), list[str](), list[Waits](), dict[str, str]()

    def take(part: str, judge: Callable[[], tuple[Sequence[T], list[str]]]) -> Sequence[T]:
        if part not in given.left_out:
            try:
                done, own = judge()
                cautions.extend(own)
                return done
            except Waits as error:
                waits.append(error)
            except NoCitedTexts as error:
                left_out[part] = str(error)
        return ()

    if run_with_model is not None:
        ask = run_with_model
        found.banks = take("nuggets", lambda: assign_banks(asked.answers, given.banks, str(asked.nuggets), ask))
    found.rubrics = take(
        "rubrics", lambda: assign_rubrics(asked.answers, given.rubrics, str(asked.rubrics), run_with_model)
    )
    if run_with_model is not None and asked.judge is not None:
        ask, config = run_with_model, asked.judge
        cited = [path for path in asked.answers if not holds_texts(path)]
        found.cited = take("support", lambda: rate_files(cited, config, ask))
    if waits:
        raise waits[-1]
    found.cautions, found.left_out = cautions, left_out
    return found


def make_sheet(asked: Asked, given: Given, run_with_model: RunWithModel | None, out: Path) -> Sheet:
    """Make the sheet, and write what the judge has said of each answer to files of the folder `out`.

    A topic that a run lacks counts 0. `UserError` if the model cannot be asked.
    """
    make_folder(out)
    judged = judge_answers(asked, given, run_with_model)
    left_out = {**given.left_out, **judged.left_out}
    cautions, topics = [*judged.cautions], [one.id for one in given.topics]
    evaluations: dict[str, Sequence[Evaluation]] = {}
    if judged.banks:
        write_nuggets(out / "nuggets.jsonl", judged.banks)
        evaluations["nuggets"] = score_banks(judged.banks, [one.topic_id for one in given.banks])
    if judged.rubrics:
        write_rubrics(out / "rubrics.jsonl", judged.rubrics)
        evaluations["rubrics"] = score_rubrics(judged.rubrics, [one.topic_id for one in given.rubrics])
    if judged.cited:
        write_cited_answers(out / "support.jsonl", judged.cited)
        evaluations["support"] = score_cited(judged.cited, topics, asked.track.cited)
        cautions += [] if given.topics_told else [FROM_FILES]
    board: Leaderboard | None = None
    battles: Sequence[Judgment] = ()
    if "battles" not in left_out:
        try:
            fought = _run_battles(asked, given, run_with_model, out / "battles")
            board, battles = fought.board, fought.judgments
            cautions += fought.cautions
        except NoVerdict as error:
            left_out["battles"] = str(error)
    if "ranking" not in left_out and asked.qrels is not None:
        paths = map(_find_ranking, asked.answers)
        ranked = {one.run_id: path for one, path in zip(given.submissions, paths, strict=True) if path}
        measured = evaluate_files(list(ranked.values()), asked.qrels, add=treat_otherwise)
        evaluations["ranking"] = [replace(one, name=name) for name, one in zip(ranked, measured, strict=True)]
        cautions += collect_cautions(evaluations["ranking"])
    cautions += [caution for own in evaluations.values() for caution in join_cautions(own)]
    rows = join_scores(list(_list_entries(asked, given)), evaluations, board)
    return Sheet(rows, left_out, list(dict.fromkeys(cautions)), evaluations, battles)


def _run_battles(asked: Asked, given: Given, run_with_model: RunWithModel | None, folder: Path) -> Tournament:
    """Judge each pair of answers once, as the track does, and write the files of the arena."""
    model = asked.judge.model if asked.judge else None
    narratives = {one.id: one.narrative for one in given.topics}
    fought = run_battles(given.sets, narratives, Settings(), run_with_model, model.name if model else RULES)
    write_arena(folder, fought.judgments, fought.shown, fought.board, model.backend if model else RULES)
    return fought


def _list_entries(asked: Asked, given: Given) -> Iterator[Row]:
    """List the runs with their numbers of answers and of errors of validation; None if no track has such files."""
    track = set_topic_limits(asked.track, given.topics)
    for one, path in zip(given.submissions, asked.answers, strict=True):
        errors = None
        if not holds_texts(path):
            violations = [found for file in find_files([path]) for found in validate(file, track, given.topics)]
            errors = sum(found.severity == "error" for found in violations)
        yield {"run": one.run_id, "answers": len(one.answers), "errors": errors}


class _Noting:
    """A model that notes all requests, and answers none of them."""

    name = "noting"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        for number, request in enumerate(requests):
            self.requests.append(request)
            yield number, Failure("the model is not asked")

    def run(self, work: Callable[[Model | None], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work(self)

        return asyncio.run(run())


def foresee_sheet(asked: Asked, given: Given) -> tuple[list[Foreseen], dict[str, str]]:
    """Foresee the calls of each part at most, as if no reply were kept, and the reason for each part without calls.

    `UserError` for what also stops the sheet. The requests are those of `make_sheet`, noted in place of being sent.
    No request depends on the reply to another.
    """
    if asked.judge is None or asked.judge.model is None:
        return [], {**given.left_out}
    noting = _Noting()
    judged = judge_answers(asked, given, noting.run)
    found = [foresee(Ask("score", 1, one), asked.judge.model) for one in noting.requests]
    if "battles" not in given.left_out:
        narratives = {one.id: one.narrative for one in given.topics}
        _, battles = foresee_battles(given.sets, narratives, Settings(), asked.judge.model)
        found += [replace(battles, stage="score")] if battles else []
    return found, {**given.left_out, **judged.left_out}
