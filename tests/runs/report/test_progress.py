"""Progress: lines for steps of more than a second, in plain text or beside bars, and none if nobody wants them."""

import io
import os
import pty
import threading
from contextlib import nullcontext, suppress

import pytest

from keystone.indexing.embedder import Forecast
from keystone.runs.report import terminal
from keystone.runs.report.terminal import progress_bars, show_forecast
from keystone.runs.wording import format_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(terminal, "monotonic", lambda: now[0])
    return now


def read_all(end: int) -> str:
    """Read what a terminal got, until its other end is closed."""
    parts = []
    with suppress(OSError):
        while part := os.read(end, 100_000):
            parts.append(part)
    os.close(end)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 0 s"), (192, "3 min 12 s"), (7530, "2 h 5 min")],
)
def test_a_time_has_units_that_fit_it(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


def test_only_outer_steps_of_more_than_a_second_have_a_line_after_they_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bars(quiet=False) as progress:
        with progress("Quick", None):
            clock[0] += 0.9
        with progress("Search", None), progress("BM25 search", 7) as tick:
            tick(7)
            clock[0] += 4.2
            assert capsys.readouterr().err == ""
        assert capsys.readouterr().err == "Search: 4.2 s\n"
        with progress("Embedding \x1b[2J", 2000) as tick:
            tick(1000)
            tick(1000)
            clock[0] += 61
        assert capsys.readouterr().err == "Embedding \\x1b[2J: 2,000 in 1 min 1 s\n"
    assert capsys.readouterr() == ("", "Finished in 1 min 6 s\n")


@pytest.mark.parametrize(
    ("done", "spent", "foretold"),
    [
        pytest.param(100, 4, "Embedding: 2,000 at 25 a second, about 1 min 16 s more\n", id="a long step"),
        pytest.param(1000, 4, "", id="it will end soon"),
        pytest.param(100, 2, "", id="its speed is not known yet"),
    ],
)
def test_a_long_step_says_soon_and_once_how_long_it_will_take(
    done: int, spent: float, foretold: str, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        progress_bars(quiet=False) as progress,
        progress("Embedding", 2000) as tick,
    ):
        clock[0] += spent
        tick(done)
        tick(0)
        assert capsys.readouterr().err == foretold


def test_a_step_that_was_foretold_does_not_say_again_how_long_it_will_take(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    foretold = set[str]()
    with progress_bars(quiet=False, foretold=foretold) as progress:
        foretold.add("Embedding")
        with progress("Embedding", 2000) as tick:
            clock[0] += 4
            tick(100)
            assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "size", "shown"),
    [
        (192.0, 12_300_000, "Embedding: 8,000 texts will take about 3 min 12 s, and 12.3 MB on disk"),
        (None, 12_300_000, "Embedding: 8,000 texts will take 12.3 MB on disk"),
        (19.0, 12_300_000, ""),
        (None, 900_000, ""),
    ],
)
def test_a_forecast_is_shown_unless_the_step_is_short(seconds: float | None, size: int, shown: str) -> None:
    assert show_forecast(Forecast("Embedding", 8_000, size, seconds)) == shown


def test_a_single_line_needs_no_last_one_and_a_step_of_another_thread_is_within_the_first(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        with progress("Other", None):
            clock[0] += 2

    with progress_bars(quiet=False) as progress, progress("Outer", None):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(timeout=60)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "Outer: 2.0 s\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_a_step_that_fails_has_no_line_and_quiet_has_none_at_all(
    clock: list[float], capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    expected = nullcontext() if quiet else pytest.raises(KeyError)
    with expected, progress_bars(quiet) as progress, progress("Search", None):
        clock[0] += 5
        if not quiet:
            raise KeyError
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal_disappear_and_the_line_stays(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    main, side = pty.openpty()
    with io.TextIOWrapper(os.fdopen(side, "wb", 0), write_through=True) as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with progress_bars(quiet=False) as progress, progress("Search [a]", 3) as tick:
            tick(3)
            clock[0] += 12
    shown = read_all(main)
    assert "Search [a]: 3 in 12 s\r\n" in shown
    assert "\x1b[2K" in shown.rpartition("12 s")[2], "the bar is erased"
