"""Runs over an index without embeddings: rankings, segments and answers of each track by words alone."""

from pathlib import Path
from typing import Any

import orjson
import pytest

import keystone
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.manifest import list_remarks
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.validate import validate
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import TRIAL_WARNINGS, write_corpus, write_topics
from tests.support.runs.answer_files import ANSWERED_TRACKS

SEGMENT_TRACKS = [name for name, track in TRACKS.items() if track.segments]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index without embeddings, with the topics beside it."""
    folder = tmp_path_factory.mktemp("bm25")
    write_topics(folder / "topics.jsonl")
    return build_index(write_corpus(folder / "corpus.jsonl"), folder / "index", BuildSettings(embedding=None))[0]


def make(plain: Index, out: Path, **settings: Any) -> Path:
    topics = plain.folder.parent / "topics.jsonl"
    named = {"run_id": "r", "index": str(plain.folder), "topics": str(topics), "out": str(out), **settings}
    return keystone.make_run(**named)


@pytest.mark.parametrize(
    ("track", "ranking"),
    [*((name, "documents") for name in ANSWERED_TRACKS), *((name, "segments") for name in SEGMENT_TRACKS)],
)
def test_each_track_gets_valid_files(plain: Index, tmp_path: Path, track: str, ranking: str) -> None:
    directory, rules = make(plain, tmp_path, track=track, ranking=ranking), TRACKS[track]
    topics = read_topics(plain.folder.parent / "topics.jsonl")
    for file in (rules.answer_file, rules.retrieval_file):
        found = validate(directory / file, rules, topics)
        assert {one.kind for one in found} <= TRIAL_WARNINGS, found
    answers = (directory / "answers.jsonl").read_text()
    assert "Honey bees live in colonies" in answers
    assert "Eruptions can change the weather" in answers


@pytest.mark.slow
def test_a_run_by_rules_tells_of_answers_without_a_sentence(tmp_path: Path) -> None:
    (path := tmp_path / "corpus.jsonl").write_text('{"id": "d", "text": "Rivières et glaciers des Alpes."}\n')
    index, _ = build_index(path, tmp_path / "index", BuildSettings(embedding=None, language="fr"))
    (topics := tmp_path / "topics.jsonl").write_text('{"id": "1", "title": "Glaciers des Alpes"}\n')
    places = {"index": str(index.folder), "topics": str(topics), "out": str(tmp_path / "out")}
    directory = keystone.make_run(run_id="r", track="ragtime25", **places)
    manifest = orjson.loads((directory / MANIFEST).read_bytes())
    assert manifest["empty_answers"] == 1
    assert "no document is in English" in manifest["fallbacks"][0]["reason"]
    assert any("whose answers have no sentence" in remark for remark in list_remarks(directory))


@pytest.mark.parametrize("named", [{}, {"retrieval": {"systems": ["bm25"]}}], ids=["by default", "named"])
def test_bm25_need_not_be_named(plain: Index, tmp_path: Path, named: dict[str, Any]) -> None:
    directory = make(plain, tmp_path, track="none", **named)
    assert read_config(directory / "config.yaml").retrieval.systems == ["bm25"]
    assert not (directory / "dense.trec").exists()
    bm25, hybrid = (read_run(directory / f"{name}.trec") for name in ("bm25", "hybrid"))
    assert hybrid.scores.tolist() == bm25.scores.tolist(), "a system alone keeps its scores"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"retrieval": {"systems": ["bm25", "dense"]}}, "retrieval.systems: found dense for .*index", id="dense"
        ),
        pytest.param(
            {"queries": {"passages": "hyde"}, "model": {"name": "m", "urls": ["http://localhost:9"]}},
            "queries.passages: found 'hyde' for .*index",
            id="hyde",
        ),
    ],
)
def test_dense_search_by_name_is_one_error(
    plain: Index, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=f"{message}, which has no embeddings: set .* build the index with them"):
        make(plain, tmp_path, **settings)


def test_the_segment_of_a_document_is_the_best_by_bm25(tmp_path: Path) -> None:
    far, near = "Rivers carry water to the sea. " * 40, "Honey bees tell each other where flowers are by dancing. " * 3
    (path := tmp_path / "corpus.jsonl").write_text(f'{{"id": "d", "text": "{far}{near}{far}"}}\n')
    index, _ = build_index(path, tmp_path / "index", BuildSettings(embedding=None))
    (document,) = open_store(index).get([0])
    best = {one.id for one in document.segments if "dancing" in document.segment_text(one)}
    assert 0 < len(best) < len(document.segments)
    write_topics(topics := tmp_path / "topics.jsonl")
    directory = keystone.make_run(run_id="r", index=str(index.folder), topics=str(topics), out=str(tmp_path / "out"))
    assert read_run(directory / TRACKS["rag25"].retrieval_file).list_hits()["1"][0][0] in best
