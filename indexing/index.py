"""An index folder: its description, and a guard against its replacement while a command uses it."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES, PIECES_PREFIX, find_code
from keystone.indexing.types import WORDS, Embedding, label_of, show_as_html

P = ParamSpec("P")
T = TypeVar("T")

FORMAT = 5
"""The version of the layout of an index folder; each change of the layout raises it."""


class OpenParts:
    """The parts of an index that stay open, each opened once. Several threads may take them at the same time."""

    def __init__(self) -> None:
        self._lock, self._parts = RLock(), dict[Hashable, Any]()

    def take(self, name: Hashable, open_part: Callable[[], T]) -> T:
        """Take a part by its name, which `open_part` opens if nobody has taken it before."""
        with self._lock:
            if name not in self._parts:
                self._parts[name] = open_part()
            part: T = self._parts[name]
            return part


SMALLEST = "smallest"
"""The kind of FAISS index that a build chooses: the smallest one that reaches a wanted recall."""


@dataclass(frozen=True, slots=True)
class Recall:
    """What a build measured of a FAISS index (`keystone.indexing.vectors.recall`)."""

    at_10: float
    """The share of the exact 10 nearest vectors that a search finds, averaged over the queries."""
    at_100: float
    """The same share of the exact 100 nearest vectors."""
    queries: int
    """The number of sampled vectors that were the queries; 0 for an exact index."""
    bytes: float
    """The size of the index's files, in bytes per vector."""
    parameters: str
    """The search parameters that the build has chosen, such as `nprobe=16`; empty for FAISS's and Keystone's own."""
    wanted: float | None = None
    """The recall at 10 that was asked for; None if nothing was."""
    chosen: bool = False
    """Whether the build has chosen the kind of the index, too."""


@dataclass(frozen=True, slots=True)
class VectorSet:
    """A further set of vectors of an index, beside the main one: what `Index` says of its main set."""

    embedding: Embedding
    faiss: str | None
    faiss_shards: int = 0
    passages: bool = False
    cut: int = 0
    recall: Recall | None = None

    def as_json(self) -> dict[str, Any]:
        """The set as `index.json` has it."""
        found = {**asdict(self), "embedding": self.embedding.as_json()}
        return {name: value for name, value in found.items() if name != "recall" or value}


@dataclass(frozen=True, slots=True)
class ImpactSet:
    """A set of impacts of an index: the learned sparse encoder that made them, and the digest of its files.

    `prompted` says that the prompts of the checkpoint come before texts and queries. It is false in an index by an
    older version, which left prompts out, and for a checkpoint without prompts. Only a `PlaidSet` has `lengths`.
    """

    model: str
    weights: str
    prompted: bool = False
    lengths: str = ""

    @property
    def label(self) -> str:
        """The name of the model for people: of a folder, its last part."""
        return label_of(self.model)

    @property
    def made_by(self) -> str:
        """What the numbers depend on besides the texts."""
        return self.weights + (" with prompts" if self.prompted else "") + self.lengths

    def as_json(self) -> dict[str, Any]:
        """The set as `index.json` has it."""
        return {name: value for name, value in asdict(self).items() if value}


PlaidSet = ImpactSet
"""A PLAID index of the tokens' vectors. `prompted` is false only if markers alone come before texts.

`lengths` names those that older versions read otherwise. If it is empty, texts are read as these versions did.
"""


