"""Names of runs whose ids are shared: by their teams, or else by their files."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from keystone.indexing.errors import UserError


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run as its file names it. `topic_id` is that of one of its answers; empty for all of them together."""

    run_id: str
    team_id: str
    file: str
    topic_id: str = ""


def name_apart(runs: Sequence[NamedRun]) -> list[str]:
    """Name each run so that no name has two answers to a topic: by its id, as long as that is enough.

    A run id of several teams becomes `TEAM-RUN`. A name without a team that has answers to a topic in several files
    becomes `NAME (FILE)`. `UserError` for two answers of a run to a topic in one file, or of the same team.
    """
    teams = _group((one.run_id, one.team_id) for one in runs)
    names = [f"{o.team_id}-{o.run_id}" if o.team_id and len(teams[o.run_id]) > 1 else o.run_id for o in runs]
    files = _group(((name, one.topic_id), one.file) for name, one in zip(names, runs, strict=True))
    shared = {name for (name, _), own in files.items() if len(own) > 1}
    found, seen = list[str](), set[tuple[str, str]]()
    for name, one in zip(names, runs, strict=True):
        found.append(f"{name} ({one.file})" if name in shared and not one.team_id else name)
        if (found[-1], one.topic_id) in seen:
            of_topic = f": topic {one.topic_id!r} occurs more than once" if one.topic_id else " in another file too"
            raise UserError(f"{one.file}: found run {one.run_id!r}{of_topic}, expected different runs")
        seen.add((found[-1], one.topic_id))
    return found


def caution_about_names(runs: Sequence[NamedRun], names: Sequence[str]) -> list[str]:
    """Caution about each run id that is that of several files, whose runs have other names."""
    files = _group((one.run_id, one.file) for one, name in zip(runs, names, strict=True) if name != one.run_id)
    return [
        f"the run id {run_id!r} is that of several runs, which have names of their own: {', '.join(sorted(own))}"
        for run_id, own in files.items()
    ]


K = TypeVar("K")


def _group(pairs: Iterable[tuple[K, str]]) -> dict[K, set[str]]:
    found = defaultdict[K, set[str]](set)
    for key, value in pairs:
        found[key].add(value)
    return found
