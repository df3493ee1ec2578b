"""The steps of a run as functions for Python: topics, queries and documents by id, rankings as runs.

`configure` makes the configuration of all functions, whose results are those of `keystone run`. The package `keystone`
exports them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args
from warnings import warn

import numpy as np

from keystone.generation.readers.settings import AnswerMethod, PlainSettings
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Answer, Fallback, Understanding
from keystone.indexing import index as indexes
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import show_as_html
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.grade_files import gather_qrels
from keystone.runs.pipeline.job import Job, make_job, place_replies
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_narrative, fuse_each_query, list_topics
from keystone.runs.pipeline.ranking.rank import number_documents, rank_rows
from keystone.runs.pipeline.ranking.search import search_systems
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stage import Before, Work
from keystone.runs.pipeline.stages import queries as query_stages
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.grades import GRADES_FILE, QRELS_FILE
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, UnderstoodTopic, get_queries
from keystone.runs.pipeline.stages.rerank import RERANKED_FILE, rerank_narratives
from keystone.runs.pipeline.stages.search import choose_texts
from keystone.runs.pipeline.table import NARRATIVE_STAGES, list_rankings, needs, perform
from keystone.runs.pipeline.values import MemoryValues, Values, convert_to_run
from keystone.runs.python.callables import Encode, Fuse, Read, Score, fuse_by, name_encoder, read_by, rerank_by
from keystone.runs.python.checks import (
    change_settings,
    check_config,
    check_function,
    check_index,
    check_path,
    check_queries,
    check_ranked,
    lay_over_preset,
    read_settings,
)
from keystone.runs.python.conversions import to_run, to_topics
from keystone.runs.python.files import AnyPath
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.types import Qrels, Run

THREADS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Grades:
    """UMBRELA grades: judgments of queries and topics, and the ranking in which the selected documents come first.

    `fallbacks` name each pair for which the model gave no grade.
    """

    qrels: Qrels
    run: Run
    fallbacks: tuple[Fallback, ...]

    def _repr_html_(self) -> str:
        return show_as_html(repr(self))


def configure(preset: str | RunConfig | None = None, **settings: Any) -> RunConfig:
    """Make a configuration: lay `settings`, named as in YAML, over a preset or another configuration.

    `configure("keystone", model={"name": "m", "urls": ["http://localhost:8000/v1"]}, retrieval={"depth": 100})`.
    `fusion.depth` and `answer.documents` follow a smaller `retrieval.depth`, unless they are given, too. A change of
    track drops a choice of depths that is the old track's default. If `run_id`, `index` or `topics` is missing, it gets
    a placeholder, since only `make_run` reads them. `UserError` names an impossible setting.
    """
    if isinstance(preset, RunConfig):
        return change_settings(preset, settings)
    named = {"run_id": "python", "index": "index", "topics": "topics.jsonl"}
    return lay_over_preset(preset, {**named, **settings})


def open_index(folder: AnyPath, *, encoder: Encode | None = None) -> Index:
    """Open an index in a folder. `UserError` if the folder holds none.

    If a function embedded its texts, `encoder` is this function; `UserError` for another one.
    """
    opened = indexes.open_index(check_path(folder, "folder").absolute())  # a notebook may change its directory
    if encoder is not None and name_encoder(encoder) != opened.embedding:
        model = opened.embedding and opened.embedding.label
        raise UserError(f"encoder: found another function than that of {opened.folder}, whose model is {model}")
    return opened


def decompose(index: Index, topics: Any, config: RunConfig | None = None) -> list[Query]:
    """Make the queries of each narrative, by rules or by the model (Keystone-Docs RAG, section 2.1).

    `topics` are anything that `to_topics` takes, here and in the other functions.
    """
    with open_job_of(index, to_topics(topics), config) as (job, ask):
        values = MemoryValues(job)
        _make_queries(values, ask)
        return get_queries(values)


def search(index: Index, queries: Sequence[Query], config: RunConfig | None = None) -> dict[str, Run]:
    """Search all queries by each system, in one batch; returns a run of queries for each system, by its name."""
    queries = check_queries(queries)
    with open_job_of(index, list_topics(queries), config) as (job, ask):
        found = search_systems(job, queries, choose_texts(job, ask))
        return {system: convert_to_run(job.store, rankings, system) for system, rankings in found.items()}


def fuse(
    runs: Mapping[str, Any],
    queries: Sequence[Query],
    config: RunConfig | None = None,
    *,
    method: Fuse | None = None,
) -> Run:
    """Fuse the systems' runs of each query, then the queries of each topic (section 2.4); returns a run of topics.

    The runs are anything that `to_run` takes. If one has another name than a system of Keystone, such as `bm25` and
    `dense`, the first stage is RRF. A function `method` fuses in place of the configuration, in both stages: it takes
    rankings, each a dictionary from document id to score, best first, and returns such a dictionary.
    """
    config, queries = _choose_config(config), check_queries(queries)
    if method is not None:
        return fuse_by(method, _list_runs(runs), queries, config.fusion.depth, config.run_id)
    return fuse_queries(fuse_systems(runs, queries, config), queries, config)


def fuse_systems(runs: Mapping[str, Any], queries: Sequence[Query], config: RunConfig | None = None) -> Run:
    """Fuse the systems' runs of each query: the first stage of `fuse`. Returns a run of queries."""
    config, queries = _choose_config(config), check_queries(queries)
    given = _list_runs(runs)
    check_ranked(given, [query.id for query in queries], "runs")
    docs, systems = number_documents(given, queries)
    return _convert_to_run(config, docs, fuse_each_query(config, dict(zip(runs, systems, strict=True))))


