"""The search of a run, for `run`, `answer`, `search` and `tune` alike: by its systems, and by runs of other systems."""

from collections.abc import Sequence

import numpy as np

from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.search import search_all
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Query, Rankings, offsets_of
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.fuse import round_scores


def search_systems(job: Job, queries: Sequence[Query], texts_of: TextsOf = join_title_and_text) -> dict[str, Rankings]:
    """Rank documents for the queries by each system: by search, and by the runs of other systems.

    `texts_of` returns the texts that are embedded for candidates.
    """
    config, opened = job.config, OpenIndex(job.index, job.store, job.threads, job.progress, texts_of)
    found = search_all(config.make_systems(), opened, queries, config.make_candidate_system())
    ids = [query.id for query in queries]
    given = [[run.rows.get(name, [])[: config.retrieval.depth] for name in ids] for run in job.given]
    return {
        **{system: round_scores(rankings) for system, rankings in found.items()},
        **{name: rank_by_place(ids, own) for name, own in zip(config.list_given_systems(), given, strict=True)},
    }


def search_by_one(job: Job, queries: Sequence[Query], name: str) -> Rankings:
    """Rank documents for the queries by one system: of the configuration, or of the short form."""
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
