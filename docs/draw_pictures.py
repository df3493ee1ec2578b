"""The pictures of README: `python -m docs.draw_pictures demo-out` draws them anew from a finished demo.

They show the report, and an answer in the web page of `keystone serve`, in Debian's Chromium (`make chromium`). Each is
a PNG of few colours in `docs/pictures/`.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from keystone.runs.config.read import read_config
from keystone.runs.demo.main import MODEL_RUN, TOLD_TOPIC_ID
from keystone.runs.trec.topics import read_topics
from tests.support.browser import open_address, open_browser, open_page
from tests.support.servers.keystone_server import keystone_server

OUT = Path(__file__).parent / "pictures"
LIMIT_BYTES = 100_000
COLOURS = (256, 128, 64, 32, 16)
"""The numbers of colours to try, until the file is smaller than the limit."""
ANSWER_S = 300


def draw(demo: Path, out: Path) -> list[Path]:
    """Draw the pictures of the demo's report and of its index in the web page. Returns their files."""
    out.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        return [
            _take(browser, out / "report.png", lambda: open_page(browser, (demo / "report.html").resolve())),
            _take(browser, out / "page.png", lambda: _ask(browser, demo.resolve())),
        ]


def shrink(picture: bytes) -> bytes:
    """Reduce the colours of a PNG, as little as the limit of bytes allows. `ValueError` if nothing is enough."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in COLOURS:
        small = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        if len(small.getvalue()) < LIMIT_BYTES:
            return small.getvalue()
    raise ValueError(f"the picture has {len(small.getvalue())} bytes in {COLOURS[-1]} colours, expected {LIMIT_BYTES}")


def _take(browser: Chrome, path: Path, show: Callable[[], None]) -> Path:
    """Show a page, and keep what the window shows, without scroll bars."""
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    show()
    path.write_bytes(shrink(browser.get_screenshot_as_png()))
    return path


def _ask(browser: Chrome, demo: Path) -> None:
    """Ask a narrative of the demo, answered from recorded replies, and open the first citation of the answer."""
    config = demo / "runs" / MODEL_RUN / "config.yaml"
    narrative = next(topic for topic in read_topics(read_config(config).topics) if topic.id == TOLD_TOPIC_ID)
    with (
        TemporaryDirectory() as folder,
        keystone_server(demo / "index", Path(folder), "--config", str(config)) as served,
    ):
        open_address(browser, f"{served.url}/")
        browser.find_element(By.ID, "narrative").send_keys(narrative.narrative)
        browser.find_element(By.ID, "ask").click()
        wait = WebDriverWait(browser, ANSWER_S)
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#files a"))
        browser.find_element(By.CSS_SELECTOR, "#sentences a.cite").click()
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#text mark"))
        browser.execute_script("document.querySelector('#answer').scrollIntoView()")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.draw_pictures demo-out")
    for drawn in draw(Path(sys.argv[1]), OUT):
        print(f"{drawn}: {drawn.stat().st_size:,} bytes")