@dataclass(frozen=True, slots=True)
class Index:
    """The description of an index in its folder."""

    folder: Path
    key: str
    """A digest of the corpus, the settings and the layout: it changes with each of them."""
    embedding: Embedding | None
    """The embedding model; None for an index without embeddings."""
    documents: int | None
    """The number of documents; None if the engine does not tell it."""
    left_out: dict[str, int]
    """The number of the corpus's records that are not documents, by kind."""
    cut: int
    """The number of documents, or of passages, longer than the window: their vectors cover only the beginning."""
    faiss: str | None
    """The kind of the FAISS index; None if there is none."""
    at: dict[str, str] = field(default_factory=dict)
    """The place of documents and postings, such as {"backend": "opensearch", "url": ...}; empty for the folder."""
    faiss_shards: int = 0
    """The number of files that hold the FAISS index; 0 for a single file, which a search reads as a whole."""
    segments: dict[str, int] = field(default_factory=dict)
    """The numbers of `official` segments, of `windows` that Keystone cut, and of `blank` documents; may be empty."""
    passages: bool = False
    """Whether each segment has a vector of its own, a passage; otherwise each document has one."""
    vectors: dict[str, VectorSet] = field(default_factory=dict)
    """The further sets of vectors by their names."""
    faiss_shard: int | None = None
    """The number of vectors in each of these files; None for a single file, and if an older version built them."""
    impacts: dict[str, ImpactSet] = field(default_factory=dict)
    """The sets of impacts by their names."""
    set_name: str = ""
    """The name of the set of vectors that `embedding` and the files of vectors belong to; empty for the main set."""
    recall: Recall | None = None
    """The measured recall of the FAISS index; None if it is exact, and if an older version built it."""
    language: str = DEFAULT_LANGUAGE
    """The language of the documents; or `auto` or `field:NAME`, if each has its own (`keystone.indexing.languages`)."""
    languages: dict[str, int] = field(default_factory=dict)
    """The number of documents by language, the commonest first, if each has its own; otherwise empty."""
    language_part: str = ""
    """The language whose documents alone `lucene` and `postings` hold; empty if they hold all documents."""
    device: str = "cpu"
    """Where the models of vectors ran when the index was built: `cpu` or `cuda`."""
    plaid: dict[str, PlaidSet] = field(default_factory=dict)
    """The PLAID indexes by their names."""
    parts: OpenParts | None = field(default=None, compare=False, repr=False)
    """The parts that stay open, as `hold_open` says; None if each use opens its parts."""

    def __len__(self) -> int:
        """The number of documents. `UserError` if the engine does not tell it."""
        if self.documents is None:
            raise UserError(f"{self.folder}: its server does not tell the number of documents")
        return self.documents

    def __bool__(self) -> bool:
        """Return true, even for an index of unknown length."""
        return True

    def _repr_html_(self) -> str:
        return show_as_html(repr(self))

    def __repr__(self) -> str:
        """Say in one line which documents the index holds, and how they can be searched."""
        number = "documents" if self.documents is None else f"{self.documents:,} documents"
        models = [self.embedding.label] if self.embedding else []
        models += [f"{one.embedding.label} ({name})" for name, one in self.vectors.items()]
        dense = f"embeddings by {', '.join(models)}" if models else "no embeddings"
        for recall in (self.recall, *(one.recall for one in self.vectors.values())):
            dense += f", recall@10 {recall.at_10:.4f}" if recall else ""
        languages = ", ".join(LANGUAGES.get(code, code) for code in self.languages or [self.language])
        told = "" if self.language == DEFAULT_LANGUAGE else f" in {languages}"
        sparse = "".join(f", impacts by {one.label} ({name})" for name, one in self.impacts.items())
        late = "".join(f", PLAID by {one.label} ({name})" for name, one in self.plaid.items())
        return f"Index({str(self.folder)!r}: {number}{told}, BM25 by {self.backend}, {dense}{sparse}{late})"

    @property
    def backend(self) -> str:
        """The engine that holds documents and postings: a name in `keystone.retrieval.backends.BACKENDS`."""
        return self.at.get("backend", "lucene")

    def with_vectors(self, name: str | None) -> "Index":
        """Return the index with a further set of vectors as its main one, if named. `UserError` for one it lacks."""
        if name is None:
            return self
        if name not in self.vectors:
            expected = f"one of {', '.join(self.vectors)}" if self.vectors else "null: it has no further sets"
            raise UserError(
                f"vectors: found {name!r} for {self.folder}, expected {expected} (keystone index --vectors)"
            )
        own = self.vectors[name]
        return replace(self, set_name=name, **{field: getattr(own, field) for field in VectorSet.__dataclass_fields__})

    def list_languages(self) -> list["Index"]:
        """List the index once for each language whose documents have postings of their own; else the index itself."""
        if not self.languages or self.language_part:
            return [self]
        return [replace(self, language=code, language_part=code) for code in self.languages]

    def with_language(self, named: str) -> "Index":
        """Return the index as `list_languages` lists it for one language. `UserError` for one that the index lacks."""
        own = self.list_languages()
        for one in own:
            if one.language == find_code(named):
                return one
        expected = ", ".join(one.language for one in own)
        raise UserError(
            f"language: found {named!r} for {self.folder}, expected one of {expected} (keystone index --language)"
        )

    def count_documents(self, all_documents: int) -> int:
        """Count the documents that `lucene` and `postings` hold, of `all_documents` of the index."""
        return self.languages[self.language_part] if self.language_part else all_documents

    def take(self, name: Hashable, open_part: Callable[[], T]) -> T:
        """Open a part, or take the one that stays open. `UserError` if the folder no longer holds the index."""
        if self.parts is None:
            return open_part()

        def open_guarded() -> T:
            with _guard(self):
                return open_part()

        return self.parts.take((self.language_part, name), open_guarded)

    @property
    def compares_by(self) -> Embedding:
        """The embedding by which texts are compared: that of the index, or of words if it has no model."""
        return self.embedding or WORDS

    @property
    def pooled(self) -> bool:
        """Whether runs embed the candidates that BM25 finds, and search these alone."""
        return self.embedding is not None and self.faiss is None

    @property
    def chosen_parameters(self) -> str:
        """The search parameters that the build has chosen, such as `nprobe=16`; empty for none."""
        return self.recall.parameters if self.recall else ""

    @property
    def store(self) -> Path:
        """The folder of the document store."""
        return self.folder / "store"

    @property
    def term_folder(self) -> Path:
        """The folder of the Lucene index and the postings: `languages/CODE` for one of several languages."""
        return self.folder / "languages" / self.language_part if self.language_part else self.folder

    @property
    def lucene(self) -> Path:
        """The folder of the Lucene index."""
        return self.term_folder / "lucene"

    @property
    def vector_folder(self) -> Path:
        """The folder of the files of vectors: `vectors/NAME` for a further set."""
        return self.folder / "vectors" / self.set_name if self.set_name else self.folder

    @property
    def postings(self) -> Path:
        """The folder of the mapped postings; an index that an older version built has none."""
        return self.term_folder / "postings"

    def impacts_of(self, name: str) -> Path:
        """The folder of a set of impacts. `UserError` for a name that the index lacks."""
        return self._find_set("impacts", self.impacts, name)

    def plaid_of(self, name: str) -> Path:
        """The folder of a PLAID index. `UserError` for a name that the index lacks."""
        return self._find_set("plaid", self.plaid, name)

    def _find_set(self, kind: str, held: Collection[str], name: str) -> Path:
        if name not in held:
            expected = f"one of {', '.join(held)}" if held else "a set that the index holds: it has none"
            raise UserError(f"{kind}: found {name!r} for {self.folder}, expected {expected} (keystone index --{kind})")
        return self.folder / kind / name

    @property
    def dense(self) -> Path:
        """The file of the FAISS index; it exists if `faiss` names a kind and `faiss_shards` is 0."""
        return self.vector_folder / "dense.faiss"

    @property
    def offsets(self) -> Path:
        """The file that maps documents to passages; it exists if `passages` is true and any set holds all texts."""
        return self.folder / "passages.npy"

    @property
    def dense_shards(self) -> list[Path]:
        """The files of a FAISS index in several files; empty if it is the file `dense`."""
        return shard_files(self.vector_folder, self.faiss_shards)

    @property
    def dense_files(self) -> list[Path]:
        """All files of the FAISS index, in the order of rows."""
        return self.dense_shards or [self.dense]


