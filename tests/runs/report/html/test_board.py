"""The report of many runs: what it tells, what a browser shows at two widths, and what it takes."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import rank_all
from keystone.runs.report.html.board import About, render_board, tell_standings
from keystone.runs.report.plots import draw_standings, write_figure
from tests.support.browser import list_console, list_requests, open_browser, open_page
from tests.support.runs.report_runs import HOSTILE, UNSEEN, UNSEEN_SHOWN
from tests.support.runs.shared_task import list_tags, write_scored_answers, write_shared_task

TOPICS = tuple(str(100 + number) for number in range(60))


def make_evaluations(runs: int = 40) -> list[Evaluation]:
    """Runs in a mixed order, of which the last tag is worst; topics with a higher number are easier."""
    draw = np.random.default_rng(1)
    ease, quality = np.linspace(0, 0.6, len(TOPICS)), np.linspace(0.4, 0, runs)
    found = [
        Evaluation(tag, TOPICS, {"nDCG@10": ease + own + draw.normal(0, 0.05, len(TOPICS))})
        for tag, own in zip(list_tags(runs), quality, strict=True)
    ]
    return [found[number] for number in draw.permutation(runs)]


def test_the_best_run_its_ties_and_the_hardest_topics_are_told() -> None:
    found = rank_all(make_evaluations(), "nDCG@10")
    best, ties, hardest = tell_standings(found, {"100": "Bees"})
    assert best.startswith("teamA-run1 is best of 40 runs: nDCG@10 0.69")
    tied = [one.run.name for one in found.runs[1:] if one.ties]
    letters = {one.run.name: set(one.letters) for one in found.runs}
    assert tied == [name for name in list(letters)[1:] if letters[name] & letters["teamA-run1"]]
    assert 0 < len(tied) < 20
    assert ties.startswith(f"{len(tied)} runs tie with it: {tied[0]}")
    assert hardest.startswith("The hardest topics: 100 (Bees), mean ")
    assert [one.rank for one in found.runs] == list(range(1, 41))


@pytest.mark.parametrize(("runs", "told"), [(1, 1), (2, 2)])
def test_few_runs_claim_no_more_than_they_show(runs: int, told: int) -> None:
    found = rank_all(make_evaluations(runs), "nDCG@10")
    sentences = tell_standings(found, {})
    assert len(sentences) == told + 1
    assert ("No run ties with it." in sentences) == (runs == 2)


def test_a_run_and_a_topic_without_a_value_come_last() -> None:
    runs = make_evaluations(3)
    for one in runs:
        one.values["nDCG@10"][0] = np.nan
    runs.append(Evaluation("none", TOPICS, {"nDCG@10": np.full(len(TOPICS), np.nan)}))
    found = rank_all(runs, "nDCG@10")
    assert (found.runs[-1].run.name, found.topics[-1].topic) == ("none", "100")
    assert (found.runs[-1].ties, found.runs[-1].letters) == (False, "")
    assert "–" in render_board(found, About())
    assert draw_standings(found).axes


def test_the_team_of_a_run_is_that_of_its_tag_and_no_part_of_its_path() -> None:
    name = "run1 (runs/teamA-run1.trec)"
    found = rank_all([Evaluation(name, TOPICS, {"nDCG@10": np.ones(len(TOPICS))})], "nDCG@10")
    pages = [render_board(found, About(tags=tags)) for tags in ({name: "teamA-run1"}, {name: "run1"})]
    assert [">Team<" in page for page in pages] == [True, False]
    assert "<td>teamA</td>" in pages[0]


@pytest.mark.slow
def test_the_picture_names_every_run_and_topic(tmp_path: Path) -> None:
    found = rank_all(make_evaluations(), "nDCG@10")
    figure = draw_standings(found)
    runs, topics = ([label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes)
    assert runs == [f"{one.rank}  {one.run.name}" for one in found.runs]
    assert topics == [row.topic for row in found.topics]
    write_figure(figure, tmp_path / "runs.svg")
    assert "teamN-run1" in (tmp_path / "runs.svg").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser() as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_the_first_screen_tells_the_best_its_ties_and_hard_topics(browser: Chrome, tmp_path: Path, width: int) -> None:
    page = tmp_path / "report.html"
    titles = dict.fromkeys(TOPICS, f"{HOSTILE} {UNSEEN}")
    found = rank_all(make_evaluations(), "nDCG@10")
    page.write_text(render_board(found, About(titles, [HOSTILE], ["beware"])))
    list_requests(browser)
    list_console(browser)
    open_page(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    rows = browser.find_elements(By.CSS_SELECTOR, "#result .board li")
    names = [row.find_element(By.CLASS_NAME, "name").text for row in rows]
    assert names == [one.run.name for one in found.runs]
    tied = [row.get_attribute("class") == "tied" for row in rows]
    assert tied == [one.ties for one in found.runs]
    told = [browser.find_element(By.TAG_NAME, "h1"), *browser.find_elements(By.CLASS_NAME, "told"), rows[0]]
    assert all(one.rect["y"] + one.rect["height"] < 900 for one in told)
    topics = browser.find_elements(By.CSS_SELECTOR, "#topics li")
    assert [row.find_element(By.TAG_NAME, "b").text for row in topics] == [row.topic for row in found.topics]
    assert all(len(row.find_elements(By.TAG_NAME, "rect")) == 40 for row in topics[:3])
    assert UNSEEN_SHOWN in browser.execute_script("return document.body.textContent")
    assert browser.title == "40 runs by nDCG@10 – Keystone"
    assert (list_console(browser), list_requests(browser)) == ([], [page.as_uri()])


@pytest.mark.slow
def test_run_files_and_scored_answers_become_a_report(tmp_path: Path) -> None:
    task = write_shared_task(tmp_path / "task", runs=3, topics=4, depth=200)
    answers = write_scored_answers(tmp_path / "answers", runs=3, topics=4)
    out, topics = tmp_path / "report.html", task / "topics.jsonl"
    (task / "runs" / "torn").write_text("100 Q0\n")
    command = ["report", str(task / "runs"), "--qrels", str(task / "qrels.txt"), "--out", str(out), "-q"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "torn:1: expected 6 columns" in str(refused.exception)
    done = CliRunner().invoke(app, [*command, "-m", "P@5", "--topics", str(topics), "--skip-bad"])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert all(part in text for part in ("of 3 runs: P@5", "torn:1: expected 6", "What does theme 100 mean to people?"))
    for kind, measure in (("model", "A"), ("support", "precision")):
        done = CliRunner().invoke(app, ["report", str(answers / kind), "--out", str(out), "-q"])
        assert done.exit_code == 0, done.output
        assert f"of 3 runs: {measure} " in out.read_text()
    chosen = ["report", str(answers / "model"), "-m", "V_strict", "--topics", str(topics), "--out", str(out), "-q"]
    assert CliRunner().invoke(app, chosen).exit_code == 0
    assert "of 3 runs: V_strict" in out.read_text()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["run"], "expected --qrels with run files, or scored answers without it"),
        (["bank", "-m", "nDCG@10"], "measure 'nDCG@10': unknown; expected one of A, A_strict"),
        (["answers", "-m", "A"], "expected --measure, --topics and --skip-bad with run files, scored"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").write_text("1 Q0 a 1 1 t\n")
    bank = {"qid": "1", "run_id": "r", "nuggets": [{"text": "x", "importance": "vital", "assignment": "support"}]}
    Path("bank").write_text(json.dumps(bank))
    Path("answers").write_text(json.dumps({"metadata": {"run_id": "r", "topic_id": "1"}, "answer": []}))
    refused = CliRunner().invoke(app, ["report", *options, "-q"])
    assert fault in str(refused.exception)
