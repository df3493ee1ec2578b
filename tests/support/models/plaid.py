"""fast-plaid in an environment of its own, whose packages a command may use beside its own."""

import os

import pytest

from tests.support.places import ROOT

ENVIRONMENT = ROOT / ".venv-plaid"


def add_plaid() -> str:
    """Return Python that lets a command import fast-plaid. If it is not set up, skip the test; on CI, fail it."""
    if not (ENVIRONMENT / ".ready").exists():
        missing = f"{ENVIRONMENT} is not set up: run `make nightly`, which needs PyPI"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    (packages,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    return f"import site; site.addsitedir({str(packages)!r})"
