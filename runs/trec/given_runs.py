"""Run files of other systems, as further rankings of a run's queries and narratives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.types import Store, document_id
from keystone.runs.trec.run_files import read_run


@dataclass(frozen=True, slots=True)
class GivenRun:
    """A run file of another system. `rows` has the documents of each query or narrative, best first."""

    sha256: str
    rows: Mapping[str, Sequence[int]]
    unknown: int
    """How many of the file's lines name a document that the store lacks."""


def read_given_run(path: Path, store: Store, topic_ids: Sequence[str]) -> GivenRun:
    """Read the rankings of these topics and of their queries from a run file, in trec_eval's order.

    The id of a segment counts for its document, which keeps its best place. Without `topic_ids`, all rankings are read.
    `UserError` for a file that is no run file, and for one that ranks nothing for any of the topics.
    """
    run, own = read_run(path), set(topic_ids)
    kept = [name for name in run.query_ids if not own or name in own or name.rsplit("#", 1)[0] in own]
    if not kept:
        found = f"found {run.query_ids[0]!r}" if run.query_ids else "found no line"
        raise UserError(f"{path}: {found}, expected rankings of the topics, such as {next(iter(topic_ids), '1')!r}")
    run = run.select(kept)
    doc_ids, code_of = run.docs.find_distinct()
    known = store.rows(doc_ids)
    known = np.where(known < 0, store.rows([document_id(name) for name in doc_ids]), known)[code_of]
    parts = [known[a:b] for a, b in zip(run.offsets, run.offsets[1:], strict=False)]
    rows = {name: list(dict.fromkeys(part[part >= 0].tolist())) for name, part in zip(kept, parts, strict=True)}
    return GivenRun(hash_file(path), rows, int((known < 0).sum()))
