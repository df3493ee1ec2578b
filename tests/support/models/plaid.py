"""fast-plaid in an environment of its own, whose packages a command may use beside its own."""

from tests.support.places import ROOT, require

ENVIRONMENT = ROOT / ".venv-plaid"


def add_plaid() -> str:
    """Return Python that lets a command import fast-plaid. If it is not set up, skip the test; on CI, fail it."""
    require(ENVIRONMENT, "`make nightly`, which needs PyPI")
    (packages,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    return f"import site; site.addsitedir({str(packages)!r})"
