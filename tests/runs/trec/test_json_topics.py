"""Topics in JSON of any layout, and in tables: the keys of campaigns, conversations, arrays, and places in errors."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.exchange.convert import recognise
from keystone.runs.pipeline.stages.queries import list_translations
from keystone.runs.track_rules import TRACKS, set_topic_limits
from keystone.runs.trec.topics import read_topics

CAST = [
    {
        "number": 31,
        "title": "t",
        "turn": [
            {"number": 1, "raw_utterance": "What is a river?"},
            {"number": 2, "raw_utterance": "Why?", "manual_rewritten_utterance": "Why is a river?"},
        ],
    }
]
IKAT = [
    {"number": "9-1", "ptkb": {}, "turns": [{"turn_id": 1, "utterance": "It?", "resolved_utterance": "Is a river it?"}]}
]
REPLIES = [
    {
        "number": 132,
        "turn": [
            {"number": "1-1", "participant": "User", "utterance": "a"},
            {"number": "1-2", "participant": "System", "response": "b"},
        ],
    }
]
NEUCLIR = {
    "topic_id": "7",
    "topics": [
        {"lang": "zho", "topic_title": "x"},
        {"lang": "eng", "topic_title": "T", "topic_description": " D ", "topic_narrative": None},
    ],
}
LAYOUTS: dict[str, tuple[Any, list[Topic]]] = {
    "an array": ([{"id": 1, "title": "a"}, {"id": "2", "title": "b"}], [Topic("1", "a"), Topic("2", "b")]),
    "an array of one topic": ([{"number": 1, "query": "a"}], [Topic("1", "a")]),
    "one object": ({"query_id": "1", "text": "a"}, [Topic("1", "a")]),
    "a list under a key": ({"topics": [{"id": 116, "topic": "x", "question": "a"}]}, [Topic("116", "a")]),
    "objects by id": ({"1": {"title": "a"}, "x2": {"title": "b"}}, [Topic("1", "a"), Topic("x2", "b")]),
    "texts by id": ({"1": "a", "x2": "b"}, [Topic("1", "a"), Topic("x2", "b")]),
    "CAsT": (CAST, [Topic("31_1", "What is a river?"), Topic("31_2", "Why is a river?")]),
    "CAsT with replies": (REPLIES, [Topic("132_1-1", "a")]),
    "iKAT": (IKAT, [Topic("9-1_1", "Is a river it?")]),
    "NeuCLIR": (NEUCLIR, [Topic("7", "T\n\nD")]),
    "NeuCLIR in one language": ({**NEUCLIR, "topics": NEUCLIR["topics"][:1]}, [Topic("7", "x")]),
    "null and blank keys": ({"id": None, "qid": "1", "narrative": " ", "query": "a"}, [Topic("1", "a")]),
    "capitals": ({"Query-ID": "1", "Query": "a"}, [Topic("1", "a")]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("before", ["", "\ufeff", "\n\n"])
def test_topics_of_every_layout_are_read(tmp_path: Path, layout: str, indent: int | None, before: str) -> None:
    value, expected = LAYOUTS[layout]
    file = tmp_path / "topics.json"
    file.write_text(before + json.dumps(value, indent=indent))
    assert read_topics(file) == expected


@pytest.mark.parametrize("between", ["", " ", "\n\n"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("before", ["", "\ufeff"])
def test_objects_in_a_row_are_read(tmp_path: Path, before: str, indent: int | None, between: str) -> None:
    """The first release of RAGTIME's topics of 2026 has all of them on one line, with nothing between them."""
    file = tmp_path / "topics.jsonl"
    topics = [{"topic_id": name, "problem_statement": "a } {"} for name in "123"]
    file.write_text(before + between.join(json.dumps(one, indent=indent) for one in topics) + "\n")
    assert read_topics(file) == [Topic(name, "a } {") for name in "123"]
    assert recognise(file).name == "topics"


