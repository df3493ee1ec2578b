"""Steps on data frames with PyTerrier's columns, and these steps as its transformers.

A frame has a row for each query (`qid`, `query`), or for each document of each query (`docno`, `score`, `rank`, too).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from keystone.generation.queries.compose import make_narrative_query
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.index import Index
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.python import steps
from keystone.runs.python.conversions import to_pandas, to_run, to_topics
from keystone.runs.python.texts import documents

Step = Callable[[Index, RunConfig, Any], Any]

QUERY_COLUMNS = ("qid", "query")
RANKING_COLUMNS = (*QUERY_COLUMNS, "docno", "score")
HIT_COLUMNS = ("docno", "score", "rank")
DECOMPOSED_COLUMNS = ("query_0", "qtopic", "qsparse", "qdense", "qpassage")
"""The columns that `decompose` adds: the narrative, its id, and the texts of the query for each system."""
TEXT_FIELDS = ("text", "title", "url")
ANSWER_COLUMNS = ("qanswer", "qcitations")


def as_pyterrier_transformer(index: Index, step: str, config: RunConfig | None = None) -> Any:
    """Make a step of Keystone a transformer of PyTerrier.

    | step | takes | gives |
    |---|---|---|
    | `decompose` | narratives | the queries of each narrative |
    | `search` | queries | a ranking for each query: by one system, or by all, fused |
    | `fuse` | rankings of decomposed queries | a ranking for each narrative |
    | `rerank` | rankings | the rankings after the configuration's reranker |
    | `answer` | narratives, or rankings to answer from | `qanswer`, and the cited ids as `qcitations` |

    `decompose >> search >> fuse` gives the ranking of `keystone run`. `search >> pt.text.get_text(search)` adds the
    texts of the documents, for any reranker of PyTerrier. `UserError` for an unknown step;
    `MissingPackage` if PyTerrier is not installed.
    """
    if step not in _STEPS:
        raise UserError(f"step: found {step!r}, expected one of {', '.join(_STEPS)}")
    try:
        from keystone.runs.python.transformer import KeystoneTransformer
    except ImportError as error:
        raise MissingPackage("PyTerrier is needed: pip install pyterrier") from error
    columns, work = _STEPS[step]
    done = partial(work, index, config or steps.configure())
    return KeystoneTransformer(f"keystone.{step}", columns, done, partial(load_texts, index))


def decompose(index: Index, config: RunConfig, frame: Any) -> Any:
    """Replace each narrative by its queries. `query_0` keeps the narrative, as PyTerrier's rewriters do."""
    topics = _list_topics(frame)
    found = to_pandas(steps.decompose(index, topics, config)) if topics else _make_empty(frame, DECOMPOSED_COLUMNS)
    return found.assign(query_0=found["qtopic"].map({topic.id: topic.narrative for topic in topics}))


def search(index: Index, config: RunConfig, frame: Any) -> Any:
    """Rank documents for each query. The scores of a single system are its own, those of several are fused."""
    queries = _list_queries(frame)
    if not queries:
        return _make_empty(frame, HIT_COLUMNS)
    runs = steps.search(index, queries, config)
    run = next(iter(runs.values())) if len(runs) == 1 else steps.fuse_systems(runs, queries, config)
    return _name_ids(_take_queries(frame)).merge(to_pandas(run), on="qid")


def fuse(_index: Index, config: RunConfig, frame: Any) -> Any:
    """Fuse the rankings of each narrative's queries into one."""
    if not len(frame):
        return _make_empty(frame, HIT_COLUMNS)[[*QUERY_COLUMNS, *HIT_COLUMNS]]
    run, own = to_run(frame), _take_queries(frame)
    pairs = own[["qtopic", "qid"]].itertuples(index=False)
    found = steps.fuse_queries(run, [Query(str(topic), str(query), "", "", "") for topic, query in pairs], config)
    topics = own.drop_duplicates("qtopic").assign(qid=lambda rows: rows["qtopic"], query=lambda rows: rows["query_0"])
    return topics[list(QUERY_COLUMNS)].merge(to_pandas(found), on="qid")


