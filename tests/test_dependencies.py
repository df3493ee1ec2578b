"""Each dependency has a module that imports it, which CONTRIBUTING names."""

import re
import tomllib

from packaging.requirements import Requirement

from tests.support.places import ROOT

IMPORTED = {
    "faiss-cpu": "faiss",
    "markdown-it-py": "markdown_it",
    "opensearch-py": "opensearchpy",
    "pyjnius": "jnius",
    "pyyaml": "yaml",
    "uvloop": "uvicorn",
}
"""The name by which a package is imported, if it is not its own. Uvicorn imports uvloop."""
FOR_DEVELOPERS = {"bench", "dev"}
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| `([\w-]+)` \| `([\w/.]+)` \|$", SECTION, re.MULTILINE))


def test_the_table_has_each_dependency_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(extras[name] for name in extras.keys() - FOR_DEVELOPERS)]
    assert set(ROWS) == {Requirement(line).name for needed in lists for line in needed}


def test_each_module_of_the_table_imports_its_package() -> None:
    for package, module in ROWS.items():
        name = IMPORTED.get(package, package.replace("-", "_"))
        assert re.search(rf"(?m)^\s*(import|from) {name}\b|\"{name}\b", (ROOT / module).read_text()), (package, module)
