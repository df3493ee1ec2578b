"""The artifacts of a run: their names, and how each is read and written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import yaml

from keystone.generation.types import (
    Answer,
    Evidence,
    EvidenceSet,
    Fallback,
    Note,
    QuestionCheck,
    Sentence,
    Step,
    SupportCheck,
    Understanding,
)
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Span, Store
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Ask, Query, Rankings
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.directory import Artifact, Values
from keystone.runs.pipeline.file_names import (
    ANSWERS,
    CONFIG,
    EVIDENCE,
    GRADED,
    GRADES,
    HYBRID,
    JOINED,
    KEYSTONE,
    NARRATIVE,
    QRELS,
    QUERIES,
    RERANKED,
    RERANKS,
    ROUNDS,
    SUMMARIES,
    TRACE,
)
from keystone.runs.pipeline.grading.grade_files import GradeRecord, Judgment, read_judgments, write_judgments
from keystone.runs.pipeline.grading.rounds import Round
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.queries import UnderstoodTopic, list_queries
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that is embedded in place of a long document, and the model's failures to write it."""

    doc_id: str
    summary: str
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True)
class RerankRecord:
    """How many documents of a topic were ranked again, and each step in which the model gave no usable reply."""

    topic_id: str
    documents: int
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicStep:
    """A step of the reader of a topic."""

    topic_id: str
    step: Step


@dataclass(frozen=True, slots=True)
class Artifacts:
    """All artifacts that a run may have. Lists of evidence and answers are in the order of the job's topics."""

    config: Artifact[RunConfig]
    queries: Artifact[list[UnderstoodTopic]]
    systems: tuple[Artifact[Rankings], ...]
    summaries: Artifact[list[Summary]]
    hybrid: Artifact[Rankings]
    narrative: Artifact[Rankings]
    reranked: Artifact[Rankings]
    """The ranking of each narrative after the reranker."""
    reranks: Artifact[list[RerankRecord]]
    grades: Artifact[list[GradeRecord]]
    qrels: Artifact[list[Judgment]]
    graded: Artifact[Rankings]
    keystone: Artifact[Rankings]
    rounds: Artifact[list[Round]]
    """The further rounds of search."""
    joined: Artifact[Rankings]
    """The hybrid ranking of each query after the further rounds."""
    retrieval: Artifact[Run]
    """The ranking that is submitted."""
    evidence: Artifact[list[EvidenceSet]]
    trace: Artifact[list[TopicStep]]
    """The steps of a structure-aware reader."""
    answers: Artifact[list[Answer]]
    submission: Artifact[list[dict[str, Any]]]
    """The objects of the answer file that is submitted."""


def list_artifacts(job: Job, values: Values) -> Artifacts:
    """List the artifacts of a job. Files that hold only the ids of queries are read with the queries in `values`."""
    method = job.config.queries.method
    queries = _make_records_artifact(
        QUERIES, _decode_understood, lambda one: {"method": method, **_encode_understood(one)}
    )
    topic_ids = [topic.id for topic in job.topics]

    def get_queries() -> list[Query]:
        topics = values.get(queries)
        return list_queries(topics)

    def make_query_artifact(name: str) -> Artifact[Rankings]:
        return _make_rankings_artifact(job, name, lambda: [query.id for query in get_queries()])

    def make_topic_artifact(name: str) -> Artifact[Rankings]:
        return _make_rankings_artifact(job, name, lambda: topic_ids)

    return Artifacts(
        config=Artifact(CONFIG, read_config, _write_config),
        queries=queries,
        systems=tuple(make_query_artifact(f"{system}.trec") for system in job.config.list_systems()),
        summaries=_make_records_artifact(
            SUMMARIES, lambda r: Summary(r["doc_id"], r["summary"], _decode_fallbacks(r)), asdict
        ),
        hybrid=make_query_artifact(HYBRID),
        narrative=make_topic_artifact(NARRATIVE),
        reranked=make_topic_artifact(RERANKED),
        reranks=_make_records_artifact(
            RERANKS, lambda r: RerankRecord(r["topic_id"], r["documents"], _decode_fallbacks(r)), asdict
        ),
        grades=_make_records_artifact(GRADES, _decode_grades, asdict),
        qrels=Artifact(QRELS, read_judgments, write_judgments),
        graded=make_topic_artifact(GRADED),
        keystone=make_topic_artifact(KEYSTONE),
        rounds=_make_records_artifact(ROUNDS, lambda r: Round(**{**r, "fallbacks": _decode_fallbacks(r)}), asdict),
        joined=make_query_artifact(JOINED),
        retrieval=Artifact(job.track.retrieval_file, read_run, write_run),
        evidence=Artifact(
            EVIDENCE,
            lambda path: [_decode_evidence(record) for _, record in read_json_lines(path)],
            lambda path, found: write_json_lines(path, map(_encode_evidence, topic_ids, found)),
        ),
        trace=_make_records_artifact(TRACE, decode_step, lambda one: {"topic_id": one.topic_id, **asdict(one.step)}),
        answers=_make_records_artifact(ANSWERS, _decode_answer, _encode_answer),
        submission=_make_records_artifact(job.track.answer_file, dict, dict),
    )


