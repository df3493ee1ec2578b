"""The stages of a run, in order: queries, search, two-stage fusion, segments, answers, submission files.

Each reads its inputs from the run directory and writes its artifacts there, so that a run that was interrupted
and one that was not see the same values.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from fusion.frequency import fuse_by_frequency
from fusion.rrf import fuse_queries, fuse_systems
from fusion.segments import closest
from generation.queries import compose, is_whole, whole
from generation.rules.answer import answer, gather
from generation.rules.understand import understand
from generation.types import Answer, Evidence, Sentence, Understanding
from indexing.build import Index, open_index
from indexing.embed import Embedding, embed_passages, embed_queries
from indexing.errors import UserError
from indexing.files import json_lines, locked, sha256, written
from indexing.segment_vectors import segment_vectors
from indexing.store import DocumentStore
from indexing.types import Progress, silent
from retrieval.hybrid import search_all
from retrieval.types import Query, Rankings, Topic, offsets_of
from runs.config import RunConfig
from runs.directory import Stage, perform
from runs.rag import write_rag
from runs.topics import read_topics
from runs.tracks import TRACKS, Track
from runs.trec import Run, read_run, write_run

QUERIES = "queries.jsonl"
HYBRID = "hybrid.trec"
NARRATIVE = "narrative.trec"
EVIDENCE = "evidence.jsonl"
ANSWERS = "answers.jsonl"
CONFIG = "config.yaml"


@dataclass(frozen=True, slots=True)
class Job:
    """A run about to be made: its configuration and what it names, opened."""

    config: RunConfig
    index: Index
    store: DocumentStore
    topics: list[Topic]
    threads: int = 1
    progress: Progress = silent

    @property
    def directory(self) -> Path:
        """Where all artifacts go."""
        return self.config.out / self.config.run_id

    @property
    def track(self) -> Track:
        """The rules of the run's track."""
        return TRACKS[self.config.track]


def run(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    announce: Callable[[Stage, bool], None] = lambda _stage, _reused: None,
) -> Path:
    """Make a run, or finish one that was interrupted; returns its directory."""
    index = open_index(config.index)
    job = Job(config, index, DocumentStore(index.store), read_topics(config.topics), threads, progress)
    if config.track != "none" and index.embedding is None:
        raise UserError(
            f"{config.index}: has no embeddings, which the segments of track {config.track!r} need: "
            "build the index with them, or set track: none"
        )
    with locked(job.directory):
        perform(job.directory, stages(job), describe(job), announce, progress)
    return job.directory


def stages(job: Job) -> list[Stage]:
    """The stages that a configuration asks for, in order."""
    config, index = job.config, job.index.key
    systems = tuple(f"{system}.trec" for system in config.retrieval.systems)
    named = {"run_id": config.run_id, "index": index}
    topics = [[topic.id, topic.narrative] for topic in job.topics]
    found = [
        Stage("config", (CONFIG,), (), _plain(config), lambda: write_config(job)),
        Stage("queries", (QUERIES,), (), [topics, index, _plain(config.queries)], lambda: write_queries(job)),
        Stage("search", systems, (QUERIES,), [named, _plain(config.retrieval)], lambda: search(job)),
        Stage("hybrid", (HYBRID,), systems, [named, config.fusion.k], lambda: fuse_each_query(job)),
        Stage(
            "narrative",
            (NARRATIVE,),
            (HYBRID,),
            [named, _plain(config.fusion), _plain(config.queries)],
            lambda: fuse_each_narrative(job),
        ),
    ]
    if config.track == "none":
        return found
    track = asdict(job.track)
    return [
        *found,
        Stage(
            "segments", (job.track.retrieval_file,), (NARRATIVE,), [named, topics, track], lambda: assign_segments(job)
        ),
        Stage(
            "answers",
            (EVIDENCE, ANSWERS),
            (QUERIES, NARRATIVE),
            [index, _plain(config.answer)],
            lambda: write_answers(job),
        ),
        Stage(
            "submission",
            (job.track.rag_file,),
            (ANSWERS,),
            [named, topics, track, config.team_id],
            lambda: write_submission(job),
        ),
    ]


