"""The stages of a run, in order: queries, search, two-stage fusion, grades, segments, answers, submission files.

Each reads its inputs from the run directory and writes its artifacts there, so that a run that was interrupted
and one that was not see the same values.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from fusion.closest import find_closest_segments
from fusion.rrf import fuse_systems
from generation.ask import together
from generation.llm.model import Model
from generation.types import Answer, Sentence
from indexing.errors import UserError
from indexing.io.reading import read_json_lines
from indexing.io.writing import lock_folder, write_whole
from indexing.types import Document, Progress, silent
from indexing.vectors.embed import embed_queries
from indexing.vectors.of_documents import TextsOf, join_title_and_text
from indexing.vectors.of_segments import segment_vectors
from retrieval.types import Query, Rankings, Topic
from runs.config.run_config import RunConfig
from runs.pipeline.answer_topic import Answered, answer_topic
from runs.pipeline.artifacts import (
    ANSWERS,
    CONFIG,
    EVIDENCE,
    GRADES,
    HYBRID,
    KEYSTONE,
    NARRATIVE,
    QRELS,
    QUERIES,
    SUMMARIES,
    read_rankings,
    write_json_lines,
    write_rankings,
)
from runs.pipeline.directory import Stage, perform
from runs.pipeline.grade_files import keystone_rankings, read_selected, records, write_qrels
from runs.pipeline.grade_topic import Graded, grade_topic
from runs.pipeline.job import Job, open_job
from runs.pipeline.manifest import asked, concluded, describe
from runs.pipeline.model import Ask, asking
from runs.pipeline.steps import narrative_rankings, rankings_of, summaries_of, understood
from runs.tracks.answer_files import cite_by_track_ids, write_answer_file
from runs.trec.run_files import write_run
from runs.trec.types import make_run

AT_ONCE = 64
"""Topics that ask the model at one time."""


def run(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    announce: Callable[[Stage, bool], None] = lambda _stage, _reused: None,
) -> Path:
    """Make a run, or finish one that was interrupted; returns its directory."""
    job = open_job(config, threads, progress)
    with lock_folder(job.directory), asking(config, job.directory) as ask:
        perform(job.directory, stages(job, ask), describe(job), announce, progress, lambda: concluded(job))
    return job.directory


def stages(job: Job, ask: Ask) -> list[Stage]:
    """The stages that a configuration asks for, in order."""
    config, index = job.config, job.index.key
    systems = tuple(f"{system}.trec" for system in config.retrieval.systems)
    named = {"run_id": config.run_id, "index": index}
    topics = [[topic.id, topic.narrative] for topic in job.topics]
    found = [
        Stage("config", (CONFIG,), (), _plain(config), lambda: write_config(job)),
        Stage(
            "queries",
            (QUERIES,),
            (),
            [topics, index, _plain(config.queries), asked(config, config.queries.method == "model")],
            lambda: write_queries(job, ask),
        ),
        Stage(
            "search",
            (*systems, *((SUMMARIES,) if config.retrieval.summarise else ())),
            (QUERIES,),
            [named, _plain(config.retrieval), asked(config, config.retrieval.summarise)],
            lambda: search(job, ask),
        ),
        Stage("hybrid", (HYBRID,), (QUERIES, *systems), [named, config.fusion.k], lambda: fuse_each_query(job)),
        Stage(
            "narrative",
            (NARRATIVE,),
            (QUERIES, HYBRID),
            [named, _plain(config.fusion), _plain(config.queries)],
            lambda: fuse_each_narrative(job),
        ),
    ]
    ranking = NARRATIVE
    if config.grading.method != "none":
        ranking = KEYSTONE
        found.append(
            Stage(
                "grades",
                (GRADES, QRELS, KEYSTONE),
                (QUERIES, HYBRID, NARRATIVE),
                [named, _plain(config.grading), asked(config), config.track],
                lambda: write_grades(job, ask),
            )
        )
    if config.track == "none":
        return found
    track = asdict(job.track)
    found.append(
        Stage(
            "segments",
            (job.track.retrieval_file,),
            (ranking,),
            [named, topics, track],
            lambda: assign_segments(job, ranking),
        )
    )
    if config.answer.method == "none":
        return found
    return [
        *found,
        Stage(
            "answers",
            (EVIDENCE, ANSWERS),
            (QUERIES, HYBRID, ranking, *((GRADES,) if ranking == KEYSTONE else ())),
            [index, topics, track, _plain(config.answer), asked(config, config.answer.method != "rules")],
            lambda: write_answers(job, ask),
        ),
        Stage(
            "submission",
            (job.track.answer_file,),
            (ANSWERS,),
            [named, topics, track, asdict(job.author)],
            lambda: write_submission(job),
        ),
    ]


def write_config(job: Job) -> None:
    """Stage `config`: the resolved configuration."""
    with write_whole(job.directory / CONFIG) as out:
        out.write(yaml.safe_dump(_plain(job.config), sort_keys=False, allow_unicode=True).encode())


def write_queries(job: Job, ask: Ask) -> None:
    """Stage `queries`: the questions, topic and variants of each narrative, and the queries that they make."""
    made = ask(lambda model: understood(job, model))
    records = [
        {
            "method": job.config.queries.method,
            **asdict(one.understanding),
            "queries": list(map(asdict, one.queries)),
            "fallbacks": list(map(asdict, one.fallbacks)),
        }
        for one in made
    ]
    ids = Counter(query.id for one in made for query in one.queries)
    repeated, times = ids.most_common(1)[0]
    if times > 1:
        raise UserError(f"{job.config.topics}: topic ids give the query id {repeated!r} twice: rename a topic")
    write_json_lines(job.directory / QUERIES, records)


def read_queries(job: Job) -> list[Query]:
    """The queries of stage `queries`."""
    return [Query(**query) for _, record in read_json_lines(job.directory / QUERIES) for query in record["queries"]]


def search(job: Job, ask: Ask) -> None:
    """Stage `search`: every query to every system, in one batch and in parallel."""
    made: list[dict[str, Any]] = []
    found = rankings_of(job, read_queries(job), texts_of(job, ask, made.append))
    for system, rankings in found.items():
        write_rankings(job, f"{system}.trec", rankings)
    if job.config.retrieval.summarise:
        write_json_lines(job.directory / SUMMARIES, made)


def texts_of(job: Job, ask: Ask, tell: Callable[[dict[str, Any]], None] = lambda _record: None) -> TextsOf:
    """What is embedded of candidates: their contents, or summaries of the long ones, each of which `tell` is given."""
    if not job.config.retrieval.summarise:
        return join_title_and_text

    def texts(documents: Sequence[Document]) -> list[str]:
        summaries, missed = ask(lambda model: summaries_of(job, model, documents))
        for doc_id, text in summaries.items():
            fallbacks = [asdict(one) for one in missed if one.topic_id == doc_id]
            tell({"doc_id": doc_id, "summary": text, "fallbacks": fallbacks})
        return [summaries.get(document.id, document.contents) for document in documents]

    return texts


def fuse_each_query(job: Job) -> None:
    """Stage `hybrid`: RRF over the systems of each query."""
    ids = [query.id for query in read_queries(job)]
    systems = [read_rankings(job, f"{system}.trec", ids) for system in job.config.retrieval.systems]
    write_rankings(job, HYBRID, fuse_systems(systems, job.config.fusion.k, job.config.retrieval.depth))


def fuse_each_narrative(job: Job) -> None:
    """Stage `narrative`: RRF, or another method of fusion, over the queries of each narrative."""
    queries = read_queries(job)
    hybrid = read_rankings(job, HYBRID, [query.id for query in queries])
    write_rankings(job, NARRATIVE, narrative_rankings(job, queries, hybrid))


def write_grades(job: Job, ask: Ask) -> None:
    """Stage `grades`: UMBRELA grades, and the ranking in which what they select comes first."""
    queries = read_queries(job)
    hybrid = read_rankings(job, HYBRID, [query.id for query in queries])

    async def grade(model: Model | None) -> list[Graded]:
        assert model is not None  # the configuration has been checked
        return await together(
            [partial(grade_topic, job, model, topic, queries, hybrid) for topic in job.topics], AT_ONCE
        )

    graded = ask(grade)
    assert job.config.model is not None
    found = list(records(graded, job.store, job.config.model.name))
    write_json_lines(job.directory / GRADES, found)
    write_qrels(job.directory / QRELS, found)
    narrative = read_rankings(job, NARRATIVE, [topic.id for topic in job.topics])
    alone = job.config.grading.select == "coverage" and job.config.track != "none" and job.track.rows is None
    write_rankings(job, KEYSTONE, keystone_rankings(graded, narrative, alone))


def assign_segments(job: Job, ranked: str) -> None:
    """Stage `segments`: the ranking that is submitted, of documents or of their segments, as the track has it."""
    track = job.track
    ranking = read_rankings(job, ranked, [topic.id for topic in job.topics])
    ranking = ranking if track.rows is None else ranking.top(track.rows)
    if track.segments:
        names = closest_segments(job, ranking)
    else:
        names = [job.store.ids(ranking.of(i)) for i in range(len(ranking))]
    hits = {
        topic.id: list(zip(names[i], ranking.scores_of(i).tolist(), strict=True)) for i, topic in enumerate(job.topics)
    }
    write_run(job.directory / track.retrieval_file, make_run(job.config.run_id, hits))


def closest_segments(job: Job, ranking: Rankings) -> list[list[str]]:
    """For each document of each topic, the id of its segment closest to the narrative."""
    vectors = segment_vectors(job.index, job.store, ranking.docs.tolist(), job.threads, job.progress)
    narratives = embed_queries(job.embedding, [topic.narrative for topic in job.topics], job.threads)
    found = []
    for i in range(len(ranking)):
        documents = job.store.get(ranking.of(i))
        chosen = [find_closest_segments(narratives[i : i + 1], vectors[row])[0][0] for row in ranking.of(i).tolist()]
        found.append([document.segments[number].id for document, number in zip(documents, chosen, strict=True)])
    return found


def write_answers(job: Job, ask: Ask) -> None:
    """Stage `answers`: a cited answer to each narrative, and what it was made from."""
    queries = read_queries(job)
    hybrid = read_rankings(job, HYBRID, [query.id for query in queries])
    if job.config.grading.method != "none":
        selected = read_selected(job.directory / GRADES, job.store)
    else:
        narrative = read_rankings(job, NARRATIVE, [topic.id for topic in job.topics])
        selected = {topic.id: narrative.of(i).tolist() for i, topic in enumerate(job.topics)}
    with job.progress("Answering", len(job.topics)) as tick:

        async def one(model: Model | None, topic: Topic) -> Answered:
            answered = await answer_topic(job, model, topic, queries, hybrid, selected[topic.id])
            tick(1)
            return answered

        at_once = AT_ONCE if job.config.model else 1
        made = ask(lambda model: together([partial(one, model, topic) for topic in job.topics], at_once))
    write_json_lines(job.directory / EVIDENCE, (asdict(item) for one in made for item in one.evidence))
    write_json_lines(
        job.directory / ANSWERS, ({**asdict(one.answer), "fallbacks": list(map(asdict, one.fallbacks))} for one in made)
    )


def write_submission(job: Job) -> None:
    """Stage `submission`: the track's answer file."""
    answers = {}
    for _, record in read_json_lines(job.directory / ANSWERS):
        said = tuple(Sentence(sentence["text"], tuple(sentence["citations"])) for sentence in record["sentences"])
        answers[record["topic_id"]] = cite_by_track_ids(Answer(record["topic_id"], said), job.track)
    write_answer_file(job.directory / job.track.answer_file, job.topics, answers, job.track, job.author)


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")
