"""Rows from other packages: the example of docs/exchange.md is installed and used by the command line, end to end."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from keystone.fusion.methods import METHODS
from keystone.indexing import plugins
from keystone.indexing.corpora.forms import FORMATS, list_forms
from keystone.indexing.errors import UserError
from keystone.retrieval.search import KINDS
from keystone.runs.doctor.machine import TABLES, examine_packages
from keystone.runs.exchange.table import get_form
from tests.support import programs
from tests.support.pages import list_commands
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone

PAGE = (ROOT / "docs" / "exchange.md").read_text().partition("## Rows from a package of your own")[2]
EXAMPLE = ROOT / "docs" / "examples" / "keystone-tiny"
NOTES = """\
Bees: Honey bees live in colonies of many thousand workers. Workers collect nectar and pollen from flowers.
Flowers: Flowers attract insects with colour, scent and nectar. Insects carry pollen from one flower to another.
Volcanoes: A volcano is an opening in the crust of the earth. Lava, ash and gases escape from it.
"""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the command of the page installed its example, with the packages that are there."""
    folder, target = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, folder / EXAMPLE.relative_to(ROOT))
    (command,) = list_commands("pip install ./docs")
    given = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_TARGET": str(target)}
    program = ["bash", "-euc", f'pip() {{ "{sys.executable}" -m pip "$@"; }}; {command}']
    done = programs.run(program, cwd=folder, env={**os.environ, **given}, capture_output=True, text=True)
    assert "Successfully installed keystone-tiny" in done.stdout, done.stderr
    return target


def with_package(*words: str, cwd: Path, installed: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line beside the installed example."""
    path = f"import sys\nsys.path.insert(0, {str(installed)!r})\n"
    forget = "from keystone.indexing import plugins\nplugins._find_all.cache_clear()\n"
    return keystone(*words, cwd=cwd, code=path + forget)


def add_package(folder: Path, name: str, points: str, code: str = "") -> None:
    """Add a package of one module, `NAME.py`, with its entry points, as a folder of metadata and a file."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)
    (folder / f"{name}.py").write_text(code)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, whose packages Keystone looks for anew in this test, and forgets after it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_find_all", plugins._find_all.__wrapped__)
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_page_use_one_row_of_each_table(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "garden.notes").write_text(NOTES)
    (tmp_path / "topics.jsonl").write_text('{"id": "1", "narrative": "How do bees and flowers help each other?"}\n')
    (tmp_path / "qrels.txt").write_text("1 0 garden.notes:1 2\n1 0 garden.notes:2 1\n1 0 garden.notes:3 0\n")
    shown = {}
    for line in [line for block in blocks("console") for line in block.splitlines() if line.startswith("keystone ")]:
        words = shlex.split(line)[1:]
        done = with_package(*words, cwd=tmp_path, installed=installed)
        assert done.returncode == 0, (line, done.stderr)
        shown[words[0]] = done.stdout
    assert blocks("text")[0] in shown["doctor"]
    plain = keystone("doctor", cwd=tmp_path, PYTHONPATH=f"{ROOT}:{installed}")
    assert blocks("text")[0] in plain.stdout
    fused = [line.split() for line in (tmp_path / "fused.trec").read_text().splitlines()]
    assert float(fused[0][4]) == 1
    again = [line.split() for line in (tmp_path / "again.trec").read_text().splitlines()]
    assert [row[:4] for row in again] == [row[:4] for row in fused]
    assert "FirstRank@10" in shown["evaluate"]
    assert "FirstRank(rel=2)" in shown["evaluate"]
    assert "valid for tiny26" in shown["validate"]
    evidence = (tmp_path / "out" / "tiny" / "evidence.jsonl").read_text()
    titles = (tmp_path / "out" / "tiny" / "titles.trec").read_text().splitlines()
    assert {line.split()[2] for line in titles} == {"garden.notes:1", "garden.notes:2"}
    assert '"reader":"openings"' in evidence
    assert "opens the document" in evidence
    common = "run --preset bm25 --set run_id=combined --set index=index --set topics=topics.jsonl --set track=rag26"
    reader = ["--set", "answer.method=rules", "--set", "reader={name: fused, readers: [plain, openings]}"]
    with_package(*common.split(), *reader, cwd=tmp_path, installed=installed)
    for run in ("tiny", "tracked", "combined"):
        assert '"keystone-tiny":"0.1"' in re.sub(r"\s", "", (tmp_path / "out" / run / "manifest.json").read_text()), run
    lost = keystone("explain", "out/combined", "1", "garden.notes:1", cwd=tmp_path)
    assert lost.stderr.endswith("\nthe run was made with keystone-tiny 0.1, which is not installed here\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("fuse a b --method best --out c", "expected one of min, .*, best_rank", id="fusion"),
        pytest.param("index x.notes --format note --out c", "expected one of .*, notes, ", id="corpora"),
        pytest.param("evaluate a --qrels q -m Firstrank@3.5", "expected one of .*, FirstRank", id="measures"),
        pytest.param("convert a b --to pair", "expected one of .*, pairs", id="forms"),
        pytest.param("validate a --topics b --track tiny", "expected one of .*, tiny26", id="tracks"),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set reader.name=opening",
            "reader.name: found 'opening'; expected one of .*, openings, ",
            id="readers",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set reader.name=openings --set reader.characters=x",
            "--set reader.characters: found 'x'; input should be a valid integer",
            id="a wrong setting of an added reader",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set reader.name=openings --set reader.x=1",
            "--set reader.x: unknown key .*; expected one of .*characters",
            id="an unknown setting of an added reader",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set retrieval.systems.a.kind=title",
            "retrieval.systems.a.kind: found 'title'; expected one of bm25, dense, impact, late, plaid, titles",
            id="systems",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set retrieval.systems.a.kind=titles "
            "--set retrieval.systems.a.letters=x",
            "retrieval.systems.a.letters: found 'x'; input should be a valid integer",
            id="a wrong setting of an added system",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set retrieval.systems.a.kind=titles "
            "--set retrieval.systems.a.k1=1",
            "retrieval.systems.a.k1: unknown key .*; expected one of .*letters",
            id="an unknown setting of an added system",
        ),
        pytest.param(
            "run --set run_id=a --set index=i --set topics=t --set reader.name=fused --set reader.readers=[x]",
            "reader.readers.0: found 'x'; input should be 'plain', .* or 'openings'",
            id="readers to fuse",
        ),
    ],
)
def test_errors_list_the_added_names(command: str, message: str, installed: Path, tmp_path: Path) -> None:
    done = with_package(*command.split(), cwd=tmp_path, installed=installed)
    assert done.returncode == 1
    assert re.search(message, done.stderr.replace("\n", " "))
    assert "Traceback" not in done.stderr