def fuse_queries(run: Run, queries: Sequence[Query], config: RunConfig | None = None) -> Run:
    """Fuse the queries of each topic: the second stage of `fuse`. Returns a run of topics."""
    config, queries = _choose_config(config), check_queries(queries)
    docs, (hybrid,) = number_documents([run], queries)
    return _convert_to_run(config, docs, fuse_each_narrative(config, list_topics(queries), queries, hybrid))


def rerank(
    index: Index, topics: Any, ranking: Any, config: RunConfig | None = None, *, reranker: Score | None = None
) -> Run:
    """Rank the best documents of each topic again, by the reranker of the configuration; returns a run of topics.

    `ranking` is anything that `to_run` takes. A function `reranker` takes the narrative and a list of texts, and
    returns a score for each text, in place of the configuration's. `UserError` if there is neither.
    """
    config = _choose_config(config)
    if reranker is not None:
        store = open_store(check_index(index))
        return rerank_by(reranker, store, to_topics(topics), to_run(ranking), config.rerank.depth, config.run_id)
    if config.rerank.method is None:
        raise UserError("rerank.method: found none, expected a reranker")
    with open_job_of(index, to_topics(topics), config) as (job, ask):
        values = MemoryValues(job)
        values.put(NARRATIVE_FILE, _find_rows(job, to_run(ranking), job.topics))
        rerank_narratives(Work(values, ask, Before(config, (), (NARRATIVE_FILE,))), into=RERANKED_FILE)
        return convert_to_run(job.store, values.get(RERANKED_FILE), config.run_id)


def grade(index: Index, topics: Any, queries: Sequence[Query], runs: Mapping[str, Run], config: RunConfig) -> Grades:
    """Grade the best documents of each query by the model (UMBRELA) and select among them (section 3.1).

    `runs` come from `search`. `UserError` if the configuration asks for no grades, and for a query of another topic.
    """
    if check_config(config).grading.method is None:
        raise UserError("grading.method: found none, expected pointwise or grid")
    queries = check_queries(queries)
    topics = to_topics(topics)
    ids = [topic.id for topic in topics]
    if other := [query.topic_id for query in queries if query.topic_id not in ids]:
        raise UserError(f"queries: found topic {other[0]!r}, expected one of the topics, such as {ids[0]!r}")
    with open_job_of(index, topics, config.model_copy(update={"reader": PlainSettings()})) as (job, ask):
        values = MemoryValues(job)
        by_topic = {topic.id: [query for query in queries if query.topic_id == topic.id] for topic in topics}
        understood = [UnderstoodTopic(Understanding(one, ()), tuple(own)) for one, own in by_topic.items() if own]
        values.put(QUERIES_FILE, understood)
        queries = get_queries(values)  # in the order of topics, as stages pair them with their rankings
        hybrid = fuse_each_query(config, {name: _find_rows(job, run, queries) for name, run in runs.items()})
        values.put(HYBRID_FILE, hybrid)
        perform(values, ask, lambda kind: kind.ranks_narratives is not None)
        judged = gather_qrels(values.get(QRELS_FILE))
        fallbacks = tuple(fallback for record in values.get(GRADES_FILE) for fallback in record.fallbacks)
        last = values.get(list_rankings(job.config).narrative_ranking)
        return Grades(judged, convert_to_run(job.store, last, config.run_id), fallbacks)


