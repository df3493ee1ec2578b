"""The site of `make docs` is built strictly, and read in a real browser: wide and narrow, light and dark."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import list_console, list_requests, open_address, open_browser
from tests.support.checkout import copy_checkout, run_there
from tests.support.pages import list_commands
from tests.support.places import ROOT
from tests.support.servers.files import serve_files
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
GROUPS = re.findall(r"^## (.+)$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MKDOCS.exists():
        missing = f"{MKDOCS} is missing: run `make docs`"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("checkout")
    (command,) = list_commands("make docs")
    done, calls = run_there(copy_checkout(folder, mkdocs=f'exec {MKDOCS} "$@"'), command)
    assert (done.returncode, calls, done.stderr) == (0, ["mkdocs build --quiet"], "")
    return folder / "site"


def test_each_link_leads_to_a_file_of_the_site(site: Path) -> None:
    links = [
        (page, link)
        for page in site.rglob("*.html")
        for link in re.findall(r'(?:href|src)="?([^"> ]+)', page.read_text())
        if not re.match(r"\w+:|#", link) and page.name != "404.html"
    ]
    assert len(links) > 1000
    lost = {
        link for page, link in links if not (page.parent / unquote(link).partition("#")[0].partition("?")[0]).exists()
    }
    assert lost == set()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with serve_files(site) as server:
        yield f"{server}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme", "named"), [(1440, "light", "default"), (390, "dark", "slate")])
def test_each_page_fits_the_window_and_asks_no_other_host(
    site: Path, address: str, browser: Chrome, width: int, scheme: Literal["light", "dark"], named: str
) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(pages) > len(GROUPS)
    shown = "return [document.documentElement.scrollWidth, document.body.dataset.mdColorScheme]"
    for page in pages:
        list_console(browser)
        list_requests(browser)
        open_address(browser, address + page, width, scheme)
        wide, colours = browser.execute_script(shown)
        assert (wide <= width, colours) == (True, named), page
        assert list_console(browser) == [], page
        assert [asked for asked in list_requests(browser) if not asked.startswith((address, "data:"))] == [], page


def test_the_navigation_has_the_groups_of_the_index(address: str, browser: Chrome) -> None:
    open_address(browser, address, 1440)
    sections = browser.find_elements(By.CSS_SELECTOR, ".md-nav--primary .md-nav__item--section > .md-nav__link")
    assert [section.text for section in sections] == [*GROUPS, "Repository"]


def test_the_search_finds_a_function_of_python(address: str, browser: Chrome) -> None:
    open_address(browser, address + "index.html?q=decompose", 1440)
    browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]").click()

    def list_results(browser: Chrome) -> list[str]:
        links = browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        return [str(link.get_attribute("href")) for link in links]

    found = WebDriverWait(browser, LIMIT_S).until(list_results)
    assert any("reference.html" in link for link in found)


def test_a_diagram_is_drawn(site: Path, address: str, browser: Chrome) -> None:
    if not (site / "mermaid.min.js").exists():
        pytest.skip("npm could not load Mermaid: the site shows the source of diagrams")
    pages = [path for path in site.rglob("*.html") if '<pre class="mermaid">' in path.read_text()]
    assert pages
    for page in pages:
        open_address(browser, address + page.relative_to(site).as_posix(), 1440)
        WebDriverWait(browser, LIMIT_S).until(lambda opened: opened.find_elements(By.CSS_SELECTOR, "div.mermaid"))
        assert browser.find_elements(By.CSS_SELECTOR, "pre.mermaid") == []
        assert list_console(browser) == []
