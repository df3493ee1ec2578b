"""`keystone index`: make an index of a corpus, here or in OpenSearch, or attach an index that is searched in place.

It can also build the structures of all documents ahead.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from keystone.indexing.attached.attach import AttachSettings
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import Report, UserError
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.index import ImpactSet, Index
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.types import LOCAL, Embedding, Progress
from keystone.indexing.vectors.embed import settle_embedding
from keystone.retrieval.backends import BACKENDS, open_store

if TYPE_CHECKING:
    from keystone.indexing.opensearch.index import Target


SET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")
"""The name of a set of vectors, and of its folder."""


def target_of(place: str | None, shards: int, replicas: int) -> "Target | None":
    """Read the place `URL[,URL...]/NAME` of a new index in OpenSearch. `UserError` if it is not one."""
    if place is None:
        return None
    from keystone.indexing.opensearch.cluster import place_of
    from keystone.indexing.opensearch.index import Target

    return Target(place_of(place), shards, replicas)


def parse_vectors(given: Sequence[str], main: Embedding, note: Callable[[str], None]) -> dict[str, Embedding]:
    """Parse the values of `--vectors`, each `NAME=MODEL`, `NAME=MODEL@URL` or `NAME={key: value, ...}`, by name.

    The keys are those of `Embedding`. A model without a URL is the embedded one, a folder, at the URL of the `main`
    model, or else one of the hub. `note` is that of `settle_embedding`. `UserError` for anything else.
    """
    if not given:
        return {}
    from keystone.runs.config.read import parse_value

    found: dict[str, Embedding] = {}
    for option in given:
        name, _, text = option.partition("=")
        try:
            value = (
                parse_value(text)
                if text.startswith("{")
                else dict(zip(("model", "url"), text.split("@", 1), strict=False))
            )
        except ValueError as error:
            raise UserError(f"--vectors {option}: the value is not YAML: {error}") from error
        if not SET_NAME.fullmatch(name) or name in found or not isinstance(value, dict) or not value.get("model"):
            raise UserError(
                f"--vectors {option}: expected NAME=MODEL@URL, or NAME={{model: M, url: U, ...}}, with a new name of "
                "lower-case letters, digits, _ and -"
            )
        types = {**dict.fromkeys(Embedding.__dataclass_fields__, str), "window": int, "dimensions": int}
        del types["weights"]
        for key, one in value.items():
            if type(one) is not types.get(key):
                raise UserError(
                    f"--vectors {option}: found {key}: {one!r}, expected {', '.join(types)} with their values"
                )
        url = None if value["model"] == LOCAL or Path(value["model"]).is_dir() else main.url
        has_prefixes = bool({"query_prefix", "passage_prefix"} & value.keys())
        found[name] = settle_embedding(Embedding(**{"url": url, **value}), has_prefixes, note)
    return found


def parse_impacts(given: Sequence[str]) -> dict[str, ImpactSet]:
    """Parse the values of `--impacts`, each `NAME=MODEL`, by name. `UserError` for anything else."""
    found: dict[str, ImpactSet] = {}
    for option in given:
        name, _, model = option.partition("=")
        if not SET_NAME.fullmatch(name) or name in found or not model:
            raise UserError(
                f"--impacts {option}: expected NAME=MODEL, with a new name of lower-case letters, digits, _ and -"
            )
        found[name] = settle_impacts(model)
    return found


def is_attached(corpus: str) -> bool:
    """Tell whether `corpus` names an index that Keystone can only search in place: on a server."""
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
        "--dense passages": (settings.passages and settings.faiss) or None,
    }
    if not (backend.cuts and corpus.startswith(backend.prefix)):
        refused |= {"--segments": settings.segments, "--windows": settings.windows or None}
    if given := [name for name, value in refused.items() if value is not None]:
        raise UserError(f"found {given[0]} with {corpus}, which is searched where it is; expected one of them")
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


def make_index(
    corpus: str, out: Path, settings: BuildSettings, progress: Progress, report: Report
) -> tuple[Index, bool]:
    """Make an index of the corpus at a path; returns the index, and whether it is new.

    `UserError` for settings that exclude each other, and as from `build_index`.
    """
    if settings.opensearch and settings.faiss_shard:
        raise UserError("found --faiss-shard with --opensearch, which has --shards; expected one of them")
    return build_index(Path(corpus), out, settings, progress, report)


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

    `UserError` if the engine of the index does not list its documents.
    """
    if index.documents is None:
        raise UserError(f"{index.folder}: found --structures with a server that does not list its documents")
    from keystone.indexing.structures.cached import read_structures

    with progress(f"Building {', '.join(kinds)}", index.documents) as tick:
        for _ in read_structures(index, kinds, open_store(index), threads):
            tick(1)
