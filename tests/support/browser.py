"""Debian's Chromium without a window, for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

PROGRAMS = ("chromium", "chromedriver")


@contextmanager
def open_browser() -> Iterator[Chrome]:
    """Start a browser that records its console and its requests. Without Chromium, skip the test; on CI, fail it."""
    paths = [shutil.which(name) for name in PROGRAMS]
    if None in paths:
        missing = f"{' or '.join(PROGRAMS)} is missing: run `make chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    options = Options()
    options.binary_location = paths[0] or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options, Service(paths[1]))
    try:
        yield browser
    finally:
        browser.quit()


def open_page(browser: Chrome, page: Path, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> None:
    """Open a file in a window of this width, in pixels."""
    open_address(browser, page.as_uri(), width, scheme)


def open_address(browser: Chrome, address: str, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> None:
    """Open an address in a window of this width, in pixels."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"media": "", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)


def list_console(browser: Chrome) -> list[str]:
    """List the messages on the console since the last call."""
    return [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]


def list_requests(browser: Chrome) -> list[str]:
    """List the addresses that pages have requested since the last call."""
    log: list[dict[str, Any]] = browser.get_log("performance")  # type: ignore[no-untyped-call]
    events = [orjson.loads(entry["message"])["message"] for entry in log]
    return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
