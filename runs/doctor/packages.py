"""Checks of the rows that other packages add to Keystone's tables."""

from collections.abc import Iterator
from pkgutil import resolve_name

from keystone.indexing.errors import UserError
from keystone.indexing.plugins import describe_package, find_entry_points, list_groups
from keystone.runs.doctor.machine import Finding

TABLES = {
    "keystone.corpora": "keystone.indexing.corpora.forms:FORMATS",
    "keystone.fusion": "keystone.fusion.methods:METHODS",
    "keystone.systems": "keystone.retrieval.search:KINDS",
    "keystone.readers": "keystone.generation.readers.settings:READERS",
    "keystone.measures": "keystone.runs.evaluation.measures:FAMILIES",
    "keystone.forms": "keystone.runs.exchange.table:FORMS",
    "keystone.tracks": "keystone.runs.track_rules:TRACKS",
}
"""The groups of entry points, with the import path of the table that each opens."""


def examine_packages() -> Iterator[Finding]:
    """Load every row that another package adds. A row that cannot be loaded is a problem."""
    for group in list_groups():
        if group not in TABLES:
            found = sorted(
                {describe_package(point) for points in find_entry_points(group).values() for point in points}
            )
            expected = f"found in {', '.join(found)}, expected one of {', '.join(TABLES)}"
            yield Finding("problem", "entry points", f"{group}: {expected}")
            continue
        for name, points in find_entry_points(group).items():
            try:
                resolve_name(TABLES[group])[name]
            except UserError as error:
                yield Finding("problem", "entry points", str(error))
            else:
                yield Finding("ok", group, f"{name}, of {describe_package(points[0])}")
