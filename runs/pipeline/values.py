"""Artifacts as values: each is read from its file, or made, at most once in a process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Artifact(Generic[T]):
    """A file of the run directory, and how its value is read and written: `read(path)`, `write(path, value)`.

    Reading a file gives the value that was written.
    """

    name: str
    read: Callable[[Path], T]
    write: Callable[[Path, T], None]


class Values:
    """The artifacts of one run directory; a value that was read or made is kept in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept: dict[str, Any] = {}

    def get(self, artifact: Artifact[T]) -> T:
        """The value of an artifact whose file is there."""
        if artifact.name not in self._kept:
            self._kept[artifact.name] = artifact.read(self.directory / artifact.name)
        value: T = self._kept[artifact.name]
        return value

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Write the value of an artifact, and keep it."""
        artifact.write(self.directory / artifact.name, value)
        self._kept[artifact.name] = value
