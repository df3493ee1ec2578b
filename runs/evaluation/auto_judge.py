"""The judge of a score sheet as a class of TREC AutoJudge, which `judge_class` of a workflow.yml names.

Source: autojudge-base 1.0.0, whose classes this module loads when it judges.
"""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from warnings import warn

from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import make_folder, write_json_lines
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import MISSING_MODEL, RunConfig
from keystone.runs.evaluation.arena.tournament import Judgment
from keystone.runs.evaluation.sheet import COLUMNS, Asked, Sheet, make_sheet, read_given
from keystone.runs.pipeline.model_runner import open_model_runner
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.violations import shorten_value

PREFERENCE = "preference"
"""The share of a run's battles on a topic that it won. A tie counts a half."""
SETTINGS = ("track", "judge", "rubrics", "nuggets", "rules")
FRAMEWORK_SETTINGS = ("filebase", "outdir", "qrels", "corpus")
"""The settings that every class gets: how names of files begin, their folder, and two that this judge does not read."""


class KeystoneJudge:
    """Judges answers by nuggets, rubrics, citations and battles, as `keystone score` does.

    The settings of the workflow are `track`, and paths: `judge`, the YAML file of a run, whose model judges and whose
    index has the cited texts; `rubrics`; `nuggets`. With `rules: true`, no model judges. Without `judge`, the model is
    that of the variables `OPENAI_MODEL` and `OPENAI_BASE_URL`.
    """

    def create_qrels(self, **_: Any) -> None:
        """Create no judgments: a sheet is about answers."""

    def judge(
        self,
        rag_responses: Iterable[Any],
        rag_topics: Sequence[Any],
        llm_config: Any,
        nugget_banks: Any = None,
        **settings: Any,
    ) -> Any:
        """Judge the reports, and return the framework's `Leaderboard`. `UserError` for settings that do not fit.

        The answers, the verdicts and the cost are kept in a folder beside the framework's files. A measure that could
        not be taken has no column. A topic that a run lacks counts 0, and so does one without nuggets or a rubric. A
        topic on which a run had no battle counts a half. A topic whose judging failed counts as the mean of the run's
        others, or 0 without any, and a warning names it.
        """
        from autojudge_base import LeaderboardBuilder, LeaderboardSpec, MeasureSpec

        unknown = sorted(settings.keys() - {*SETTINGS, *FRAMEWORK_SETTINGS})
        if unknown:
            raise UserError(f"settings.{unknown[0]}: unknown; expected one of {', '.join(SETTINGS)}")
        folder = Path(settings.get("outdir", "."), f"{Path(str(settings.get('filebase', 'keystone'))).name}.keystone")
        make_folder(folder)
        asked = _write_files(rag_responses, rag_topics, nugget_banks, folder, settings, llm_config)
        given = read_given(asked)
        with open_model_runner(asked.judge, folder) if asked.judge else nullcontext() as run_with_model:
            sheet = make_sheet(asked, given, run_with_model, folder)
        warn_of_gaps(sheet, given.left_out)
        topic_ids = [topic.request_id for topic in rag_topics]
        run_ids = [one.run_id for one in given.submissions]
        values = list_values(sheet, run_ids, topic_ids)
        if not values:
            reasons = "; ".join(f"{part}: {reason}" for part, reason in sheet.left_out.items())
            raise UserError(f"nothing could be judged: {reasons}")
        builder = LeaderboardBuilder(LeaderboardSpec(measures=tuple(map(MeasureSpec, values))))
        for run_id in run_ids:
            for topic_id in topic_ids:
                place = run_id, topic_id
                own = {name: found.get(place, 0.5 * (name == PREFERENCE)) for name, found in values.items()}
                builder.add(run_id=run_id, topic_id=topic_id, values=own)
        return builder.build(expected_topic_ids=topic_ids, on_missing="fix_aggregate")


def warn_of_gaps(sheet: Sheet, known: Mapping[str, str]) -> None:
    """Warn of each caution of a sheet, and of each part that could not be judged and is not `known` to be left out."""
    left_out = [f"{part}: {reason}" for part, reason in sheet.left_out.items() if part not in known]
    for caution in (*left_out, *sheet.cautions):
        warn(caution, stacklevel=3)