def open_index(folder: Path) -> Index:
    """Read the description in an index folder. `UserError` if the folder is not an index, or has another layout."""
    try:
        found = orjson.loads((folder / "index.json").read_bytes())
        if found["format"] != FORMAT:
            raise UserError(f"{folder}: index format {found['format']}, expected {FORMAT}: build it again")
        embedding = Embedding(**found["embedding"]) if found["embedding"] else None
        further = {
            name: VectorSet(**{**own, "embedding": Embedding(**own["embedding"]), "recall": _read_recall(own)})
            for name, own in found.get("vectors", {}).items()
        }
        return Index(
            folder, found["key"], embedding, found["documents"], found["left_out"], found["cut"], found["faiss"],
            found["at"], found.get("faiss_shards", 0), found.get("segments", {}), found.get("passages", False),
            further, found.get("faiss_shard"),
            {name: ImpactSet(**own) for name, own in found.get("impacts", {}).items()}, recall=_read_recall(found),
            language=found.get("language", DEFAULT_LANGUAGE), languages=found.get("languages", {}),
            device=str(found.get("device", "cpu")),
            plaid={name: PlaidSet(**own) for name, own in found.get("plaid", {}).items()},
        )  # fmt: skip
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder}: not an index: expected a folder made by `keystone index`") from error


def describe_languages(index: Index) -> dict[str, Any]:
    """Describe the languages of an index as `index.json` does: nothing for English, and for word pieces of a file."""
    if index.language == DEFAULT_LANGUAGE or index.language.startswith(PIECES_PREFIX):
        return {}
    return {"language": index.language, **({"languages": index.languages} if index.languages else {})}


def hold_open(index: Index) -> Index:
    """Return the same index, whose parts stay open once opened, even when the folder holds another index.

    An index whose documents are elsewhere is returned as it is.
    """
    return index if index.at else replace(index, parts=OpenParts())


def _read_recall(found: Mapping[str, Any]) -> Recall | None:
    return Recall(**found["recall"]) if found.get("recall") else None


def of_one_index(open_part: Callable[Concatenate[Index, P], T]) -> Callable[Concatenate[Index, P], T]:
    """Guard a function that opens a part of an index, so that nobody uses parts of two indexes together.

    `UserError` if the folder no longer holds the index afterwards, whatever the function returns or raises.
    """

    @wraps(open_part)
    def opened(index: Index, /, *arguments: P.args, **named: P.kwargs) -> T:
        if index.parts is not None:  # each part was guarded when it was opened
            return open_part(index, *arguments, **named)
        with _guard(index):
            return open_part(index, *arguments, **named)

    return opened


@contextmanager
def _guard(index: Index) -> Iterator[None]:
    try:
        yield
    finally:
        if _key_in(index.folder) != index.key:
            raise UserError(
                f"{index.folder}: was replaced or removed while it was in use, expected the index that was opened: "
                "give the same command again; in Python, use what update_index returned, or open the index again"
            )


def _key_in(folder: Path) -> str | None:
    try:
        return open_index(folder).key
    except UserError:
        return None


def shard_files(folder: Path, count: int) -> list[Path]:
    """Name the files of a FAISS index in `count` files, in the order of rows."""
    return [folder / f"dense-{number:04d}.faiss" for number in range(count)]
