"""The stages of a run, in order: queries, search, two-stage fusion, segments, answers, submission files.

Each reads its inputs from the run directory and writes its artifacts there, so that a run that was interrupted
and one that was not see the same values.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import yaml

from fusion.fuse import fuse
from fusion.lists import of_topics
from fusion.methods import METHODS
from fusion.rrf import fuse_systems
from fusion.segments import closest
from generation.queries import compose, is_whole, whole
from generation.rules.answer import answer, gather
from generation.rules.understand import understand
from generation.types import Answer, Evidence, Sentence, Understanding
from indexing.build import Index, open_index
from indexing.dense import faiss_module
from indexing.embed import Embedding, embed_passages, embed_queries
from indexing.errors import UserError
from indexing.files import json_lines, locked, sha256, written
from indexing.segment_vectors import segment_vectors
from indexing.store import DocumentStore
from indexing.types import Progress, document_id, silent
from retrieval.hybrid import search_all
from retrieval.types import Query, Rankings, Topic
from runs.config import RunConfig
from runs.directory import Stage, perform
from runs.names import names_of
from runs.rag import Author, write_rag
from runs.render import strictly_decreasing
from runs.topics import read_topics
from runs.tracks import TRACKS, Track, with_limits
from runs.trec import Run, read_run, run_of, write_run

QUERIES = "queries.jsonl"
HYBRID = "hybrid.trec"
NARRATIVE = "narrative.trec"
EVIDENCE = "evidence.jsonl"
ANSWERS = "answers.jsonl"
CONFIG = "config.yaml"


def run(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    announce: Callable[[Stage, bool], None] = lambda _stage, _reused: None,
) -> Path:
    """Make a run, or finish one that was interrupted; returns its directory."""
    job = open_job(config, threads, progress)
    index = job.index
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
            [index, _plain(config.answer), words_of(job)],
            lambda: write_answers(job),
        ),
        Stage(
            "submission",
            (job.track.answer_file,),
            (ANSWERS,),
            [named, topics, track, asdict(job.author)],
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
        "versions": {**{package: version(package) for package in packages}, "faiss": faiss_module().__version__},
    }


def write_config(job: Job) -> None:
    """Stage `config`: the resolved configuration."""
    with written(job.directory / CONFIG) as out:
        out.write(yaml.safe_dump(_plain(job.config), sort_keys=False, allow_unicode=True).encode())


def write_queries(job: Job) -> None:
    """Stage `queries`: the questions, topic and variants of each narrative, and the queries that they make."""
    method = job.config.queries.method
    made = queries_of(job)
    records = [{"method": method, **asdict(found), "queries": list(map(asdict, queries))} for found, queries in made]
    ids = Counter(query.id for _, queries in made for query in queries)
    repeated, times = ids.most_common(1)[0]
    if times > 1:
        raise UserError(f"{job.config.topics}: topic ids give the query id {repeated!r} twice: rename a topic")
    _write_json_lines(job.directory / QUERIES, records)


def queries_of(job: Job) -> list[tuple[Understanding, list[Query]]]:
    """For each topic what is understood of it and the queries that this makes."""
    settings = job.config.queries
    if settings.method == "narrative":
        return [(Understanding(topic.id, ()), [whole(topic)]) for topic in job.topics]
    understood = understand(job.topics, job.index, settings.facets, settings.topic, settings.variants, job.threads)
    return [
        (
            found,
            [
                *([whole(topic)] if settings.narrative_weight > 0 else []),
                *compose(found, settings.question_weight, settings.dense_topic),
            ],
        )
        for topic, found in zip(job.topics, understood, strict=True)
    ]


def read_queries(job: Job) -> list[Query]:
    """The queries of stage `queries`."""
    return [Query(**query) for _, record in json_lines(job.directory / QUERIES) for query in record["queries"]]


def search(job: Job) -> None:
    """Stage `search`: every query to every system, in one batch and in parallel."""
    for system, rankings in rankings_of(job, read_queries(job)).items():
        _write_rankings(job, f"{system}.trec", rankings)


def rankings_of(job: Job, queries: Sequence[Query]) -> dict[str, Rankings]:
    """The rankings of the queries by each system."""
    settings = job.config.retrieval
    feedback = None if settings.feedback == "none" else settings.feedback
    return search_all(
        job.index, queries, settings.systems, settings.depth, job.threads, job.progress, feedback, settings.faiss
    )


def fuse_each_query(job: Job) -> None:
    """Stage `hybrid`: RRF over the systems of each query."""
    ids = [query.id for query in read_queries(job)]
    systems = [_read_rankings(job, f"{system}.trec", ids) for system in job.config.retrieval.systems]
    _write_rankings(job, HYBRID, fuse_systems(systems, job.config.fusion.k, job.config.retrieval.depth))


def fuse_each_narrative(job: Job) -> None:
    """Stage `narrative`: RRF, or another method of fusion, over the queries of each narrative."""
    queries = read_queries(job)
    hybrid = _read_rankings(job, HYBRID, [query.id for query in queries])
    _write_rankings(job, NARRATIVE, narrative_rankings(job, queries, hybrid))


def narrative_rankings(job: Job, queries: Sequence[Query], hybrid: Rankings) -> Rankings:
    """One ranking a topic from the hybrid rankings of its queries."""
    settings, topics = job.config.fusion, [topic.id for topic in job.topics]
    weight = job.config.queries.narrative_weight if job.config.queries.method == "rules" else 1
    heavy = [weight if is_whole(query) else 1 for query in queries]
    members, weights = of_topics([query.topic_id for query in queries], topics, heavy)
    parameters = dict(settings.parameters)
    if "k" in METHODS[settings.method].parameters:
        parameters["k"] = settings.k_narrative
    return fuse([hybrid], members, topics, settings.method, settings.depth, weights, settings.norm, parameters)


def assign_segments(job: Job) -> None:
    """Stage `segments`: the ranking that is submitted, of documents or of their segments, as the track has it."""
    track = job.track
    ranking = _read_rankings(job, NARRATIVE, [topic.id for topic in job.topics])
    ranking = ranking if track.rows is None else ranking.top(track.rows)
    if track.segments:
        names = closest_segments(job, ranking)
    else:
        names = [job.store.ids(ranking.of(i)) for i in range(len(ranking))]
    hits = {
        topic.id: list(zip(names[i], ranking.scores_of(i).tolist(), strict=True)) for i, topic in enumerate(job.topics)
    }
    write_run(job.directory / track.retrieval_file, run_of(job.config.run_id, hits))


def closest_segments(job: Job, ranking: Rankings) -> list[list[str]]:
    """For each document of each topic, the id of its segment closest to the narrative."""
    vectors = segment_vectors(job.index, ranking.docs.tolist(), job.threads, job.progress)
    narratives = embed_queries(_embedding(job), [topic.narrative for topic in job.topics], job.threads)
    found = []
    for i in range(len(ranking)):
        documents = job.store.get(ranking.of(i))
        chosen = [closest(narratives[i : i + 1], vectors[row])[0][0] for row in ranking.of(i).tolist()]
        found.append([document.segments[number].id for document, number in zip(documents, chosen, strict=True)])
    return found


def write_answers(job: Job) -> None:
    """Stage `answers`: an extractive answer to each narrative from the first documents of its ranking."""
    settings, embedding, words = job.config.answer, _embedding(job), words_of(job)
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
            made, used = answer(topic.id, own, asked, documents, segments, spans, said, words)
            answers.append(made)
            evidence += used
            tick(1)
    _write_json_lines(job.directory / EVIDENCE, map(asdict, evidence))
    _write_json_lines(job.directory / ANSWERS, map(asdict, answers))


def write_submission(job: Job) -> None:
    """Stage `submission`: the track's answer file, in which documents stand for their segments if the track has it."""
    answers, track = {}, job.track
    for _, record in json_lines(job.directory / ANSWERS):
        said = tuple(
            Sentence(s["text"], tuple(c if track.segments else document_id(c) for c in s["citations"]))
            for s in record["sentences"]
        )
        answers[record["topic_id"]] = Answer(record["topic_id"], said)
    write_rag(job.directory / track.answer_file, job.topics, answers, track, job.author)


def _embedding(job: Job) -> Embedding:
    assert job.index.embedding is not None  # `run` has looked
    return job.index.embedding


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def _write_json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with written(path) as out:
        for record in records:
            out.write(orjson.dumps(record) + b"\n")


def run_from(job: Job, rankings: Rankings) -> Run:
    """Rankings of documents as a run, with their ids, and with scores that give their order to every reader."""
    rows, row_of = np.unique(rankings.docs, return_inverse=True)
    docs = names_of(job.store.ids(rows))[row_of]
    scores = strictly_decreasing(rankings.scores, rankings.offsets)
    return Run(job.config.run_id, rankings.query_ids, rankings.offsets, docs, scores)


def _write_rankings(job: Job, name: str, rankings: Rankings) -> None:
    write_run(job.directory / name, run_from(job, rankings))


def _read_rankings(job: Job, name: str, ids: list[str]) -> Rankings:
    run = read_run(job.directory / name).of(ids)
    doc_ids, code_of = run.docs.distinct()
    rows = job.store.rows(doc_ids)[code_of]
    return Rankings(tuple(ids), run.offsets, rows, run.scores.astype(np.float32))
