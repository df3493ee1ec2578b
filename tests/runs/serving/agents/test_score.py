"""Scores of a session, by hand on the small corpus: documents, segments, nuggets, and errors of topics."""

from pathlib import Path

import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Store
from keystone.retrieval.backends import open_store
from keystone.runs.serving.agents.replay import Judged, Stage, Unit, locate, read_relevant, read_wanted_nuggets
from keystone.runs.serving.agents.replay import score_session as score

BEES, FLOWERS, WASPS = "bees#w0_0", "flowers#w0_0", "wasps#w0_0"
QRELS = "1 0 bees 3\n1 0 beekeeping 2\n1 0 flowers 1\n1 0 wasps 0\n2 0 volcano 2\n"


@pytest.fixture(scope="module")
def store(index: Index) -> Store:
    return open_store(index)


def score_ids(
    store: Store, judged: Judged, surfaced: str = "", read: str = "", cited: str = ""
) -> dict[tuple[Stage, Unit], tuple[int, ...]]:
    """Found, relevant, wanted, and wanted and found, by stage and unit."""
    ids: dict[Stage, list[str]] = {"surfaced": surfaced.split(), "read": read.split(), "cited": cited.split()}
    scores = score(locate(ids, store), judged)
    return {(one.stage, one.unit): (one.found, one.relevant, one.wanted, one.covered) for one in scores}


def test_documents_are_scored_by_their_grades(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(QRELS)
    judged = read_relevant(qrels, "1", 1, store)
    found = score_ids(store, judged, f"{BEES} {FLOWERS} {WASPS} {BEES}", "bees", "volcano")
    assert found["surfaced", "documents"] == (3, 2, 3, 2)
    assert found["surfaced", "segments"] == (3, 2, 3, 2)
    assert found["read", "documents"] == (1, 1, 3, 1)
    assert found["cited", "documents"] == (1, 0, 3, 0)
    assert read_relevant(qrels, "1", 2, store).documents == judged.documents[:2]


def test_a_share_of_nothing_is_no_number(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text("1 0 bees 1\n")
    first = score(locate({}, store), read_relevant(qrels, None, 1, store))[0]
    assert (first.precision, first.recall) == (None, 0.0)


def test_judged_segments_count_by_their_ids_and_their_documents(store: Store, tmp_path: Path) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(f"1 0 {BEES} 1\n1 0 elsewhere#1_2 1\n")
    judged = read_relevant(qrels, None, 1, store)
    found = score_ids(store, judged, f"{BEES} flowers")
    assert found["surfaced", "documents"] == (2, 1, 2, 1)
    assert found["surfaced", "segments"] == (2, 1, 2, 1)


def test_nuggets_are_found_at_their_place(store: Store, tmp_path: Path) -> None:
    (nuggets := tmp_path / "nuggets.jsonl").write_text(
        '{"topic_id": "1", "text": "a queen", "doc_id": "bees", "start": 60, "end": 83}\n'
        '{"topic_id": "1", "text": "mites", "doc_id": "beekeeping"}\n'
    )
    judged = read_wanted_nuggets(nuggets, None)
    found = score_ids(store, judged, BEES, WASPS, "beekeeping")
    assert found["surfaced", "segments"] == (1, 1, 2, 1)
    assert found["read", "documents"] == (1, 0, 2, 0)
    assert found["cited", "segments"] == (1, 1, 2, 1)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        pytest.param(None, "--topic: found none, expected a topic of {}: 1, 2", id="no topic, and two to choose from"),
        pytest.param("9", "--topic: found '9', expected a topic of {}: 1, 2", id="an unknown topic"),
    ],
)
def test_an_error_names_the_topics_of_the_judgments(
    store: Store, tmp_path: Path, topic: str | None, message: str
) -> None:
    (qrels := tmp_path / "qrels.txt").write_text(QRELS)
    with pytest.raises(UserError) as raised:
        read_relevant(qrels, topic, 1, store)
    assert str(raised.value) == message.format(qrels)


def test_an_id_that_the_index_lacks_is_an_error(store: Store) -> None:
    with pytest.raises(UserError, match="the log names 'moon', which is no document and no segment of the index"):
        locate({"read": ["moon"]}, store)
