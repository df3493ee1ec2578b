"""Tuning, judgments and nuggets from Python: what the commands find, as values."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keystone
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.judge_command import judge_runs
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.measures import parse_measures
from keystone.runs.evaluation.tune import Trials
from keystone.runs.evaluation.tune import tune as tune_files
from keystone.runs.python.analysis import PrintedDiagnosis
from keystone.runs.python.conversions import extend
from keystone.runs.python.judging import PrintedTuning
from keystone.runs.trec.run_files import read_qrels
from tests.runs.evaluation.nuggets.test_nuggets_command import answer_by_server
from tests.support.models.plain_model import say
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import Server, serving

MODEL = {"name": "m", "urls": ["http://127.0.0.1:9/v1"], "extra": {"temperature": 0}}
FIXED = keystone.configure(model=MODEL)
QRELS = "1 0 bees 3\n1 0 flowers 2\n1 0 wasps 1\n2 0 volcano 2\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=say) as found:
        yield found


def configure(server: Server, out: Path) -> RunConfig:
    return keystone.configure(model={"name": "m", "urls": [server.url], "key_env": "NO_KEY"}, out=str(out))


def test_judgments_are_those_of_the_command(index: Index, topics: Path, tmp_path: Path, server: Server) -> None:
    run, config, made = tmp_path / "a.trec", configure(server, tmp_path / "out"), tmp_path / "judged"
    run.write_text("1 Q0 bees 1 2 a\n1 Q0 wasps 2 1 a\n2 Q0 volcano 1 2 a\n2 Q0 gone 2 1 a\n9 Q0 bees 1 1 a\n")
    lost = "judge: 1 topic of the runs without a narrative, such as 9"
    with pytest.warns(UserWarning, match=lost), pytest.warns(UserWarning, match="the index has no document gone"):
        found = keystone.judge(index, keystone.read_topics(topics), [keystone.read_run(run)], config, depth=2)
    model = f"model={{name: m, urls: ['{server.url}'], key_env: NO_KEY}}"
    settings = [f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", model]
    judge_runs([run], out=made, depth=2, set=settings, quiet=True, threads=1)
    assert found == read_qrels(made)


def test_nuggets_go_from_judgments_to_scores(index: Index, topics: Path, tmp_path: Path) -> None:
    sentences = [{"text": "Bees dance in colonies.", "citations": ["bees"]}]
    record = {"metadata": {"team_id": "t", "run_id": "r", "topic_id": "1"}, "references": ["bees"]}
    (tmp_path / "answers.jsonl").write_text(json.dumps(record | {"responses": sentences}))
    judged = {"1": {"bees": 3, "flowers": 2, "wasps": 1}}
    with serving(model=answer_by_server) as server:
        config = configure(server, tmp_path / "out")
        with pytest.warns(UserWarning, match="1 topic without a relevant document"):
            banks = keystone.create_nuggets(index, keystone.read_topics(topics), judged, config)
        keystone.write_nuggets(tmp_path / "nuggets.jsonl", banks)
        banks = keystone.read_nuggets(tmp_path / "nuggets.jsonl")
        assigned = keystone.assign_nuggets([tmp_path / "answers.jsonl"], banks, config)
    (scored,) = keystone.score_nuggets(assigned)
    assert [scored.mean(name) for name in ("A", "V", "W")] == pytest.approx([0.5, 1.0, 2 / 3])
    (of_all,) = keystone.score_nuggets(assigned, keystone.read_topics(topics))
    assert list(of_all.topics) == ["1", "2"]
    assert of_all.mean("A") == pytest.approx(0.25)
    with pytest.raises(UserError, match="'Bees' is not assigned to an answer"):
        keystone.score_nuggets(banks)
    with pytest.raises(UserError, match="form: found 'x', expected one of nuggetizer"):
        keystone.write_nuggets(tmp_path / "x", banks, "x")


def test_tuning_finds_what_the_command_finds(index: Index, topics: Path, tmp_path: Path) -> None:
    config, qrels = tmp_path / "run.yaml", tmp_path / "qrels.txt"
    config.write_text(
        f"run_id: r\nindex: {index.folder}\ntopics: {topics}\nout: {tmp_path}\nretrieval: {{depth: 9}}\n"
        "fusion: {depth: 9}\nanswer: {documents: 9}\n"
    )
    qrels.write_text(QRELS)
    tries: dict[str, Any] = {"fusion.k_narrative": np.array([1, 60]), "queries.facets": ["clauses"]}
    found = keystone.tune(config, qrels, tries, measures=["nDCG@5"], folds=2)
    attempts = ["fusion.k_narrative=[1, 60]", "queries.facets=[clauses]"]
    expected = tune_files(config, [], Trials(qrels, parse_measures(["nDCG@5"]), attempts, folds=2))
    assert [*found.trials] == [*expected.trials]
    assert found.recommended == expected.recommended
    tried = [one for attempt in attempts for one in ("--try", attempt)]
    shown = keystone_here("tune", config, "--qrels", qrels, *tried, "-m", "nDCG@5", "--folds", "2")
    assert str(found).splitlines() == shown.stdout.splitlines()
    assert "<pre>" in found._repr_html_()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [PrintedDiagnosis, PrintedTuning])
def test_what_prints_as_a_command_does_has_each_field_of_what_the_command_prints(kind: Any) -> None:
    values = range(len(fields(kind)))
    made = extend(kind.__base__(*values), kind)
    assert type(made) is kind
    assert [getattr(made, field.name) for field in fields(kind)] == [*values]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (10, "tries: fusion.depth: found 10, expected a list of values"),
        ("all", "tries: fusion.depth: found 'all', expected a list of values"),
        ([{(1, 2): 3}], "fusion.depth: found a value that no YAML file can hold"),
    ],
)
def test_values_to_try_are_a_list_that_yaml_can_hold(values: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        keystone.tune(tmp_path / "run.yaml", tmp_path / "qrels.txt", {"fusion.depth": values})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cascade": True, "repeats": 2}, "found cascade and repeats 2, expected one of them"),
        ({"runs": "a.trec"}, "runs: found str, expected a list of runs"),
        ({"runs": [{"9": {"bees": 1.0}}]}, "topics: found none of the topics of the runs"),
        ({"config": keystone.configure()}, "model: missing"),
        ({"config": FIXED, "repeats": 2}, r"model\.extra\.temperature: expected none with 2 repeats"),
    ],
)
def test_a_judge_says_what_it_lacks(
    settings: dict[str, object], message: str, index: Index, topics: Path, tmp_path: Path, server: Server
) -> None:
    given = {"runs": [{"1": {"bees": 1.0}}], "config": configure(server, tmp_path / "out"), **settings}
    with pytest.raises(UserError, match=message):
        keystone.judge(index, keystone.read_topics(topics), **given)  # type: ignore[arg-type]


def test_battles_are_not_repeated_with_a_fixed_temperature(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.extra\.temperature: expected none with 3 repeats"):
        keystone.judge_battles([tmp_path], FIXED, repeats=3)
