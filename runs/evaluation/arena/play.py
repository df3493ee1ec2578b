"""A tournament of files by a judge, and the files of its arena, as castorini/RAGDoll at 1f06719 has them."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from keystone.generation.grading.rate_answers import (
    ArenaVerdict,
    ShownPair,
    format_instruction,
    read_arena_verdict,
    request_arena_verdict,
)
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.prompts.evaluation import ARENA_NAME
from keystone.generation.rules.answer_form import compare_coverage
from keystone.generation.types import Failure
from keystone.indexing.errors import NoVerdict, UserError
from keystone.indexing.io.reading import read_json_lines, read_text_lines
from keystone.indexing.io.writing import make_folder, write_json_lines
from keystone.runs.evaluation.arena.answers import AnswerSet
from keystone.runs.evaluation.arena.tournament import (
    DECIMALS,
    MOST_SHARE,
    PLACES,
    Judgment,
    Leaderboard,
    Settings,
    Task,
    list_matches,
    list_tasks,
    make_leaderboard,
    play,
)
from keystone.runs.pipeline.foresight import Ask, Foreseen, foresee
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import parse_lines, tell_expected, write_csv

TASKS, JUDGMENTS = "tasks.jsonl", "judgments.jsonl"
PAIRWISE, COVERAGE, LEADERBOARD = "pairwise.csv", "coverage.csv", "leaderboard.csv"
PAIRWISE_COLUMNS = (
    *("run_a", "run_b", "shared_topics", "valid_judgments", "run_a_wins", "run_b_wins", "ties"),
    *("run_a_preference_rate", "run_b_preference_rate"),
)
COVERAGE_COLUMNS = (
    *("run_a", "run_b", "run_a_topics", "run_b_topics", "shared_topics", "run_a_only_topics", "run_b_only_topics"),
)
LEADERBOARD_COLUMNS = ("rank", "run_id", "arena_score", "n_judgments", "wins", "losses", "ties")


@dataclass(frozen=True, slots=True)
class Shown:
    """What the battles of a tournament show: the answers of runs by name, and the narratives by topic."""

    sets: Mapping[str, AnswerSet]
    narratives: Mapping[str, str]
    sampled: bool = False
    """Whether each battle is judged several times, by replies with the seeds from 1."""

    def show(self, task: Task) -> ShownPair:
        """Show the answers of a battle."""
        a, b = (self.sets[name].texts[task.topic_id] for name in (task.a, task.b))
        return ShownPair(self.narratives[task.topic_id], a, b, task.repeat + 1 if self.sampled else None)


def check_folder(folder: Path, tasks: Sequence[Task], shown: Shown) -> None:
    """Check that the folder has no battles of another tournament.

    `UserError` if a battle of its `tasks.jsonl` is not among `tasks`, or has other answers, another order or another
    prompt there.
    """
    if not (folder / TASKS).exists():
        return
    known = {task.id: task for task in tasks}
    for number, record in read_json_lines(folder / TASKS):
        task_id = str(record.get("task_id"))
        place = f"{folder / TASKS}:{number}: {task_id}"
        if task_id not in known:
            raise UserError(
                f"{place}: is no battle of these runs and options, and would be lost; expected another --out"
            )
        if record != encode_task(known[task_id], shown):
            raise UserError(f"{place}: was another battle (answers, order or prompt); expected another --out")


def write_arena(folder: Path, judgments: Sequence[Judgment], shown: Shown, board: Leaderboard, provider: str) -> None:
    """Write the five files of a tournament into a folder. Each appears when it is whole."""
    make_folder(folder)
    write_json_lines(folder / TASKS, (encode_task(one.task, shown) for one in judgments))
    write_json_lines(folder / JUDGMENTS, (_encode_judgment(one, shown, board.judge, provider) for one in judgments))
    sets = [*shown.sets.values()]
    write_csv(folder / COVERAGE, [COVERAGE_COLUMNS, *(_list_coverage(*pair) for pair in combinations(sets, 2))])
    write_csv(folder / PAIRWISE, [PAIRWISE_COLUMNS, *list_pairs(judgments, sets)])
    write_csv(folder / LEADERBOARD, [LEADERBOARD_COLUMNS, *list_standings(board)])


def encode_task(task: Task, shown: Shown) -> dict[str, Any]:
    """Encode a battle as a line of `tasks.jsonl`."""
    place = {
        "pair": [task.left, task.right],
        "qid": task.topic_id,
        "query": shown.narratives[task.topic_id],
        "assistant_a_run_id": task.a,
        "assistant_b_run_id": task.b,
        "prompt": ARENA_NAME,
    }
    return {
        "task_id": task.id,
        "evaluator": "arena",
        "system_prompt": "",
        "instruction": format_instruction(shown.show(task)),
        "metadata": place,
    }


def _encode_judgment(one: Judgment, shown: Shown, judge: str, provider: str) -> dict[str, Any]:
    task, failed = one.task, isinstance(one.verdict, Failure)
    return {
        "task_id": task.id,
        "qid": task.topic_id,
        "query": shown.narratives[task.topic_id],
        "pair": [task.left, task.right],
        "assistant_a_run_id": task.a,
        "assistant_b_run_id": task.b,
        "judge_verdict": None if failed else one.verdict,
        "preferred_run_id": one.winner,
        "provider": provider,
        "model": judge,
        "thinking": None,
        "status": "failed" if failed else "completed",
        "error": one.verdict.reason if isinstance(one.verdict, Failure) else None,
        "raw_output": "" if failed else f"[[{one.verdict}]]",
        "elapsed_seconds": None,
        "usage": None,
    }


def list_pairs(judgments: Sequence[Judgment], sets: Sequence[AnswerSet]) -> Iterator[tuple[Any, ...]]:
    """List the rows of `pairwise.csv`, in the order of the files."""
    judged: dict[tuple[str, str], list[Judgment]] = {}
    for one in judgments:
        if not isinstance(one.verdict, Failure):
            judged.setdefault((one.task.left, one.task.right), []).append(one)
    for left, right in combinations(sets, 2):
        valid = judged.get((left.run_id, right.run_id), [])
        wins = [sum(one.winner == name for one in valid) for name in (left.run_id, right.run_id)]
        ties = len(valid) - sum(wins)
        rates = [_round((won + ties / 2) / len(valid)) if valid else "" for won in wins]
        shared = len(left.texts.keys() & right.texts.keys())
        yield left.run_id, right.run_id, shared, len(valid), *wins, ties, *rates


def _list_coverage(left: AnswerSet, right: AnswerSet) -> tuple[Any, ...]:
    one, other = left.texts.keys(), right.texts.keys()
    sizes = len(one), len(other), len(one & other), len(one - other), len(other - one)
    return left.run_id, right.run_id, *sizes


def list_standings(board: Leaderboard) -> Iterator[tuple[Any, ...]]:
    """List the rows of `leaderboard.csv`, where equal ratings have ranks of their own, as in RAGDoll."""
    for rank, one in enumerate(board.standings, 1):
        yield rank, one.run_id, _round(one.rating), one.battles, one.wins, one.losses, one.ties


def _round(value: float) -> float:
    return round(value, DECIMALS)


@dataclass(frozen=True, slots=True)
class Arena:
    """The judgments of a file, the runs that they name, in order, and the name of the judge."""

    judgments: tuple[Judgment, ...]
    run_ids: tuple[str, ...]
    judge: str


def read_arena(path: Path) -> Arena:
    """Read the judgments of a folder of an arena, of a `judgments.jsonl`, or the counts of a `pairwise.csv`.

    `UserError` with file and line for any other row, and for a file without a battle.
    """
    file = path / JUDGMENTS if path.is_dir() else path
    found = read_pairwise(file) if file.suffix == ".csv" else read_judgments(file)
    if not found.judgments:
        raise UserError(f"{file}: holds no battle")
    return found


def read_judgments(path: Path) -> Arena:
    """Read `judgments.jsonl`. A failed battle keeps its reason, and a later line of the same battle replaces it.

    Repeats of a battle are told apart by their order.
    """
    found, judges, seen = list[Judgment](), dict[str, None](), dict[tuple[str, str, str], int]()
    failed = dict[tuple[str, str, str, str], int]()
    for _, (task, verdict, judge, task_id) in parse_lines(path, _parse_judgment):
        place = task.a, task.b, task.topic_id
        number = failed.pop((*place, task_id), len(found))
        if number == len(found):
            repeat = seen.get(place, 0)
            seen[place] = repeat + 1
            swapped = (task.b, task.a, task.topic_id) in seen
            found.append(Judgment(Task(task.left, task.right, task.topic_id, task.a, repeat, swapped), verdict))
        else:
            found[number] = Judgment(found[number].task, verdict)
        if isinstance(verdict, Failure):
            failed[*place, task_id] = number
        judges |= {judge: None} if isinstance(judge, str) else {}
    return Arena(tuple(found), _list_runs(found), " and ".join(judges) or "an unnamed judge")


def _parse_judgment(record: Mapping[str, Any]) -> tuple[Task, ArenaVerdict | Failure, Any, str]:
    a, b, topic_id = (_get_name(record, key) for key in ("assistant_a_run_id", "assistant_b_run_id", "qid"))
    pair, judge, task_id = record.get("pair", [a, b]), record.get("model"), str(record.get("task_id"))
    if a == b:
        raise ValueError(f"assistant_b_run_id: found {b!r} as assistant_a_run_id has it, expected another run")
    if not isinstance(pair, list) or sorted(map(str, pair)) != sorted((a, b)):
        raise ValueError(tell_expected("pair", f"{a!r} and {b!r}", pair))
    task = Task(str(pair[0]), str(pair[1]), topic_id, a)
    verdict = record.get("judge_verdict")
    if record.get("status", "completed") != "completed" or verdict is None:
        return task, Failure(str(record.get("error") or "no verdict")), judge, task_id
    if verdict not in get_args(ArenaVerdict):
        raise ValueError(tell_expected("judge_verdict", f"one of {', '.join(get_args(ArenaVerdict))}", verdict))
    winner = {"A": a, "B": b}.get(verdict)
    if "preferred_run_id" in record and record["preferred_run_id"] != winner:
        wanted = f"{winner!r} for the verdict {verdict}"
        raise ValueError(tell_expected("preferred_run_id", wanted, record["preferred_run_id"]))
    return task, verdict, judge, task_id


def _get_name(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if (isinstance(value, str) and value) or is_integer(value):
        return str(value)
    raise ValueError(tell_expected(key, "an id", value))


def _list_runs(judgments: Sequence[Judgment]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in judgments for name in (one.task.left, one.task.right)))


def read_pairwise(path: Path) -> Arena:
    """Read the counts of `pairwise.csv` as battles. Their narratives and slots are not known: the topic is empty."""
    rows = csv.DictReader(line for _, line in read_text_lines(path))
    try:
        heads, listed = rows.fieldnames or (), [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise UserError(f"{path}: expected a CSV file, found a line that is not CSV: {error}") from error
    if missing := {*PAIRWISE_COLUMNS[:2], *PAIRWISE_COLUMNS[4:7]} - {*heads}:
        raise UserError(f"{path}:1: expected a pairwise.csv, which has the columns {', '.join(sorted(missing))}")
    found = list[Judgment]()
    for number, row in listed:
        place, left, right = f"{path}:{number}", row["run_a"], row["run_b"]
        if not left or not right or left == right:
            raise UserError(f"{place}: expected two runs, found {left!r} and {right!r}")
        for column, verdict in zip(PAIRWISE_COLUMNS[4:7], PLACES, strict=False):
            text = row[column] or ""
            if not (text.isascii() and text.isdigit() and len(text) < 7):
                raise UserError(f"{place}: {column}: expected a number of battles, found {text!r}")
            found += [Judgment(Task(left, right, "", left), verdict)] * int(text)  # type: ignore[arg-type]
    return Arena(tuple(found), _list_runs(found), "an unnamed judge")


RULES = "rules"
"""The name of the judge that needs no model."""


@dataclass(frozen=True, slots=True)
class Tournament:
    """A tournament that was played: its judgments, what they showed, and the leaderboard."""

    judgments: tuple[Judgment, ...]
    shown: Shown
    board: Leaderboard
    cautions: tuple[str, ...]


def run_battles(
    sets: Sequence[AnswerSet],
    narratives: Mapping[str, str],
    settings: Settings,
    run_with_model: RunWithModel | None = None,
    judge_name: str = RULES,
    folder: Path | None = None,
) -> Tournament:
    """Run the battles of answers, by the model of `run_with_model`, or by rules if that is None.

    `folder` is where the files of the arena will be written. `UserError` if it holds files of another tournament, and
    `NoVerdict` if the model gives no verdict at all.
    """
    shown = Shown({one.run_id: one for one in sets}, narratives, settings.repeats > 1)
    if folder is not None:
        check_folder(folder, list(list_tasks(list_matches(sets), settings)), shown)

    def judge(tasks: Sequence[Task]) -> list[ArenaVerdict | Failure]:
        pairs = [shown.show(task) for task in tasks]
        if run_with_model is None:
            return [compare_coverage(pair.question, pair.a, pair.b) for pair in pairs]
        asked = [(request_arena_verdict(pair), read_arena_verdict) for pair in pairs]
        return ask_model(run_with_model, lambda model: ask_all(model, asked)) if tasks else []

    judgments = play(sets, judge, settings)
    if folder is not None:  # an adaptive tournament plays only some of its battles
        check_folder(folder, [one.task for one in judgments], shown)
    failures = [(one.task.id, one.verdict.reason) for one in judgments if isinstance(one.verdict, Failure)]
    if judgments and len(failures) == len(judgments):
        raise NoVerdict(f"the model gave no verdict: {failures[0][0]}: {failures[0][1]}")
    board = make_leaderboard(judgments, [*shown.sets], judge_name)
    cautions = [*_caution(sets), *(f"{task_id}: no verdict: {reason}" for task_id, reason in failures)]
    return Tournament(tuple(judgments), shown, board, tuple(cautions))


def _caution(sets: Sequence[AnswerSet]) -> list[str]:
    """Name the runs that lack answers to narratives of other runs: no battle is about these."""
    topics = {topic_id for one in sets for topic_id in one.texts}
    lacking = [(one.run_id, sorted(topics - one.texts.keys())) for one in sets]
    return [
        f"{run_id}: no answer to {len(lost):,} of {len(topics):,} narratives, such as {lost[0]}; no battle counts there"
        for run_id, lost in lacking
        if lost
    ]


def foresee_battles(
    sets: Sequence[AnswerSet], narratives: Mapping[str, str], settings: Settings, model: ModelSettings | None
) -> tuple[int, Foreseen | None]:
    """Foresee the battles of a tournament: their number at most, and what a model's calls can cost, or None."""
    shown = Shown({one.run_id: one for one in sets}, narratives, settings.repeats > 1)
    tasks = list(list_tasks(list_matches(sets), settings))
    share = MOST_SHARE if settings.adaptive else 1.0
    number = int(len(tasks) * share)
    if model is None or not number:
        return number, None
    longest = max((request_arena_verdict(shown.show(task)) for task in tasks), key=lambda one: len(one.messages[0][1]))
    return number, foresee(Ask("battles", number, longest), model)
