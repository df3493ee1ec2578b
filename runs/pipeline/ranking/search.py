"""The search of a run, for `run`, `answer`, `search` and `tune` alike: by its systems, and by runs of other systems."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.backends import BACKENDS, renew_rows
from keystone.retrieval.search import search_all
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings, offsets_of
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse_narratives import round_scores
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.trec.run_files import GivenRun


def search_systems(job: Job, queries: Sequence[Query], texts_of: TextsOf = join_title_and_text) -> dict[str, Rankings]:
    """Rank documents for the queries by each system: by search, and by the runs of other systems.

    `texts_of` returns the texts that are embedded for candidates. `UserError` for a given run with a document that a
    growing store lacks.
    """
    _refuse_unknown(job)
    config, opened = job.config, OpenIndex(job.index, job.store, job.threads, job.progress, texts_of)
    found = search_all(config.make_systems(), opened, queries, config.make_candidate_system())
    found = {system: renew_rows(job.index, job.store, rankings) for system, rankings in found.items()}
    ids = [query.id for query in queries]
    return {
        **{system: round_scores(rankings) for system, rankings in found.items()},
        **{name: _rank_given(job, run, ids) for name, run in zip(config.list_given_systems(), job.given, strict=True)},
    }


def _refuse_unknown(job: Job) -> None:
    """Raise `UserError` for given runs with documents that a growing store lacks: no search has found them yet."""
    for path, run in zip(job.config.retrieval.runs, job.given, strict=True):
        if run.unknown and BACKENDS[job.index.backend].grows:
            raise UserError(
                f"retrieval.runs: {path} has {plural(run.unknown, 'line')} with a document that no search of "
                f"{job.index.folder} has found; for a server's index, expected a run of such searches"
            )


def _rank_given(job: Job, run: "GivenRun", ids: Sequence[str]) -> Rankings:
    """Rank the first documents of a given run for each query, as many as a search returns."""
    own = [run.docs.get(name, ())[: job.config.retrieval.depth] for name in ids]
    rows = iter(job.store.rows(list(chain.from_iterable(own))).tolist())
    return rank_by_place(ids, [list(islice(rows, len(docs))) for docs in own])


def search_by_one(job: Job, queries: Sequence[Query], name: str) -> Rankings:
    """Rank documents for the queries by one system, from the configuration or from the short form."""
    config, system = job.config, job.config.find_system(name)
    assert system is not None  # the caller lists them
    systems = {key: one for key, one in config.make_systems().items() if key == system.base} | {name: system}
    opened = OpenIndex(job.index, job.store, job.threads, job.progress)
    return round_scores(search_all(systems, opened, queries, config.make_candidate_system())[name])


def rank_by_place(topic_ids: Sequence[str], rows: Sequence[Sequence[int]]) -> Rankings:
    """Make rankings from the rows of each topic, best first. A score is the number of documents from it to the end."""
    return Rankings(
        tuple(topic_ids),
        offsets_of([len(own) for own in rows]),
        np.array([row for own in rows for row in own], dtype=np.int32),
        np.array([len(own) - place for own in rows for place in range(len(own))], dtype=np.float32),
    )
