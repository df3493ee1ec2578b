"""The demo: it makes the corpus and its index, then four runs, compares them, and shows them.

With `--agent`, a research agent researches one narrative from recorded replies instead. The demo then shows its path
and its answer.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.console import Console

from keystone.generation.types import Answer, Sentence
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import NotRecorded
from keystone.indexing.index import Index
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import make_folder, write_json_lines
from keystone.indexing.types import Progress
from keystone.retrieval.backends import open_store
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.demo.corpus import write_corpus
from keystone.runs.evaluation.answers.evaluate_answers import judge_files
from keystone.runs.evaluation.answers.files import read_asked
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.pipeline.file_names import ANSWERS, QUERIES
from keystone.runs.pipeline.model_runner import open_model_runner, read_total_usage
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.table import find_last_ranking
from keystone.runs.report.asked import list_quotes, print_answer
from keystone.runs.report.html.write import write_report
from keystone.runs.report.passages import Result, number_citations
from keystone.runs.report.say import align_columns, say
from keystone.runs.report.story import fill_lines, tell_story
from keystone.runs.report.terminal import print_evaluations
from keystone.runs.report.trace import format_trace, read_trace
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks import validate
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.wording import plural

TRACK = "rag25"
DEPTH = 30
"""How many documents a run submits. The track cites a segment of each, and embedding these is most of the work."""
MEASURES = ("nDCG@10", "nDCG@30", "R@30", "MAP@30", "MRR", "judged@10")
MODEL = "reader-1"
"""The name under which the replies in `replies.jsonl.zst` were recorded."""
PRICES = {"prompt": 0.4, "completion": 1.6}
"""Prices of a small hosted model, in US dollars per million tokens: an example for the column of prices."""
TOLD_TOPIC_ID = "8"
"""The narrative that the demo tells in the terminal."""
MODEL_RUN = "keystone"
RUNS_TEXT = """\
narrative: the whole narrative as one query
rules:     decomposition by rules, and two-stage fusion
listwise:  the first 20 documents of rules, ordered by one call of a language model a narrative
keystone:  queries, grades, order and answers by a language model
"""
CAUTION_TEXT = """\
The replies are recorded. A model of the same kind made the judgments, so the rows
of listwise and keystone are no evidence of effect: they show that each step works."""
MISSING_TEXT = "This is left out, because one of its requests has no recorded reply:"
COST_TEXT = "At ${prompt} for a million tokens of prompts and ${completion} of replies, as an example."


def run_demo(out: Path, threads: int, progress: Progress) -> Callable[[], None]:
    """Make all files of the demo in `out`, except those that exist already. Returns a function that prints the report.

    If a request has no recorded reply, the demo lacks that run. `UserError` if `out` cannot be written, or if the
    corpus cannot be fetched.
    """
    index = make_index(out, threads, progress)
    folders, missing, uses = [], [], dict[str, str]()
    with ExitStack() as stack:
        topics, qrels_path, replies = (
            stack.enter_context(as_file(files("keystone.runs.demo") / name))
            for name in ("narratives.jsonl", "qrels.txt", "replies.jsonl.zst")
        )
        configs = configure_runs(index.folder, topics, replies, out / "runs")
        for config in configs:
            try:
                folders.append(run(config, threads, progress))
            except NotRecorded as error:
                missing.append(f"{config.run_id}: {error}")
        try:
            with progress("Judging the answers", None):
                uses = judge_answers(folders, configs[-1])
        except NotRecorded as error:
            missing.append(f"questions answered: {error}")
        qrels, narratives = read_qrels(qrels_path), read_topics(topics)
        page = out / "report.html"
        with progress("Writing the report", None):
            write_report(folders, page, qrels_path, [" ".join(CAUTION_TEXT.split())])
    told = [folder for folder in folders if folder.name == MODEL_RUN]
    measures = [parse_measure(name) for name in MEASURES]
    with progress("Measuring", None):
        evaluations = [
            evaluate(folder.name, read_run(find_last_ranking(folder)), qrels, measures) for folder in folders
        ]
    track = TRACKS[TRACK]
    submissions = [folder / file for folder in folders[1:] for file in (track.retrieval_file, track.answer_file)]
    violations = {path: validate.validate(path, track, narratives) for path in submissions}
    stories = [list(tell_story(folder, TOLD_TOPIC_ID, open_store(index))) for folder in told]

    def report() -> None:
        say(f"Corpus: {index.documents} sections of the documentation of Django 5.2; {len(narratives)} narratives.")
        say(RUNS_TEXT)
        print_evaluations(evaluations)
        say("\n" + "\n".join(format_costs(folders, len(narratives), uses)))
        say(f"\n{CAUTION_TEXT}")
        for reason in missing:
            say(f"\n{MISSING_TEXT}\n{reason}")
        say(f"\nRuns, queries, evidence and answers: {', '.join(map(str, folders))}")
        for path, found in violations.items():
            errors = sum(violation.severity == "error" for violation in found)
            say(f"{path}: {'INVALID' if errors else 'valid'} for {TRACK}, {plural(len(found) - errors, 'warning')}")
        for story in stories:
            say(f"\nNarrative {TOLD_TOPIC_ID} in {MODEL_RUN}:\n")
            say("\n".join(story))
        say(f"\nOpen in a browser, to see the runs side by side: {page}")

    return report


def make_index(out: Path, threads: int, progress: Progress) -> Index:
    """Fetch the demo's corpus into `out` and index it there, unless that was done before.

    `UserError` if `out` cannot be written, or if the corpus cannot be fetched.
    """
    make_folder(out)
    corpus = out / "corpus.jsonl"
    if not corpus.exists():
        with progress("Fetching and cutting the documentation of Django", None):
            write_corpus(corpus)
    return build_index(corpus, out / "index", BuildSettings(threads=threads), progress)[0]


def judge_answers(folders: Sequence[Path], config: RunConfig) -> dict[str, str]:
    """Judge the answers of the runs by the questions of `keystone`; returns what each answers, by the run's name.

    The result is empty if a run is missing.
    """
    if not folders or folders[-1].name != MODEL_RUN:
        return {}
    judged = [folder for folder in folders if (folder / ANSWERS).exists()]
    with open_model_runner(config, None) as run_with_model:
        found = judge_files(judged, read_asked(judged, folders[-1]), None, config, run_with_model)
    return {folder.name: f"{one.mean('answered'):.0%}" for folder, one in zip(judged, found, strict=True)}


def format_costs(folders: Sequence[Path], narratives: int, answered: Mapping[str, str]) -> Iterator[str]:
    """Format what each run asked of the model, and what it answers.

    There is a row for each run: calls and tokens a narrative, the price of all, and the share of questions answered.
    """
    rows = [["run", "calls a narrative", "tokens a narrative", "price of all", "questions answered"]]
    for folder in folders:
        total = read_total_usage(folder)
        calls = total.get("calls", 0) + total.get("cache_hits", 0)
        tokens = total.get("prompt_tokens", 0) + total.get("completion_tokens", 0)
        numbers = f"{calls / narratives:,.0f}", f"{tokens / narratives:,.0f}", f"{total.get('cost', 0):,.2f}$"
        rows.append([folder.name, *numbers, answered.get(folder.name, "-")])
    yield from align_columns(rows, left=(0,))
    yield COST_TEXT.format(**PRICES)


def configure_runs(index: Path, topics: Path, replies: Path, out: Path) -> list[RunConfig]:
    """Configure the runs of the demo: the whole narrative, the default by rules, and two with recorded replies.

    The replies belong to these settings.
    """
    places = {"index": str(index), "topics": str(topics), "out": str(out)}
    depth, submitted = {"fusion": {"depth": DEPTH}}, {**places, "team_id": "demo", "track": TRACK}
    model = {"backend": "replay", "name": MODEL, "replies": str(replies), "prices": PRICES}
    settings = {**submitted, "run_id": MODEL_RUN, "model": model, "rerank.depth": 20, "fusion.depth": DEPTH}
    settings |= {"queries.passages": "none", "grading.pool": 6, "answer.gaps": True}
    one_call = {"rerank": {"method": "listwise", "depth": 20}, "answer": {"method": "rules"}, "model": model}
    return [
        RunConfig.model_validate(
            {**places, **depth, "run_id": "narrative", "track": "none", "queries": {"method": "narrative"}}
        ),
        RunConfig.model_validate({**submitted, **depth, "run_id": "rules"}),
        RunConfig.model_validate({**submitted, **depth, "run_id": "listwise", **one_call}),
        _configure("keystone", settings),
    ]


PRESET = "agent-light"


def run_agent_demo(out: Path, threads: int, progress: Progress) -> Callable[[], None]:
    """Make the demo's index in `out` unless it exists, and let the agent research one narrative.

    Returns a function that prints the agent's path and answer. `NotRecorded` if a request has no recorded reply.
    `UserError` if `out` cannot be written, or if the corpus cannot be fetched.
    """
    index = make_index(out, threads, progress)
    topics = out / "agent-topics.jsonl"
    with as_file(files("keystone.runs.demo") / "narratives.jsonl") as path:
        narrative = _find_record(path, "id")
    write_json_lines(topics, [narrative])
    with as_file(files("keystone.runs.demo") / "agent.replies.jsonl.zst") as replies:
        folder = run(configure_run(index.folder, topics, replies, out / "runs"), threads, progress)
    queries, answered = (_find_record(folder / name, "topic_id") for name in (QUERIES, ANSWERS))
    answer = Answer(TOLD_TOPIC_ID, tuple(Sentence(s["text"], tuple(s["citations"])) for s in answered["sentences"]))
    store = open_store(index)
    sentences, passages = number_citations(answer, store)
    result = Result("demo", str(index.folder), narrative["narrative"], passages, sentences)
    quotes, steps = list_quotes(answer, result, store), read_trace(folder)

    def report() -> None:
        say("\n".join([f"Narrative {TOLD_TOPIC_ID}:", "", *fill_lines(narrative["narrative"]), "", "Queries:"]))
        say("\n".join(_list_questions(queries)))
        say("\nThe agent's path:\n")
        for line in format_trace(steps, brief=True):
            say(line)
        say("\nAnswer:\n")
        print_answer(Console(highlight=False), result, quotes)
        say(f"\nThe run: {folder}\nEach step with all that the agent was shown: keystone trace {folder}")

    return report


def configure_run(index: Path, topics: Path, replies: Path, out: Path) -> RunConfig:
    """Configure the agent's run. The recorded replies belong to these settings."""
    places = {"index": str(index), "topics": str(topics), "out": str(out)}
    settings = {**places, "team_id": "demo", "track": TRACK, "run_id": "agent", "fusion.depth": DEPTH}
    return _configure(PRESET, settings | {"model": {"backend": "replay", "name": MODEL, "replies": str(replies)}})


def _configure(preset: str, settings: Mapping[str, Any]) -> RunConfig:
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return read_config(None, overrides, preset)


def _list_questions(understood: Mapping[str, Any]) -> Iterator[str]:
    for query in understood["queries"]:
        if query["id"] != TOLD_TOPIC_ID:
            yield from fill_lines(query["question"], f"  {query['id']}  ")


def _find_record(path: Path, key: str) -> dict[str, Any]:
    return next(record for _, record in read_json_lines(path) if record[key] == TOLD_TOPIC_ID)
