"""The types of a corpus: documents, segments located by character offsets, embeddings, and the document store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

S = TypeVar("S")
T = TypeVar("T")

LONGEST_ID = 1000
"""The maximum number of characters of an id. URLs and paths fit; a text in the wrong column does not."""
LONGEST_DOCUMENT_ID = LONGEST_ID - 40
"""The maximum for a document, to whose id the ids of its windows add a number and an offset."""


def is_id(name: str, longest: int = LONGEST_ID) -> bool:
    """Tell whether a name can be an id in TREC files: 1 to `longest` visible characters without a space."""
    return 0 < len(name) <= longest and name.isprintable() and " " not in name


def has_lone_surrogate(text: str) -> bool:
    """Tell whether a text holds half of a surrogate pair, so that it is not Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def describe_id(name: object, longest: int = LONGEST_ID) -> str:
    """Describe the id that an error expects in place of `name`, which cannot be an id, by its first fault."""
    if not isinstance(name, str):
        return "an id as a text or a whole number"
    if name and not any(map(str.isspace, name)):
        if hidden := next((letter for letter in name if not letter.isprintable()), ""):
            return f"an id without the invisible character U+{ord(hidden):04X}"
        return f"an id of at most {longest} characters"
    return "an id without space"


def show_as_html(text: str) -> str:
    """Show the lines of a value in a notebook."""
    return f"<pre>{escape(text)}</pre>"


def document_id(segment_id: str) -> str:
    """Return the id of a segment's document: the part of the segment's id before the last `#`."""
    return segment_id.rsplit("#", 1)[0]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document's text, in characters: `Document.text[start:end]`."""

    doc_id: str
    start: int
    end: int

    def overlaps(self, other: "Span") -> bool:
        """Return whether the stretches share a character."""
        return self.doc_id == other.doc_id and self.start < other.end and other.start < self.end


def merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort stretches, and merge those that overlap or touch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


@dataclass(frozen=True, slots=True)
class Segment:
    """The smallest unit that a citation can name."""

    id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Document:
    """A document: `headings` in lines, `segments` by position, and its `place`, `file:line`, which no store keeps."""

    id: str
    text: str
    title: str = ""
    url: str = ""
    headings: str = ""
    segments: tuple[Segment, ...] = field(default=())
    place: str = field(default="", compare=False, repr=False)
    language: str = ""
    """The code of its language, in an index whose documents have languages of their own; as read, its field's value."""

    @property
    def contents(self) -> str:
        """Title and text, which BM25 and embeddings index."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    def segment_text(self, segment: Segment) -> str:
        """The text of one of the document's segments."""
        return self.text[segment.span.start : segment.span.end]


LOCAL = "all-MiniLM-L6-v2"
"""The embedding model that comes with Keystone."""
LOCAL_INT8 = f"{LOCAL}-int8"
"""The same model with integers as weights, which embeds faster."""
EMBEDDED = (LOCAL, LOCAL_INT8)
"""The models that come with Keystone."""
RECORDED_LOCAL = f"{LOCAL}, recorded"
"""The name under which a bundle keeps vectors of that model."""


def label_of(model: str) -> str:
    """Name a model for people: by the last part of the path if it is a folder, else as it is."""
    return model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model


@dataclass(frozen=True, slots=True)
class Embedding:
    """An embedding model: a checkpoint, or, if `url` is given, one behind an OpenAI-compatible endpoint.

    `window` is the number of tokens that the model takes; if it is None, the checkpoint or the endpoint says it. Each
    prefix comes before each of its texts. `key_env` names the environment variable that holds the endpoint's key. If
    `dimensions` is given, only so many of the first numbers of each vector count (Matryoshka). `weights` is the digest
    of the checkpoint's files; the embedded models have none. `backend` is `VLLM` if vLLM's engine runs the checkpoint.
    """

    model: str = LOCAL
    url: str | None = None
    window: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    key_env: str | None = None
    dimensions: int | None = None
    weights: str | None = None
    backend: str | None = None

    @property
    def label(self) -> str:
        """The name of the model for people: of a folder, its last part."""
        return label_of(self.model)

    @property
    def is_local(self) -> bool:
        """Whether the vectors are those of a model that comes with Keystone, so that measured thresholds hold."""
        return self.url is None and self.model in (*EMBEDDED, RECORDED_LOCAL) and self.dimensions is None

    @property
    def tells_repeats(self) -> bool:
        """Whether a high cosine means that two texts say the same: by a local model, or by words."""
        return self.is_local or self == WORDS

    @property
    def made_by(self) -> dict[str, Any]:
        """The settings on which the vectors depend, as JSON: all but the name of the key, and the place of a folder."""
        own = {name: value for name, value in self.as_json().items() if name != "key_env"}
        return {**own, "model": self.label}

    def as_json(self) -> dict[str, Any]:
        """All settings as JSON, of which the newer ones are left out unless they are given."""
        newer = ("dimensions", "weights", "backend")
        return {name: value for name, value in asdict(self).items() if name not in newer or value is not None}


MINILM = Embedding()
VLLM = "vllm"
"""The name of vLLM's engine as the backend of a model on this machine."""
WORDS = Embedding("weighted words")
"""Stands for a model where an index has none: vectors of words, by which texts are compared, but no search is made."""


BATCH_DOCUMENTS = 2**11
"""The number of documents that an iteration fetches at once."""


def chunks(items: S, size: int) -> Iterator[S]:
    """Cut a sequence, a range or an array into parts of `size` items; the last one may be shorter."""
    whole: Any = items
    return (whole[start : start + size] for start in range(0, len(whole), size))


def fill_batches(items: Iterable[T], size_of: Callable[[T], int], most: int, number: int) -> Iterator[list[T]]:
    """Yield batches of at most `number` items, made on demand, with sizes of at most `most` in all, or one item."""
    batch, size = list[T](), 0
    for item in items:
        own = size_of(item)
        if batch and (size + own > most or len(batch) == number):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += own
    if batch:
        yield batch


class Store(Protocol):
    """Documents in bulk, by row and by id.

    Comparing rows compares ids. A row never changes its document for the life of a store. If a store receives new
    documents, it may give all its documents new rows. Then only rows of one `rows` call, or of one search, compare.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents by row."""
        for rows in chunks(range(len(self)), BATCH_DOCUMENTS):
            yield from self.get(rows)

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n])."""

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]). `IndexError` for a row that is not in the store."""


def find_document_ids(names: Sequence[str], store: Store) -> list[str]:
    """Return the document of each name: the name itself if the store has it, else that of the segment with this id."""
    return [
        name if row >= 0 else document_id(name) for name, row in zip(names, store.rows(names).tolist(), strict=True)
    ]


Tick = Callable[[int], None]
"""Reports a number of finished items."""

Progress = Callable[[str, int | None], AbstractContextManager[Tick]]
"""Opens a progress display for a named step and its number of items; None if nobody knows the number."""


def silent(_description: str, _total: int | None) -> AbstractContextManager[Tick]:
    """Show nothing: the `Progress` of a caller who wants none."""
    return nullcontext(lambda _items: None)
