"""Runs that rank segments: several of a document, cited by the answers too, or segments that are the whole corpus."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from keystone.generation.context.topic import read_context
from keystone.generation.queries.compose import make_narrative_query
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import Index
from keystone.indexing.types import document_id
from keystone.retrieval.types import ranked
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.answering import answer_to_file
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.run import run
from keystone.runs.pipeline.stages.chosen_documents import SearchedTopic, open_task
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.answer_files import read_answer_file
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import CORPUS, write_topics
from tests.support.runs.model_runs import read_run_content

pytestmark = pytest.mark.slow

TRACK = TRACKS["rag25"]
SEGMENTS = {
    f"msmarco_v2.1_doc_00_{place}#{number}_{place + number}": (title, sentence)
    for place, (title, text) in enumerate(CORPUS.values())
    for number, sentence in enumerate(text.replace(". ", ".\n").split("\n"))
}
"""The sentences of the small corpus as segments of MS MARCO: title and text by id."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("segments") / "segments.jsonl"
    records = ({"docid": name, "title": title, "segment": text} for name, (title, text) in SEGMENTS.items())
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def joined(corpus: Path) -> Index:
    """The segments joined into documents."""
    return build_index(corpus, corpus.parent / "joined", BuildSettings(threads=2))[0]


def list_settings(index: Index, folder: Path, *changes: str) -> list[str]:
    places = [f"index={index.folder}", f"topics={write_topics(folder / 'topics.jsonl')}", f"out={folder / 'out'}"]
    return ["run_id=small", "team_id=testers", *places, "answer.documents=5", "answer.words=60", *changes]


def check_submission(directory: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Check that both files are valid; returns the ranked segments of each topic, and those that the answers cite."""
    topics = read_topics(directory.parents[1] / "topics.jsonl")
    files = directory / TRACK.retrieval_file, directory / TRACK.answer_file
    assert not [violation for file in files for violation in validate(file, TRACK, topics)]
    ranked = {topic: [name for name, _ in hits] for topic, hits in read_run(files[0]).list_hits().items()}
    return ranked, {name for one in read_answer_file(files[1], TRACK) for name in one.references}


def test_run_and_answers_hold_the_same_segments_and_no_others(joined: Index, tmp_path: Path) -> None:
    settings = list_settings(joined, tmp_path, "ranking=segments", "segments_per_document=2")
    config = read_config(None, settings)
    ranked, cited = check_submission(run(config, threads=2))
    assert cited <= {name for own in ranked.values() for name in own}
    for own in ranked.values():
        documents = [document_id(name) for name in own]
        assert {documents.count(name) for name in documents} == {1, 2}
        assert documents != sorted(documents, key=documents.index), "the segments of two documents mix"
    evidence = (tmp_path / "out/small/evidence.jsonl").read_text()
    unranked = {text for name, (_, text) in SEGMENTS.items() if not any(name in own for own in ranked.values())}
    assert unranked
    assert not [text for text in unranked if text in evidence]
    answer_to_file(config, tmp_path / "answers.jsonl", threads=2)
    made, submitted = tmp_path / "answers.jsonl", tmp_path / "out/small" / TRACK.answer_file
    assert sorted(made.read_bytes().splitlines()) == sorted(submitted.read_bytes().splitlines())


def test_another_number_of_segments_keeps_the_rankings_of_documents(joined: Index, tmp_path: Path) -> None:
    def rank(number: int, out: str) -> tuple[set[str], dict[str, bytes]]:
        """Rank segments; returns the stages that were made, and the files."""
        changes = ["ranking=segments", f"segments_per_document={number}", f"out={tmp_path / out}"]
        made = set[str]()
        directory = run(
            read_config(None, list_settings(joined, tmp_path, *changes)),
            announce=lambda stage, kept: None if kept else made.add(stage.name),
        )
        return made, read_run_content(directory)

    rank(1, "out")
    made, content = rank(3, "out")
    assert made == {"config", "segments", "gather", "answer", "submission"}
    assert rank(3, "fresh")[1] == content


def test_a_reader_that_searches_again_may_cite_as_few_segments_of_what_it_finds(joined: Index, tmp_path: Path) -> None:
    job = open_job(read_config(None, list_settings(joined, tmp_path, "ranking=segments", "segments_per_document=2")))
    query = make_narrative_query(job.topics[0])
    task, _ = asyncio.run(
        open_task(
            job, SearchedTopic(job.topics[0], [query], ranked([query.id], [np.array([0])], [np.array([1.0])], 1)), [0]
        )
    )
    found = read_context(job.sources, range(len(job.store)), [])
    assert task.narrow
    narrowed = task.narrow(found)
    assert max(len(document.segments) for document in found.documents.values()) > 2
    assert {len(document.segments) for document in narrowed.documents.values()} == {1, 2}


def test_a_corpus_of_segments_alone_is_ranked_and_cited_by_its_own_ids(corpus: Path, tmp_path: Path) -> None:
    index, _ = build_index(corpus, corpus.parent / "alone", BuildSettings(format="jsonl", threads=2))
    assert index.documents == len(SEGMENTS)
    ranked, cited = check_submission(run(read_config(None, list_settings(index, tmp_path)), threads=2))
    assert cited
    assert {*cited, *(name for own in ranked.values() for name in own)} <= SEGMENTS.keys()
    assert len({document_id(name) for name in ranked["1"]}) < len(ranked["1"])
