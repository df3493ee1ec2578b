"""The settings of an index build."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from keystone.indexing.index import ImpactSet, PlaidSet
from keystone.indexing.languages import DEFAULT_LANGUAGE, FIELD_PREFIX
from keystone.indexing.types import MINILM, Embedding

if TYPE_CHECKING:
    from keystone.indexing.opensearch.index import Target


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How `build_index` makes an index of a corpus. `threads` and `engine` do not change the index."""

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
    """FAISS's factory string, such as `Flat` or `HNSW32`; None lets runs embed the documents that they find.

    `smallest` chooses the smallest kind that reaches `recall`.
    """
    recall: float | None = None
    """The recall at 10 that search parameters, or the kind, are chosen for: above 0, at most 1; None chooses none."""
    faiss_shard: int | None = None
    """The number of vectors in each file of the FAISS index; None for one file."""
    passages: bool | None = False
    """Whether each segment gets a vector of its own; otherwise each document gets one. None: if most are long."""
    opensearch: "Target | None" = None
    """The index in an OpenSearch cluster that receives documents, postings and vectors; None for the folder."""
    vectors: Mapping[str, Embedding] = field(default_factory=dict)
    """The models of further sets of vectors, by the names of the sets."""
    impacts: Mapping[str, ImpactSet] = field(default_factory=dict)
    """The learned sparse encoders of sets of impacts, by the names of the sets."""
    plaid: Mapping[str, PlaidSet] = field(default_factory=dict)
    """The checkpoints of late interaction of PLAID indexes, by the names of the sets."""
    engine: str = "local"
    """Where the long work runs: a name in `keystone.indexing.builds.engines.ENGINES`."""
    threads: int = 1
    """The number of threads, or of CPUs of a local Ray cluster."""

    @property
    def language_field(self) -> str:
        """The name of the field with each document's language; empty if none is read."""
        return self.language.removeprefix(FIELD_PREFIX) if self.language.startswith(FIELD_PREFIX) else ""


DEFAULTS = BuildSettings()
