"""The report in a real browser: hostile texts, hover, keyboard, search, order, widths, schemes, and its size."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from keystone.runs.config.run_config import RunConfig
from keystone.runs.report.html.measures import Measures
from keystone.runs.report.html.read_run import (
    AnswerView,
    CitedText,
    Place,
    PlacedDocument,
    QueryView,
    RunView,
    TopicView,
)
from keystone.runs.report.html.write import render_page, write_report
from tests.support.browser import list_console, list_requests, open_browser, open_page
from tests.support.runs.report_runs import (
    DOC_IDS,
    HOSTILE,
    SEGMENT_IDS,
    TOPIC_IDS,
    UNSEEN_SHOWN,
    write_index,
    write_report_run,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MOST_BYTES = 5_000_000
MOST_SECONDS = 2.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two runs: the second has grades, answers and a trace."""
    folder = tmp_path_factory.mktemp("report")
    index = write_index(folder / "index")
    runs = [write_report_run(folder / "runs" / name, index, name == "second") for name in ("first", "second")]
    judged = [(0, 1, 2), (1, 4, 1)]
    lines = [f"{TOPIC_IDS[topic]} 0 {DOC_IDS[doc]} {grade}\n" for topic, doc, grade in judged]
    (folder / "qrels.txt").write_text("".join(lines))
    write_report(runs, folder / "report.html", folder / "qrels.txt", [HOSTILE])
    return folder / "report.html"


def find(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def open_topic(browser: Chrome, number: int = 0) -> str:
    """Open a narrative, and wait until its table and chart are there; returns the selector of its last run."""
    run = f"#n{number} .run:last-of-type"
    browser.execute_script(f"document.querySelector('#n{number}').open = true")
    wait_until(lambda: find(browser, f"{run} .moves svg .stop") and find(browser, f"{run} .heat thead"), "the table")
    return run


def read_titles(browser: Chrome, run: str) -> list[str]:
    return [str(row.get_property("textContent")).split()[1] for row in find(browser, f"{run} .heat tbody th")]


def test_hostile_texts_are_shown_and_nothing_is_obeyed_or_requested(browser: Chrome, report: Path) -> None:
    list_requests(browser)
    list_console(browser)
    open_page(browser, report)
    run = open_topic(browser)
    shown: str = browser.execute_script("return document.body.innerText")
    for name in (
        "#result",
        "#settings",
        "#answer",
        "#n0 > summary",
        f"{run} .queries",
        f"{run} .answer",
        f"{run} .steps",
    ):
        text = browser.execute_script(f"return document.querySelector('{name}').textContent")
        assert HOSTILE in text, name
    assert UNSEEN_SHOWN in browser.execute_script("return document.querySelector('.answer').textContent")
    assert DOC_IDS[1] in shown
    assert TOPIC_IDS[0] in shown
    assert not find(browser, "img, main b b, script script")
    assert browser.title == "first, second – Keystone"
    assert list_console(browser) == []
    assert list_requests(browser) == [report.as_uri()]
    browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org').then(done, done);"
        "document.body.append(Object.assign(new Image(), {src: 'https://example.org/a.png'}))"
    )
    assert any("Content Security Policy" in message for message in list_console(browser))


