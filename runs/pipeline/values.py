"""The values that the stages of a run exchange, and the files of the run directory that hold them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import TypeAdapter

from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Store
from keystone.retrieval.backends import renew_rows
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Rankings
from keystone.runs.pipeline.job import Job
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Artifact(Generic[T]):
    """A file of the run directory, and how its value is read and written.

    The calls are `read(path, values)` and `write(path, value, values)`, where `values` are those of the same run.
    Reading a file gives the value that was written.
    """

    name: str
    read: Callable[[Path, "Values"], T]
    write: Callable[[Path, T, "Values"], None]

    @property
    def stem(self) -> str:
        """The name of the ranking that the file holds: the file's name without its ending."""
        return self.name.removesuffix(".trec")


class Values:
    """The artifacts of one run directory. A value that was read or made once is kept in memory.

    `lenders` are the run directories that it may borrow from. `out` is another folder to write values to.
    """

    def __init__(self, directory: Path, job: Job, lenders: Sequence[Path] = (), out: Path | None = None) -> None:
        self.directory, self.job, self.lenders = directory, job, lenders
        self._out = directory if out is None else out
        self._kept: dict[str, Any] = {}

    def get(self, artifact: Artifact[T]) -> T:
        """Get the value of an artifact whose file exists."""
        if artifact.name not in self._kept:
            self._kept[artifact.name] = artifact.read(self.directory / artifact.name, self)
        value: T = self._renew(self._kept[artifact.name])
        return value

    def _renew(self, value: Any) -> Any:
        """Give rankings the newest rows, since a search of a REST server may give their documents other rows."""
        return renew_rows(self.job.index, self.job.store, value) if isinstance(value, Rankings) else value

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Write the value of an artifact, and keep it. A value that goes to another folder is not kept."""
        artifact.write(self._out / artifact.name, value, self)
        if self._out == self.directory:
            self._kept[artifact.name] = value

    def hold(self, name: str, value: Any) -> None:
        """Hold a value that is no artifact for a later stage. A run directory holds none, to save memory."""

    def get_held(self, _name: str) -> Any | None:
        """Get a value that is held; None if it is not."""
        return None


class MemoryValues(Values):
    """The artifacts of a job that are only kept in memory."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.directory, job)
        self._held: dict[str, Any] = {}

    def hold(self, name: str, value: Any) -> None:
        """Hold a value that is no artifact for a later stage."""
        self._held[name] = value

    def get_held(self, name: str) -> Any | None:
        """Get a value that is held; None if it is not."""
        return self._held.get(name)

    def get(self, artifact: Artifact[T]) -> T:
        """Get the value of an artifact that a stage has put. A run directory of the same name is not read."""
        value: T = self._renew(self._kept[artifact.name])
        return value

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Keep the value of an artifact."""
        self._kept[artifact.name] = value


def leave_out_empty(record: dict[str, Any], *names: str) -> dict[str, Any]:
    """Leave out those of the named keys of a record that are empty: only some methods fill them."""
    return {key: value for key, value in record.items() if value or key not in names}


def make_records_artifact(
    name: str,
    kind: type[T],
    encode: Callable[[T], dict[str, Any]] = asdict,  # type: ignore[assignment]
    decode: Callable[[dict[str, Any]], T] | None = None,
) -> Artifact[list[T]]:
    """Make the artifact of a file with one JSON object per line, which has the fields of the data class `kind`."""
    decode_one = decode or TypeAdapter(kind).validate_python
    return Artifact(
        name,
        lambda path, _: [decode_one(record) for _, record in read_json_lines(path)],
        lambda path, found, _: write_json_lines(path, map(encode, found)),
    )


def make_rankings_artifact(name: str, list_ids: Callable[[Values], Sequence[str]]) -> Artifact[Rankings]:
    """Make the artifact of a run file: the rankings of documents for these queries or topics."""
    return Artifact(
        name,
        lambda path, values: read_rankings(path, values.job.store, list_ids(values)),
        lambda path, found, values: write_run(path, convert_to_run(values.job.store, found, values.job.config.run_id)),
    )


def rank_topics_in(name: str) -> Artifact[Rankings]:
    """Make the artifact of a file with the ranking of each topic."""
    return make_rankings_artifact(name, lambda values: [topic.id for topic in values.job.topics])


def convert_to_run(store: Store, rankings: Rankings, tag: str) -> Run:
    """Convert rankings of documents to a run. Its scores decrease strictly, so every reader finds the same order."""
    rows, row_of = np.unique(rankings.docs, return_inverse=True)
    docs = encode_ids(store.ids(rows))[row_of]
    scores = decrease_strictly(rankings.scores, rankings.offsets)
    return Run(tag, rankings.query_ids, rankings.offsets, docs, scores)


def read_rankings(path: Path, store: Store, ids: Sequence[str]) -> Rankings:
    """Read the rankings of these queries from a run file. `UserError` for a file that is no run file."""
    run = read_run(path).select(ids)
    doc_ids, code_of = run.docs.find_distinct()
    rows = store.rows(doc_ids)[code_of]
    return Rankings(tuple(ids), run.offsets, rows, run.scores.astype(np.float32))