def describe(job: Job) -> dict[str, Any]:
    """What the manifest says besides its artifacts: what was used, and who did the understanding and writing."""
    packages = ("keystone-rag", "pyserini", "torch", "tokenizers", "numpy")
    embedding = asdict(job.index.embedding) if job.index.embedding else None
    return {
        "run_id": job.config.run_id,
        "index": {"key": job.index.key, "documents": job.index.documents, "embedding": embedding},
        "topics": {"sha256": sha256(job.config.topics), "number": len(job.topics)},
        "methods": {
            "queries": job.config.queries.method,
            "fusion": job.config.fusion.method,
            "answer": "none" if job.config.track == "none" else job.config.answer.method,
        },
        "versions": {package: version(package) for package in packages},
    }


def write_config(job: Job) -> None:
    """Stage `config`: the resolved configuration."""
    import yaml

    with written(job.directory / CONFIG) as out:
        out.write(yaml.safe_dump(_plain(job.config), sort_keys=False, allow_unicode=True).encode())


def write_queries(job: Job) -> None:
    """Stage `queries`: the questions, topic and variants of each narrative, and the queries that they make."""
    settings = job.config.queries
    if settings.method == "narrative":
        understandings = [Understanding(topic.id, ()) for topic in job.topics]
    else:
        understandings = understand(job.topics, job.index, settings.variants, job.threads)
    with_narrative = settings.method == "narrative" or settings.narrative_weight > 0
    records = []
    for topic, understanding in zip(job.topics, understandings, strict=True):
        queries = [whole(topic)] if with_narrative else []
        queries += compose(understanding, settings.question_weight, settings.dense_topic)
        records.append({"method": settings.method, **asdict(understanding), "queries": list(map(asdict, queries))})
    ids = Counter(query["id"] for record in records for query in record["queries"])
    repeated, times = ids.most_common(1)[0]
    if times > 1:
        raise UserError(f"{job.config.topics}: topic ids give the query id {repeated!r} twice: rename a topic")
    _write_json_lines(job.directory / QUERIES, records)


def read_queries(job: Job) -> list[Query]:
    """The queries of stage `queries`."""
    return [Query(**query) for _, record in json_lines(job.directory / QUERIES) for query in record["queries"]]


def search(job: Job) -> None:
    """Stage `search`: every query to every system, in one batch and in parallel."""
    settings, queries = job.config.retrieval, read_queries(job)
    feedback = None if settings.feedback == "none" else settings.feedback
    found = search_all(
        job.index, queries, settings.systems, settings.depth, job.threads, job.progress, feedback, settings.faiss
    )
    for system, rankings in found.items():
        _write_rankings(job, f"{system}.trec", rankings)


def fuse_each_query(job: Job) -> None:
    """Stage `hybrid`: RRF over the systems of each query."""
    ids = [query.id for query in read_queries(job)]
    systems = [_read_rankings(job, f"{system}.trec", ids) for system in job.config.retrieval.systems]
    _write_rankings(job, HYBRID, fuse_systems(systems, job.config.fusion.k, job.config.retrieval.depth))


def fuse_each_narrative(job: Job) -> None:
    """Stage `narrative`: RRF, or the frequency strategy, over the queries of each narrative."""
    settings, queries = job.config.fusion, read_queries(job)
    hybrid = _read_rankings(job, HYBRID, [query.id for query in queries])
    topics = [topic.id for topic in job.topics]
    topic_of = [query.topic_id for query in queries]
    if settings.method == "frequency":
        fused = fuse_by_frequency(hybrid, topic_of, topics, settings.k_narrative, settings.depth)
    else:
        weight = job.config.queries.narrative_weight if job.config.queries.method == "rules" else 1
        weights = [weight if is_whole(query) else 1 for query in queries]
        fused = fuse_queries(hybrid, topic_of, topics, settings.k_narrative, settings.depth, weights)
    _write_rankings(job, NARRATIVE, fused)


