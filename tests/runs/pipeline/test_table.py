"""The table of stages: its keys stay as they were, and whatever tells of stages follows it."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

import keystone
from keystone.generation.prompts import queries, readers
from keystone.generation.types import Answer
from keystone.indexing.embedder import Effort
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.json_values import digest
from keystone.runs.config.presets import find_presets
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.exchange.bundle.reproduce import find_searching_stages
from keystone.runs.exchange.bundle.write import describe_run, write_bundle
from keystone.runs.pipeline import table
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.model_runner import _digest_prompts
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.report.foresight import foresee_run
from keystone.runs.report.html.read_run import read_view
from keystone.runs.report.html.settings import render_settings
from tests.support.runs.ranking_stage import make_ranking_stage

KEYS = Path(__file__).with_name("stage_keys.json")
"""A digest of the stages of each configuration: their names, files and settings, made when the table was begun."""
MODEL = ["model.name=tiny", "model.urls=[http://localhost:1/v1]"]
RULES = ["queries.method=rules", "answer.method=rules"]
VARIANTS = [
    [*RULES, "grading.method=none"],
    [*RULES, "grading.method=none", "rerank.method=listwise"],
    [*RULES, "grading.method=grid", "rerank.method=listwise"],
    [*RULES, "grading.method=grid", "rerank.method=listwise", "rerank.after=fusion"],
    [*RULES, "grading.method=grid", "grading.rounds=2"],
    ["grading.method=grid", "grading.rounds=2", "rerank.method=sliding", "queries.passages=both"],
    ["queries.method=model", "reader.name=graphreader", "answer.method=retrieval", "grading.method=none"],
    ["queries.method=contract", "answer.method=whole", "answer.rounds=1", "grading.method=none"],
    [*RULES, "grading.method=none", "ranking=segments"],
    ["queries.method=narrative", "track=rag24", "fusion.depths={'1': 5}", "answer.method=none"],
    ["retrieval.systems=[bm25]", "queries.method=narrative", "grading.method=none", "track=none"],
]


def configure(index: Index, folder: Path, settings: Sequence[str] = (), preset: str | None = None) -> RunConfig:
    places = ["run_id=r", f"index={index.folder}", f"topics={folder / 'topics.jsonl'}", f"out={folder / 'out'}"]
    return read_config(None, [*places, *settings], preset)


def test_the_keys_of_all_stages_are_those_of_stored_runs(
    index: Index, topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, every stored run is made anew. A change of a key needs a reason, and then other digests here."""
    monkeypatch.setattr("keystone.runs.pipeline.model_runner._digest_prompts", lambda: "prompts")
    found, stored = {}, orjson.loads(KEYS.read_bytes())
    presets = [name for name in sorted(find_presets()) if name in stored]  # some others need further sets of vectors
    for preset, settings in [*((name, []) for name in presets), *((None, own) for own in VARIANTS)]:
        job = open_job(configure(index, topics.parent, [*MODEL, *settings], preset))
        config = job.config.model_copy(update={"out": Path("out"), "index": Path("index"), "topics": Path("topics")})
        job = replace(job, config=config, index=replace(job.index, key="key"))
        stages = [[one.name, one.artifacts, one.inputs, one.settings] for one in table.bind_stages(job)]
        found[" ".join([preset or "", *settings]).strip()] = digest(stages)
    assert found == stored


@pytest.mark.parametrize(
    ("settings", "change", "anew"),
    [
        (["reader.name=escalate"], "answer.words=30", True),
        (["reader.name=escalate"], "answer.support=none", True),
        (["reader.name=escalate"], "track=rag24", True),
        (["reader.name=rdr2"], "answer.words=30", False),
        (["reader.name=rdr2"], "track=rag24", False),
        ([], "track=ragtime25", True),
    ],
)
def test_evidence_is_gathered_anew_if_its_draft_or_its_language_changes(
    settings: list[str], change: str, anew: bool, index: Index, topics: Path
) -> None:
    def describe_gathering(*more: str) -> object:
        job = open_job(configure(index, topics.parent, [*settings, *more]))
        return next(one.settings for one in table.bind_stages(job) if one.name == "gather")

    assert (describe_gathering(change) != describe_gathering()) is anew


@pytest.mark.parametrize("choice", ["{choose: expected, precision: 0.6}", "{choose: threshold, threshold: 0.7}"])
def test_another_choice_of_submitted_rows_keeps_the_rankings(choice: str, index: Index, topics: Path) -> None:
    def describe(*more: str) -> dict[str, object]:
        job = open_job(configure(index, topics.parent, ["track=rag26", *more]))
        return {one.name: one.settings for one in table.bind_stages(job)}

    plain, chosen, fixed = describe(), describe(f"fusion.depth={choice}"), describe("fusion.depth=20")
    assert {name for name in plain if plain[name] != chosen[name]} == {"config", "segments", "submission"}
    assert plain["narrative"] != fixed["narrative"]


def test_a_configuration_is_written_anew_if_its_user_names_the_variable_of_the_key(index: Index, topics: Path) -> None:
    def describe(*more: str) -> dict[str, object]:
        job = open_job(configure(index, topics.parent, [*MODEL, *more]))
        return {one.name: one.settings for one in table.bind_stages(job)}

    plain, named = describe(), describe("model.key_env=OPENAI_API_KEY")
    assert {name for name in plain if plain[name] != named[name]} == {"config"}


