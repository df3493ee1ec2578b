"""The place of one document in the ranking of one narrative, explained from the files of the run directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import orjson

from keystone.generation.queries.compose import weigh_queries
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import document_id, show_as_html
from keystone.retrieval.types import Query, Rankings, ranked
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_narrative, fuse_each_query, list_topics
from keystone.runs.report.say import align_columns

QUESTION_CHARACTERS = 60
Hits = dict[str, list[tuple[str, float]]]
"""The (document id, score) pairs of each query, best first."""


@dataclass(frozen=True, slots=True)
class QueryPart:
    """The part of one query in the place of a document. A place is None where the document is not ranked."""

    query: Query
    ranks: Mapping[str, int | None]
    """The rank in the list of each engine."""
    hybrid: int | None
    """The rank in the fused list of the query."""
    share: float | None
    """The share of the query in the score of the document. None without a score, and for methods other than RRF."""
    grade: float | None
    """The UMBRELA grade, if the run has one."""
    without: int | None
    """The place of the document if the run had not asked this query."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The place of a document in the ranking of a narrative, and its places in rankings with a part left out."""

    topic_id: str
    doc_id: str
    place: int | None
    """The place in the fusion of all lists. The ranking of the run keeps the first `kept` places."""
    kept: int
    later: Mapping[str, int | None]
    """The place in each ranking after the fusion, by its file: of a reranker, of the grades, of the agent."""
    parts: tuple[QueryPart, ...]
    without_engine: Mapping[str, int | None]
    """The place without each engine. Empty for a run with one engine."""

    def __str__(self) -> str:
        """Show the place, a row for each query, and the place without each engine."""
        return "\n".join(format_explanation(self))

    def _repr_html_(self) -> str:
        return show_as_html(str(self))


def explain(directory: Path, topic_id: str, doc_id: str) -> Explanation:
    """Explain a document's place by fusing the stored lists of the run again, each time without one query or engine.

    The lists and the settings stay as they are, so each place is that of a run without this query or engine.
    `UserError` for a folder that is no run directory, and for a topic or a document that the run lacks. The error says
    whether the index has the document.
    """
    config = read_run_config(directory)
    queries = [Query(**one) for one in _find_record(directory / file_names.QUERIES, topic_id)["queries"]]
    engines = config.list_systems()
    query_ids = [query.id for query in queries]
    stored = {engine: _read_rows(directory / file_names.name_system_file(engine), query_ids) for engine in engines}
    docs = sorted({doc for hits in stored.values() for own in hits.values() for doc, _ in own}, key=str.encode)
    lists = {engine: _rank_hits(hits, docs) for engine, hits in stored.items()}
    if doc_id not in docs:
        whole = document_id(doc_id)
        hint = f"; the run ranks its document: ask for {whole}" if whole in docs else ""
        if not hint and _is_unknown(config, doc_id):
            raise UserError(f"document {doc_id}: the index {config.index} has no document with this id")
        raise UserError(f"document {doc_id}: no query of topic {topic_id} found it in {directory}{hint}")
    number = docs.index(doc_id)
    config = config.model_copy(update={"fusion": config.fusion.model_copy(update={"depth": len(docs), "depths": {}})})

    def find_place(hybrid: Rankings, kept: Sequence[int]) -> int | None:
        if not kept:
            return None
        own = [queries[i] for i in kept]
        return _find_rank(fuse_each_narrative(config, list_topics(own), own, hybrid.select(kept)), 0, number)

    def find_place_without(engine: str) -> int | None:
        others = {name: own for name, own in lists.items() if name != engine}
        return find_place(fuse_each_query(config, others), everything) if others else None

    everything, hybrid = range(len(queries)), fuse_each_query(config, lists)
    ranks = [_find_rank(hybrid, i, number) for i in everything]
    shares = _compute_shares(config, queries, ranks)
    grades = _read_grades(directory / file_names.GRADES, topic_id, doc_id)
    return Explanation(
        topic_id,
        doc_id,
        find_place(hybrid, everything),
        read_run_config(directory).fusion.get_depth(topic_id),
        {name: _find_place_in(directory / name, topic_id, doc_id) for name in _list_later(directory, config)},
        tuple(
            QueryPart(
                query,
                {engine: _find_rank(own, i, number) for engine, own in lists.items()},
                ranks[i],
                shares[i],
                grades.get(query.id),
                find_place(hybrid, [other for other in everything if other != i]),
            )
            for i, query in enumerate(queries)
        ),
        {engine: find_place_without(engine) for engine in (engines if len(engines) > 1 else ())},
    )


