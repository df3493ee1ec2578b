"""Parts of an index that come and go later: sets of vectors, impacts and PLAID, without touching the rest.

The new index shares the files of the older one, and takes its place at once. If a command stops at any moment, the
older index is whole, and the same command goes on from there.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keystone.indexing.builds.changes import read_description, replace_index
from keystone.indexing.builds.index import PARTS, write_impact_sets, write_plaid_sets, write_vectors
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.staged import recover, write_description
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Progress, silent
from keystone.indexing.vectors.types import Effort, Foretell

SETS = ("vectors", "impacts", "plaid")
"""The folders of an index that hold further sets, and their keys in `index.json`."""


def change_parts(
    out: Path,
    settings: BuildSettings,
    drop: Sequence[str] = (),
    progress: Progress = silent,
    foretell: Foretell | None = None,
) -> Index:
    """Add the sets of vectors, impacts and PLAID of the settings to the index in the folder `out`; drop sets by name.

    Further sets of vectors hold the same texts as those that are there, documents or passages. `foretell` receives the
    time and space that each set will take, before it is made. `UserError` if `out` is no index in a folder, for a new
    name that it has or a name to drop that it lacks, and for a model that cannot be.
    """
    recover(out)
    older = open_index(out)
    if older.at:
        raise UserError(f"{out}: holds its documents in {older.backend}, expected an index in the folder")
    held = [*older.vectors, *older.impacts, *older.plaid]
    new = [*settings.vectors, *settings.impacts, *settings.plaid]
    for name in new:
        if (name in held and name not in drop) or new.count(name) > 1:
            raise UserError(f"{out}: holds a set {name!r}, expected a new name, or one that is dropped")
    for name in drop:
        if name not in held:
            expected = ", ".join(held) or "none: the index has no further sets"
            raise UserError(f"{out}: holds no set {name!r} to drop, expected one of {expected}")
    settings = replace(
        settings, embedding=None, passages=older.passages, faiss=settings.faiss or "Flat",
        faiss_shard=older.faiss_shard, opensearch=None,
    )  # fmt: skip
    added = {name: one.made_by for name, one in settings.vectors.items()}
    impacts, plaid = ({name: one.weights for name, one in own.items()} for own in (settings.impacts, settings.plaid))
    kind = [settings.faiss, settings.recall]
    key = digest(["parts", older.key, added, impacts, kind, sorted(drop), *([plaid] if plaid else [])])
    with replace_index(out, older, key, (*PARTS, "*.sqlite", *SETS), settings) as (folder, engine):
        _share_files(older, folder, drop)
        store, effort = DocumentStore(folder / "store"), Effort(settings.threads, progress, foretell)
        made, _, _ = write_vectors(store, settings, folder, effort, engine.embed)
        made |= write_impact_sets(store, settings, folder, effort)
        made |= write_plaid_sets(store, settings, folder, effort)
        write_description(folder, {**_describe(older, made, drop), "key": key})
    return open_index(out)


def _share_files(older: Index, folder: Path, drop: Sequence[str]) -> None:
    """Give the files of an older index, but those of dropped sets, a second name in a folder, or copy them."""
    dropped = [older.folder / kind / name for kind in SETS for name in drop]
    for path in sorted(older.folder.rglob("*")):
        there = folder / path.relative_to(older.folder)
        is_shared = path.name != "index.json" and path.suffix != ".sqlite" and not there.exists()
        if not path.is_file() or not is_shared or any(path.is_relative_to(place) for place in dropped):
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, there)
        except OSError:  # a file system without second names
            shutil.copy2(path, there)


def _describe(older: Index, made: dict[str, Any], drop: Sequence[str]) -> dict[str, Any]:
    said = read_description(older)
    for kind in SETS:
        kept = {name: one for name, one in said.pop(kind, {}).items() if name not in drop}
        said |= {kind: kept | made[kind]} if made.get(kind) else {kind: kept} if kept else {}
    return said
