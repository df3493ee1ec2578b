"""The agent's demo shows its path and its answer, and the recorded replies give the same bytes again."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keystone.indexing.types import silent
from keystone.runs.demo.main import run_agent_demo
from keystone.runs.pipeline.file_names import ANSWERS, EVIDENCE, RESEARCHED, TRACE

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(2400)]

FOLDER = Path("demo-out/runs/agent")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """The function that prints the agent's demo. Its files lie in `demo-out` in the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("demo"))
        yield run_agent_demo(Path("demo-out"), 2, silent)


def test_the_demo_shows_the_path_of_the_agent_and_its_answer(
    report: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    report()
    printed = capsys.readouterr().out
    assert "\n  8#6  How do I learn about broken links on a deployed site?\n" in printed
    assert "\n      note: SECRET_KEY must be a large random value that is kept secret.\n" in printed
    assert "\n      action: search BrokenLinkEmailsMiddleware MANAGERS 404 broken link emails\n" in printed
    assert "; 8#8: partly\n  round 2, query 8#8\n" in printed
    assert "\n      action: end: covered\n" in printed
    _, _, answer = printed.partition("\nAnswer:\n\nFirst set DEBUG to False in the production settings, ")
    assert "\n     howto/deployment/checklist#w2_734\n" in answer
    assert answer.endswith("keystone trace demo-out/runs/agent\n")


@pytest.mark.usefixtures("report")
def test_the_recorded_replies_give_the_same_bytes_again() -> None:
    files = [TRACE, ANSWERS, EVIDENCE, RESEARCHED]
    first = [(FOLDER / name).read_bytes() for name in files]
    shutil.rmtree(FOLDER.parent)
    run_agent_demo(Path("demo-out"), 1, silent)
    assert [(FOLDER / name).read_bytes() for name in files] == first
