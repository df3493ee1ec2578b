"""The steps of an answer, for a caller who is told each of them as it is made."""

from collections.abc import Callable
from typing import Any, Literal

from keystone.indexing.types import Store
from keystone.retrieval.types import Rankings
from keystone.runs.pipeline.ranking.rank import Hits

Step = Literal["queries", "rankings", "grades", "chosen", "sentence", "run"]
"""A step, in the order of an answer, with its value:

* `queries`: a tuple of `Query`.
* `rankings`: the best `Hits` of each query, by the query's id, and those of the narrative before a reranker.
* `grades`: a tuple of `Judgment`, if the configuration has grades.
* `chosen`: the ids of the documents that the answer is made from.
* `sentence`: a `Sentence` of the answer. This step occurs once for each sentence.
* `run`: the `Hits` of the run file that the track demands, documents or segments.
"""
Watch = Callable[[Step, Any], None]
WATCHED_HITS = 100
"""The most documents of a ranking that a watcher is told."""


def list_hits(store: Store, rankings: Rankings) -> dict[str, Hits]:
    """List the best documents of each query: ids with scores, best first."""
    best = rankings.top(WATCHED_HITS)
    return {
        name: list(zip(store.ids(best.of(i)), best.scores_of(i).tolist(), strict=True))
        for i, name in enumerate(best.query_ids)
    }
