"""The search for whole narratives without the stages of a run, so that a search from the prompt starts at once."""

from contextlib import ExitStack

from keystone.generation.queries.compose import make_narrative_query
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval.types import Rankings
from keystone.runs.pipeline.job import Job, place_replies
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_narrative, fuse_each_query
from keystone.runs.pipeline.ranking.search import search_systems


def rank_narratives(job: Job) -> Rankings:
    """Rank documents for the narrative of each topic, which is searched as one query."""
    queries = list(map(make_narrative_query, job.topics))
    with ExitStack() as stack:
        texts_of: TextsOf = join_title_and_text
        if job.config.retrieval.summarise:
            from keystone.runs.pipeline.model_runner import open_model_runner
            from keystone.runs.pipeline.stages.search import choose_texts

            texts_of = choose_texts(job, stack.enter_context(open_model_runner(place_replies(job.config), None)))
        hybrid = fuse_each_query(job.config, search_systems(job, queries, texts_of))
    return fuse_each_narrative(job.config, job.topics, queries, hybrid)
