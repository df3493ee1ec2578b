"""The wheel holds everything that the packages need, and works in a clean environment outside of the repository."""

import os
import re
import shutil
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import programs
from tests.support.pages import list_commands

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("fusion", "generation", "indexing", "retrieval", "runs")
"""The folders of the code, to which `keystone/` holds links."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the repository, so that the build leaves nothing in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for package in ("keystone", *FOLDERS):
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"):
        shutil.copy(file, source)
    build: list[str | Path] = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
    ]
    programs.run([sys.executable, "-m", "pip", *build, source], check=True)
    (built,) = folder.glob("keystone_rag-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment, which has the wheel and this environment's other packages."""
    folder = tmp_path_factory.mktemp("environment")
    programs.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder})
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site, "others.pth").write_text("\n".join(sorted(others)))
    install: list[str | Path] = [
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
        wheel,
    ]
    programs.run([sys.executable, "-m", "pip", *install], check=True)
    return python.parent


def output(program: Path, *arguments: str, cwd: Path) -> str:
    """The output of a program that starts outside of the repository, with no path to it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = programs.run([program, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_the_wheel_has_each_file_of_the_packages(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    expected = {f"keystone/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}
    expected |= {f"keystone/{path.name}" for path in (ROOT / "keystone").iterdir() if path.is_file()}
    assert held == {name for name in expected if not name.endswith(".md")}


def test_the_commands_of_the_pages_install_the_wheel_and_its_extras(wheel: Path, tmp_path: Path) -> None:
    """The wheel is found here, and none of the packages that it requires is installed."""
    given = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_COMPILE": "1"}
    for number, command in enumerate(list_commands("pip install '?keystone-rag")):
        target = tmp_path / str(number)
        program = ["bash", "-euc", f'pip() {{ "{sys.executable}" -m pip "$@"; }}; {command}']
        environment = {**os.environ, **given, "PIP_TARGET": str(target)}
        done = programs.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert "Successfully installed keystone-rag-" in done.stdout, done.stderr
        (metadata,) = target.glob("*.dist-info/METADATA")
        extras = re.findall(r"\[([\w,-]+)\]", command)
        provided = message_from_bytes(metadata.read_bytes()).get_all("Provides-Extra", [])
        assert {extra for one in extras for extra in one.split(",")} <= {*provided}


@pytest.mark.parametrize(
    "name",
    [
        "keystone/py.typed",
        "keystone/runs/config/presets/paper/uema2lab_rrf.yaml",
        "keystone/runs/config/presets/recipes/utokyo2025.yaml",
        "keystone/runs/serving/rest/openapi.yaml",
        "keystone/runs/demo/narratives.jsonl",
        "keystone/runs/demo/qrels.txt",
        "keystone/runs/demo/replies.jsonl.zst",
        "keystone/runs/demo/agent.replies.jsonl.zst",
        "keystone/generation/prompts/grading.py",
        "keystone/generation/readers/disco_rag/inventories/inter.yaml",
    ],
)
def test_the_wheel_has_types_presets_prompts_and_the_demo(wheel: Path, name: str) -> None:
    assert name in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_has_its_license(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (place,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert archive.read(place) == (ROOT / "LICENSE").read_bytes()
    metadata = message_from_bytes(archive.read(place.replace("licenses/LICENSE", "METADATA")))
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert {"pyserini", "pyterrier"} <= set(metadata.get_all("Provides-Extra", []))


def test_the_command_starts_outside_of_the_repository(installed: Path, tmp_path: Path) -> None:
    assert output(installed / "keystone", "--version", cwd=tmp_path).startswith("keystone ")


def test_the_packages_are_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(f'keystone.{folder}' for folder in FOLDERS)}; print(keystone.indexing.__file__)"
    found = Path(output(installed / "python", "-c", code, cwd=tmp_path).strip())
    assert found.is_relative_to(installed.parent)


@pytest.mark.nightly
def test_the_package_is_used_in_a_clean_environment(installed: Path, tmp_path: Path) -> None:
    code = (
        "import keystone; run = keystone.to_run({'1': {'a': 2.0, 'b': 1.0}}); keystone.write_run('r.trec', run); "
        "print(keystone.__file__, keystone.evaluate(keystone.read_run('r.trec'), {'1': {'b': 1}}, ['MRR']).mean('MRR'))"
    )
    place, mean = output(installed / "python", "-c", code, cwd=tmp_path).split()
    assert Path(place).is_relative_to(installed.parent)
    assert mean == "0.5"


def test_the_presets_are_read_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from keystone.runs.config.read import read_config; "
        "print(read_config(None, ['index=i', 'topics=t'], 'uema2lab_narrative').queries.method)"
    )
    assert output(installed / "python", "-c", code, cwd=tmp_path) == "narrative\n"


@pytest.mark.parametrize(("file", "groups"), [("requirements.lock", ()), ("requirements-dev.lock", ("dev",))])
def test_the_lock_pins_a_fitting_version_of_each_requirement_and_no_pytorch(file: str, groups: Sequence[str]) -> None:
    lines = map(Requirement, (ROOT / file).read_text().splitlines())
    pins = {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}
    optional = PROJECT["project"]["optional-dependencies"]
    named = [*PROJECT["project"]["dependencies"], *(one for group in groups for one in optional[group])]
    found = {str(one): pins.get(canonicalize_name(one.name), "0") for one in map(Requirement, named)}
    assert not {name: pin for name, pin in found.items() if not Requirement(name).specifier.contains(pin)}
    assert not {"torch", "transformers", "triton", "sentence-transformers", "pyserini"} & set(pins)
    if not groups:
        assert not {"ray", "datasets", "selenium", "openai"} & set(pins)