def test_a_row_that_cannot_be_loaded_is_a_clear_error(beside: Path) -> None:
    add_package(beside, "absent_part", "[keystone.fusion]\nlost = absent_part:GONE\n", "import nothing_of_this_name\n")
    with pytest.raises(UserError, match=r"'lost' of absent_part 1.0 \(absent_part:GONE\) cannot be loaded: ModuleNot"):
        METHODS["lost"]
    assert "lost" in list(METHODS)
    assert METHODS["rrf"].weighted
    (found,) = examine_packages()
    assert (found.state, "nothing_of_this_name" in found.message) == ("problem", True)


def test_an_object_of_another_type_is_refused(beside: Path) -> None:
    add_package(beside, "no_row", "[keystone.fusion]\nfunction = no_row:score\n", "def score(hits): return hits\n")
    with pytest.raises(UserError, match=r"no_row 1.0 .*: found an object of type function, expected keystone\.fusion"):
        METHODS["function"]


@pytest.mark.parametrize(
    ("package", "code", "message"),
    [
        pytest.param(
            "number",
            "ROW = 5",
            "found 5, expected a class that extends keystone.retrieval.system.System",
            id="no class",
        ),
        pytest.param("strange", "class ROW: pass", "ROW'>, expected a class that extends", id="another class"),
        pytest.param(
            "nameless",
            "class ROW(System): pass",
            "cannot be loaded: TypeError: ROW: expected lowest, lane",
            id="no name",
        ),
        pytest.param(
            "searchless",
            "from typing import ClassVar, Literal\n"
            "class ROW(System):\n"
            "    lowest: ClassVar[float] = 0.0\n"
            "    lane: ClassVar[str] = 'mine'\n"
            "    kind: Literal['mine'] = 'mine'",
            "cannot be loaded: TypeError: ROW: expected lowest, lane, search",
            id="no search",
        ),
        pytest.param(
            "renamed",
            "from keystone.retrieval.bm25 import Bm25System as ROW",
            "found the name 'bm25' in it, expected the name of its entry point",
            id="another name",
        ),
    ],
)
def test_a_class_that_is_no_system_is_refused(package: str, code: str, message: str, beside: Path) -> None:
    code = f"from keystone.retrieval.system import System\n{code}\n"
    add_package(beside, package, f"[keystone.systems]\nmine = {package}:ROW\n", code)
    with pytest.raises(UserError, match=f"keystone.systems: 'mine' of {package} 1.0 .*{message}"):
        KINDS["mine"]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param("fusion", "rrf", id="ours"),
        pytest.param("fusion", "borda", id="an alias of ours"),
        pytest.param("corpora", "jsonl", id="a format of ours"),
        pytest.param("systems", "dense", id="a kind of system of ours"),
        pytest.param("readers", "plain", id="a reader of ours"),
        pytest.param("forms", "run", id="a form of ours"),
        pytest.param("measures", "nDCG", id="a measure of ours"),
        pytest.param("measures", "RBP", id="a measure of ir_measures"),
        pytest.param("measures", "recall", id="a measure of trec_eval"),
    ],
)
def test_a_name_of_ours_is_refused_with_the_package(group: str, name: str, beside: Path) -> None:
    add_package(beside, "rival", f"[keystone.{group}]\n{name} = rival:ROW\n")
    (found,) = examine_packages()
    assert found.state == "problem"
    assert f"keystone.{group}: found {name!r} in Keystone and in rival 1.0; expected a name" in found.message