def _make_records_artifact(
    name: str, decode: Callable[[dict[str, Any]], T], encode: Callable[[T], dict[str, Any]]
) -> Artifact[list[T]]:
    """Make the artifact of a file with one JSON object a line."""
    return Artifact(
        name,
        lambda path: [decode(record) for _, record in read_json_lines(path)],
        lambda path, found: write_json_lines(path, map(encode, found)),
    )


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line. The file appears when it is whole."""
    with write_whole(path) as out:
        for record in records:
            out.write(orjson.dumps(record) + b"\n")


def _make_rankings_artifact(job: Job, name: str, ids: Callable[[], Sequence[str]]) -> Artifact[Rankings]:
    """Make the artifact of a run file: the rankings of documents for these queries or topics."""
    return Artifact(
        name,
        lambda path: read_rankings(path, job.store, ids()),
        lambda path, rankings: write_run(path, convert_to_run(job.store, rankings, job.config.run_id)),
    )


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


def _write_config(path: Path, config: RunConfig) -> None:
    with write_whole(path) as out:
        out.write(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True).encode())


def _encode_understood(one: UnderstoodTopic) -> dict[str, Any]:
    """Encode the understanding of a topic. Each query holds what its question wants."""
    understanding = {key: value for key, value in asdict(one.understanding).items() if key != "asks"}
    return {
        **understanding,
        "queries": [
            {key: value for key, value in asdict(query).items() if value or key not in ("passage", "ask")}
            for query in one.queries
        ],
        "fallbacks": list(map(asdict, one.fallbacks)),
    }


def _decode_understood(record: Mapping[str, Any]) -> UnderstoodTopic:
    queries = tuple(map(_decode_query, record["queries"]))
    understanding = Understanding(
        record["topic_id"],
        tuple(record["questions"]),
        record["topic"],
        tuple(record["variants"]),
        tuple(query.ask for query in queries if query.ask),
    )
    return UnderstoodTopic(understanding, queries, _decode_fallbacks(record))


def _decode_query(record: Mapping[str, Any]) -> Query:
    ask = record.get("ask")
    return Query(**{**record, "ask": Ask(ask["form"], ask["weight"], tuple(ask["terms"])) if ask else None})


def _decode_grades(record: Mapping[str, Any]) -> GradeRecord:
    spans = [[(start, end) for start, end in own] for own in record["spans"]]
    return GradeRecord(**{**record, "spans": spans, "fallbacks": _decode_fallbacks(record)})


def _decode_fallbacks(record: Mapping[str, Any]) -> tuple[Fallback, ...]:
    return tuple(Fallback(**fallback) for fallback in record["fallbacks"])


def _encode_evidence(topic_id: str, found: EvidenceSet) -> dict[str, Any]:
    """Encode the evidence of a topic, without the steps: they have a file of their own.

    If the questions were checked, the record has the checks and the documents that were added.
    """
    record = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "steps"}
    optional = ("checks", "added", "fallbacks")
    return {"topic_id": topic_id, **{key: value for key, value in record.items() if value or key not in optional}}


def _decode_evidence(record: dict[str, Any]) -> EvidenceSet:
    items = tuple(
        Evidence(**{**item, "span": Span(**item["span"]), "segments": tuple(item.get("segments", ()))})
        for item in record["items"]
    )
    notes = tuple(Note(**{**note, "sources": _decode_spans(note["sources"])}) for note in record["notes"])
    checks = tuple(
        QuestionCheck(one["query_id"], one["found"], one["quote"] and Span(**one["quote"]), tuple(one["searches"]))
        for one in record.get("checks", ())
    )
    return EvidenceSet(
        items,
        notes,
        record["stop"],
        record["reader"],
        record["by"],
        checks=checks,
        added=tuple(record.get("added", ())),
        fallbacks=tuple(Fallback(**one) for one in record.get("fallbacks", ())),
    )


def decode_step(record: Mapping[str, Any]) -> TopicStep:
    """Decode a line of a trace."""
    values = {key: value for key, value in record.items() if key != "topic_id"}
    return TopicStep(record["topic_id"], Step(**{**values, "added": _decode_spans(record["added"])}))


def _decode_spans(records: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    return tuple(Span(**record) for record in records)


def _encode_answer(answer: Answer) -> dict[str, Any]:
    """Encode an answer, without the keys that only some methods fill."""
    record = {key: value for key, value in asdict(answer).items() if value or key not in ("checks", "missing")}
    sentences = [
        {key: value for key, value in one.items() if value or key != "question"} for one in record["sentences"]
    ]
    return {**record, "sentences": sentences}


def _decode_answer(record: Mapping[str, Any]) -> Answer:
    sentences = tuple(
        Sentence(one["text"], tuple(one["citations"]), tuple(one.get("evidence", ())), one.get("question", ""))
        for one in record["sentences"]
    )
    checks = tuple(SupportCheck(**check) for check in record.get("checks", ()))
    return Answer(record["topic_id"], sentences, _decode_fallbacks(record), checks, record.get("missing", ""))
