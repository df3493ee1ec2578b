"""The length of answers: the track's words, the configuration's, or what a topic's limit in characters holds."""

import pytest

from keystone.indexing.index import Index
from keystone.indexing.store import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job
from keystone.runs.track_rules import TRACKS, set_topic_limits


@pytest.mark.parametrize(
    ("track", "limit", "words", "expected"),
    [
        ("ragtime25", 5000, None, 833),
        ("ragtime26", 10_000, None, 1666),
        ("ragtime26", 10_000, 200, 200),
        ("ragtime26", 600, 200, 100),
        ("ragtime26", None, None, 300),
        ("biogen", 5000, None, 250),
    ],
)
def test_a_limit_in_characters_decides_the_words(
    track: str, limit: int | None, words: int | None, expected: int, index: Index
) -> None:
    topic = Topic("1", "Why?", record={} if limit is None else {"limit": limit})
    values = {"run_id": "r", "index": "i", "topics": "t", "track": track, "answer": {"words": words}}
    config = RunConfig.model_validate(values)
    job = Job(config, index, open_store(index), [topic], set_topic_limits(TRACKS[track], [topic]))
    assert job.get_word_limit(topic) == expected