def test_two_packages_with_one_name_are_refused_and_other_rows_are_not(beside: Path) -> None:
    code = "from keystone.fusion.methods import METHODS\nROW = METHODS['isr']\n"
    add_package(beside, "left", "[keystone.fusion]\nsame = left:ROW\nother = left:ROW\n", code)
    add_package(beside, "right", "[keystone.fusion]\nsame = right:ROW\n", code)
    with pytest.raises(UserError, match=r"found 'same' in (left|right) 1.0 and in (left|right) 1.0"):
        METHODS["same"]
    assert METHODS["other"] is METHODS["isr"]
    assert len(METHODS) == len(METHODS.own) + 2


@pytest.mark.parametrize("content", [b"PK\3\4", tarfile.TarInfo("a").tobuf()], ids=["zip", "tar"])
def test_a_format_of_a_package_may_be_an_archive_inside(content: bytes, beside: Path) -> None:
    code = "from keystone.indexing.corpora.forms import FORMATS\nROW = FORMATS['folder']\n"
    add_package(beside, "office", "[keystone.corpora]\ndocx = office:ROW\n", code)
    (beside / "report.docx").write_bytes(content)
    ((file,), unread) = list_forms(beside / "report.docx", "docx")
    assert (file.form, unread) == ("docx", [])


def test_an_unknown_group_is_a_problem(beside: Path) -> None:
    add_package(beside, "misspelt", "[keystone.fusions]\nx = misspelt:X\n")
    (found,) = examine_packages()
    assert found.state == "problem"
    assert found.message.startswith("keystone.fusions: found in misspelt 1.0, expected one of keystone.corpora")


def test_without_other_packages_the_tables_are_ours() -> None:
    assert list(examine_packages()) == []
    assert list(FORMATS) == list(FORMATS.own)
    assert METHODS.find_package("rrf") == {}
    with pytest.raises(UserError, match="--to x: unknown"):
        get_form("x", "--to")


def test_the_page_names_every_table() -> None:
    assert re.findall(r"^\| `(keystone\.\w+)` \|", PAGE, re.MULTILINE) == list(TABLES)


def test_help_looks_for_no_package() -> None:
    code = "import sys\nfrom keystone.runs.cli.main import app\nfrom typer.main import get_command\nget_command(app)\n"
    code += "assert 'keystone.indexing.plugins' not in sys.modules"
    programs.run([sys.executable, "-c", code], check=True)
