"""Keystone in Python: the steps from narratives to rankings, cited answers, run files and measures.

`docs/python.md` shows each function at work.
"""

from generation.types import Answer
from indexing.errors import UserError
from indexing.index import Index
from retrieval.types import Query, Topic
from runs.config.run_config import RunConfig
from runs.evaluation.evaluate import Evaluation
from runs.python_api import (
    Grades,
    answer,
    configure,
    decompose,
    evaluate,
    fuse,
    grade,
    make_run,
    open_index,
    read_qrels,
    read_run,
    read_topics,
    search,
    validate,
    write_qrels,
    write_run,
)
from runs.tracks.validate import Verdict
from runs.trec.types import Qrels, Run

__all__ = [
    "Answer",
    "Evaluation",
    "Grades",
    "Index",
    "Qrels",
    "Query",
    "Run",
    "RunConfig",
    "Topic",
    "UserError",
    "Verdict",
    "answer",
    "configure",
    "decompose",
    "evaluate",
    "fuse",
    "grade",
    "make_run",
    "open_index",
    "read_qrels",
    "read_run",
    "read_topics",
    "search",
    "validate",
    "write_qrels",
    "write_run",
]