def rerank(index: Index, config: RunConfig, frame: Any) -> Any:
    """Rank the best documents of each query again; all other columns stay."""
    if not len(frame):
        return _make_empty(frame, HIT_COLUMNS)
    found = to_pandas(steps.rerank(index, _list_topics(frame), frame, config))
    return found.merge(_name_ids(frame).drop(columns=["score", "rank"], errors="ignore"), on=["qid", "docno"])


def answer(index: Index, config: RunConfig, frame: Any) -> Any:
    """Answer each narrative from its ranking, if the frame has documents, else from what Keystone finds."""
    topics = _list_topics(frame)
    if not topics:
        return _make_empty(_take_queries(frame), ANSWER_COLUMNS)
    found = steps.answer(index, topics, config, frame if "docno" in frame.columns else None)
    return _name_ids(_take_queries(frame)).merge(to_pandas(found), on="qid")


def load_texts(index: Index, fields: list[str] | str, frame: Any) -> Any:
    """Add fields of the documents to a frame, each as a column. `UserError` for an unknown field or document."""
    names = list(TEXT_FIELDS) if fields == "*" else [fields] if isinstance(fields, str) else list(fields)
    if unknown := [name for name in names if name not in TEXT_FIELDS]:
        raise UserError(f"get_text: found the field {unknown[0]!r}, expected one of {', '.join(TEXT_FIELDS)}")
    found = documents(index, frame["docno"].map(str)) if len(frame) else []
    return frame.assign(**{name: [getattr(one, name) for one in found] for name in names})


_STEPS: dict[str, tuple[tuple[str, ...], Step]] = {
    "decompose": (QUERY_COLUMNS, decompose),
    "search": (QUERY_COLUMNS, search),
    "fuse": ((*RANKING_COLUMNS, "qtopic", "query_0"), fuse),
    "rerank": (RANKING_COLUMNS, rerank),
    "answer": (QUERY_COLUMNS, answer),
}
"""The columns that each step needs, and the step."""


def _take_queries(frame: Any) -> Any:
    """Take a row for each query, with those columns that describe it: PyTerrier's begin with q."""
    return frame[[name for name in frame.columns if name.startswith("q")]].drop_duplicates("qid")


def _name_ids(frame: Any) -> Any:
    """Make the ids of a frame text, as they are in runs."""
    return frame.assign(**{name: frame[name].map(str) for name in ("qid", "docno") if name in frame.columns})


def _list_topics(frame: Any) -> list[Topic]:
    if not len(frame):
        return []
    own = _take_queries(frame)
    topics = to_topics(own)
    if "qtranslations" not in own.columns:
        return topics
    given = zip(topics, own["qtranslations"], strict=True)
    pairs = ((topic, dict(texts) if isinstance(texts, tuple) else texts) for topic, texts in given)
    return [replace(topic, record={"translations": texts}) for topic, texts in pairs]


def _list_queries(frame: Any) -> list[Query]:
    """List the queries of a frame: those of `decompose` as they were made, others as narratives."""
    if "qtopic" not in frame.columns:
        return [make_narrative_query(topic) for topic in _list_topics(frame)]
    own, columns = frame.drop_duplicates("qid"), ["qtopic", "qid", "query", "qsparse", "qdense", "qpassage"]
    queries = [Query(*row) for row in own[columns].itertuples(index=False, name=None)]
    if "qtranslations" not in frame.columns:
        return queries
    given = ((pairs if isinstance(pairs, Iterable) else ()) for pairs in own["qtranslations"])  # NaN means none
    return [replace(one, translations=tuple(pairs)) for one, pairs in zip(queries, given, strict=True)]


def _make_empty(frame: Any, names: tuple[str, ...]) -> Any:
    """Make a frame without rows. PyTerrier runs a step on one to learn the columns that it gives."""
    return frame.iloc[:0].reindex(columns=[*frame.columns, *(name for name in names if name not in frame.columns)])
