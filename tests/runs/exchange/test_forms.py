"""Each form is recognised, read and written as its tool does; what it can hold comes back equal; damage is named."""

import json
import os
import re
from collections import Counter
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.indexing.io import reading
from keystone.indexing.io.json_values import parse_objects
from keystone.runs.exchange.convert import Losses, compare, recognise
from keystone.runs.exchange.table import FORMS
from tests.runs.exchange.contents import CONTENTS
from tests.runs.exchange.examples import EXAMPLES
from tests.support.mutation import FUZZ_CASES, mutate
from tests.support.places import ROOT, SHARED

DAMAGED = FUZZ_CASES or 1_000
WRITTEN = 20
"""One in so many values is written again."""


def test_every_form_has_an_example() -> None:
    assert EXAMPLES.keys() == FORMS.keys()


def test_the_page_names_every_form() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs" / "exchange.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(FORMS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_form_is_recognised_and_written_as_its_tool_writes_it(name: str, tmp_path: Path) -> None:
    given, made = tmp_path / "given", tmp_path / "made"
    given.write_text(EXAMPLES[name].given)
    if name == "nugget-qrels":
        with pytest.raises(UserError, match="nugget-qrels, leaderboard or ir-measures; name the form with --from"):
            recognise(given)
    else:
        assert recognise(given).name == name
    content = FORMS[name].read(given)
    FORMS[name].write(made, content)
    assert made.read_text() == (EXAMPLES[name].golden or EXAMPLES[name].given)
    again = FORMS[name].read(made)
    FORMS[name].write(made, again)
    assert made.read_text() == (EXAMPLES[name].golden or EXAMPLES[name].given)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1 Q0 a 2 1 j\n1 Q0 b 2 0 j\n", "qrels"),
        ("1 my-model a 3\n1 my-model b 0\n2 my-model a 1\n", "qrels"),
        ("r GRADE t1 3\nr GRADE all 3\n", "leaderboard"),
        ("r relevance all true\nr relevance t1 true\n", "leaderboard"),
        ("query-id\tcorpus-id\tscore\n1\ta\t2\n", "qrels"),
        ("1 Q0 a 1 2 r\n1 Q0 b 2 1 r\n2 Q0 a 1 2 r\n", "run"),
        ("1\tbees\n", "topics-tsv"),
        ("1\twhat is a honey bee\n2\thow do bees see\n", "topics-tsv"),
        ("1\tQ0 a 1 2 r\n1\tQ0 b 2 1 r\n", "run"),
        ("run_id\tmeasure\ttopic_id\tvalue\nr\tM\tt1\t3\nr\tM\tall\t3\n", "leaderboard"),
        ('{"query_id": 1, "corpus_id": 5, "score": 1}\n', "qrels"),
        ('{"query_id": 1, "recall": 0.5, "score": 1}\n', "metrics"),
        ('{"team_id": "t",\n "run_name": "r",\n "results": []}\n', "biogen24"),
        ("<top>\n<num> 1\n", "topics"),
        ('[\n {"query":"bees","candidates":[]}\n]\n', "requests"),
        ('{"id":"1","title":"bees"}\n', "topics"),
        ('{"metadata":{"topic_id":"1"},"answer":[]}\n', "rag25"),
    ],
)
def test_a_file_is_recognised_by_its_content(text: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert recognise(path).name == form


@pytest.mark.parametrize("name", [name for name, one in EXAMPLES.items() if one.given.startswith("{")])
def test_objects_in_an_array_are_read_like_those_of_lines(name: str, tmp_path: Path) -> None:
    lines, array = tmp_path / "lines", tmp_path / "array"
    lines.write_text(EXAMPLES[name].given)
    array.write_text(json.dumps(parse_objects(EXAMPLES[name].given), indent=1))
    assert recognise(array).name == name
    assert FORMS[name].read(array) == FORMS[name].read(lines)


def test_a_folder_of_beir_is_read_as_topics_or_as_judgments(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text('{"_id":"1","text":"bees"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n")
    with pytest.raises(UserError, match=f"^{tmp_path}: holds topics and qrels; name one of them with --from"):
        recognise(tmp_path)
    (topic,), (judged,) = (FORMS[name].read(tmp_path).requests for name in ("topics", "qrels"))
    assert (topic.topic_id, topic.query) == ("1", "bees")
    assert [(one.doc_id, one.grade) for one in judged.candidates] == [("a", 2)]


@pytest.mark.skipif(not SHARED.exists(), reason="the collections are not here")
def test_all_sub_narratives_of_nist_are_read() -> None:
    path = SHARED / "trec-rag-material/subnarratives.rag25.nist.json"
    content = recognise(path).read(path)
    found = [nugget.importance for bank in content.nuggets for nugget in bank.nuggets]
    assert (len(content.nuggets), found.count("vital"), found.count("okay")) == (102, 491, 265)
    assert content.unread == {}


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n", '{"x":1}\n', "a b c\n", "[]", "[1]", "{\n"])
def test_a_file_of_no_form_is_refused_with_its_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(UserError, match=f"^{path}"):
        recognise(path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_some_damaged_files_give_a_value_or_name_their_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_damaged(name, tmp_path, monkeypatch, range(100))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_many_damaged_files_give_a_value_or_name_their_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_damaged(name, tmp_path, monkeypatch, range(DAMAGED))


def read_damaged(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, numbers: range) -> None:
    """Read damaged copies of an example by their own form, and some by the form that is recognised.

    The copies are in memory, since opening files would take most of the time. Some values are written again.
    """
    given, path, made = EXAMPLES[name].given.encode(), folder / "given", folder / "made"
    path.touch()
    data = b""
    from_disk = reading.open_binary
    monkeypatch.setattr(reading, "open_binary", lambda file: BytesIO(data) if file == path else from_disk(file))
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for number in numbers:
        data = mutate(given, Random(f"{name} {number}"))
        try:
            content = (recognise(path) if number % 5 == 0 else FORMS[name]).read(path)
            if number % WRITTEN == 1:
                FORMS[name].write(made, content)
                FORMS[name].read(made)
        except UserError as error:
            assert str(error).startswith((str(path), str(made))), (number, data[:2000])  # noqa: PT017
        except Exception as error:
            raise AssertionError(f"{name} {number}: {data[:2000]!r}") from error


def test_every_form_has_contents() -> None:
    assert CONTENTS.keys() == FORMS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENTS)
def test_what_a_form_can_hold_comes_back_equal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "file"

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        content = data.draw(CONTENTS[name])
        FORMS[name].write(path, content)
        kept = FORMS[name].read(path)
        assert kept == content
        assert compare(content, kept, Counter()) == Losses({}, {}, {})

    check()
