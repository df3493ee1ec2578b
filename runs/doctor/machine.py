"""Checks of this machine: the packages, Java and memory that a run needs, and advice about missing parts."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from keystone.indexing.errors import UserError
from keystone.runs.wording import plural

FAISS = ("faiss-cpu", "faiss-gpu")
"""The packages of FAISS. Keystone requires the first; the second takes its place."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A `problem` stops a run; a `note` does not."""

    state: Literal["ok", "note", "problem"]
    subject: str
    message: str


def examine_machine() -> Iterator[Finding]:
    """Check Python, Java, FAISS, the embedding model, evaluation, memory and clashes of packages, in this order."""
    yield Finding("ok", "Python", sys.version.split()[0])
    yield _check_java()
    yield from _check_faiss()
    yield _check_embedding_model()
    yield _check_package("evaluation", "ranx")
    yield _check_memory()
    yield from _check_clashes()


def _check_java() -> Finding:
    from keystone.indexing.lucene.java import find_anserini_jar, find_java_home

    try:
        return Finding("ok", "Java", f"{find_java_home()}, {find_anserini_jar().name}")
    except UserError as error:
        return Finding("problem", "Java", str(error))


def _check_faiss() -> Iterator[Finding]:
    present = [name for name in FAISS if _find_version(name)]
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
    found = f"{present[0]} {_find_version(present[0])}, {plural(gpus, 'GPU')}"
    if not gpus and shutil.which("nvidia-smi"):
        yield Finding(
            "note", "FAISS", f"{found}, though the machine has one: uninstall {present[0]}, then pip install faiss-gpu"
        )
    else:
        yield Finding("ok", "FAISS", found)


def _check_embedding_model() -> Finding:
    from keystone.indexing.io.published import MINILM, find_published

    try:
        return Finding("ok", "embedding model", f"{find_published(MINILM)}, of {MINILM.archive}")
    except UserError as error:
        return Finding("problem", "embedding model", str(error))


def _check_package(subject: str, name: str) -> Finding:
    found = _find_version(name)
    return (
        Finding("ok", subject, f"{name} {found}")
        if found
        else Finding("problem", subject, f"{name} is not installed: pip install {name}")
    )


def _check_memory() -> Finding:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if gigabytes < 4:
        return Finding("note", "memory", f"{gigabytes:.1f} GiB: Java takes a quarter of it; expect slow searches")
    return Finding("ok", "memory", f"{gigabytes:.1f} GiB, {plural(os.cpu_count() or 1, 'core')}")


def _check_clashes() -> Iterator[Finding]:
    """Check for versions that other packages exclude, and for distributions that ship a package of the same name."""
    problems = [
        *_list_unmet_requirements("keystone-rag"),
        *_list_shadowed_packages("keystone"),
    ]
    for problem in problems:
        yield Finding("problem", "packages", problem)
    if not problems:
        yield Finding("ok", "packages", "every package accepts the versions of the others")


def _list_unmet_requirements(root: str) -> list[str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen, waiting, unmet = {root}, [root], []
    while waiting:
        name = waiting.pop()
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            found = _find_version(requirement.name)
            if not found and requirement.name in FAISS and any(map(_find_version, FAISS)):
                continue
            if not found:
                unmet.append(f"{name} needs {requirement.name}: pip install {requirement.name!r}")
            elif not requirement.specifier.contains(found, prereleases=True):
                unmet.append(f"{name} needs {requirement}, found {found}: pip install {str(requirement)!r}")
            elif (child := canonicalize_name(requirement.name)) not in seen:
                seen.add(child)
                waiting.append(child)
    return unmet


def _list_shadowed_packages(name: str) -> list[str]:
    others = {owner for owner in importlib.metadata.packages_distributions().get(name, ()) if owner != "keystone-rag"}
    return [f"{owner} also ships a package {name!r}: uninstall it, or use an environment of its own"
            for owner in sorted(others)]  # fmt: skip


def _find_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
