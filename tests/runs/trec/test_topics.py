"""Topics: all keys of the tracks are read, ids are text, order is kept, and errors name file and line."""

import gzip
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.types import is_id
from keystone.retrieval.types import Topic
from keystone.runs.trec.topics import read_topics
from tests.support.places import SHARED

TRACKS = SHARED / "trec-rag-material"
ID_KEYS = ["id", "qid", "topic_id", "narrative_id", "request_id", "query_id", "topic"]
NARRATIVE_KEYS = ["narrative", "problem_statement", "title", "text", "query"]


def write_topics(folder: Path, *records: Any) -> Path:
    path = folder / "topics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("id_key", ID_KEYS)
@pytest.mark.parametrize("narrative_key", NARRATIVE_KEYS)
def test_every_key_of_the_tracks_is_read(tmp_path: Path, id_key: str, narrative_key: str) -> None:
    path = write_topics(tmp_path, {id_key: "7", narrative_key: " Why\nbees? \u00e9", "other": 1})
    assert read_topics(path) == [Topic("7", " Why\nbees? \u00e9")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"id": 7, "title": "x"}, Topic("7", "x"), id="a number"),
        pytest.param({"id": 0, "title": "x"}, Topic("0", "x"), id="zero"),
        pytest.param({"id": "007", "title": "x"}, Topic("007", "x"), id="leading zeros are kept"),
        pytest.param({"id": "rag2026-0", "title": "x"}, Topic("rag2026-0", "x"), id="a word with a number"),
        pytest.param(
            {"id": "1", "title": "short", "narrative": "long"}, Topic("1", "long"), id="narrative before title"
        ),
    ],
)
def test_an_id_is_read_as_text(tmp_path: Path, record: dict[str, Any], expected: Topic) -> None:
    assert read_topics(write_topics(tmp_path, record)) == [expected]


@given(st.lists(st.integers(0, 10**12), unique=True, min_size=1, max_size=20))
def test_topics_keep_the_order_of_the_file(tmp_path_factory: pytest.TempPathFactory, ids: list[int]) -> None:
    path = write_topics(tmp_path_factory.mktemp("topics"), *({"id": i, "title": f"about {i}"} for i in ids))
    assert read_topics(path) == [Topic(str(i), f"about {i}") for i in ids]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param({"id": "1", "title": "again"}, "topic '1' occurs more than once", id="repeated id"),
        pytest.param({"id": 1, "title": "again"}, "topic '1' occurs more than once", id="repeated as a number"),
        pytest.param(
            {"title": "x"},
            r"expected an id \(id, _id, qid, topic_id, .*, topic\).* the keys title",
            id="no id",
        ),
        pytest.param(
            {"id": "2"},
            r"a narrative \(narrative, problem_statement, title.*, found the keys id",
            id="no narrative",
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
        pytest.param({"id": "2\u202e", "title": "x"}, "id: expected an id without the invisible", id="U+202E"),
        pytest.param({"id": "2" * 1001, "title": "x"}, "id: expected an id of at most 1000 characters", id="long id"),
        pytest.param({"id": " 2", "title": "x"}, "id: expected an id without space, found ' 2'", id="id after a space"),
        pytest.param({"id": "", "title": "x"}, "id: expected an id without space, found ''", id="empty id"),
        pytest.param({"id": "#2", "title": "x"}, "id: found '#2'; expected no # at its beginning", id="a comment"),
        pytest.param({"id": True, "title": "x"}, "id: .* a whole number, found True", id="boolean id"),
        pytest.param({"id": 2.5, "title": "x"}, "id: .* a whole number, found 2.5", id="fraction as id"),
        pytest.param(["2", "x"], "expected a JSON object, found list", id="a list instead of an object"),
    ],
)
def test_an_error_in_a_topic_names_file_and_line(tmp_path: Path, record: Any, message: str) -> None:
    path = write_topics(tmp_path, {"id": "1", "title": "x"}, record)
    with pytest.raises(UserError, match=r"/topics\.jsonl:2: .*" + message):
        read_topics(path)


@pytest.mark.parametrize("text", [pytest.param("", id="empty"), pytest.param("\n \n", id="only blank lines")])
def test_a_file_without_topics_is_a_user_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "topics.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"/topics\.jsonl: holds no topic"):
        read_topics(path)


