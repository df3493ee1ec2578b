"""The files of the evidence: `evidence.jsonl`, and `trace.jsonl` with the steps of a reader."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic import TypeAdapter

from keystone.generation.types import EvidenceSet, Step
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.retrieval.types import Topic
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.values import Artifact, leave_out_empty, make_records_artifact


@dataclass(frozen=True, slots=True)
class TopicStep:
    """A step of the reader of a topic."""

    topic_id: str
    step: Step


def _write_evidence(topic: Topic, found: EvidenceSet) -> dict[str, Any]:
    """Encode the evidence of a topic, without the steps: they have a file of their own.

    If the questions were checked, the record has the checks and the documents that were added.
    """
    record = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "steps"}
    return {"topic_id": topic.id, **leave_out_empty(record, "checks", "rechecks", "added", "fallbacks")}


_read_evidence = TypeAdapter(EvidenceSet).validate_python
_read_step = TypeAdapter(Step).validate_python


def decode_step(record: dict[str, Any]) -> TopicStep:
    """Decode a line of a trace."""
    return TopicStep(record["topic_id"], _read_step(record))


EVIDENCE_FILE: Artifact[list[EvidenceSet]] = Artifact(
    file_names.EVIDENCE,
    lambda path, _: [_read_evidence(record) for _, record in read_json_lines(path)],
    lambda path, found, values: write_json_lines(path, map(_write_evidence, values.job.topics, found)),
)
"""The evidence of each topic, in the order of the job's topics."""
TRACE_FILE = make_records_artifact(
    file_names.TRACE, TopicStep, lambda one: {"topic_id": one.topic_id, **asdict(one.step)}, decode_step
)
"""The steps of a structure-aware reader."""
