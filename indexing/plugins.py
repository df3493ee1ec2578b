"""Tables that other packages extend: an entry point of a package adds a row by its name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, distributions
from typing import Generic, TypeVar

from keystone.indexing.errors import UserError

Row = TypeVar("Row")
PREFIX = "keystone."
"""The beginning of the name of every group of entry points."""


class OpenTable(Mapping[str, Row], Generic[Row]):
    """The rows of Keystone by name, and those that other packages add in a group of entry points.

    A package is imported when its row is asked for; listing the names imports nothing. `UserError` names the package if
    a row cannot be loaded or is not of type `kind`, or if two rows have one name. `reserved` lists other names that no
    package may take. If `classes` is true, a row is a class that extends `kind`. `name_of` returns the name that a row
    has in itself; None if it has none.
    """

    def __init__(
        self,
        group: str,
        kind: type,
        own: Mapping[str, Row],
        reserved: Callable[[], Iterable[str]] = tuple,
        classes: bool = False,
        name_of: Callable[[Row], str | None] = lambda row: getattr(row, "name", None),
    ) -> None:
        self.group, self.kind, self.own = group, kind, own
        self._reserved, self._classes, self._name_of = reserved, classes, name_of

    def __getitem__(self, name: str) -> Row:
        added = find_entry_points(self.group).get(name, ())
        if not added:
            return self.own[name]
        rivals = [*map(describe_package, added)]
        if name in self.own or name.lower() in map(str.lower, self._reserved()):
            rivals.insert(0, "Keystone")
        if len(rivals) > 1:
            expected = "a name that nothing else has: uninstall one of them, or rename its entry point"
            raise UserError(f"{self.group}: found {name!r} in {' and in '.join(rivals)}; expected {expected}")
        return self._load(added[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.own, *self.list_added()]))

    def __len__(self) -> int:
        return len({*self.own, *self.list_added()})

    def list_added(self) -> list[str]:
        """List the names that other packages add."""
        return list(find_entry_points(self.group))

    def find_package(self, name: str) -> dict[str, str]:
        """Find the package that adds a row: its version by its name. It is empty for a row of Keystone."""
        points = find_entry_points(self.group).get(name, ())
        return {point.dist.name: point.dist.version for point in points if point.dist}

    def _load(self, point: EntryPoint) -> Row:
        source = f"{self.group}: {point.name!r} of {describe_package(point)} ({point.value})"
        try:
            row: Row = point.load()
        except Exception as error:
            raise UserError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
        expected = f"{self.kind.__module__}.{self.kind.__qualname__}"
        if self._classes and not (isinstance(row, type) and issubclass(row, self.kind)):
            raise UserError(f"{source}: found {row!r}, expected a class that extends {expected}")
        if not self._classes and not isinstance(row, self.kind):
            raise UserError(f"{source}: found an object of type {type(row).__name__}, expected {expected}")
        if (name := self._name_of(row)) not in (None, point.name):
            raise UserError(f"{source}: found the name {name!r} in it, expected the name of its entry point")
        return row


def describe_package(point: EntryPoint) -> str:
    """The name and the version of the package that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a package without a name"


def find_entry_points(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Find the entry points of a group by name. A name has several if several packages add it."""
    return _find_all().get(group, {})


def list_groups() -> list[str]:
    """List the groups of entry points of all packages whose names begin as those of Keystone do."""
    return sorted(_find_all())


@cache
def _find_all() -> dict[str, dict[str, tuple[EntryPoint, ...]]]:
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    seen = set[str]()
    for package in distributions():
        if PREFIX not in (package.read_text("entry_points.txt") or ""):  # parsing all of them takes longer
            continue
        points = [point for point in package.entry_points if point.group.startswith(PREFIX)]
        if not points or package.name in seen:  # a package further down the path is hidden by the first of its name
            continue
        seen.add(package.name)
        for point in points:
            rows = found.setdefault(point.group, {})
            rows[point.name] = (*rows.get(point.name, ()), point)
    return found
