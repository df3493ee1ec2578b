"""The public functions and types of Keystone, by the names that `import keystone` gives them."""

from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Document
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.python.analysis import (
    agree,
    bound,
    compare,
    compare_pairs,
    describe_pooled,
    diagnose,
    explain,
    leaderboard,
    list_topics,
    plot,
    pool,
)
from keystone.runs.python.conversions import to_ir_measures, to_pandas, to_qrels, to_ranx, to_run, to_topics
from keystone.runs.python.files import evaluate, read_qrels, read_run, read_topics, validate, write_qrels, write_run
from keystone.runs.python.frame_steps import as_pyterrier_transformer
from keystone.runs.python.judging import (
    assign_nuggets,
    assign_rubrics,
    create_nuggets,
    judge,
    judge_battles,
    read_nuggets,
    read_rubrics,
    score_nuggets,
    score_rubrics,
    tune,
    write_nuggets,
    write_rubrics,
)
from keystone.runs.python.steps import (
    Grades,
    answer,
    configure,
    decompose,
    fuse,
    grade,
    make_run,
    open_index,
    rerank,
)
from keystone.runs.python.texts import Hit, Hits, change_parts, documents, index, search, update_index
from keystone.runs.tracks.validate import Verdict
from keystone.runs.trec.types import Qrels, Run

__all__ = [
    "Answer",
    "Document",
    "Evaluation",
    "Grades",
    "Hit",
    "Hits",
    "Index",
    "Qrels",
    "Query",
    "Run",
    "RunConfig",
    "Topic",
    "UserError",
    "Verdict",
    "agree",
    "answer",
    "as_pyterrier_transformer",
    "assign_nuggets",
    "assign_rubrics",
    "bound",
    "change_parts",
    "compare",
    "compare_pairs",
    "configure",
    "create_nuggets",
    "decompose",
    "describe_pooled",
    "diagnose",
    "documents",
    "evaluate",
    "explain",
    "fuse",
    "grade",
    "index",
    "judge",
    "judge_battles",
    "leaderboard",
    "list_topics",
    "make_run",
    "open_index",
    "plot",
    "pool",
    "read_nuggets",
    "read_qrels",
    "read_rubrics",
    "read_run",
    "read_topics",
    "rerank",
    "score_nuggets",
    "score_rubrics",
    "search",
    "to_ir_measures",
    "to_pandas",
    "to_qrels",
    "to_ranx",
    "to_run",
    "to_topics",
    "tune",
    "update_index",
    "validate",
    "write_nuggets",
    "write_qrels",
    "write_rubrics",
    "write_run",
]