def test_the_report_opens_with_its_result_and_dots_lead_to_narratives(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    first = browser.execute_script("return document.querySelector('main').innerText")
    assert first.startswith("second has the highest nDCG@10, 0.72, but it cannot be told apart from first: +0.40 over")
    assert not find(browser, "#settings")[0].is_displayed()
    dots = find(browser, ".picture .dot")
    assert len(dots) == 4
    ActionChains(browser).scroll_to_element(dots[0]).move_to_element(dots[0]).perform()
    assert re.search(r": About .*\nfirst: 0$", find(browser, "#tip")[0].text, re.DOTALL)
    assert len(find(browser, ".picture .dot.hot")) == 2
    browser.execute_script("arguments[0].focus()", dots[0])
    dots[0].send_keys(Keys.ENTER)
    opened = find(browser, ".topic[open]")
    assert len(opened) == 1
    find(browser, 'nav a[href="#settings"]')[0].click()
    assert find(browser, "#settings")[0].is_displayed()
    differing = [row.text for row in find(browser, ".differing th")]
    assert differing == [
        f"{name} \u2260" for name in ("Steps of the ranking", "Grades", "Answers by", "Reader", "Track")
    ]


def test_narratives_in_which_a_step_fell_back_are_marked(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    assert [one.text for one in find(browser, ".topic > summary .badge")] == ["fallback in second"]
    run = open_topic(browser)
    assert f"umbrela: no grade {HOSTILE}" in find(browser, f"{run} .warning li")[0].text


def test_a_sentence_shows_its_cited_texts_with_the_shared_words_marked(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    run = open_topic(browser)
    first, second, third = find(browser, f"{run} .sentence")
    items = find(browser, f"{run} .cited > li")
    assert [item.is_displayed() for item in items] == [True, True]
    ActionChains(browser).scroll_to_element(first).move_to_element(first).perform()
    assert [item.is_displayed() for item in items] == [True, False]
    assert [mark.text for mark in items[0].find_elements(By.CSS_SELECTOR, "mark")][:2] == ["bees", "dance"]
    assert "Honey bees dance to tell where" in items[0].text
    panel, mark = find(browser, f"{run} .cited")[0], find(browser, f"{run} .cited mark")[0]
    assert panel.rect["y"] < mark.rect["y"] < panel.rect["y"] + panel.rect["height"]
    browser.execute_script("arguments[0].focus()", second)
    assert [item.is_displayed() for item in items] == [True, True]
    assert {mark.text for mark in find(browser, f"{run} .cited mark")} == {"flowers"}
    second.send_keys(Keys.TAB)
    assert browser.switch_to.active_element == third
    assert not any(item.is_displayed() for item in items)
    assert SEGMENT_IDS[1] in browser.execute_script("return arguments[0].textContent", items[0])


def test_a_cell_tells_ranks_and_grade_to_the_mouse_and_to_arrow_keys(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    run = open_topic(browser)
    cells = find(browser, f"{run} .heat tbody tr:first-child .place")
    assert [cell.get_attribute("class") for cell in cells] == ["place stop", "place g3 stop", "place g1 stop"]
    tip = find(browser, "#tip")[0]
    assert not tip.is_displayed()
    ActionChains(browser).scroll_to_element(cells[1]).move_to_element(cells[1]).perform()
    assert f"Query 2: {TOPIC_IDS[0]}#1?" in tip.text
    assert tip.text.endswith("Grade 3\nbm25 rank 2, dense rank 1, together rank 29")
    browser.execute_script("arguments[0].focus()", cells[0])
    assert "Query 1: the whole narrative\nNot graded\n" in tip.text
    cells[0].send_keys(Keys.ARROW_DOWN)
    below = browser.switch_to.active_element
    assert below == find(browser, f"{run} .heat tbody tr:nth-child(2) .place")[0]
    below.send_keys(Keys.END)
    assert browser.switch_to.active_element == find(browser, f"{run} .heat tbody tr:not([hidden]) .place")[-1]
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    line = find(browser, f"{run} .moves .stop")[-1]
    browser.execute_script("arguments[0].focus()", line)
    assert "over queries: 2\nchosen: 1" in tip.text
    assert "hot" in (find(browser, f"{run} .heat tbody tr")[0].get_attribute("class") or "")


def test_columns_sort_rows_and_a_button_shows_all_of_them(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    run = open_topic(browser)
    assert read_titles(browser, run)[:3] == ["1", "2", "3"]
    assert len([row for row in find(browser, f"{run} .heat tbody tr") if row.is_displayed()]) == 20
    heads = find(browser, f"{run} .heat thead button")
    assert [head.text for head in heads] == ["#", "Document", "Fused", "Judged", "1", "2", "3"]
    heads[2].send_keys(Keys.ENTER)
    assert read_titles(browser, run)[:3] == ["0", "1", "2"]
    heads[5].click()
    assert read_titles(browser, run)[:4] == ["1", "2", "3", "4"]
    browser.execute_script("arguments[0].click()", heads[6])
    assert read_titles(browser, run)[:2] == ["1", "2"]
    button = find(browser, f"{run} .scroll + p button")[0]
    assert button.text == "Show all 29 documents"
    browser.execute_script("arguments[0].click()", button)
    assert len([row for row in find(browser, f"{run} .heat tbody tr") if row.is_displayed()]) == 29


def test_search_order_and_keys_lead_to_a_narrative(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    search = browser.switch_to.active_element
    search.send_keys("WASPS' About")
    names = [topic.is_displayed() for topic in find(browser, ".topic")]
    assert names == [False, True]
    assert find(browser, "#count")[0].text == "1 of 2 narratives"
    search.clear()
    search.send_keys("zebra")
    assert find(browser, "#count")[0].text == "0 of 2 narratives"
    search.send_keys(Keys.BACKSPACE * 5)
    assert [topic.is_displayed() for topic in find(browser, ".topic")] == [True, True]
    assert [one.get_attribute("id") for one in find(browser, ".topic")] == ["n0", "n1"]
    Select(find(browser, "#sort")[0]).select_by_value("value")
    assert [one.get_attribute("id") for one in find(browser, ".topic")] == ["n1", "n0"]
    bars = find(browser, "#bars .stop")
    browser.execute_script("arguments[0].focus()", bars[0])
    bars[0].send_keys(Keys.ARROW_RIGHT)
    assert f"{TOPIC_IDS[1]}: About" in find(browser, "#tip")[0].text
    assert "first 0." in find(browser, "#tip")[0].text
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert find(browser, "#n1")[0].get_attribute("open")
    assert browser.switch_to.active_element == find(browser, "#n1 > summary")[0]
    find(browser, "#close")[0].click()
    assert not find(browser, ".topic[open]")


def test_plots_follow_the_measure_and_the_runs(browser: Chrome, report: Path) -> None:
    open_page(browser, report)
    wait_until(lambda: find(browser, "#scatter .stop"), "the plots")
    before = find(browser, "#bars svg")[0].get_attribute("outerHTML")
    assert find(browser, "#scatter p")[0].text == "second is higher for 1, lower for 1, equal for 0."
    dots = find(browser, "#scatter .stop")
    ActionChains(browser).scroll_to_element(dots[0]).move_to_element(dots[0]).perform()
    assert f"{TOPIC_IDS[0]}: About" in find(browser, "#tip")[0].text
    Select(find(browser, "#measure")[0]).select_by_visible_text("R@100")
    assert find(browser, "#bars svg")[0].get_attribute("outerHTML") != before
    assert find(browser, "#scatter p")[0].text == "second is higher for 0, lower for 0, equal for 2."
    Select(find(browser, "#measure")[0]).select_by_visible_text("nDCG@10")
    assert len(find(browser, "#bars .bar")) == 4
    Select(find(browser, "#order")[0]).select_by_value("difference")
    assert [bar.get_attribute("class") for bar in find(browser, "#bars .bar")] == ["bar run1", "bar run0"]


def test_the_page_fits_phones_follows_the_scheme_and_prints_without_controls(browser: Chrome, report: Path) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        for width in (390, 1280):
            open_page(browser, report, width, scheme)
            open_topic(browser)
            widths = browser.execute_script(
                "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
            )
            assert widths[0] == widths[1]
            papers.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2
    open_page(browser, report)
    open_topic(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not any(control.is_displayed() for control in find(browser, "#search, #open, #n1"))
    assert all(head.is_displayed() for head in find(browser, "#n0 .run:last-of-type .heat thead button"))
    assert all(item.is_displayed() for item in find(browser, "#n0 .run:last-of-type .cited > li"))


def test_105_narratives_of_100_documents_open_in_two_seconds_of_a_processor(browser: Chrome, tmp_path: Path) -> None:
    page = tmp_path / "large.html"
    page.write_text(render_page([make_large_view(105, 100, 10)], Measures((), (), {})))
    assert page.stat().st_size < MOST_BYTES
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})  # other processes do not count
    open_page(browser, page)
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    took = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    assert 0 < took < MOST_SECONDS
    open_topic(browser, 104)
    assert len(find(browser, "#n104 .heat tbody tr")) == 100


def make_large_view(topics: int, documents: int, queries: int) -> RunView:
    """A run of the size of a track, with ids and texts as long as those of MS MARCO V2.1."""
    rng: Any = np.random.default_rng(0)
    ranks = iter(rng.integers(0, 1000, 4 * topics * documents * queries).tolist())
    letters = "".join(rng.choice([*"etaoinshr  "], 10_000))

    def text(characters: int) -> str:
        start = int(rng.integers(0, len(letters) - characters))
        return letters[start : start + characters]

    def place() -> Place:
        return Place(next(ranks) % 4, (next(ranks), next(ranks)), next(ranks))

    def name(number: int) -> str:
        return f"msmarco_v2.1_doc_{number:02}_{rng.integers(1e9, 2e9)}"

    def document(number: int) -> PlacedDocument:
        places = tuple(place() for _ in range(queries))
        return PlacedDocument(name(number), text(60), number, number, number if number <= 20 else 0, places)

    def topic(id: str) -> TopicView:
        own = tuple(QueryView(f"{id}#{n}", text(80)) for n in range(queries))
        cited = tuple(CitedText(f"{name(n)}#{n}_1234567890", text(60), text(900)) for n in range(15))
        answer = AnswerView(tuple((text(130), (n % 15,)) for n in range(20)), cited)
        return TopicView(id, text(400), text(20), own, tuple(map(document, range(1, documents + 1))), answer, ())

    config = RunConfig.model_validate({"run_id": "large", "index": "index", "topics": "topics.jsonl"})
    return RunView(
        "large", config, {"index": {"documents": 0}}, {}, {}, (), {str(n): topic(str(n)) for n in range(topics)}
    )