def list_values(
    sheet: Sheet, run_ids: Sequence[str], topic_ids: Sequence[str]
) -> dict[str, dict[tuple[str, str], float]]:
    """List the values of a sheet by measure, then by run and topic.

    A value that is NaN becomes the mean of the run, so that the sheet's mean stays. If all are NaN, they are left out.
    """
    values: dict[str, dict[tuple[str, str], float]] = {}
    for part, evaluations in sheet.evaluations.items():
        for one in evaluations:
            for measure, column in COLUMNS.get(part, {}).items():
                own = values.setdefault(column, {})
                mean = one.mean(measure)
                for topic_id, value in zip(one.topics, one.values[measure].tolist(), strict=True):
                    if one.name in run_ids and topic_id in topic_ids and not math.isnan(mean):
                        own[one.name, topic_id] = mean if math.isnan(value) else value
    if sheet.battles:
        values[PREFERENCE] = compute_preferences(sheet.battles)
    return values


def compute_preferences(battles: Sequence[Judgment]) -> dict[tuple[str, str], float]:
    """Compute the share of its battles that a run won, by run and topic. A tie counts a half; failures do not count."""
    credits = defaultdict[tuple[str, str], list[float]](list)
    for battle in battles:
        if not isinstance(battle.verdict, Failure):
            for run_id in (battle.task.left, battle.task.right):
                credits[run_id, battle.task.topic_id].append(
                    0.5 if battle.winner is None else float(battle.winner == run_id)
                )
    return {place: sum(own) / len(own) for place, own in credits.items()}


def _write_files(
    reports: Iterable[Any],
    topics: Sequence[Any],
    nugget_banks: Any,
    folder: Path,
    settings: Mapping[str, Any],
    llm_config: Any,
) -> Asked:
    """Write what the framework has read as files, and ask for their sheet."""
    track = settings.get("track", "rag26")
    if track not in TRACKS:
        raise UserError(f"settings.track: found {shorten_value(track)}, expected one of {', '.join(TRACKS)}")
    by_run = defaultdict[str, list[dict[str, Any]]](list)
    narratives = {one.request_id: one.problem_statement or one.title for one in topics}
    for report in reports:
        by_run[report.metadata.run_id].append(_make_record(report, narratives))
    files = []
    for number, (_, records) in enumerate(sorted(by_run.items()), 1):
        files.append(folder / "answers" / f"{number}.jsonl")
        files[-1].parent.mkdir(exist_ok=True)
        write_json_lines(files[-1], records)
    if not files:
        raise UserError("found no report, expected answers of a run or more")
    write_json_lines(folder / "topics.jsonl", [one.model_dump(mode="json", exclude_none=True) for one in topics])
    nuggets = _find_path(settings, "nuggets")
    if nugget_banks is not None:
        nuggets = folder / "given.nuggets.jsonl"
        write_json_lines(nuggets, [bank.model_dump(mode="json") for bank in nugget_banks.banks.values()])
    return Asked(
        answers=files,
        track=TRACKS[track],
        topics=folder / "topics.jsonl",
        nuggets=nuggets,
        rubrics=_find_path(settings, "rubrics"),
        judge=_read_judge(settings, llm_config),
        rules=bool(settings.get("rules", False)),
    )


def _make_record(report: Any, narratives: Mapping[str, str]) -> dict[str, Any]:
    """Make the line of an answer file from a report. Citations are ids, in the order of their priority."""
    topic_id = str(report.metadata.topic_id)
    sentences = [
        {"text": one.text, "citations": list(one.citations or [])} for one in report.get_sentences_with_citations()
    ]
    cited = [doc_id for one in sentences for doc_id in one["citations"]]
    return {
        "metadata": {
            "team_id": report.metadata.team_id,
            "run_id": report.metadata.run_id,
            "narrative_id": topic_id,
            "narrative": narratives.get(topic_id, ""),
            "type": "automatic",
        },
        "references": list(dict.fromkeys([*(report.references or []), *cited])),
        "answer": sentences,
    }


def _find_path(settings: Mapping[str, Any], key: str) -> Path | None:
    value = settings.get(key)
    if value is not None and not isinstance(value, str | Path):
        raise UserError(f"settings.{key}: found {shorten_value(value)}, expected a path")
    return None if value is None else Path(value)


def _read_judge(settings: Mapping[str, Any], llm_config: Any) -> RunConfig | None:
    """Read the configuration of the judge: the file that the settings name, or the variables of the framework."""
    path = _find_path(settings, "judge")
    if settings.get("rules", False):
        if path is not None:
            raise UserError("settings.rules: found a judge too, expected one of the two")
        return None
    if path is not None:
        config = read_config(path, [])
        config.require_model(f"{path}: {MISSING_MODEL}")
        return config
    if not llm_config.base_url:
        raise UserError("settings: expected judge, the YAML file of a model, or rules: true, or OPENAI_BASE_URL")
    unread = ["run_id=auto-judge", f"index={os.devnull}", f"topics={os.devnull}"]
    return read_config(None, [*unread, f"model.name={llm_config.model}", f"model.urls=[{llm_config.base_url}]"])
