"""What a build is asked for: its settings, its further sets of vectors and impacts, and the engine of its long work."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from keystone.indexing.errors import UserError
from keystone.indexing.index import ImpactSet, PlaidSet
from keystone.indexing.languages import DEFAULT_LANGUAGE, FIELD_PREFIX
from keystone.indexing.types import EMBEDDED, MINILM, Embedding

if TYPE_CHECKING:
    from keystone.indexing.corpora.corpus import Read
    from keystone.indexing.opensearch.index import Target
    from keystone.indexing.vectors.shards import Embed


class Kind(NamedTuple):
    """The FAISS index that a set of vectors gets, and the recall at 10 that it is chosen for, as in `BuildSettings`."""

    faiss: str | None
    recall: float | None


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How `build_index` makes an index from a corpus. `threads` and `engine` do not change the index."""

    format: str | None = None
    """The format of the corpus; None guesses it from the files."""
    extract: str = "main"
    """How much of a page of HTML is read: its `main` part, or `all` that it shows."""
    language: str = DEFAULT_LANGUAGE
    """The language of all documents; or `auto` or `field:NAME`, if each has its own (`keystone.indexing.languages`)."""
    segments: Path | None = None
    """The official segments of MS MARCO V2.1 that cut the documents: a file, or `pyserini:NAME`."""
    windows: bool = False
    """Whether Keystone may cut documents of MS MARCO V2.1 that have no official segments."""
    embedding: Embedding | None = MINILM
    """The embedding model; None for no embeddings."""
    faiss: str | None = "Flat"
    """FAISS's factory string, or `smallest` that reaches `recall`; None lets runs embed what they find."""
    recall: float | None = None
    """The recall at 10 that search parameters, or the kind, are chosen for: above 0, at most 1; None chooses none."""
    kinds: "Mapping[str, Kind]" = field(default_factory=dict)
    """The kinds that further sets of vectors, and under "" the main one, have in place of `faiss` and `recall`."""
    faiss_shard: int | None = None
    """The number of vectors in each file of the FAISS index; None for one file."""
    passages: bool | None = False
    """Whether segments get vectors of their own; otherwise documents do. None: segments, if most documents are long."""
    opensearch: "Target | None" = None
    """The index in an OpenSearch cluster that receives documents, postings and vectors; None for the folder."""
    vectors: Mapping[str, Embedding] = field(default_factory=dict)
    """The models of further sets of vectors, by the names of the sets."""
    impacts: Mapping[str, ImpactSet] = field(default_factory=dict)
    """The learned sparse encoders of sets of impacts, by the names of the sets."""
    plaid: Mapping[str, PlaidSet] = field(default_factory=dict)
    """The checkpoints of late interaction of PLAID indexes, by the names of the sets."""
    engine: str = "local"
    """Where the long work runs: a name in `ENGINES`."""
    threads: int = 1
    """The number of threads, or of CPUs of a local Ray cluster."""

    def kind_of(self, name: str) -> "Kind":
        """Return the kind of a set of vectors by its name, "" for the main one."""
        return self.kinds.get(name) or Kind(self.faiss, self.recall)

    @property
    def sets(self) -> dict[str, Mapping[str, Embedding | ImpactSet]]:
        """The further sets by their kinds, which name the folders that hold them; a kind without sets is left out."""
        kinds: dict[str, Mapping[str, Embedding | ImpactSet]] = {
            "vectors": self.vectors, "impacts": self.impacts, "plaid": self.plaid,
        }  # fmt: skip
        return {kind: own for kind, own in kinds.items() if own}

    @property
    def set_names(self) -> list[str]:
        """The names of all sets."""
        return [name for own in self.sets.values() for name in own]

    def name_makers(self, kind: str) -> dict[str, Any]:
        """Name, for keys, what makes each set of a kind."""
        return {name: one.made_by for name, one in self.sets.get(kind, {}).items()}

    @property
    def language_field(self) -> str:
        """The name of the field with each document's language; empty if none is read."""
        return self.language.removeprefix(FIELD_PREFIX) if self.language.startswith(FIELD_PREFIX) else ""


DEFAULTS = BuildSettings()


@dataclass(frozen=True, slots=True)
class Engine:
    """How a build reads the files of a corpus, and how it embeds shards of documents."""

    read: "Read"
    embed: "Embed | None" = None
    """None for this process, so that a build without vectors need not import what makes them."""


ENGINES = {"local": "keystone.indexing.builds.settings:open_local", "ray": "keystone.indexing.builds.ray:open_ray"}
"""The import path, `MODULE:FUNCTION`, of the opener of each engine: a function of (threads), a context manager of an
`Engine`. To add an engine, write its opener and add a line here. All engines make the same bytes."""


def open_engine(name: str, threads: int) -> AbstractContextManager[Engine]:
    """Open an engine for the length of a block. `UserError` for an unknown name, and if the engine cannot start."""
    if name not in ENGINES:
        raise UserError(f"engine: found {name!r}, expected one of {', '.join(ENGINES)}")
    engine: AbstractContextManager[Engine] = resolve_name(ENGINES[name])(threads)
    return engine


@contextmanager
def open_local(_threads: int) -> Iterator[Engine]:
    """Open the engine that works in this process."""
    from keystone.indexing.corpora.corpus import read_files

    yield Engine(read_files)


SET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")
"""The name of a set, and of its folder."""


def check_set_name(name: Any, others: Collection[str], where: str) -> None:
    """Check the name of a set beside those of `others`. `UserError` begins with `where`, the place of the name."""
    if not isinstance(name, str) or not SET_NAME.fullmatch(name) or name in others:
        raise UserError(f"{where}: found the name {name!r}, expected a new one of lower-case letters, digits, _ and -")


def check_set_names(settings: BuildSettings) -> None:
    """Raise `UserError` if sets of two kinds have one name, by which nobody could tell them apart."""
    names = settings.set_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"found two sets with the name {twice[0]!r}, expected a name of its own for each")


def settle_vectors(value: Any, url: str | None, note: Callable[[str], None], where: str) -> Embedding:
    """Settle the model of a set of vectors from a mapping with keys of `Embedding`.

    If the mapping has no URL, the model is at `url`, unless it is an embedded one, a folder or one with a backend. If
    `url` is None too, the model is one of the hub. `note` is that of `settle_embedding`. `UserError` for anything else
    begins with `where`, the place of the value.
    """
    if not isinstance(value, dict) or not value.get("model"):
        raise UserError(f"{where}: expected a model, as in {{model: M, url: U, ...}}")
    types = {**dict.fromkeys(Embedding.__dataclass_fields__, str), "window": int, "dimensions": int}
    del types["weights"]
    for key, one in value.items():
        if type(one) is not types.get(key):
            raise UserError(f"{where}: found {key}: {one!r}, expected {', '.join(types)} with their values")
    from keystone.indexing.vectors.embed import settle_embedding

    is_here = value["model"] in EMBEDDED or "backend" in value or Path(value["model"]).is_dir()
    names = "the set's query_prefix", "passage_prefix"
    return settle_embedding(Embedding(**{"url": None if is_here else url, **value}), value.keys(), note, names)
