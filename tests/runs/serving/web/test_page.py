"""The web page in a real browser: an answer step by step, keyboard, citations, downloads, hostile texts, widths."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import orjson
import pytest
import uvicorn
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

import keystone
from keystone.generation.prompts.answers import WHOLE
from keystone.generation.prompts.grading import UMBRELA_GRID
from keystone.generation.prompts.queries import CONTRACT
from keystone.generation.rules.support import DOUBT
from keystone.generation.types import Answer
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.builds.update import update_index
from keystone.runs.config.read import make_config
from keystone.runs.pipeline.answering import answer_topic
from keystone.runs.serving.app import make_app
from keystone.runs.serving.call_log import Call, Reply, open_call_log
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.guard import Guard
from keystone.runs.serving.service import Service, open_service
from keystone.runs.serving.web.front import REPLACED, make_files, open_front, stream_events
from tests.support.browser import list_console, list_requests, open_address, open_browser
from tests.support.indexes.small_corpus import CORPUS, NARRATIVES, write_corpus
from tests.support.models.plain_model import say
from tests.support.servers.chat import Exchange, serving
from tests.support.servers.keystone_server import keystone_server
from tests.support.servers.ports import free_port
from tests.support.waiting import join, wait_until

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title='obeyed'</script><img src=x onerror=alert(1)><b>\"'&amp;"
NARRATIVE = NARRATIVES["1"]
LOCAL = Guard()
SLOW_ANSWERS = 8
LEAD = "\U0001f41d Bees are not the topic of these words. " * 60
"""A first part of a document with letters outside the plane of 16 bits, which JavaScript counts twice."""


@dataclass
class Site:
    """The server under test, its service, and the steps whose requests the model holds back."""

    url: str
    service: Service
    log: Path
    held: set[str] = field(default_factory=set)

    def count_answers(self) -> int:
        """Count the answers under way. A request to the model goes on without its answer, so that its reply is kept."""
        coroutines = [task.get_coro() for task in asyncio.all_tasks(self.service.engine.loop)]
        return sum(getattr(one, "__qualname__", "") == answer_topic.__qualname__ for one in coroutines)


@contextmanager
def serve(service: Service, guard: Guard = LOCAL) -> Iterator[str]:
    """Serve in a thread on a socket of this machine, and give the address."""
    server = uvicorn.Server(uvicorn.Config(make_app(Served(service), guard), port=free_port(), log_level="warning"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server to start")
        yield f"http://127.0.0.1:{server.config.port}"
    finally:
        server.should_exit = True
        join(thread, "the server to end")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("web")
    texts = {name: CORPUS[name] for name in ("bees", "beekeeping", "flowers", "volcano")}
    texts["hostile"] = (HOSTILE, f"{LEAD}\nHoney bees live together and find flowers. {HOSTILE} A colony of bees.")
    lines = [orjson.dumps({"id": name, "title": title, "text": text}) for name, (title, text) in texts.items()]
    (folder / "corpus.jsonl").write_bytes(b"\n".join(lines))
    index, _ = build_index(folder / "corpus.jsonl", folder / "index", BuildSettings(threads=2))
    held: set[str] = set()

    async def hold(exchange: Exchange) -> bool:
        while exchange.body["messages"][0]["content"] in held:
            await asyncio.sleep(0.01)
        return False

    with serving(model=say, always=hold) as model:
        settings = [f"model={{name: plain, urls: ['{model.url}'], window: 4096}}", f"out={folder / 'out'}"]
        config = make_config(None, [*settings, "queries.passages=none"], "keystone", Path("-"), index.folder)
        log = folder / "calls.jsonl"
        with (
            open_call_log(log, index.key, "settings") as calls,
            open_service(config, calls) as service,
            serve(service) as url,
        ):
            yield Site(url, service, log, held)


@pytest.fixture(scope="module")
def plain_site(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server of the same index without a language model."""
    folder = tmp_path_factory.mktemp("plain")
    config = make_config(None, [f"out={folder / 'out'}"], None, Path("-"), site.service.index.folder)
    log = folder / "calls.jsonl"
    with (
        open_call_log(log, site.service.index.key, "settings") as calls,
        open_service(config, calls) as service,
        serve(service) as url,
    ):
        yield Site(url, service, log)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser() as browser:
        yield browser


