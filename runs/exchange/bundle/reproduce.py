"""Reproducing a run from its bundle: without corpus, embedding model, language model or network."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.store import from_record
from keystone.indexing.types import Document
from keystone.indexing.vectors.embed import stand_in
from keystone.indexing.vectors.types import Effort, Vectors
from keystone.runs.config.read import read_config
from keystone.runs.exchange.bundle.archive import unpack
from keystone.runs.exchange.bundle.parts import KnownVectors, PartStore, load_vectors, open_sealed_index
from keystone.runs.exchange.bundle.remake import (
    DOCUMENTS,
    FACTS,
    FORMAT,
    REPLIES,
    RUN,
    VECTORS,
    Remade,
    find_searching_stages,
    list_ranked_ids,
    open_sealed_job,
    remake,
    replay,
)
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.pipeline.model_runner import open_model_runner

MOST_GB = 8.0
"""The most gigabytes that a bundle unpacks to, unless the caller allows more. It holds documents and vectors."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The artifacts that were made again, and the stages that the bundle only stores, each with the reason.

    `versions` has the version then and now of each package that has another version.
    """

    remade: Sequence[Remade]
    stored: Mapping[str, str]
    versions: Mapping[str, tuple[str, str]]


def reproduce(bundle: Path, out: Path | None, effort: Effort, most_gb: float = MOST_GB) -> Reproduction:
    """Make the artifacts of a bundle again, and compare each with the stored one. They are kept in `out`, if given.

    `UserError` for a file that is no bundle, for one that was changed or unpacks to more than `most_gb` gigabytes, and
    if `out` holds files already.
    """
    if out is not None and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists, expected the name of a new folder")
    with TemporaryDirectory() as name:
        folder, scratch = Path(name, "bundle"), Path(name, "scratch")
        scratch.mkdir()
        unpack(bundle, folder, int(most_gb * 1e9))
        facts = _read_facts(bundle, folder)
        if out is not None:
            _make_folder(out)
        try:
            stored = find_searching_stages(read_config(folder / RUN / CONFIG)) | facts["stored"]
            remade = _remake_all(folder, {**facts, "stored": stored}, scratch, out or scratch, effort)
            versions = _compare_versions(parse_json((folder / RUN / MANIFEST).read_bytes())["versions"])
        except (LookupError, AttributeError, TypeError, ValueError, FileNotFoundError) as error:
            raise UserError(f"{bundle}: its files contradict each other: {error!r}") from error
    if not remade:
        raise UserError(f"{bundle}: only stores every stage, so nothing was made again")
    return Reproduction(remade, stored, versions)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from error


def _read_facts(bundle: Path, folder: Path) -> dict[str, Any]:
    """Read the facts about a bundle. `UserError` for one of another format."""
    try:
        facts: dict[str, Any] = parse_json((folder / FACTS).read_bytes())
        found = facts["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{bundle}: {FACTS}: not the facts about a bundle: {error}") from error
    if found != FORMAT:
        raise UserError(f"{bundle}: {FACTS}: found format {found}, expected {FORMAT}: bundle the run again")
    return facts


def _remake_all(folder: Path, facts: Mapping[str, Any], scratch: Path, out: Path, effort: Effort) -> list[Remade]:
    """Make all artifacts again that the bundle does not only store."""
    config = read_config(folder / RUN / CONFIG)
    documents = {record["id"]: from_record(record) for _, record in read_json_lines(folder / DOCUMENTS)}

    def read(ids: Sequence[str]) -> list[Document]:
        if missing := [name for name in ids if name not in documents]:
            raise UserError(f"the bundle lacks the document {missing[0]!r}")
        return [documents[name] for name in ids]

    def find_vectors(texts: Sequence[str]) -> list[Vectors]:
        raise UserError(f"the bundle lacks the vector of the text {texts[0][:80]!r}")

    index = open_sealed_index(facts["index"], scratch)
    standing: AbstractContextManager[None] = nullcontext()
    if index.embedding:
        known = load_vectors(folder / VECTORS)
        dimension = len(next(iter(known.values()), ()))
        standing = stand_in(index.embedding, KnownVectors(dimension, find_vectors, known))
    job = open_sealed_job(folder, index, PartStore(list_ranked_ids(folder / RUN, config), read), effort)
    with standing, open_model_runner(replay(config, folder / REPLIES, scratch / REPLIES), None) as run_with_model:
        return list(remake(job, run_with_model, folder / RUN, out, facts["stored"]))


def _compare_versions(made_by: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Compare the versions of packages with those of this machine."""
    found = {}
    for name, then in made_by.items():
        try:
            now = version(name)
        except PackageNotFoundError:
            continue
        if now != then:
            found[name] = then, now
    return found
