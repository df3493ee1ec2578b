"""The pages are true: their links lead somewhere, and the commands, options and targets that they name exist."""

import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from typer.main import get_command

from benchmarks.__main__ import BENCHMARKS
from keystone.indexing.corpora.forms import FORMATS
from keystone.runs.cli.main import app
from keystone.runs.config.read import PRESETS
from keystone.runs.evaluation.answers.families import FAMILIES as ANSWER_FAMILIES
from keystone.runs.evaluation.answers.families import JUDGED
from keystone.runs.evaluation.measures import FAMILIES
from keystone.runs.track_rules import TRACKS
from tests.support.places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
APP = get_command(app)
INDEX = (ROOT / "docs" / "README.md").read_text()
COMMANDS = APP.commands  # type: ignore[attr-defined]
TOP = ("indexing", "retrieval", "fusion", "generation", "runs", "tests", "benchmarks")
TARGETS = dict(re.findall(r"^([a-z-]+):(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(page: Path) -> str:
    """The text of a page without its comments."""
    return re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(text: str) -> list[str]:
    """The lines of code in a page, in blocks and in sentences. A backslash at its end joins a line to the next."""
    fenced = re.findall(r"^ *```.*?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    spans = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    blocks = [block.replace("\\\n", " ") for block in fenced]
    return [
        line
        for block in [*blocks, *indented, *(span.replace("\n", " ") for span in spans)]
        for line in block.splitlines()
    ]


def commands(text: str) -> list[list[str]]:
    """The words of each call of `keystone` in a page, an environment variable before it left out."""
    found = [re.search(r"^\s*(?:\w+=\S+ )?(keystone [a-z-].*)", line) for line in code(text)]
    return [shlex.split(call[1], comments=True)[1:] for call in found if call]


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pages
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(read(page)):
        if words[0].startswith("--"):
            assert words[0] in {"--help", *(name for parameter in APP.params for name in parameter.opts)}
            continue
        if words[0].isupper():
            continue
        assert words[0] in COMMANDS, words
        command, below = COMMANDS[words[0]], words[1:2]
        if below and hasattr(command, "commands"):
            name = below[0] if below[0] in command.commands else getattr(command, "default", below[0])
            assert name in command.commands, words
            command = command.commands[name]
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)} <= options | {"--help"}, words


@pages
def test_files_and_the_functions_in_them_exist(page: Path) -> None:
    """A page names a file of the program from the root, and its functions behind a colon."""
    folders = "|".join(TOP)
    for path, names in re.findall(rf"`((?:{folders})/[\w/.]*)`(?::((?:,? `\w+`)+))?", read(page)):
        if "NAME" in path:
            continue
        assert (ROOT / path).exists(), path
        text = (ROOT / path).read_text() if names else ""
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(async )?(def|class) {name}\b|^{name}\b.* = ", text, re.MULTILINE), f"{path}: {name}"


def test_the_pages_are_short() -> None:
    """One can take them in: tables and examples count, too, and the index of pages is not a page."""
    words = {
        page.name: sum(1 for word in page.read_text().split() if re.search(r"\w", word))
        for page in ROOT.glob("docs/*.md")
    }
    assert {name: number for name, number in words.items() if number > 2500} == {}
    assert sum(words.values()) <= 30_000
    assert len(words.keys() - {"README.md"}) <= 18


@pytest.mark.parametrize("user", ["participant", "organiser", "data scientist", "engineer"])
def test_each_kind_of_user_has_a_page_that_begins_with_their_commonest_task(user: str) -> None:
    name = user.replace(" ", "-")
    text = (ROOT / f"docs/{name}.md").read_text()
    assert text.startswith(f"# For {user}s: ")
    beginning = text.partition("```")
    assert beginning[1]
    assert len(beginning[0].splitlines()) <= 14
    linked = set(re.findall(r"\]\(([\w-]+)\.md", text)) - {name}
    (row,) = re.findall(
        rf"^\| an? {user}(?: of a track| in a track)? \| \[{name}\]\({name}\.md\) \| (.*) \|$", INDEX, re.MULTILINE
    )
    assert set(re.findall(r"\]\(([\w-]+)\.md", row)) <= linked


def test_the_map_has_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [room.parent.relative_to(ROOT) for name in TOP[:5] for room in (ROOT / name).glob("*/__init__.py")]
    assert len(rooms) > 20
    assert [room.as_posix() for room in rooms if f"| `{room.as_posix()}/` |" not in text] == []


@pages
def test_presets_exist(page: Path) -> None:
    named = set(re.findall(r"--preset ([a-z]\w+)", read(page)))
    assert named <= set(PRESETS)


@pages
def test_benchmarks_exist(page: Path) -> None:
    named = {name for names in re.findall(r"python -m benchmarks ([a-z_ ]+)", read(page)) for name in names.split()}
    assert named <= set(BENCHMARKS)


@pages
def test_targets_exist(page: Path) -> None:
    named = {words[0] for line in code(read(page)) if (words := re.findall(r"^\s*make ([a-z-]+)", line))}
    assert named <= TARGETS.keys()


def test_every_target_has_a_line_of_help() -> None:
    assert [name for name, rest in TARGETS.items() if " ## " not in rest] == []


def test_the_citation_and_the_package_have_one_version_and_one_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_pages_name_calls_and_targets() -> None:
    """So that the tests above cannot pass by finding nothing."""
    text = "\n".join(read(page) for page in PAGES)
    assert {words[0] for words in commands(text)} >= set(COMMANDS)
    assert {"demo", "test", "check", "lint", "help", "bench", "wheel"} <= {
        words[0] for line in code(text) if (words := re.findall(r"^\s*make ([a-z-]+)", line))
    }


@pytest.mark.parametrize(
    ("page", "form", "names"),
    [
        pytest.param("corpora", "| `{}` |", sorted(FORMATS), id="corpus formats"),
        pytest.param("participant", " {} |", sorted(TRACKS), id="tracks"),
        pytest.param("evaluate", "`{}", sorted(FAMILIES), id="measures"),
        pytest.param("evaluate", "| `{}` |", [*ANSWER_FAMILIES, *JUDGED], id="measures of answers"),
        pytest.param("run", "| `{}` |", PRESETS, id="presets"),
    ],
)
def test_a_page_names_everything_that_a_table_holds(page: str, form: str, names: Sequence[str]) -> None:
    text = read(ROOT / "docs" / f"{page}.md")
    assert [name for name in names if form.format(name) not in text] == []


@pytest.mark.parametrize(
    ("task", "command", "words"),
    [
        ("submit to RAG 2026", "run", "--set track=rag26"),
        ("repair a submission", "validate", "With --fix, repair a file"),
        ("index a folder of HTML", "index", "HTML"),
        ("use an encoder of your own", "index", "folder of a checkpoint"),
        ("continue a run that was killed", "run", "the same command continues"),
        ("pay less for a model", "run", "--budget limits its cost"),
        ("fuse two run files", "fuse", "Fuse run files into one"),
        ("compare two runs", "evaluate", "compare them by paired tests"),
        ("know why a document is missing", "explain", "why a document has its place, or was cut"),
        ("know what exit code 3 means", "run", "the exit code is 3"),
    ],
)
def test_a_task_is_two_links_or_one_help_away(task: str, command: str, words: str) -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()
    assert re.search(rf"^\| {task} \| \[", INDEX, re.MULTILINE)
    called = COMMANDS[command]
    assert words in " ".join(f"{called.help} {[getattr(one, 'help', '') for one in called.params]}".split())
