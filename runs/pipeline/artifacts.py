"""The artifacts of a run: their names, and rankings and records as files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from indexing.io.writing import write_whole
from retrieval.types import Rankings
from runs.pipeline.job import Job
from runs.trec.doc_ids import encode_ids
from runs.trec.render import decrease_strictly
from runs.trec.run_files import read_run, write_run
from runs.trec.types import Run

QUERIES = "queries.jsonl"
SUMMARIES = "summaries.jsonl"
HYBRID = "hybrid.trec"
NARRATIVE = "narrative.trec"
GRADES = "grades.jsonl"
QRELS = "grades.qrels"
KEYSTONE = "keystone.trec"
EVIDENCE = "evidence.jsonl"
ANSWERS = "answers.jsonl"
CONFIG = "config.yaml"


def write_json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, all or nothing."""
    with write_whole(path) as out:
        for record in records:
            out.write(orjson.dumps(record) + b"\n")


def run_from(job: Job, rankings: Rankings) -> Run:
    """Rankings of documents as a run, with their ids, and with scores that give their order to every reader."""
    rows, row_of = np.unique(rankings.docs, return_inverse=True)
    docs = encode_ids(job.store.ids(rows))[row_of]
    scores = decrease_strictly(rankings.scores, rankings.offsets)
    return Run(job.config.run_id, rankings.query_ids, rankings.offsets, docs, scores)


def write_rankings(job: Job, name: str, rankings: Rankings) -> None:
    """Write rankings as the artifact of this name."""
    write_run(job.directory / name, run_from(job, rankings))


def read_rankings(job: Job, name: str, ids: list[str]) -> Rankings:
    """The rankings of these queries in the artifact of this name."""
    run = read_run(job.directory / name).select(ids)
    doc_ids, code_of = run.docs.find_distinct()
    rows = job.store.rows(doc_ids)[code_of]
    return Rankings(tuple(ids), run.offsets, rows, run.scores.astype(np.float32))