def assign_segments(job: Job) -> None:
    """Stage `segments`: each document of the ranking stands for its segment closest to the narrative."""
    ranking = _read_rankings(job, NARRATIVE, [topic.id for topic in job.topics]).top(job.track.rows)
    vectors = segment_vectors(job.index, ranking.docs.tolist(), job.threads, job.progress)
    narratives = embed_queries(_embedding(job), [topic.narrative for topic in job.topics], job.threads)
    hits = {}
    for i, topic in enumerate(job.topics):
        documents = job.store.get(ranking.of(i))
        chosen = [closest(narratives[i : i + 1], vectors[row])[0][0] for row in ranking.of(i).tolist()]
        segments = [document.segments[number].id for document, number in zip(documents, chosen, strict=True)]
        hits[topic.id] = list(zip(segments, ranking.scores_of(i).tolist(), strict=True))
    write_run(job.directory / job.track.retrieval_file, Run(job.config.run_id, hits))


def write_answers(job: Job) -> None:
    """Stage `answers`: an extractive answer to each narrative from the first documents of its ranking."""
    settings, embedding = job.config.answer, _embedding(job)
    ranking = _read_rankings(job, NARRATIVE, [topic.id for topic in job.topics]).top(settings.documents)
    vectors = segment_vectors(job.index, ranking.docs.tolist(), job.threads, job.progress)
    queries = read_queries(job)
    answers: list[Answer] = []
    evidence: list[Evidence] = []
    with job.progress("Answering", len(job.topics)) as tick:
        for i, topic in enumerate(job.topics):
            own = [query for query in queries if query.topic_id == topic.id]
            own = [query for query in own if not is_whole(query)] or own
            asked = embed_queries(embedding, [query.dense_text for query in own], job.threads)
            documents = job.store.get(ranking.of(i))
            segments = [vectors[row] for row in ranking.of(i).tolist()]
            spans = gather(documents, segments, asked)
            text_of = {document.id: document.text for document in documents}
            sentences = [text_of[span.doc_id][span.start : span.end] for span in spans]
            said = embed_passages(embedding, sentences, job.threads)
            made, used = answer(topic.id, own, asked, documents, segments, spans, said, settings.words)
            answers.append(made)
            evidence += used
            tick(1)
    _write_json_lines(job.directory / EVIDENCE, map(asdict, evidence))
    _write_json_lines(job.directory / ANSWERS, map(asdict, answers))


def write_submission(job: Job) -> None:
    """Stage `submission`: the track's answer file."""
    answers = {}
    for _, record in json_lines(job.directory / ANSWERS):
        said = tuple(Sentence(s["text"], tuple(s["citations"])) for s in record["sentences"])
        answers[record["topic_id"]] = Answer(record["topic_id"], said)
    path = job.directory / job.track.rag_file
    write_rag(path, job.topics, answers, job.track, job.config.team_id, job.config.run_id)


def _embedding(job: Job) -> Embedding:
    assert job.index.embedding is not None  # `run` has looked
    return job.index.embedding


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def _write_json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with written(path) as out:
        for record in records:
            out.write(orjson.dumps(record) + b"\n")


def _write_rankings(job: Job, name: str, rankings: Rankings) -> None:
    hits = {
        query_id: list(zip(job.store.ids(rankings.of(i)), rankings.scores_of(i).tolist(), strict=True))
        for i, query_id in enumerate(rankings.query_ids)
    }
    write_run(job.directory / name, Run(job.config.run_id, hits))


def _read_rankings(job: Job, name: str, ids: list[str]) -> Rankings:
    hits = read_run(job.directory / name).hits
    lists = [hits.get(query_id, []) for query_id in ids]
    return Rankings(
        tuple(ids),
        offsets_of([len(own) for own in lists]),
        job.store.rows([doc_id for own in lists for doc_id, _ in own]),
        np.array([score for own in lists for _, score in own], dtype=np.float32),
    )