OLD = """
<top>
<head> Tipster Topic Description
<num> Number: 051
<dom> Domain: International Economics
<title> Topic:  Airbus
 Subsidies &amp; AT&T
<desc> Description:
Document will discuss
government assistance, x < 5.

<narr> Narrative:
A relevant <b>document</b> will cite
Description: assistance.
<con> Concept(s):
1. Airbus
</top>


<top>
<num> Number: 52 <title> Sanctions
</top>
"""
OLD_TOPICS = [
    Topic(
        "051",
        "Airbus Subsidies & AT&T\n\nDocument will discuss government assistance, x < 5.\n\n"
        "A relevant document will cite Description: assistance.",
    ),
    Topic("52", "Sanctions"),
]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.compress}
FORMS = {
    "TREC": (OLD, OLD_TOPICS),
    "TREC, upper case": (OLD.replace("top>", "TOP>").replace("num>", "NUM>").replace("desc>", "DESC>"), OLD_TOPICS),
    "TREC with end tags": (
        "<topics><top><num>1</num><title>a</title>\n<desc>b\nc</desc></top><top>\n<num>2</num><narr>d</narr></top>",
        [Topic("1", "a\n\nb c"), Topic("2", "d")],
    ),
    "TREC without the end of a topic": ("<top><num>1<desc>a\n<top><num>2<title>b", [Topic("1", "a"), Topic("2", "b")]),
    "TSV": (
        "2024-1\twhat is a bee?\n\nrag2026-0\t\u201cI am \u2026\n",
        [Topic("2024-1", "what is a bee?"), Topic("rag2026-0", "\u201cI am \u2026")],
    ),
    "TSV with a header": ("qid\tquery\n1\tx", [Topic("1", "x")]),
    "TSV whose first id is a key": ("id\tx y", [Topic("id", "x y")]),
    "TSV with a header of other words": ("query-id\tutterance\n1\tx", [Topic("1", "x")]),
    "TSV with a column of ids and text": ("Topic\tquery\n1\tx", [Topic("1", "x")]),
    "TSV of pandas": (
        'qid\tquery\n1\t"what is ""river"" flood"\n2\t"a\tb"\n3\t"c\nd ""e"""\n4\tf',
        [Topic("1", 'what is "river" flood'), Topic("2", "a\tb"), Topic("3", 'c\nd "e"'), Topic("4", "f")],
    ),
    "TSV with all columns in quotes": ('"qid"\t"query"\n"1"\t"a b"\n2\t"c"', [Topic("1", "a b"), Topic("2", "c")]),
    "TSV with quotes of the topics": (
        '1\t"river" flood\n2\t"river flood"\n3\t"open\n4\t5" by 6"',
        [Topic("1", '"river" flood'), Topic("2", '"river flood"'), Topic("3", '"open'), Topic("4", '5" by 6"')],
    ),
    "JSONL of ir_datasets": ('{"query_id": "31", "text": "floods"}', [Topic("31", "floods")]),
    "TREC, microblogs": (
        "<top>\n<num> Number: MB1 </num>\n<query> a </query>\n<querytime> Tue </querytime>\n"
        "<querytweettime> 9 </querytweettime>\n</top>\n\n<top><num>2</num><query>b</query></top>",
        [Topic("MB1", "a"), Topic("2", "b")],
    ),
    "TREC, news": (
        "<top>\n<num> Number: 1 </num>\n<docid>A-1</docid>\n<url>u</url>\n<title> a </title>\n<desc> Description:\nb\n"
        '</desc>\n<subtopics>\n<sub num="1">c</sub>\n</subtopics>\n</top>\n<top><num>2<title>d</title></top>',
        [Topic("1", "a\n\nb"), Topic("2", "d")],
    ),
    "CLEF": (
        '<?xml version="1.0"?>\n<topics>\n<top lang="en"><num>C1</num><EN-title>a</EN-title><EN-desc>b</EN-desc>\n'
        "<EN-narr>c</EN-narr></top></topics>",
        [Topic("C1", "a\n\nb\n\nc")],
    ),
    "XML of clinical trials": (
        '<topics task="T">\n<topic number="1">\n a &lt; 5 and\n b &nbsp;&eacute;.\n</topic>\n'
        '<topic number="2">c</topic></topics>',
        [Topic("1", "a < 5 and b \xe9."), Topic("2", "c")],
    ),
    "XML with fields of its own": (
        '<topics><topic number="1"><disease>a</disease><gene>b</gene><other>c <i>d</i></other></topic></topics>',
        [Topic("1", "a b c d")],
    ),
    "XML with a bare ampersand": (
        "<topics><topic><number>9</number><query>a</query>\n<description>\nb & c &foo; &#233;</description>\n"
        "<stance>x</stance><narrative>d</narrative></topic></topics>",
        [Topic("9", "a\n\nb & c &foo; \xe9\n\nd")],
    ),
    "XML whose DTD is another file": (
        '<!DOCTYPE topics SYSTEM "topics.dtd">\n<topics><topic id="9"><title>caf&eacute; &amp; &foo;</title></topic>'
        "</topics>",
        [Topic("9", "caf\xe9 & &foo;")],
    ),
    "XML of the web track": (
        '<!-- x -->\n<webtrack><topic number="151" type="x"><query>a</query>\n'
        "<description><![CDATA[b & <c>]]></description>\n"
        '<subtopic number="1"><title>no</title> no</subtopic></topic></webtrack>',
        [Topic("151", "a\n\nb & <c>")],
    ),
    "XML of queries": (
        "<queries><query><id>q1</id><title>a</title></query><query id='q2'>b</query></queries>",
        [Topic("q1", "a"), Topic("q2", "b")],
    ),
    "XML of NTCIR": (
        "<queries><query><qid>0001</qid><content>a</content><description>b</description></query></queries>",
        [Topic("0001", "a\n\nb")],
    ),
    "XML of several roots": (
        "<TOPIC>\n<NUM>1</NUM><TITLE>a</TITLE>\n</TOPIC>\n<TOPIC><NUM>2</NUM><DESC>b</DESC></TOPIC>",
        [Topic("1", "a"), Topic("2", "b")],
    ),
    "CSV with semicolons": ("qid;query\n1;a, b\n2;c", [Topic("1", "a, b"), Topic("2", "c")]),
    "JSONL with numbers of frames": ('{"qid": 1.0, "query": "x"}\n', [Topic("1", "x")]),
    "JSONL": ('{"qid": 1, "query": "x"}\n', [Topic("1", "x")]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["topics.jsonl", "topics.txt", "topics.tsv.gz", "topics.zst"])
@pytest.mark.parametrize("around", ["{}", "\ufeff\n \n{}", "crlf"])
def test_the_content_tells_the_format(tmp_path: Path, form: str, name: str, around: str) -> None:
    text, expected = FORMS[form]
    raw = (text.replace("\n", "\r\n") if around == "crlf" else around.format(text)).encode()
    path = tmp_path / name
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw))
    assert read_topics(path) == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param("1 0 bees 1", 1, "not a topic: expected a JSON object, <top>, <topic>, or an id", id="qrels"),
        pytest.param('[{"id": "1", "title": "x"}', 1, "found a JSON array", id="cut-off JSON array"),
        pytest.param("1\tx\n2", 2, "expected 2 columns, an id and a narrative, found 1", id="one column"),
        pytest.param("1\tx\n2\tx\ty", 2, "expected 2 columns, an id and a narrative, found 3", id="three columns"),
        pytest.param("1\tx\n1\ty", 2, "topic '1' occurs more than once", id="repeated in TSV"),
        pytest.param("1 2\tx", 1, "first column: expected an id without space, found '1 2'", id="space in a TSV id"),
        pytest.param("1\t ", 1, "second column: expected a narrative, found ' '", id="no narrative in TSV"),
        pytest.param("1\tx\n2\t\udcff", 2, "not UTF-8", id="not UTF-8"),
        pytest.param("<top>\n<title>x\n</top>", 1, "expected <num> in <top>, found title", id="no number"),
        pytest.param("<top>\n</top>", 1, "expected <num> in <top>, found nothing", id="empty topic"),
        pytest.param("<top><num>1</num></top>", 1, "<title>, <desc>, <narr>: expected a narrative", id="no field"),
        pytest.param("<top><num>1 2<title>x", 1, "<num>: expected an id .* found '1 2'", id="bad number"),
        pytest.param("<top><num>1\n<num>2<title>x", 2, "<num> occurs more than once", id="two ids"),
        pytest.param(
            "<top><num>1<title>x</top>\n<title>y", 2, "or <topic> and its fields", id="a field outside of a topic"
        ),
        pytest.param(
            "<top><num>1<title>x</top>\ny", 2, "or <topic> and its fields, found 'y'", id="text outside of a topic"
        ),
        pytest.param("<top><num>1</num>y", 1, "or <topic> and its fields", id="text between fields"),
        pytest.param("<x>\n</top>", 2, "expected topics in XML, found mismatched tag", id="end without a beginning"),
        pytest.param("<x>\n</x>", None, "holds no topic", id="other markup"),
        pytest.param("<x>\n<topic>", 2, "expected topics in XML, found no element found", id="XML that is cut off"),
        pytest.param("<x><topic id='1'>a<title>b</title></topic></x>", 1, "found '<x><topic", id="text beside a field"),
        pytest.param("<x>\ra\r<topic id='1'>b</topic></x>", 1, "and its fields", id="text after a carriage return"),
        pytest.param("<x>a\n<topic id='1'>b</topic></x>", 1, "or <topic> and its fields, found '<x>a'", id="text"),
        pytest.param(
            "<x>\n<topic id='1'><title>a</title>\n<title>b</title></topic></x>",
            3,
            "<title> occurs more than once in the topic of line 2",
            id="a field twice in XML",
        ),
        pytest.param('1\t"a\nb\n2\tx', 2, "expected 2 columns, an id and a narrative, found 1", id="open CSV quote"),
    ],
)
def test_an_error_in_any_format_names_file_and_line(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=rf"/t:{f'{line}:' if line else ''} .*{message}"):
        read_topics(path)