@pytest.mark.parametrize("end", ["x", "{", "}", "7", "[]", '{"id": 2, "title": "b"'])
def test_an_error_names_the_line_of_objects_in_a_row_that_something_else_follows(tmp_path: Path, end: str) -> None:
    file = tmp_path / "topics.jsonl"
    file.write_text('{"id": 1, "title": "a"}{"id": 2, "title": "b"}' + end)
    with pytest.raises(UserError, match=r"topics\.jsonl:1: not JSON: "):
        read_topics(file)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param([{"id": 1, "title": "a"}, 7], "object 2: expected a JSON object, found int", id="no object"),
        pytest.param([{"title": "a"}], "object 1: expected an id", id="no id"),
        pytest.param([{"qa_id": "", "answer": [{"text": "a"}]}], "object 1: expected an id", id="no id of an answer"),
        pytest.param([{"id": 1, "title": "a"}] * 2, "object 2: topic '1' occurs more than once", id="twice"),
        pytest.param([{"id": "1 2", "title": "a"}], "object 1: id: expected an id without space", id="space"),
        pytest.param(
            [{"number": 1, "turn": [{"number": 1}]}], "object 1, turn 1: expected a number", id="no utterance"
        ),
        pytest.param([{"number": 1, "turn": [3]}], "object 1, turn 1: expected a JSON object", id="no turn"),
        pytest.param({"topics": [{"id": 1}]}, "line 1, object 1: expected an id", id="no text in a list under a key"),
        pytest.param([], "holds no topic", id="no topic"),
    ],
)
def test_an_error_names_the_place(tmp_path: Path, value: Any, message: str) -> None:
    file = tmp_path / "topics.json"
    file.write_text(json.dumps(value))
    with pytest.raises(UserError, match=f"topics.json: {message}"):
        read_topics(file)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_topics_in_tables_are_read(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"query_id": [1, 2], "text": ["a", "b"], "more": [0, 0]})
    file = tmp_path / f"queries{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, file)
    else:
        with pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    assert read_topics(file) == [Topic("1", "a"), Topic("2", "b")]


@pytest.mark.parametrize("name", ["topics.jsonl", "topics.csv", "topics.tsv", "topics.parquet"])
def test_every_form_of_a_request_gives_all_its_parts_and_its_limit(tmp_path: Path, name: str) -> None:
    row = {"request_id": "1", "title": "T", "background": "B", "problem_statement": "P", "limit": 2000}
    other = {**row, "request_id": "2", "limit": None}
    file, by = tmp_path / name, "\t" if name.endswith(".tsv") else ","
    if name.endswith(".parquet"):
        pq.write_table(pa.table({key: [row[key], other[key]] for key in row}), file)
    elif name.endswith(".jsonl"):
        file.write_text("".join(f"{json.dumps(one)}\n" for one in (row, other)))
    else:
        lines = (row, row.values(), ("" if value is None else value for value in other.values()))
        file.write_text("".join(f"{by.join(map(str, line))}\n" for line in lines))
    topics = read_topics(file)
    assert topics == [Topic("1", "T\n\nB\n\nP"), Topic("2", "T\n\nB\n\nP")]
    assert set_topic_limits(TRACKS["ragtime25"], topics).limits == {"1": 2000}


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        pytest.param("t.csv", 'qid,query\n1,"a, b"\n', "topics-tsv", id="CSV"),
        pytest.param("t.tsv", "query_id\ttitle\tdescription\n1\ta\tb\n", "topics-tsv", id="three columns"),
        pytest.param("t.json", json.dumps(CAST), "topics", id="conversations"),
        pytest.param("q.csv", "qid,docno,label\n1,a,1\n", "qrels", id="judgments in CSV"),
        pytest.param("q.jsonl", '{"query-id": "1", "corpus-id": "a", "score": 1}', "qrels", id="judgments in JSON"),
        pytest.param("q.txt", "1 0 a 1.0\n1 0 b 0.0\n", "qrels", id="grades with a decimal point"),
    ],
)
def test_convert_recognises_what_other_commands_read(tmp_path: Path, name: str, text: str, form: str) -> None:
    (tmp_path / name).write_text(text)
    assert recognise(tmp_path / name).name == form


def test_blank_translations_are_none_and_others_in_a_wrong_form_are_refused() -> None:
    given = {"zho": "蜜蜂住在哪里？", "ru": " ", "ar": None}
    assert list_translations(Topic("1", "Where do bees live?", record={"translations": given})) == (
        ("zh", "蜜蜂住在哪里？"),
    )
    assert list_translations(Topic("1", "Bees?", record={"translations": float("nan")})) == ()
    for wrong in ([{"lang": "zh", "text": "蜜蜂"}], "zh", {"xx": "bees"}, {"zh": 1}):
        with pytest.raises(UserError, match=r"t:3: translations: expected texts by codes of languages, found"):
            list_translations(Topic("1", "Bees?", "t:3", {"translations": wrong}))
