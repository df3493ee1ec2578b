"""Install what pyproject.toml asks for into this environment, and write the versions into requirements.lock.

Of the packages in `PARTLY_USED`, the requirements are neither installed nor written.
"""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keystone.runs.doctor.machine import PARTLY_USED

ROOT = Path(__file__).parents[1]
GROUPS = ("cpu", "dev")
"""The optional dependencies of pyproject.toml that set-up installs."""
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--timeout", "60", "--retries", "5"]
HEAD = f"""# The versions that set-up installs on Linux on x86-64 with Python 3.11; `make lock` writes this file.
# Keystone uses a part of {" and ".join(PARTLY_USED)}. So packages that only these require are left
# out, such as PyTorch.
"""


def read_requirements(project: Path) -> list[str]:
    """The requirements of a project on this Python, of the groups that set-up installs, and of its build."""
    named = tomllib.loads(project.read_text())
    groups = [one for group in GROUPS for one in named["project"]["optional-dependencies"][group]]
    found = [*named["project"]["dependencies"], *groups, *named["build-system"]["requires"]]
    return [one for one in found if not (marker := Requirement(one).marker) or marker.evaluate()]


def list_pins(needed: Sequence[str]) -> list[str]:
    """The installed versions of requirements and of theirs. `PackageNotFoundError` if one is not installed."""
    waiting, seen = list(needed), dict[str, set[str]]()
    while waiting:
        one = Requirement(waiting.pop())
        name = canonicalize_name(one.name)
        if name in seen and one.extras <= seen[name]:
            continue
        seen[name] = {"", *one.extras, *seen.get(name, ())}
        for line in () if name in PARTLY_USED else requires(name) or ():
            marker = Requirement(line).marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in seen[name]):
                waiting.append(line)
    return [f"{name}=={version(name)}" for name in sorted(seen)]


if __name__ == "__main__":
    wanted = read_requirements(ROOT / "pyproject.toml")
    partly = [one for one in wanted if canonicalize_name(Requirement(one).name) in PARTLY_USED]
    subprocess.run([*PIP, "--no-deps", *partly], check=True)
    subprocess.run([*PIP, *(one for one in wanted if one not in partly)], check=True)
    (ROOT / "requirements.lock").write_text(HEAD + "\n".join(list_pins(wanted)) + "\n")
