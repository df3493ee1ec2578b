"""Tuning: each setting is measured as its run would be, and no setting is chosen on the topics that judge it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation, evaluate_files
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.tune import (
    Trials,
    Tuning,
    cross_validate,
    draw_folds,
    list_default_tries,
    parse_try,
    tune,
)
from keystone.runs.evaluation.weights import tune_weights
from keystone.runs.pipeline.file_names import NARRATIVE
from keystone.runs.pipeline.run import run
from tests.support.runs.command_line import keystone

MEASURES = [parse_measure("nDCG@5"), parse_measure("R@5")]


@pytest.fixture
def config(index: Index, topics: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"run_id: r\nindex: {index.folder}\ntopics: {topics}\nout: {tmp_path}\ntrack: none\n"
        "retrieval: {depth: 6}\nfusion: {depth: 5}\n"
    )
    (tmp_path / "qrels.txt").write_text("1 0 bees 2\n1 0 beekeeping 1\n1 0 flowers 1\n2 0 volcano 2\n2 0 weather 1\n")
    return path


@pytest.mark.slow
def test_every_setting_is_measured_as_its_run_would_be(config: Path, tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.txt"
    tries = ["queries.facets=[clauses, sentences]", "fusion.k_narrative=[1, 60]", "queries.narrative_weight=[0, 2]"]
    found = tune(config, ["fusion.k_narrative=30"], Trials(qrels, MEASURES, tries, folds=2))
    assert len(found.trials) == 8
    assert found.whole is not None
    own = [((), found.configured), (("queries.method=narrative",), found.whole)]
    for setting, trial in [*own, *found.trials.items()]:
        directory = run(read_config(config, ["fusion.k_narrative=30", *setting]))
        (expected,) = evaluate_files([directory / NARRATIVE], qrels, MEASURES)
        assert {name: values.tolist() for name, values in trial.values.items()} == {
            name: values.tolist() for name, values in expected.values.items()
        }, setting


@pytest.mark.slow
def test_a_run_of_segments_is_tuned_by_its_documents(config: Path, tmp_path: Path) -> None:
    trials = Trials(tmp_path / "qrels.txt", MEASURES, ["fusion.k_narrative=[10]"], folds=2)
    found = [tune(config, own, trials).configured for own in ([], ["track=rag25", "ranking=segments"])]
    assert found[0]["nDCG@5"].tolist() == found[1]["nDCG@5"].tolist()


@pytest.mark.slow
def test_a_run_that_submits_chosen_rows_is_tuned_by_its_whole_ranking(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("fusion: {depth: 5}", "answer: {method: none}"))
    qrels, measures, submitted = tmp_path / "qrels.txt", [parse_measure("SetF")], "r_output_trec_rag_2026.tsv"
    trials = Trials(qrels, measures, ["fusion.k_narrative=[1]", "rerank.depth=[10, 20]"], folds=2)
    overrides = ["track=rag26", "fusion.depth={choose: expected, budget: 4, most: 6}"]
    found = tune(config, overrides, trials)
    directory = run(read_config(config, overrides))
    expected, cut = evaluate_files([directory / NARRATIVE, directory / submitted], qrels, measures)
    assert found.configured["SetF"].tolist() == expected["SetF"].tolist()
    whole = "SetF of all rows, of which the run submits some"
    assert [whole in "".join(one.cautions) for one in (found.configured, expected, cut)] == [True, True, False]
    alike = "1 setting with the same narrative.trec as another, such as fusion.k_narrative=1 rerank.depth=20;"
    assert found.configured.cautions[-1].startswith(alike)


@pytest.mark.slow
@pytest.mark.parametrize("choose", [tune, tune_weights])
def test_a_run_with_a_reranker_is_warned_that_the_ranking_before_it_is_measured(
    choose: Callable[[Path, list[str], Trials], Tuning], config: Path, tmp_path: Path
) -> None:
    model = {"name": "m", "backend": "replay", "replies": str(tmp_path / "replies.jsonl")}
    (tmp_path / "replies.jsonl").touch()
    trials = Trials(tmp_path / "qrels.txt", MEASURES, ["fusion.k_narrative=[60]"], folds=2)
    overrides = ["rerank.method=listwise", f"model={yaml.safe_dump(model, default_flow_style=True)}"]
    found = choose(config, overrides, trials)
    assert found.configured.cautions[-1].startswith("as configured: narrative.trec, from which the run makes reranked.")


@pytest.mark.slow
def test_other_topics_are_searched_for_anew(config: Path, topics: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped.jsonl"
    swapped.write_text(topics.read_text().replace('"id": "1"', '"id": "3"').replace('"id": "2"', '"id": "1"'))
    trials = Trials(tmp_path / "qrels.txt", MEASURES, [f"topics=[{topics}, {swapped}]"], folds=2)
    found = tune(config, [], trials)
    right, wrong = (trial.values["nDCG@5"].tolist() for trial in (found.configured, *found.trials.values()))
    assert right[0] > wrong[0]


@given(st.integers(1, 5), st.integers(2, 12), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_fold_is_measured_with_the_best_trial_of_the_others(trials: int, topics: int, folds: int, seed: int) -> None:
    table = np.random.default_rng(seed).random((trials, topics))
    names = tuple(map(str, range(topics)))
    evaluations = [Evaluation(str(i), names, {"m": row, "n": -row}) for i, row in enumerate(table)]
    if folds > topics:
        with pytest.raises(UserError, match=f"--folds {folds}: more than the {topics} judged topics"):
            draw_folds(topics, folds)
        return
    found = cross_validate(evaluations, draw_folds(topics, folds))
    assert (found.values["n"] == -found.values["m"]).all(), "all measures of a topic come from one trial"
    best_elsewhere = {
        tuple(np.flatnonzero(fold)): int(np.argmax(table[:, ~fold].mean(axis=1)))
        for fold in (np.random.default_rng(0).permutation(topics) % folds == n for n in range(folds))
    }
    for fold, trial in best_elsewhere.items():
        assert found.values["m"][list(fold)].tolist() == table[trial, list(fold)].tolist()


def test_a_topic_that_one_trial_has_no_value_for_chooses_no_trial() -> None:
    rows = [[0.1, 0.1, 0.1, np.nan], [0.9, 0.9, 0.9, 0.0], [np.nan, 0.0, 0.0, 1.0]]
    trials = [Evaluation(str(n), tuple("abcd"), {"m": np.array(row)}) for n, row in enumerate(rows)]
    assert cross_validate(trials, np.array([0, 1, 0, 1])).values["m"].tolist() == [0.9, 0.9, 0.9, 0.0]


@given(st.integers(0, 4), st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_the_configuration_is_recommended_unless_it_is_beaten_out_of_fold(trials: int, topics: int, seed: int) -> None:
    table = np.random.default_rng(seed).integers(0, 4, (trials + 1, topics)) / 3
    configured, *others = (Evaluation("", tuple(map(str, range(topics))), {"m": row}) for row in table)
    held_out = cross_validate([configured, *others], draw_folds(topics, 2))
    found = Tuning(configured, {(str(i),): trial for i, trial in enumerate(others)}, held_out)
    if held_out.values["m"].mean() > table[0].mean():
        best = max(range(trials), key=lambda i: table[i + 1].mean())
        assert found.recommended == (() if table[0].mean() >= table[best + 1].mean() else (str(best),))
    else:
        assert found.recommended == ()


@pytest.mark.slow
def test_a_setting_that_equals_the_configuration_is_no_second_candidate(config: Path, tmp_path: Path) -> None:
    found = tune(config, [], Trials(tmp_path / "qrels.txt", MEASURES, ["queries.narrative_weight=[2]"], folds=2))
    assert (found.trials, found.recommended) == ({}, ())
    assert found.held_out.values["R@5"].tolist() == found.configured.values["R@5"].tolist()


@pytest.mark.slow
def test_the_command_keeps_the_configuration_if_only_chance_beats_it(config: Path, tmp_path: Path) -> None:
    """Each topic has its own best settings, so that the best ones of one topic lose on the others."""
    done = keystone("tune", config, "--qrels", tmp_path / "qrels.txt", "--folds", "2", "--quiet")
    rows = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert rows.count("as configured") == 2
    assert sum(row.startswith("queries.facets=") for row in rows) == 2 * 2 * 3 * 3 - 1
    assert "Recommended: the settings as configured" in rows
    assert "chosen settings are not better: nDCG@10" in done.stdout


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        pytest.param({}, "queries.facets queries.topic queries.narrative_weight fusion.k_narrative", id="rules"),
        pytest.param(
            {"queries": {"method": "model"}}, "queries.narrative_weight fusion.k_narrative", id="a language model"
        ),
        pytest.param(
            {"fusion": {"method": "isr"}, "queries": {"narrative_weight": 1}},
            "queries.facets queries.topic queries.narrative_weight",
            id="a fusion without k and weights",
        ),
    ],
)
def test_the_grid_holds_settings_that_the_configuration_reads(settings: dict[str, Any], keys: str) -> None:
    model = {"name": "m", "backend": "replay", "replies": "replies.jsonl"}
    config = RunConfig.model_validate(
        {"run_id": "r", "index": Path("i"), "topics": Path("t"), "out": Path("o"), "track": "none", "model": model}
        | settings
    )
    tries = list_default_tries(config)
    assert [attempt.split("=")[0] for attempt in tries] == keys.split()
    for attempt in tries:
        for value in parse_try(attempt):
            key, value = value.split("=")
            part, name = key.split(".")
            RunConfig.model_validate(
                config.model_dump() | {part: config.model_dump()[part] | {name: yaml.safe_load(value)}}
            )


def test_one_query_a_topic_has_nothing_to_tune(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"queries\.method: found 'narrative'"):
        tune(config, ["queries.method=narrative"], Trials(tmp_path / "qrels.txt", MEASURES, folds=2))


@pytest.mark.slow
def test_judgments_of_another_corpus_are_refused(config: Path, tmp_path: Path) -> None:
    (tmp_path / "others.txt").write_text("1 0 elsewhere 1\n2 0 nowhere 1\n")
    with pytest.raises(UserError, match=r"others\.txt: judges none of the [1-9][0-9,]* ranked documents"):
        tune(config, [], Trials(tmp_path / "others.txt", MEASURES, folds=2))


@pytest.mark.slow
def test_the_measure_that_chooses_must_be_measured(config: Path, tmp_path: Path) -> None:
    measures = [parse_measure("R(rel=3)@5"), parse_measure("nDCG@5")]
    with pytest.raises(UserError, match=r"no judged topic has a relevant document for R\(rel=3\)@5"):
        tune(config, [], Trials(tmp_path / "qrels.txt", measures, folds=2))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        ("fusion.k_narrative", "expected KEY="),
        ("fusion.k_narrative=10", "expected KEY="),
        ("fusion.k_narrative=[]", "expected KEY="),
        ("fusion.k_narrative=[1", "expected KEY="),
        ("fusion.k_narrative=[x]", "fusion.k_narrative: found 'x'"),
        ("fusion.deep=[1]", "fusion.deep: unknown key"),
        ("fusion.depth=[{choose: expected}]", "fusion.depth: found a choice of submitted rows"),
    ],
)
def test_an_impossible_try_is_named(attempt: str, message: str, config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        tune(config, [], Trials(tmp_path / "qrels.txt", MEASURES, [attempt]))


def test_topics_must_be_judged(config: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("8 0 bees 1\n9 0 bees 1\n")
    with pytest.raises(UserError, match="none of its topics is judged"):
        tune(config, [], Trials(tmp_path / "other.txt", MEASURES, ["fusion.k_narrative=[1]"], folds=2))