def answer(
    index: Index, topics: Any, config: RunConfig | None = None, ranking: Any = None, *, reader: Read | None = None
) -> list[Answer]:
    """Answer each narrative: decompose, search, fuse, grade if the configuration asks for it, and write the answer.

    If there is a `ranking` (anything that `to_run` takes), its documents are graded and answered from. Nothing is
    reranked then, and only further rounds of grading search. The answers cite segments. A function `reader` answers in
    place of the configuration's: it takes the narrative and the first `answer.documents` documents, and returns a text,
    or (sentence, cited ids) pairs. `UserError` if the configuration asks for no answers, or the ranking has none of the
    topics; a warning names one that it lacks.
    """
    config = _choose_config(config)
    if reader is not None:
        check_function(reader, "reader")
        config = config.model_copy(update={"reader": PlainSettings()})
    elif config.answer.method is None:
        raise UserError(f"answer.method: found none, expected one of {', '.join(get_args(AnswerMethod))}")
    if ranking is not None:
        config = config.model_copy(update={"rerank": RerankSettings()})
    with open_job_of(index, to_topics(topics), config) as (job, ask):
        values = MemoryValues(job)
        made = () if ranking is None else NARRATIVE_STAGES
        if made:
            _make_queries(values, ask)
            _share(values, ranking)
        needed = partial(needs, job, answers=reader is None, ranking=reader is not None)
        perform(values, ask, lambda kind: kind not in made and needed(kind))
        if reader is None:
            return values.get(ANSWERS_FILE)
        last = values.get(list_rankings(job.config).narrative_ranking)
        best = [job.store.get(last.of(n)[: config.answer.documents]) for n in range(len(job.topics))]
        return [read_by(reader, topic, own) for topic, own in zip(job.topics, best, strict=True)]


def make_run(config: AnyPath | RunConfig | None = None, preset: str | None = None, **settings: Any) -> Path:
    """Make a run, or finish an interrupted one, as `keystone run` does; returns its directory.

    `config` is a YAML file or a configuration; `settings` are laid over the file. `UserError` for a bad setting.
    """
    if not isinstance(config, RunConfig):
        config = read_settings(None if config is None else check_path(config, "config"), settings, preset)
    elif preset or settings:
        raise UserError("make_run: found a preset or settings with a configuration, expected them in the configuration")
    return run(config, THREADS)


def _list_runs(runs: Any) -> list[Run]:
    if not isinstance(runs, Mapping) or not runs:
        found = type(runs).__name__ if runs else "none"
        raise UserError(f"runs: found {found}, expected the run of each system, such as search returns")
    return [to_run(run) for run in runs.values()]


def _choose_config(config: Any) -> RunConfig:
    """Return the configuration, or the default for None. `UserError` for anything else."""
    return configure() if config is None else check_config(config)


@contextmanager
def open_job_of(index: Index, topics: list[Topic], config: RunConfig | None) -> Iterator[tuple[Job, RunWithModel]]:
    """Open a job over an index and topics, and the means to ask its model."""
    check_index(index)
    job = make_job(place_replies(_choose_config(config)), index, topics, THREADS)
    with open_model_runner(job.config, None) as ask:
        yield job, ask


def _make_queries(values: Values, ask: RunWithModel) -> None:
    perform(values, ask, lambda kind: kind is query_stages.STAGE)


def _share(values: Values, ranking: Any) -> None:
    """Give each narrative this ranking, and each query that of its narrative."""
    job, run = values.job, to_run(ranking)
    narrative, ranked = _find_rows(job, run, job.topics), set(run.query_ids)
    if lacking := [topic.id for topic in job.topics if topic.id not in ranked]:
        share = f"{len(lacking):,} of {len(job.topics):,} topics, such as {lacking[0]!r}"
        warn(f"ranking: lacks {share}, whose answers have no sentence", stacklevel=3)
    place = {topic.id: number for number, topic in enumerate(job.topics)}
    queries = get_queries(values)
    shared = narrative.select([place[query.topic_id] for query in queries])
    values.put(HYBRID_FILE, replace(shared, query_ids=tuple(query.id for query in queries)))
    values.put(NARRATIVE_FILE, narrative)


def _convert_to_run(config: RunConfig, docs: Sequence[str], found: Rankings) -> Run:
    ids = encode_ids(docs)[found.docs.astype(np.int64)]
    return Run(config.run_id, found.query_ids, found.offsets, ids, found.scores)


def _find_rows(job: Job, run: Run, queries: Sequence[Query] | Sequence[Topic]) -> Rankings:
    """Turn a run of queries or topics into rankings of rows. `UserError` for a document that the index lacks."""
    ids = [query.id for query in queries]
    check_ranked([run], ids, run.tag)
    own = run.select(ids)
    doc_ids, number_of_row = own.docs.find_distinct()
    rows = job.store.rows(doc_ids)
    if len(missing := np.flatnonzero(rows < 0)):
        raise UserError(f"{run.tag}: found document {doc_ids[missing[0]]!r}, which {job.index.folder} lacks")
    return rank_rows(own, rows[number_of_row])