def format_explanation(found: Explanation) -> Iterator[str]:
    """Format an explanation as lines: the place, a row for each query, and the place without each engine."""
    kept = f" ({file_names.NARRATIVE} keeps {found.kept})" if found.place and found.place > found.kept else ""
    yield f"document {found.doc_id}, topic {found.topic_id}: place {_show(found.place)} of its lists fused{kept}"
    if found.later:
        yield ", ".join(f"place {_show(place)} in {name}" for name, place in found.later.items())
    rows = [["query", *found.parts[0].ranks, "fused", "share", "grade", "without it", "question"]]
    for part in found.parts:
        share = "-" if part.share is None else f"{part.share:.0%}"
        grade = "-" if part.grade is None else f"{part.grade:g}"
        cells = [*map(_show, part.ranks.values()), _show(part.hybrid), share, grade, _show(part.without)]
        rows.append([part.query.id, *cells, shorten(part.query.question, QUESTION_CHARACTERS, placeholder="...")])
    yield ""
    yield from align_columns(rows, left=(0, len(rows[0]) - 1))
    if found.without_engine:
        yield ""
    for engine, place in found.without_engine.items():
        yield f"without {engine}: place {_show(place)}"


def _compute_shares(
    config: RunConfig, queries: Sequence[Query], hybrid: Sequence[int | None]
) -> Sequence[float | None]:
    """Compute the share of each query in the sum of RRF: weight / (k + rank)."""
    if config.fusion.method != "rrf" or not any(hybrid):
        return [None] * len(queries)
    weights = weigh_queries(queries, config.queries.narrative_weight)
    k = config.fusion.k_narrative
    terms = [weight / (k + rank) if rank else 0.0 for weight, rank in zip(weights, hybrid, strict=True)]
    return [term / sum(terms) for term in terms]


def _list_later(directory: Path, config: RunConfig) -> list[str]:
    """List the rankings of narratives after the fusion that a run has made, in their order, by their files."""
    try:
        _, *later = orjson.loads((directory / file_names.MANIFEST).read_bytes())["rankings"]
    except (OSError, ValueError, KeyError, TypeError):  # an older run
        from keystone.runs.pipeline.table import list_rankings  # which loads the modules of all stages

        _, *later = (file.name for file in list_rankings(config).narrative_rankings)
    return [name for name in later if (directory / name).exists()]


def _find_rank(rankings: Rankings, query: int, number: int) -> int | None:
    """Find the rank of a document in the ranking of a query."""
    places = np.flatnonzero(rankings.of(query) == number)
    return int(places[0]) + 1 if len(places) else None


def _read_rows(path: Path, query_ids: Sequence[str]) -> Hits:
    """Read the rows of a topic's queries, which follow each other in a file of a run directory."""
    hits: Hits = {query_id: [] for query_id in query_ids}
    if not path.is_file() or not path.stat().st_size:
        return hits
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        if data[: data.find(b" ")].decode() not in hits:
            starts = (data.find(f"\n{query_id} ".encode()) + 1 for query_id in hits)
            file.seek(next(filter(None, starts), len(data)))
        for line in file:
            query_id, _, doc_id, _, score, *_ = line.decode().split(" ")
            if query_id not in hits:
                break
            hits[query_id].append((doc_id, float(score)))
    return hits


def _rank_hits(hits: Hits, docs: Sequence[str]) -> Rankings:
    """Rank the documents of each query by their numbers in `docs`, with scores as run files hold them."""
    number = {doc_id: place for place, doc_id in enumerate(docs)}
    rows = [np.array([number[doc_id] for doc_id, _ in own], np.int32) for own in hits.values()]
    scores = [np.array([score for _, score in own], np.float32) for own in hits.values()]
    return ranked(list(hits), rows, scores, max(1, len(docs)))


def _read_grades(path: Path, topic_id: str, doc_id: str) -> dict[str, float | None]:
    """Read the grade of a document for each query; empty if the run did not grade it."""
    if not path.exists():
        return {}
    record = _find_record(path, topic_id)
    if doc_id not in record["documents"]:
        return {}
    column = record["documents"].index(doc_id)
    return {query: row[column] for query, row in zip(record["queries"], record["grades"], strict=True)}


def _is_unknown(config: RunConfig, doc_id: str) -> bool:
    """Whether the index of a run lacks a document. False for an index that cannot be opened here."""
    from keystone.indexing.index import open_index
    from keystone.retrieval.backends import open_store

    try:
        return bool(open_store(open_index(config.index)).rows([doc_id])[0] < 0)
    except UserError:
        return False


def _find_record(path: Path, topic_id: str) -> dict[str, Any]:
    for _, record in read_json_lines(path):
        if record["topic_id"] == topic_id:
            return record
    raise UserError(f"{path}: topic {topic_id} is missing")


def _find_place_in(path: Path, topic_id: str, doc_id: str) -> int | None:
    docs = [doc for doc, _ in _read_rows(path, [topic_id])[topic_id]]
    return docs.index(doc_id) + 1 if doc_id in docs else None


def _show(place: int | None) -> str:
    return "-" if place is None else str(place)
