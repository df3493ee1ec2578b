"""Texts in memory: an index of documents without a file, its documents by id, and a search by plain text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html import escape
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, overload
from warnings import warn

import orjson

from keystone.generation.queries.compose import make_narrative_query
from keystone.indexing.builds import changes
from keystone.indexing.builds import update as updates
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings, check_set_name, settle_vectors
from keystone.indexing.corpora.jsonl import ID_KEYS, TEXT_KEYS
from keystone.indexing.errors import NotFound, Report, UserError
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.index import Index
from keystone.indexing.io.fields import find_field
from keystone.indexing.plaid import settle_plaid
from keystone.indexing.types import MINILM, Document
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.python import steps
from keystone.runs.python.callables import Encode, name_encoder
from keystone.runs.python.checks import check_config, check_count, check_id, check_ids, check_index, check_path
from keystone.runs.python.conversions import to_topics
from keystone.runs.python.files import AnyPath
from keystone.runs.trec.types import Run

FOUND_DOCUMENTS = 10
"""How many documents a search for texts returns if the caller gives no number."""
SHOWN_CHARACTERS = 300
"""How much of a hit's text a notebook shows."""
FIELDS = (ID_KEYS, TEXT_KEYS, ("title",), ("url",), ("headings",))
"""The names of each field of a document; the first that has a value counts, whatever its case."""