PIECES = ["<top>", "</top>", "<num> Number: 1", "</num>", "<title>", "<desc> Description:", "<con>", "1\t", "x", "\n"]
PIECES += ["<topic number='1'>", "</topic>", "<x>", "</x>", "&amp;", "&", '\t"', '""', "qid\tquery\n"]
PIECES += [" ", "\r", "{", "[", "\0", '{"id": "1", "title": "x"}', "\ufeff", "&#" + "9" * 5000, "<!--", "<![x[", "\x85"]
RAW = st.lists(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=4), max_size=14).map(b"".join)


@given(RAW)
def test_any_bytes_give_topics_or_a_user_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "t"
    path.write_bytes(raw)
    try:
        topics = read_topics(path)
    except UserError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017
        return
    assert topics
    assert all(is_id(topic.id) and topic.narrative.strip() and topic.narrative.encode() for topic in topics)


@pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")
@pytest.mark.parametrize(
    "path", sorted(SHARED.glob("*/topics*.jsonl")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_real_topics_are_read_alike_in_every_format(path: Path, tmp_path: Path) -> None:
    topics = read_topics(path)
    assert [topic.id for topic in topics] == [json.loads(line)["id"] for line in path.read_text().splitlines()]
    plain = [Topic(topic.id, " ".join(topic.narrative.split())) for topic in topics]
    (tmp_path / "tsv.gz").write_bytes(gzip.compress("".join(f"{t.id}\t{t.narrative}\n" for t in plain).encode()))
    assert read_topics(tmp_path / "tsv.gz") == plain
    tops = (f"<top>\n<num> Number: {t.id}\n<narr> Narrative:\n{escape(t.narrative)}\n</top>\n" for t in plain)
    (tmp_path / "trec").write_text("\n".join(tops))
    assert read_topics(tmp_path / "trec") == plain


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read: No such file"):
        read_topics(tmp_path / "none.jsonl")


@pytest.mark.skipif(not TRACKS.exists(), reason="the topics of the TREC RAG tracks are not on this machine")
@pytest.mark.parametrize("path", sorted(TRACKS.glob("topics.*.jsonl")), ids=lambda path: path.name)
def test_the_topics_of_the_tracks_are_read(path: Path) -> None:
    expected = [json.loads(line) for line in path.read_text().splitlines()]
    assert read_topics(path) == [Topic(record["id"], record["narrative"]) for record in expected]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(
            {"topic_id": "9", "problem_statement": "Which laws?", "title": "Vapes", "background": "I write laws. "},
            "Vapes\n\nI write laws.\n\nWhich laws?",
            id="RAGTIME",
        ),
        pytest.param({"topic_id": "9", "problem_statement": "Which?", "title": " "}, "Which?", id="an empty title"),
        pytest.param({"topic_id": "9", "title": "Vapes", "background": "So."}, "Vapes", id="no problem statement"),
        pytest.param(
            {"id": 9, "question": "What is it?", "narrative": "A doctor saw it.", "topic": "axons"},
            "axons\n\nWhat is it?\n\nA doctor saw it.",
            id="BioGen",
        ),
        pytest.param({"id": 9, "question": "What?", "narrative": "A doctor saw it."}, "A doctor saw it.", id="two"),
        pytest.param(
            {"topic": "9", "question": "What?", "narrative": "A doctor saw it."},
            "A doctor saw it.",
            id="its id is no part",
        ),
    ],
)
def test_a_narrative_joins_all_parts_of_a_request(tmp_path: Path, record: dict[str, Any], expected: str) -> None:
    lines, array = write_topics(tmp_path, record), tmp_path / "topics.json"
    array.write_text(json.dumps([record]))
    assert read_topics(lines) == read_topics(array) == [Topic("9", expected)]
