"""The names of the files of a run directory, which need no other module of a run."""

from pathlib import Path

QUERIES = "queries.jsonl"
SUMMARIES = "summaries.jsonl"
HYBRID = "hybrid.trec"
NARRATIVE = "narrative.trec"
RERANKED = "reranked.trec"
RERANKS = "reranks.jsonl"
GRADES = "grades.jsonl"
QRELS = "grades.qrels"
GRADED = "graded.trec"
KEYSTONE = "keystone.trec"
ROUNDS = "rounds.jsonl"
JOINED = "rounds.trec"
EVIDENCE = "evidence.jsonl"
TRACE = "trace.jsonl"
ANSWERS = "answers.jsonl"
CONFIG = "config.yaml"
USE = "use.jsonl"
"""The judgments of use, which `keystone judge use` adds to a run directory."""


def find_ranking(path: Path) -> Path:
    """Find the run file that a path names: the last ranking of a run directory, or else the path itself."""
    return find_last_ranking(path) if (path / CONFIG).is_file() else path


def find_last_ranking(directory: Path) -> Path:
    """Find the last ranking of documents that a run has made so far, whose first one is that of its narratives."""
    made = (directory / name for name in (KEYSTONE, GRADED, RERANKED) if (directory / name).exists())
    return next(made, directory / NARRATIVE)