def test_a_prompt_counts_by_its_words_and_not_by_its_name_or_module(monkeypatch: pytest.MonkeyPatch) -> None:
    digest_anew = _digest_prompts.__wrapped__
    before, moved = digest_anew(), readers.AGENT
    monkeypatch.delattr(readers, "AGENT")
    assert digest_anew() != before
    monkeypatch.setattr(queries, "RESEARCH", moved, raising=False)
    assert digest_anew() == before
    for other in (moved._replace(user=f"{moved.user} Be brief."), moved._replace(schema=None)):
        monkeypatch.setattr(queries, "RESEARCH", other)
        assert digest_anew() != before
    monkeypatch.setattr(queries, "RESEARCH", moved)
    monkeypatch.setattr(readers, "MOST_NOTES", readers.MOST_SEARCHES)
    assert digest_anew() != before


TRIM = make_ranking_stage(
    "trimmed",
    2,
    why_kept=lambda _: "is not recorded",
    describe=lambda before: [{"name": "trimmed", "method": "the first two", "reranks": before.narrative_ranking.name}],
)


def list_cited(answers: Sequence[Answer]) -> dict[str, list[tuple[str, list[str]]]]:
    return {one.topic_id: [(own.text, list(own.citations)) for own in one.sentences] for one in answers}


def read_cited(directory: Path) -> dict[str, list[tuple[str, list[str]]]]:
    records = map(orjson.loads, (directory / ANSWERS_FILE.name).read_bytes().splitlines())
    return {one["topic_id"]: [(own["text"], own["citations"]) for own in one["sentences"]] for one in records}


def test_answers_and_the_last_ranking_each_need_their_own_stages(index: Index, topics: Path) -> None:
    again = ["grading.method=grid", "rerank.method=listwise", "rerank.after=grades"]
    job = open_job(configure(index, topics.parent, [*MODEL, *RULES, *again]))

    def list_needed(**what: bool) -> list[str]:
        return [kind.name for kind, _ in table.list_wanted(job.config) if table.needs(job, kind, **what)]

    first, last = ["queries", "search", "hybrid", "narrative", "grades"], ["gather", "answer"]
    assert list_needed() == [*first, *last]
    assert list_needed(ranking=True) == [*first, "rerank", *last]
    assert list_needed(ranking=True, answers=False) == [*first, "rerank"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [[], ["reader.name=agent", "reader.hits=9"]], ids=["plain", "agent"])
def test_python_answers_as_a_run_does_and_reads_no_run(settings: list[str], index: Index, topics: Path) -> None:
    config = configure(index, topics.parent, settings)
    found = list_cited(keystone.answer(index, keystone.read_topics(topics), config))
    directory = run(config, threads=2)
    assert found == read_cited(directory)
    (other,) = keystone.answer(index, [keystone.Topic("9", "Which castle stands on the rock?")], config)
    assert other.topic_id == "9"


@pytest.mark.slow
def test_whatever_tells_of_stages_follows_the_table(
    index: Index, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that is a row of the table, and nothing else, is made, reported, foreseen, explained and bundled."""
    place = next(place for place, stage in enumerate(table.STAGES) if stage.name == "segments")
    monkeypatch.setattr(table, "STAGES", (*table.STAGES[:place], TRIM, *table.STAGES[place:]))
    config = configure(index, topics.parent, ["answer.documents=2", "team_id=team"])
    before = {stage.name: plan for stage, plan in foresee_run(config).stages}
    assert before["trimmed"] == "made"
    directory = run(config, threads=2)
    assert table.find_last_ranking(directory).name == "trimmed.trec"
    submitted = (directory / "r_output_trec_rag_2025.tsv").read_text().split("\n")
    assert len(list(filter(None, submitted))) == 4, "two documents of two topics"
    manifest = orjson.loads((directory / MANIFEST).read_bytes())
    assert "trimmed.trec" in manifest["artifacts"]
    steps = describe_run(config, manifest)["method"]["retrieval"]
    assert steps[-1] == {"name": "trimmed", "method": "the first two", "reranks": NARRATIVE_FILE.name}
    assert find_searching_stages(config)["trimmed"] == "is not recorded"
    assert {stage.name: plan for stage, plan in foresee_run(config).stages}["trimmed"] == "kept"
    assert list(keystone.explain(directory, "1", "bees").later) == ["trimmed.trec"]
    view = read_view(directory, "r")
    assert view.remarks == ()
    assert "narrative → trimmed<" in str(render_settings([view]))
    assert list_cited(keystone.answer(index, keystone.read_topics(topics), config)) == read_cited(directory)
    shutil.copytree(directory, tmp_path / "whole")
    (directory / "trimmed.trec").unlink()
    assert read_view(directory, "r").remarks == ("unfinished: the run has no trimmed.trec yet",)
    with pytest.raises(UserError, match=r"trimmed\.trec: missing, or changed since it was made"):
        write_bundle(directory, tmp_path / "bundle.zip", Effort(1))
