"""Topics: any key that the tracks have used, ids as text, order kept, errors with file and line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.errors import UserError
from retrieval.types import Topic
from runs.topics import read_topics
from tests.conftest import SHARED

TRACKS = SHARED / "trec-rag-material"
ID_KEYS = ["id", "qid", "topic_id", "narrative_id"]
NARRATIVE_KEYS = ["narrative", "title", "text", "query"]


def put(folder: Path, *records: Any) -> Path:
    path = folder / "topics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("id_key", ID_KEYS)
@pytest.mark.parametrize("narrative_key", NARRATIVE_KEYS)
def test_every_key_of_the_tracks_is_read(tmp_path: Path, id_key: str, narrative_key: str) -> None:
    path = put(tmp_path, {id_key: "7", narrative_key: " Why\nbees? \u00e9", "other": 1})
    assert read_topics(path) == [Topic("7", " Why\nbees? \u00e9")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"id": 7, "title": "x"}, Topic("7", "x"), id="a number"),
        pytest.param({"id": 0, "title": "x"}, Topic("0", "x"), id="zero"),
        pytest.param({"id": "007", "title": "x"}, Topic("007", "x"), id="leading zeros are kept"),
        pytest.param({"id": "rag2026-0", "title": "x"}, Topic("rag2026-0", "x"), id="a name"),
        pytest.param(
            {"id": "1", "title": "short", "narrative": "long"}, Topic("1", "long"), id="narrative before title"
        ),
    ],
)
def test_ids_are_text(tmp_path: Path, record: dict[str, Any], expected: Topic) -> None:
    assert read_topics(put(tmp_path, record)) == [expected]


@given(st.lists(st.integers(0, 10**12), unique=True, min_size=1, max_size=20))
def test_topics_keep_the_order_of_the_file(tmp_path_factory: pytest.TempPathFactory, ids: list[int]) -> None:
    path = put(tmp_path_factory.mktemp("topics"), *({"id": i, "title": f"about {i}"} for i in ids))
    assert read_topics(path) == [Topic(str(i), f"about {i}") for i in ids]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"id": "1", "title": "again"}, "topic '1' occurs more than once", id="repeated id"),
        pytest.param({"id": 1, "title": "again"}, "topic '1' occurs more than once", id="repeated as a number"),
        pytest.param(
            {"title": "x"},
            r"expected an id \(id, _id, qid, topic_id, narrative_id\).* found the keys title",
            id="no id",
        ),
        pytest.param(
            {"id": "2"}, r"a narrative \(narrative, title, text, query\), found the keys id", id="no narrative"
        ),
        pytest.param({}, "found the keys none", id="no key"),
        pytest.param({"id": "2", "title": " \n"}, r"title: expected a narrative, found ' \\n'", id="empty narrative"),
        pytest.param(
            {"id": "2", "title": ["x"]}, r"title: expected a narrative, found \['x'\]", id="a list as narrative"
        ),
        pytest.param({"id": "2", "query": None}, "query: expected a narrative, found None", id="null as narrative"),
        pytest.param(
            {"qid": "2 3", "title": "x"}, "qid: expected an id without space, found '2 3'", id="id with space"
        ),
        pytest.param({"id": " 2", "title": "x"}, "id: expected an id without space, found ' 2'", id="id after a space"),
        pytest.param({"id": "", "title": "x"}, "id: expected an id without space, found ''", id="empty id"),
        pytest.param({"id": True, "title": "x"}, "id: expected an id without space, found True", id="boolean id"),
        pytest.param({"id": 2.5, "title": "x"}, "id: expected an id without space, found 2.5", id="fraction as id"),
        pytest.param(["2", "x"], "expected a JSON object, found list", id="no object"),
    ],
)
def test_a_bad_topic_is_named_with_file_and_line(tmp_path: Path, record: Any, message: str) -> None:
    path = put(tmp_path, {"id": "1", "title": "x"}, record)
    with pytest.raises(UserError, match=r"/topics\.jsonl:2: .*" + message):
        read_topics(path)


@pytest.mark.parametrize("text", [pytest.param("", id="empty"), pytest.param("\n \n", id="only blank lines")])
def test_a_file_without_topics_is_a_user_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "topics.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"/topics\.jsonl: holds no topic"):
        read_topics(path)


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read: No such file"):
        read_topics(tmp_path / "none.jsonl")


@pytest.mark.skipif(not TRACKS.exists(), reason="the topics of the TREC RAG tracks are not on this machine")
@pytest.mark.parametrize("path", sorted(TRACKS.glob("topics.*.jsonl")), ids=lambda path: path.name)
def test_the_topics_of_the_tracks_are_read(path: Path) -> None:
    expected = [json.loads(line) for line in path.read_text().splitlines()]
    assert read_topics(path) == [Topic(record["id"], record["narrative"]) for record in expected]
