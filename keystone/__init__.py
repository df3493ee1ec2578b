"""Keystone in Python: the steps from narratives to rankings, cited answers, run files and measures.

`docs/data-scientist.md` shows each function at work, and `keystone.public` lists them. The first use of one loads them
all, so a program that needs a single module starts without the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keystone.public import *  # noqa: F403
    from keystone.public import __all__ as __all__

    __version__: str


def __getattr__(name: str) -> Any:
    """A public name, or the list of them. `AttributeError` for any other."""
    if name == "__all__" or not name.startswith("_"):
        public = import_module("keystone.public")
        if name in ("__all__", *public.__all__):
            return getattr(public, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("keystone-rag")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("keystone.public").__all__])
