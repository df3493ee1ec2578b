"""What `keystone index` does besides builds: sets by name, indexes searched in place, structures, and watching."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from keystone.indexing.builds.changes import Reading
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.types import Embedding, Progress
from keystone.runs.report.say import say

if TYPE_CHECKING:
    from keystone.indexing.opensearch.index import Target


def target_of(place: str | None, shards: int, replicas: int) -> "Target | None":
    """Read the place `URL[,URL...]/NAME` of a new index in OpenSearch. `UserError` if it is not one."""
    if place is None:
        return None
    from keystone.indexing.opensearch.cluster import place_of
    from keystone.indexing.opensearch.index import Target

    return Target(place_of(place), shards, replicas)


def parse_vectors(given: Sequence[str], main: Embedding, note: Callable[[str], None]) -> dict[str, Embedding]:
    """Parse the values of `--vectors`, each `NAME=MODEL`, `NAME=MODEL@URL` or `NAME={key: value, ...}`, by name.

    `main` and `note` go to `settle_vectors`. `UserError` as from there, and for a value of another form.
    """
    if not given:
        return {}
    from keystone.indexing.builds.settings import check_set_name, settle_vectors

    found: dict[str, Embedding] = {}
    for option in given:
        name, _, text = option.partition("=")
        value: Any = dict(zip(("model", "url"), text.split("@", 1), strict=False))
        if text.startswith("{"):
            from keystone.runs.config.read import parse_value

            try:
                value = parse_value(text)
            except ValueError as error:
                raise UserError(f"--vectors {option}: the value is not YAML: {error}") from error
        check_set_name(name, found, f"--vectors {option}")
        found[name] = settle_vectors(value, main.url, note, f"--vectors {option}")
    return found


def parse_sets(option: str, given: Sequence[str], settle: str) -> dict[str, Any]:
    """Parse the values of `--impacts` or `--plaid`, each `NAME=MODEL`, by name. `UserError` for anything else.

    `settle` is the import path of the function that makes a set of a model.
    """
    if not given:
        return {}
    from keystone.indexing.builds.settings import check_set_name

    models: dict[str, str] = {}
    for value in given:
        name, _, model = value.partition("=")
        check_set_name(name, models, f"{option} {value}")
        if not model:
            raise UserError(f"{option} {value}: expected NAME=MODEL")
        models[name] = model
    make_set = resolve_name(settle)
    return {name: make_set(model) for name, model in models.items()}


def is_attached(corpus: str) -> bool:
    """Tell whether `corpus` names an index that Keystone can only search in place: on a server."""
    from keystone.retrieval.backends import BACKENDS

    return any(
        corpus.startswith(backend.prefix) for backend in BACKENDS.values() if backend.prefix and not backend.cuts
    )


def attach_index(
    corpus: str,
    out: Path,
    settings: BuildSettings,
    progress: Progress,
    rest_key_env: str | None = None,
    rest_max_rate: float | None = None,
) -> tuple[Index, bool]:
    """Make an index folder over an index that is searched in place; also returns whether it is new.

    `corpus` begins with the prefix of its engine. `UserError` for a setting that needs a build, and if the index
    cannot be used.
    """
    from keystone.retrieval.backends import BACKENDS

    found = (backend for backend in BACKENDS.values() if backend.attach and corpus.startswith(backend.prefix))
    backend = next(found, BACKENDS["pyserini"])
    refused: dict[str, object] = {
        "--opensearch": settings.opensearch,
        "--faiss-shard": settings.faiss_shard,
        "--format": settings.format,
        "--recall": settings.recall,
        "--language": settings.language if settings.language != DEFAULT_LANGUAGE else None,
        "--vectors": settings.vectors or None,
        "--impacts": (settings.impacts if backend is not BACKENDS["pyserini"] else None) or None,
        "--plaid": settings.plaid or None,
        "--dense passages": (settings.passages and settings.faiss) or None,
    }
    if not (backend.cuts and corpus.startswith(backend.prefix)):
        refused |= {"--segments": settings.segments, "--windows": settings.windows or None}
    if given := [name for name, value in refused.items() if value is not None]:
        raise UserError(f"found {given[0]} with {corpus}, which is searched where it is; expected one of them")
    from keystone.indexing.attached.attach import AttachSettings

    assert backend.attach is not None
    attached = AttachSettings(
        settings.segments,
        settings.windows,
        settings.embedding,
        bool(settings.passages),
        rest_key_env,
        settings.impacts,
        rest_max_rate,
    )
    made: tuple[Index, bool] = resolve_name(backend.attach)(corpus, out, attached, progress)
    return made


def list_kinds(structures: str) -> list[str]:
    """List the kinds of structures in the value of `--structures`, each once. `UserError` for an unknown kind."""
    kinds = [kind.strip() for kind in structures.split(",") if kind.strip()]
    if not kinds:
        return []
    from keystone.indexing.structures.cached import BUILDERS

    if unknown := [kind for kind in kinds if kind not in BUILDERS]:
        raise UserError(f"--structures: found {unknown[0]!r}, expected {', '.join(BUILDERS)}")
    return list(dict.fromkeys(kinds))


def make_structures(index: Index, kinds: Sequence[str], threads: int, progress: Progress) -> None:
    """Build those structures of all documents that the index does not hold yet.

    `UserError` if the engine of the index does not list its documents, and if the index cannot keep them.
    """
    if index.documents is None:
        raise UserError(f"{index.folder}: found --structures with a server that does not list its documents")
    from keystone.indexing.structures.cached import CHUNK_DOCUMENTS, read_structures
    from keystone.retrieval.backends import open_store

    made = read_structures(index, kinds, open_store(index), threads, must_keep=True)
    with progress(f"Building {', '.join(kinds)}", index.documents) as tick:
        while done := sum(1 for _ in islice(made, CHUNK_DOCUMENTS)):  # those that are built together count together
            tick(done)


QUIET_MS, MOST_MS = 500, 5_000
"""An update begins after `QUIET_MS` without a change, or `MOST_MS` after the first change at the latest."""
LOOK_MS = 500
"""The pause between two looks whether another file or folder has taken the place of a corpus."""


def keep_updated(corpora: Sequence[Path], update: Callable[[Reading], Reading], quiet: bool) -> None:
    """Update an index, and again after each burst of changes of its corpora. An interrupt ends the process with 0.

    `update` gets what the updates before have read, and returns that with what it has read. `UserError` from the
    first update, and for a corpus that is no file or folder. After an error of a later update, which is printed, the
    index stays as it is.
    """
    for path in corpora:
        if not path.exists():
            raise UserError(f"--watch: found {path}, expected a file or a folder that exists")
    bursts = watch_bursts(corpora)
    next(bursts)  # a change during the first update counts, too
    since = update(Reading())
    if not quiet:
        say(f"{', '.join(map(str, corpora))}: watched for changes; Ctrl-C ends this", err=True)
    try:
        for _ in bursts:
            try:
                since = update(since)
            except UserError as error:
                say(f"error: {error}; the index stays as it is", err=True)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(0)  # at once, without waiting for threads that still compute


def watch_bursts(paths: Sequence[Path]) -> Iterator[None]:
    """Yield when files and folders begin to be watched, and then after each burst of changes in them.

    If a file or folder is replaced, or is missing for a while, watching begins anew.
    """
    from watchfiles import watch

    while True:
        known, begins = [*map(_identify, paths)], True
        there = [path for path, found in zip(paths, known, strict=True) if found]
        try:
            for changes in watch(
                *there, watch_filter=None, step=QUIET_MS, debounce=MOST_MS, rust_timeout=LOOK_MS, yield_on_timeout=True
            ):
                if [*map(_identify, paths)] != known:
                    break
                if begins or changes:
                    begins = False
                    yield
        except FileNotFoundError:  # it was there a moment ago
            time.sleep(LOOK_MS / 1000)


def _identify(path: Path) -> tuple[int, int] | None:
    """Identify a file or folder; None if it is missing."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino
