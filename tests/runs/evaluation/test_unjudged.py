"""Comparisons that turn on documents without a judgment: their cautions, and the share of judged documents beside."""

from pathlib import Path

import pytest

import keystone
from keystone.runs.evaluation.bounds import AS_RELEVANT, LEFT_OUT, treat_otherwise
from keystone.runs.evaluation.compare import collect_cautions
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.measures import add_judged_share, parse_measures
from tests.support.runs.command_line import keystone as command

SHORT, LONG = "g g n", "u u g g g"
"""Rankings of a topic with good (g), bad (n) and unjudged (u) documents. Without the last, the second is better."""


def write_files(folder: Path, *rankings: str, topics: int = 2) -> tuple[list[Path], Path]:
    """Write a run for each ranking, the same for all topics, and judgments of three good and one bad document."""
    paths = []
    for number, ranking in enumerate(rankings):
        rows = []
        for topic in range(topics):
            seen = dict.fromkeys("gnu", 0)
            for rank, kind in enumerate(ranking.split(), 1):
                seen[kind] += 1
                rows.append(f"{topic} Q0 {kind}{seen[kind]} {rank} {1 / rank} run{number}\n")
        paths.append(folder / f"run{number}")
        paths[-1].write_text("".join(rows))
    qrels = folder / "qrels"
    judged = {"g1": 1, "g2": 1, "g3": 1, "n1": 0}
    qrels.write_text("".join(f"{topic} 0 {doc} {grade}\n" for topic in range(topics) for doc, grade in judged.items()))
    return paths, qrels


@pytest.mark.parametrize(
    ("rankings", "measure", "turns"),
    [
        pytest.param((SHORT, LONG), "P@3", [LEFT_OUT, AS_RELEVANT], id="the order turns by both treatments"),
        pytest.param((LONG, SHORT), "P@3", [LEFT_OUT, AS_RELEVANT], id="it turns for the first run, too"),
        pytest.param((SHORT, "u u u n n"), "P@3", [AS_RELEVANT], id="only unjudged documents could be better"),
        pytest.param(("g g g", "g n g"), "P@3", [], id="everything is judged"),
        pytest.param(("g g g u", "u n g g"), "P@3", [], id="the better run stays the better one"),
        pytest.param(("u g", "u g"), "MRR", [], id="equal runs"),
    ],
)
def test_a_caution_tells_by_which_treatment_the_better_run_is_the_other_one(
    tmp_path: Path, rankings: tuple[str, str], measure: str, turns: list[str]
) -> None:
    paths, qrels = write_files(tmp_path, *rankings)
    found = collect_cautions(evaluate_files(paths, qrels, parse_measures([measure]), add=treat_otherwise))
    told = [caution for caution in found if "the better run is the other one" in caution]
    assert [turn for turn in (LEFT_OUT, AS_RELEVANT) if any(turn in caution for caution in told)] == turns
    assert len(told) == len(turns)
    assert all(measure in caution for caution in told)


@pytest.mark.parametrize(
    ("given", "added"),
    [("nDCG@10 R@100", ["judged@10"]), ("MAP R@5", ["judged@5"]), ("MAP", ["judged@10"]), ("MAP judged@3", [])],
)
def test_the_share_of_judged_documents_has_the_cutoff_of_the_first_measure(given: str, added: list[str]) -> None:
    assert list(map(str, add_judged_share(parse_measures(given.split())))) == [*given.split(), *added]


@pytest.mark.parametrize("options", [(), ("--sort", "P@3"), ("--format", "markdown")])
def test_evaluate_shows_the_share_and_warns(tmp_path: Path, options: tuple[str, ...]) -> None:
    paths, qrels = write_files(tmp_path, SHORT, LONG)
    found = command("evaluate", *paths, "--qrels", qrels, "-m", "P@3", *options)
    assert "judged@3" in found.stdout
    assert "documents without a judgment are left out: P@3 (" in found.stderr
    alone = command("evaluate", paths[0], "--qrels", qrels, "-m", "P@3")
    assert "judged@3" not in alone.stdout


def test_condensed_lists_do_not_turn(tmp_path: Path) -> None:
    paths, qrels = write_files(tmp_path, SHORT, LONG)
    found = command("evaluate", *paths, "--qrels", qrels, "-m", "P@3", "--condensed")
    assert "judged@3" in found.stdout
    assert "the better run" not in found.stderr


def test_python_compares_with_the_share_and_a_warning(tmp_path: Path) -> None:
    paths, qrels = write_files(tmp_path, SHORT, LONG)
    runs = {path.name: keystone.read_run(path) for path in paths}
    with pytest.warns(UserWarning, match="run0 and run1: the better run is the other one"):
        found = keystone.compare(runs, keystone.read_qrels(qrels), ["P@3"])
    assert list(found["run1"]) == ["P@3", "judged@3"]