def find(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def read(browser: Chrome, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))


def ask(browser: Chrome, site: Site, width: int = 1280, scheme: Any = "light", narrative: str = NARRATIVE) -> None:
    """Open the page and ask by the keyboard alone."""
    open_address(browser, f"{site.url}/", width, scheme)
    wait_until(lambda: get_focused(browser) == find(browser, "#narrative")[0], "the keyboard to be in the field")
    ActionChains(browser).send_keys(narrative).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(
        Keys.CONTROL
    ).perform()


def wait_for_answer(browser: Chrome) -> None:
    wait_until(lambda: find(browser, "#files a"), lambda: f"the answer; the page says {read(browser, 'body')[:2000]}")


def press(browser: Chrome, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def get_focused(browser: Chrome) -> WebElement:
    return browser.switch_to.active_element


def list_made(browser: Chrome) -> list[str]:
    return [str(one.get_property("textContent")) for one in find(browser, "#steps .made b")]


def test_an_answer_arrives_step_by_step_and_no_request_leaves_the_server(browser: Chrome, site: Site) -> None:
    list_requests(browser)
    list_console(browser)
    site.held |= {CONTRACT.system, UMBRELA_GRID.system, WHOLE.system}
    ask(browser, site)
    wait_until(lambda: find(browser, "#steps [aria-current]"), "the first step")
    assert list_made(browser) == []
    site.held.discard(CONTRACT.system)
    wait_until(lambda: list_made(browser) == ["Queries", "Rankings"], "the rankings")
    assert find(browser, "#query-list li")[0].text == NARRATIVE
    assert find(browser, "#heat .r3")
    assert not find(browser, "#heat .g3, #heat .g2, #heat .chosen")
    assert find(browser, "#ask:disabled")
    site.held.discard(UMBRELA_GRID.system)
    wait_until(lambda: list_made(browser) == ["Queries", "Rankings", "Grades", "Chosen"], "the grades")
    assert find(browser, "#heat .g3, #heat .g2")
    assert find(browser, "#heat .chosen")
    assert not find(browser, ".sentence")
    site.held.clear()
    wait_for_answer(browser)
    assert len(list_made(browser)) == 5
    assert len(find(browser, ".sentence")) == int(read(browser, "#steps li:last-child .number")) > 0
    assert find(browser, "#problem[hidden]")
    assert list_console(browser) == []
    assert {urlsplit(one).netloc for one in list_requests(browser) if not one.startswith("data:")} == {
        urlsplit(site.url).netloc
    }
    browser.execute_async_script("const done = arguments[0]; fetch('https://example.org').then(done, done)")
    assert any("Content Security Policy" in message for message in list_console(browser))


def test_a_citation_marks_its_sentence_and_the_keyboard_returns_to_it(browser: Chrome, site: Site) -> None:
    ask(browser, site)
    wait_for_answer(browser)
    place = next(n for n, one in enumerate(find(browser, ".cite")) if "script" in str(one.get_attribute("aria-label")))
    while get_focused(browser) != find(browser, ".cite")[place]:
        press(browser, Keys.TAB)
    link = get_focused(browser)
    press(browser, Keys.ENTER)
    mark = wait_until(lambda: find(browser, "#text mark"), "the document")[0]
    (document,) = site.service.store.get(site.service.store.rows(["hostile"]))
    name = find(browser, "#document-id")[0].text
    start = int(name.rpartition("_")[2])
    passage = read(browser, "#text .passage")
    text = str(mark.get_property("textContent"))
    assert start > 0
    assert document.text[start : start + len(passage)] == passage
    assert text in passage
    assert len(text) < len(passage)
    quotes = [str(one.get_property("textContent")) for one in find(browser, "#cited q")]
    assert " ".join(text.split()) in quotes
    assert find(browser, "#document-key")[0].is_displayed()
    assert read(browser, "#text") == document.text
    assert get_focused(browser) == find(browser, "#text")[0]
    pane = find(browser, "#text")[0].rect
    assert pane["y"] <= mark.rect["y"] < pane["y"] + pane["height"]
    assert find(browser, ".sentence.active .cite[aria-current]") == [link]
    assert find(browser, "#document")[0].rect["x"] > find(browser, "#sentences")[0].rect["x"] + 500
    press(browser, Keys.ESCAPE)
    assert not find(browser, "#document")[0].is_displayed()
    assert get_focused(browser) == link


def get_place(browser: Chrome) -> Any:
    """The document and the column of the table in which the keyboard is."""
    return browser.execute_script("return findPlace(document.activeElement)")


def test_the_keyboard_stays_in_the_table_when_grades_redraw_it(browser: Chrome, site: Site) -> None:
    site.held.add(UMBRELA_GRID.system)
    try:
        ask(browser, site, narrative=f"{NARRATIVE} Show me a table.")  # no reply is kept
        wait_until(lambda: find(browser, "#heat .r3"), "the rankings")
        browser.execute_script("document.querySelector('#heat .stop').focus()")
        press(browser, Keys.ARROW_DOWN)
        place = get_place(browser)
    finally:
        site.held.clear()
    wait_for_answer(browser)
    assert place["column"] == 2
    assert get_place(browser) == place
    assert get_focused(browser).get_attribute("tabindex") == "0"
    link = find(browser, "#heat tbody a")[1]
    link.send_keys(Keys.ENTER)
    wait_until(lambda: get_focused(browser) == find(browser, "#text")[0], "the document")
    browser.execute_script("drawTable()")
    assert find(browser, "#heat tbody a[aria-current]") == [find(browser, "#heat tbody a")[1]] != [link]
    press(browser, Keys.ESCAPE)
    assert get_focused(browser) == find(browser, "#heat tbody a")[1]


def test_a_document_that_fails_late_leaves_the_next_one_as_it_is(browser: Chrome, site: Site) -> None:
    ask(browser, site)
    wait_for_answer(browser)
    browser.execute_script("fetched.set(orderDocuments()[0], new Promise((_, fail) => { window.failLate = fail; }))")
    first, second = find(browser, "#heat tbody a")[:2]
    first.click()
    second.click()
    wait_until(lambda: read(browser, "#text") not in ("", "Loading …"), "the second document")
    text = read(browser, "#text")
    browser.execute_async_script("window.failLate(new Error('late')); setTimeout(arguments[0])")
    assert read(browser, "#text") == text
    browser.execute_script("document.querySelector('#narrative').focus()")
    press(browser, Keys.ESCAPE)
    assert get_focused(browser) == find(browser, "#narrative")[0]
    assert not find(browser, "#heat tbody a[aria-current]")


def test_hostile_texts_are_shown_and_not_obeyed(browser: Chrome, site: Site) -> None:
    list_console(browser)
    ask(browser, site, narrative=f"{NARRATIVE} {HOSTILE}")
    wait_for_answer(browser)
    find(browser, "#heat tbody a")[0].click()
    wait_until(lambda: read(browser, "#text") != "Loading …", "the document")
    seen = browser.execute_script(
        "return [arguments[0].getBoundingClientRect().top, innerHeight]", find(browser, "#text")[0]
    )
    assert 0 < seen[0] < seen[1] / 2
    for selector in ("#query-list", "#heat", "#cited"):
        assert HOSTILE in read(browser, selector), selector
    press(browser, Keys.ESCAPE)
    links = [link for link in find(browser, "#cited a") if HOSTILE in link.text]
    browser.execute_script("arguments[0].click()", links[0])
    wait_until(lambda: HOSTILE in read(browser, "#text"), "the hostile document")
    assert HOSTILE in read(browser, "#document-title")
    assert browser.title == "Keystone"
    assert not find(browser, "main img, main script, main b b")
    assert list_console(browser) == []


def test_the_files_are_valid_and_the_run_file_is_that_of_a_run(browser: Chrome, site: Site, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    ask(browser, site)
    wait_for_answer(browser)
    for link in find(browser, "#files a"):
        link.click()
    names = ["r_output_trec_rag_2025.tsv", "rag_output_trec_rag_2025.jsonl", "topics.jsonl"]
    wait_until(lambda: sorted(path.name for path in tmp_path.iterdir()) == names, "three files")
    topics = keystone.read_topics(tmp_path / names[2])
    assert topics == [keystone.Topic("1", NARRATIVE)]
    for name in names[:2]:
        found = keystone.validate(tmp_path / name, topics)
        assert [one for one in found.violations if one.severity == "error"] == []
    where = {"topics": tmp_path / names[2], "out": tmp_path / "out"}
    folder = keystone.make_run(site.service.config.model_copy(update=where))
    for name in names[:2]:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_the_page_fits_its_window(browser: Chrome, site: Site, width: int, scheme: str) -> None:
    ask(browser, site, width, scheme)
    wait_for_answer(browser)
    link = find(browser, ".cite")[0]
    link.send_keys(Keys.ENTER)
    wait_until(lambda: find(browser, "#text mark"), "the document")
    page = browser.execute_script("const page = document.documentElement; return [page.scrollWidth, page.clientWidth]")
    assert page[0] == page[1]
    answer, pane = find(browser, "#sentences")[0].rect, find(browser, "#document")[0].rect
    assert (pane["x"] > answer["x"] + answer["width"]) == (width > 1000)
    top, height = browser.execute_script("return [arguments[0].getBoundingClientRect().top, innerHeight]", link)
    assert 0 < top < height


PLACES = """
const link = arguments[0];
scrollTo(0, 0);
link.scrollIntoView({ block: "nearest" });
link.click();
const done = arguments[1];
const wait = () => byId("text").textContent === "Loading …" ? setTimeout(wait, 10) : setTimeout(measure, 50);
const measure = () => {
  const find = (one) => document.querySelector(one).getBoundingClientRect();
  const [bar, close, text] = ["#document .bar", "#close", "#text"].map(find);
  const mark = document.querySelector("#text mark")?.getClientRects()[0];
  const hit = document.elementFromPoint(close.left + close.width / 2, close.top + close.height / 2);
  const own = link.getClientRects()[0];
  const under = own && document.elementFromPoint(own.left + 2, own.top + own.height / 2);
  done({
    steps: byId("steps").getBoundingClientRect().bottom, bar: bar.top, hit: hit?.id,
    mark: mark && [mark.top - text.top, Math.min(text.bottom, innerHeight) - mark.bottom],
    end: innerHeight - text.bottom, seen: Boolean(under) && link.contains(under),
  });
};
wait();
"""
"""Opens a link's document from as high on the page as possible, and measures where the document, and the link, are."""


@pytest.mark.parametrize("width", [390, 1280])
def test_an_opened_document_and_its_link_are_in_the_window(browser: Chrome, site: Site, width: int) -> None:
    ask(browser, site, width)
    wait_for_answer(browser)
    listed, links = find(browser, "#cited a"), find(browser, ".sentence .cite, #cited a")
    assert len(find(browser, "#cited .name")) > 1
    for link in [*links, *find(browser, "#heat tbody a")]:
        browser.execute_script("closeDocument()")
        found = browser.execute_async_script(PLACES, link)
        assert found["hit"] == "close"
        assert found["bar"] >= (found["steps"] if width > 1000 else 0)
        assert found["end"] >= 0
        assert found["seen"] or (link in listed and width > 1000)  # a document takes the place of the sources
        assert (found["mark"] is not None) == (link in links)
        assert min(found["mark"] or [0]) >= 0
    browser.execute_script("scrollTo(0, document.documentElement.scrollHeight)")
    bar, steps = (find_box(browser, one) for one in ("#document .bar", "#steps"))
    assert bar["top"] >= (steps["bottom"] if width > 1000 else 0)


def find_box(browser: Chrome, selector: str) -> Any:
    return browser.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect()", selector)


def test_the_list_of_citations_has_an_entry_for_each_document(browser: Chrome, site: Site) -> None:
    ask(browser, site)
    wait_for_answer(browser)
    browser.execute_script(
        "for (const id of ['bees_1', 'bees_2']) addSentence({text: '', citations: [{id, document: 'b', title: 'B'}]})"
    )
    entry = find(browser, "#cited > li")[-1]
    links = entry.find_elements(By.CSS_SELECTOR, "a")
    numbers = [int(str(one.get_property("textContent")).strip("\u2060")) for one in links[1:]]
    assert links[0].text == "B"
    assert numbers == [numbers[0], numbers[0] + 1]
    assert [int(one.text.strip("\u2060")) for one in find(browser, ".sentence .cite")[-2:]] == numbers


CONTRAST = """
const light = ([red, green, blue]) => {
  const spread = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const [r, g, b] = [red, green, blue].map((v) => spread(v / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const read = (colour) => colour.match(/[\\d.]+/g).map(Number);
const step = arguments[0];
const paper = read(getComputedStyle(document.body).backgroundColor);
return [...step.querySelectorAll("b, small, bdi")].map((text) => {
  const ink = read(getComputedStyle(text).color);
  const opacity = Number(getComputedStyle(step).opacity);
  const mixed = paper.slice(0, 3).map((v, n) => v * (1 - opacity) + ink[n] * opacity);
  const [low, high] = [light(mixed), light(paper)].sort((one, other) => one - other);
  return (high + .05) / (low + .05);
});
"""
"""The contrast of the texts in an element with the page (WCAG 2.2, section 1.4.3, which wants 4.5)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_model_the_page_says_so(browser: Chrome, site: Site, plain_site: Site, scheme: str) -> None:
    open_address(browser, f"{site.url}/")
    assert "lets a language model write" in read(browser, "#about")
    ask(browser, plain_site, scheme=scheme)
    assert "asks no language model: rules choose sentences from the documents, and nothing is graded" in read(
        browser, "#about"
    )
    wait_for_answer(browser)
    assert [one.text for one in find(browser, "#steps .left")] == ["Grades\nnot made"]
    assert min(browser.execute_script(CONTRAST, find(browser, "#steps .left")[0])) >= 4.5


def test_a_query_that_is_the_narrative_is_shown_once(browser: Chrome, plain_site: Site) -> None:
    narrative = "How do honey bees find flowers?"
    ask(browser, plain_site, narrative=narrative)
    wait_for_answer(browser)
    assert [one.text for one in find(browser, "#query-list li")] == [narrative]
    assert len(find(browser, "#heat thead th")) == 3
    assert read(browser, "#steps li:first-child small").startswith("1 query")
    browser.execute_script(
        "Object.assign(known, {queries: ['1', '2', '3'].map((id) => ({id, question: 'Same'}))});"
        "addRankings({1: ['bees'], 2: ['bees'], 3: ['volcano']}); addGrades([{query: '2', document: 'bees', grade: 3}])"
    )
    assert browser.execute_script("return known.queries.map((one) => [one.id, getGrade('bees', one)])") == [
        ["1", 3],
        ["3", None],
    ]


def open_and_wait(browser: Chrome, url: str) -> None:
    open_address(browser, f"{url}/")
    wait_until(lambda: browser.execute_script("return facts.name"), "the name of the index")


def test_the_page_says_what_is_indexed_and_who_answers(browser: Chrome, site: Site, plain_site: Site) -> None:
    for served, answers in ((site, "plain"), (plain_site, "rules, no language model")):
        open_and_wait(browser, served.url)
        told = [one.text for one in find(browser, "#index dd")]
        assert told == ["index", "5", "English", answers]
        assert find(browser, "#index")[0].is_displayed()


def test_a_reader_asks_by_one_key_what_the_page_offers(browser: Chrome, plain_site: Site) -> None:
    open_and_wait(browser, plain_site.url)
    offered = [one.text for one in find(browser, "#examples .question")]
    assert 1 <= len(offered) <= 3
    find(browser, "#examples .question")[0].send_keys(Keys.ENTER)
    wait_for_answer(browser)
    assert find(browser, "#query-list li")[0].text == offered[0]
    assert browser.execute_script("return document.querySelector('#narrative').value") == offered[0]
    assert not find(browser, "#examples")[0].is_displayed()
    assert find(browser, "#start summary")[0].is_displayed()
    assert get_focused(browser) == find(browser, "#ask")[0]


def list_past(browser: Chrome) -> list[str]:
    return [str(one.get_property("textContent")) for one in find(browser, "#past .question")]


def test_the_browser_keeps_the_last_questions_until_they_are_removed(browser: Chrome, plain_site: Site) -> None:
    open_and_wait(browser, plain_site.url)
    browser.execute_script("localStorage.clear()")
    questions = ["How do honey bees find flowers?", HOSTILE]
    for question in [*questions, questions[0]]:
        ask(browser, plain_site, narrative=question)
        wait_for_answer(browser)
    wait_until(lambda: list_past(browser) == questions, "the questions")
    open_and_wait(browser, plain_site.url)
    assert list_past(browser) == questions
    find(browser, "#past .remove")[0].send_keys(Keys.ENTER)
    assert list_past(browser) == questions[1:]
    assert get_focused(browser) == find(browser, "#past .remove")[0]
    find(browser, "#past .question")[0].click()
    wait_for_answer(browser)
    open_and_wait(browser, plain_site.url)
    find(browser, "#forget")[0].send_keys(Keys.ENTER)
    assert not find(browser, "#past")[0].is_displayed()
    assert browser.execute_script("return localStorage.length") == 0
    browser.execute_script("for (let n = 0; n < 12; n += 1) remember(`${n}`)")
    assert list_past(browser) == [str(n) for n in range(11, 1, -1)]
    browser.execute_script("localStorage.setItem(getKey(), '{'); drawQuestions()")
    assert list_past(browser) == []
    browser.execute_script("localStorage.clear()")


def test_the_page_says_that_no_sentence_seems_to_answer(browser: Chrome, plain_site: Site) -> None:
    ask(browser, plain_site, narrative="What is the capital of France?")
    wait_for_answer(browser)
    assert read(browser, "#unsure").startswith(DOUBT)
    assert find(browser, "#unsure")[0].is_displayed()
    assert min(browser.execute_script(CONTRAST, find(browser, ".sentence")[0])) >= 4.5
    ask(browser, plain_site, narrative="How do honey bees find flowers?")
    wait_for_answer(browser)
    assert find(browser, "#unsure[hidden]")


@pytest.mark.parametrize(("width", "beside"), [(1440, True), (1280, True), (800, False), (390, False)])
def test_the_sources_are_beside_the_answer_on_wide_screens(
    browser: Chrome, plain_site: Site, width: int, beside: bool
) -> None:
    ask(browser, plain_site, width, narrative="How do honey bees find flowers?")
    wait_for_answer(browser)
    answer, sources = find(browser, "#sentences")[0].rect, find(browser, "#sources")[0].rect
    assert (sources["x"] > answer["x"] + answer["width"]) == beside
    assert (sources["y"] > answer["y"] + answer["height"]) != beside
    page = browser.execute_script("const page = document.documentElement; return [page.scrollWidth, page.clientWidth]")
    assert page[0] == page[1]


def test_only_an_address_of_the_web_becomes_a_link(browser: Chrome, plain_site: Site) -> None:
    open_and_wait(browser, plain_site.url)
    links = browser.execute_script(
        "return ['https://a.example/b', 'javascript:alert(1)', '', 'data:text/html,x', '//a'].map("
        "(one) => makeAddress(one).map((link) => link.href ?? ''))"
    )
    assert links == [["", "https://a.example/b"], [], [], [], []]


@pytest.mark.parametrize("narrative", ["", " \n "])
def test_without_words_the_page_says_what_it_expects(browser: Chrome, site: Site, narrative: str) -> None:
    ask(browser, site, narrative=narrative)
    wait_until(lambda: "Write a question" in read(browser, "#problem"), "the remark")
    assert find(browser, "#problem")[0].is_displayed()
    assert find(browser, "#found[hidden]")
    assert get_focused(browser) == find(browser, "#narrative")[0]
    press(browser, NARRATIVE)
    find(browser, "#ask")[0].click()
    wait_for_answer(browser)
    assert find(browser, "#problem[hidden]")


def test_notes_on_an_answer_are_folded(browser: Chrome, site: Site) -> None:
    ask(browser, site)
    wait_for_answer(browser)
    browser.execute_script("ACTS.done({seconds: 1, files: [], fallbacks: [{step: 'shorten', reason: 'it was cut'}]})")
    notes = find(browser, "#remarks")[0]
    assert notes.text == "Notes on this answer"
    notes.find_element(By.CSS_SELECTOR, "summary").click()
    assert notes.text.splitlines()[1:] == ["shorten: it was cut"]


LEFT = f"{NARRATIVE} Or not."
"""A narrative that nobody waits for, so that no reply of the model is kept."""


def test_a_reader_stops_an_answer_and_its_work_ends(browser: Chrome, site: Site) -> None:
    before = site.count_answers()
    site.held.add(CONTRACT.system)
    try:
        ask(browser, site, narrative=LEFT)
        wait_until(lambda: site.count_answers() > before, "the work to begin")
        find(browser, "#stop")[0].send_keys(Keys.ENTER)
        wait_until(lambda: site.count_answers() <= before, "the work to end")
    finally:
        site.held.clear()
    wait_until(lambda: read(browser, "#problem") == "You stopped the answer.", "the remark")
    assert read(browser, "#empty") == "There is no answer."
    assert find(browser, "#ask:enabled")


VERSION = "2026-07-28"
AGENT = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Content-Type": "application/json",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "answer",
}
AGENT_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "answer",
        "arguments": {"narrative": LEFT},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        pytest.param("/v1/answers", {"narrative": LEFT}, {"Accept": "text/event-stream"}, id="events"),
        pytest.param("/v1/answers", {"narrative": LEFT}, {"Accept": "application/json"}, id="JSON"),
        pytest.param(
            "/mcp", AGENT_CALL, {**AGENT, "Content-Type": "application/json"}, id="an agent without a session"
        ),
    ],
)
def test_if_a_program_leaves_its_work_ends(
    site: Site, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    before = site.count_answers()
    site.held.add(CONTRACT.system)
    try:
        with closing(http.client.HTTPConnection(urlsplit(site.url).netloc)) as client:
            client.request("POST", path, json.dumps(body), headers)
            wait_until(lambda: site.count_answers() > before, "the work to begin", 60)
        wait_until(lambda: site.count_answers() <= before, "the work to end", 60)
    finally:
        site.held.clear()


def test_slow_answers_hold_up_no_document(site: Site) -> None:
    before = site.count_answers()
    site.held.add(CONTRACT.system)
    try:
        with ExitStack() as clients:
            for number in range(SLOW_ANSWERS):
                client = clients.enter_context(closing(http.client.HTTPConnection(urlsplit(site.url).netloc)))
                client.request("POST", "/v1/answers", json.dumps({"narrative": f"{NARRATIVE} Part {number}."}))
            wait_until(lambda: site.count_answers() >= before + SLOW_ANSWERS, "all answers to begin")
            with closing(http.client.HTTPConnection(urlsplit(site.url).netloc, timeout=60)) as client:
                client.request("GET", "/page/document?id=bees")
                assert orjson.loads(client.getresponse().read())["text"] == CORPUS["bees"][1]
    finally:
        site.held.clear()
    wait_until(lambda: site.count_answers() <= before, "the work to end")


def post(site: Site, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection(urlsplit(site.url).netloc)) as client:
        client.request("POST", "/v1/answers", body, headers)
        reply = client.getresponse()
        return reply.status, orjson.loads(reply.read())


def test_without_events_the_answer_is_json_and_replays_to_the_same_bytes(site: Site) -> None:
    narrative = f"{NARRATIVE} Say it once."
    status, found = post(site, orjson.dumps({"narrative": narrative}))
    assert status == 200
    assert list(found) == ["answer", "fallbacks"]
    assert found["answer"]["metadata"]["narrative"] == narrative
    wanted = ("web", "answer", {"narrative": narrative})
    line = wait_until(lambda: find_calls(site.log, wanted), "the line of the call in the log")[0]
    assert line["cited"] == found["answer"]["references"]
    reply = asyncio.run(_perform(site.service, Call("web", "answer", line["arguments"])))
    assert sha256(reply.body).hexdigest() == line["sha256"]


def find_calls(log: Path, wanted: tuple[str, str, Any]) -> list[dict[str, Any]]:
    lines = map(orjson.loads, log.read_bytes().splitlines())
    return [one for one in lines if (one["front"], one["operation"], one["arguments"]) == wanted]


async def _perform(service: Service, call: Call) -> Reply:
    return await open_front(service).perform(call)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "body: expected JSON: "),
        (b"", "body: expected JSON: "),
        (b"[]", "body: expected an object with only the key narrative"),
        (b'{"narrative": 1}', "body: expected an object with only the key narrative"),
        (b'{"narrative": "x", "k": 1}', "body: expected an object with only the key narrative"),
        (b'{"narrative": " "}', "narrative: found none, expected words"),
    ],
)
def test_a_bad_request_is_told_its_mistake(site: Site, body: bytes, told: str) -> None:
    status, found = post(site, body)
    assert status == 400
    assert found["error"].startswith(told)


def test_with_a_token_the_page_asks_for_it(browser: Chrome, site: Site) -> None:
    with serve(site.service, Guard(token="secret")) as url:
        ask(browser, replace(site, url=url))
        token = wait_until(lambda: [one for one in find(browser, "#token") if one.is_displayed()], "the token's field")[
            0
        ]
        assert "Unauthorized" in read(browser, "#problem")
        token.send_keys("secret", Keys.ENTER)
        wait_for_answer(browser)
        find(browser, ".cite")[0].click()
        wait_until(lambda: find(browser, "#text mark"), "the document")
    list_console(browser)


def test_an_answer_of_a_replaced_index_is_shown_without_documents_of_the_new_one(
    browser: Chrome, site: Site, tmp_path: Path
) -> None:
    folder, newer = tmp_path / "index", tmp_path / "new.jsonl"
    settings = BuildSettings(embedding=None, threads=1)
    build_index(write_corpus(tmp_path / "corpus.jsonl"), folder, settings)
    newer.write_text('{"id": "more", "text": "Honey bees live in hollow trees, too."}')
    with keystone_server(folder, tmp_path) as served:

        def ask_for_key() -> str | None:
            with urlopen(f"{served.url}/page/index") as reply:
                return str(reply.headers["keystone-index"])

        ask(browser, replace(site, url=served.url))
        wait_for_answer(browser)
        index, _ = update_index(folder, [newer])
        wait_until(lambda: ask_for_key() == index.key, "the server to take the new index")
        find(browser, ".cite")[0].click()
        refusal = f"The document could not be read: {REPLACED}"
        wait_until(lambda: read(browser, "#text") == refusal, "the page to refuse the document")
        assert f"{len(CORPUS)}Answers" in read(browser, "#index").replace("LanguageEnglish", "")
        browser.execute_script("ask()")
        wait_for_answer(browser)
        find(browser, ".cite")[0].click()
        wait_until(lambda: find(browser, "#text mark"), "the document")
        assert f"{len(CORPUS) + 1}Answers" in read(browser, "#index").replace("LanguageEnglish", "")
    assert any("409" in message for message in list_console(browser))


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [("/page/document?id=no%2Fsuch%23thing", 404, "'no/such#thing'"), ("/v1/answers", 405, "Only POST is supported")],
)
def test_a_request_without_a_result_is_told_why(site: Site, path: str, status: int, told: str) -> None:
    with closing(http.client.HTTPConnection(urlsplit(site.url).netloc)) as client:
        client.request("GET", path)
        reply = client.getresponse()
        assert reply.status == status
        assert told in orjson.loads(reply.read())["error"]


def test_without_hits_and_sentences_the_files_are_there(site: Site) -> None:
    files = {one["name"]: one["text"] for one in make_files(site.service, NARRATIVE, Answer("1", ()), [])}
    assert files["r_output_trec_rag_2025.tsv"] == ""
    assert orjson.loads(files["rag_output_trec_rag_2025.jsonl"])["answer"] == []


def test_an_error_after_the_first_byte_is_an_event(site: Site) -> None:
    service = replace(site.service, config=site.service.config.model_copy(update={"track": None}))

    async def collect() -> list[Any]:
        return [event async for event in stream_events(service, Call("web", "answer", {"narrative": NARRATIVE}))]

    (event,) = asyncio.run(collect())
    assert event.event == "error"
    assert "expected a track" in orjson.loads(event.data)["message"]