_in_memory: list[TemporaryDirectory[str]] = []  # the folders of indexes in memory, which disappear with the process


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a search found, with its score. The text is read from the index when it is asked for."""

    id: str
    score: float
    index: Index = field(repr=False, compare=False)

    @property
    def document(self) -> Document:
        """The whole document, with its title and its segments."""
        return documents(self.index, [self.id])[0]

    @property
    def text(self) -> str:
        """The text of the document."""
        return self.document.text


class Hits(list[Hit]):
    """The documents that a search found, best first. A notebook shows them with the beginnings of their texts."""

    def _repr_html_(self) -> str:
        found = documents(self[0].index, [hit.id for hit in self]) if self else []
        rows = (
            f"<tr><td>{escape(hit.id)}</td><td>{hit.score:.4g}</td><td><b>{escape(document.title)}</b> "
            f"{escape(document.text[:SHOWN_CHARACTERS])}</td></tr>"
            for hit, document in zip(self, found, strict=True)
        )
        return f"<table><tr><th>id</th><th>score</th><th>text</th></tr>{''.join(rows)}</table>"


def index(documents: Any, folder: AnyPath | None = None, *, dense: bool = True, encoder: Encode | None = None) -> Index:
    """Index documents for BM25 and, if `dense`, for search by embeddings.

    The documents are texts, whose ids are their places from 0, or (id, text) pairs, a dictionary from id to text,
    dictionaries with `id`, `text` and perhaps `title`, `url` and `headings`, or a data frame with such columns. An
    iterator is read once. The index is kept in `folder`; without one it lasts as long as the process. A function
    `encoder` embeds texts in place of the model that comes with Keystone: it returns a vector for each text of a list,
    and `open_index` takes it again for an index in a folder.

    A warning counts documents that are left out, such as those without text. `UserError` if none is left, and if the
    folder holds another index.
    """
    made_by = (MINILM if encoder is None else name_encoder(encoder)) if dense else None
    if encoder is not None and not dense:
        raise UserError("encoder: found a function with dense=False, expected it for an index with embeddings")
    if folder is None:
        _in_memory.append(memory := TemporaryDirectory(prefix="keystone-", ignore_cleanup_errors=True))
        folder = Path(memory.name) / "index"
    out = check_path(folder, "folder").absolute()
    settings = BuildSettings(format="jsonl", embedding=made_by, passages=None, threads=steps.THREADS)
    with _write_documents(documents) as (file, report):
        made, _ = build_index(file, out, settings, report=report)
    return made


def update_index(index: Index, documents: Any = (), delete: Iterable[str] = (), encoder: Encode | None = None) -> Index:
    """Update an index in its folder, as `keystone index --update` does; returns the new index.

    The documents are anything that `index` takes, but each needs an id. New ids are added, and other contents replace
    those of the same ids. `delete` are ids of documents to remove. The index keeps its models; if a function embedded
    its texts, `encoder` is this function. `index` itself cannot be used any more.

    A warning counts what is left out, such as unknown ids. `UserError` as from the command.
    """
    if encoder is not None:
        steps.open_index(check_index(index).folder, encoder=encoder)
    settings = BuildSettings(format="jsonl", threads=steps.THREADS)
    removed = check_ids(delete, "delete")
    for one in removed:
        check_id(one, "delete")
    with _write_documents(documents, named=True) as (file, report):
        ids = file.with_name("delete")
        ids.write_text("".join(f"{one}\n" for one in removed), encoding="utf-8")
        given = [file] if file.stat().st_size else []
        made, _ = updates.update_index(check_index(index).folder, given, ids, settings, report=report)
    return made


def change_parts(
    index: Index,
    *,
    vectors: Mapping[str, str | dict[str, Any]] = MappingProxyType({}),
    impacts: Mapping[str, str] = MappingProxyType({}),
    plaid: Mapping[str, str] = MappingProxyType({}),
    drop: Iterable[str] = (),
) -> Index:
    """Add sets of vectors, impacts and PLAID to an index in its folder, or drop sets by name; returns the new index.

    This is `keystone index --add --drop`. `vectors`, `impacts` and `plaid` give the model of each new set by its name:
    the embedded one, the folder of a checkpoint, or one of the hub. The model of vectors may also be a dictionary with
    the keys `model`, `url`, `window`, `query_prefix`, `passage_prefix`, `key_env` and `dimensions`. All other parts
    stay as they are. `index` itself cannot be used any more.

    A warning names a model whose prefixes are unknown. `UserError` as from the command, and if nothing is to change.
    """
    dropped, note = check_ids(drop, "drop"), partial(warn, stacklevel=3)
    if not (vectors or impacts or plaid or dropped):
        raise UserError("found no vectors, impacts, PLAID indexes or names to drop, expected one of them")
    for place, names in (("vectors", vectors), ("impacts", impacts), ("plaid", plaid)):
        for name in names:
            check_set_name(name, (), place)
    models = {name: {"model": one} if isinstance(one, str) else one for name, one in vectors.items()}
    settings = BuildSettings(
        vectors={name: settle_vectors(one, None, note, f"vectors: {name}") for name, one in models.items()},
        impacts={name: settle_impacts(model) for name, model in impacts.items()},
        plaid={name: settle_plaid(model) for name, model in plaid.items()},
        threads=steps.THREADS,
    )
    return changes.change_parts(check_index(index).folder, settings, dropped)


@contextmanager
def _write_documents(documents: Any, named: bool = False) -> Iterator[tuple[Path, Report]]:
    """Write documents to a file for the `with` block, and give a `Report`; then warn of what was left out.

    `UserError` for a text without an id if the documents must be `named`. Errors and reports name `documents` in place
    of the file.
    """
    left_out: list[str] = []
    with TemporaryDirectory() as place:
        file = Path(place) / "documents.jsonl"
        with file.open("wb") as lines:
            for number, record in enumerate(_list_documents(documents, named), 1):
                try:
                    lines.write(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
                except TypeError as error:
                    raise UserError(f"documents: row {number}: {error}, expected texts in Unicode") from None

        def name(error: UserError) -> str:
            said = str(error)
            for path, argument in ((file, "documents"), (file.with_name("delete"), "delete")):
                said = said.replace(f"{path}: ", f"{argument}: ").replace(f"{path}:", f"{argument}: row ")
            return said.replace(str(file), "documents")

        try:
            yield file, lambda error: left_out.append(name(error))
        except UserError as error:
            first = f": {left_out[0]}" if left_out else ""
            raise UserError(f"{name(error)}{first}") from None
    if left_out:
        warn(f"{len(left_out):,} documents are left out, such as {left_out[0]}", stacklevel=4)


def documents(index: Index, ids: Iterable[str]) -> list[Document]:
    """Read documents by their ids: each has a `text`, a `title` and `segments`. `UserError` for an unknown id."""
    store, wanted = open_store(check_index(index)), check_ids(ids, "ids")
    rows = store.rows(wanted)
    if missing := [name for name, row in zip(wanted, rows.tolist(), strict=True) if row < 0]:
        raise NotFound(f"ids: found {missing[0]!r}, which is no document of {index!r}")
    return store.get(rows)


@overload
def search(index: Index, queries: str, config: RunConfig | None = None, *, k: int | None = None) -> Hits: ...
@overload
def search(index: Index, queries: Sequence[Query], config: RunConfig | None = None) -> dict[str, Run]: ...
@overload
def search(
    index: Index,
    queries: list[str] | list[tuple[str, str]] | list[Topic] | Mapping[str, str],
    config: RunConfig | None = None,
    *,
    k: int | None = None,
) -> Run: ...
def search(index: Index, queries: Any, config: RunConfig | None = None, *, k: int | None = None) -> Any:
    """Search by a text, by texts or topics, or by the queries of `decompose`.

    | queries | result |
    |---|---|
    | a text | the `k` best documents as `Hits`, each with `id`, `score` and `text` |
    | anything that `to_topics` takes, such as a list of texts | a `Run` with the `k` best documents of each topic |
    | a list of `Query` | a dictionary with a `Run` for each system by its name, as deep as `config` says |

    For texts, the rankings of all systems are fused, and `k` above a depth of `config` raises it, up to 100,000.
    Without `k`, 10 documents are found, or as many as `config` allows. All queries are searched in one batch.
    """
    if not isinstance(queries, str | Mapping) and not hasattr(queries, "columns") and isinstance(queries, Iterable):
        queries = list(queries)
        if any(isinstance(one, Query) for one in queries):
            if k is not None:
                raise UserError(f"k: found {k!r} with a list of Query, whose depth is retrieval.depth of the config")
            return steps.search(index, queries, config)
    config = steps.configure() if config is None else check_config(config)
    config = config if k is None else config.deepen(check_count(k, "k"))
    topics = to_topics([queries] if isinstance(queries, str) else queries)
    own = [make_narrative_query(topic) for topic in topics]
    runs = steps.search(index, own, config)
    whole = next(iter(runs.values())) if len(runs) == 1 else steps.fuse_systems(runs, own, config)
    found = whole.top(k or FOUND_DOCUMENTS)
    if not isinstance(queries, str):
        return found
    return Hits(Hit(doc_id, score, index) for doc_id, score in found[topics[0].id])


def _list_documents(value: Any, named: bool) -> Iterator[Any]:
    """List documents as records with names; a text gets its place as id, unless documents must be `named`."""
    if hasattr(value, "columns"):
        if not hasattr(value, "astype"):
            raise UserError(f"documents: found {type(value).__name__}, expected a data frame of pandas")
        value = value.astype(object).where(value.notna(), None).to_dict("records")
    if isinstance(value, str | PathLike) or not isinstance(value, Iterable):
        found = f"documents: found {type(value).__name__}"
        raise UserError(f"{found}, expected a list of texts, pairs or dictionaries, a dictionary or a data frame")
    for place, one in enumerate(value.items() if isinstance(value, Mapping) else value):
        if isinstance(one, str) and not named:
            yield {"id": str(place), "text": one}
        elif isinstance(one, tuple | list) and len(one) == 2:
            yield {"id": one[0], "text": one[1]}
        elif isinstance(one, Document):
            yield {"id": one.id, "text": one.text, "title": one.title, "url": one.url, "headings": one.headings}
        elif isinstance(one, Mapping):
            keys = (find_field(dict(one), names) for names in FIELDS)
            yield {key: one[key] for key in keys if key is not None}
        else:
            found = f"documents: row {place + 1}: found {type(one).__name__}"
            either = "" if named else "a text, "
            raise UserError(f"{found}, expected {either}an (id, text) pair, or a dictionary with id and text")
