"""Folders of BEIR as topics and as judgments: the split decides, and every error names file and line."""

import gzip
from pathlib import Path

import pytest

from keystone.indexing.errors import UserError
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import NARRATIVES
from tests.support.runs.beir_folders import HEADER, write_folder
from tests.support.runs.qrels import grades_of

GRADES = {"": {"1": {"bees": 2, "wasps": 0}}, ":test": {"1": {"bees": 2, "wasps": 0}}, ":dev": {"2": {"volcano": 1}}}


@pytest.mark.parametrize("split", GRADES)
def test_a_split_gives_its_judgments_and_the_queries_that_it_judges(tmp_path: Path, split: str) -> None:
    named = Path(f"{write_folder(tmp_path / 'small')}{split}")
    assert grades_of(read_qrels(named)) == GRADES[split]
    (query,) = GRADES[split]
    (topic,) = read_topics(named)
    assert (topic.id, topic.narrative) == (query, NARRATIVES[query])
    assert topic.place == f"{tmp_path}/small/queries.jsonl:{query}"


def test_a_folder_without_judgments_gives_all_its_queries(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl.gz").write_bytes(
        gzip.compress(b'{"_id": "b", "text": "B?"}\n{"_id": "a", "text": "A?"}')
    )
    assert [topic.id for topic in read_topics(tmp_path)] == ["b", "a"]


def test_a_file_of_judgments_in_the_form_of_beir_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(f"{HEADER}q\td\t1\r\n\nq\te\t-1\n".replace("\n", "\r\n", 1))
    assert grades_of(read_qrels(tmp_path / "x.tsv")) == {"q": {"d": 1, "e": -1}}


def test_judgments_in_the_form_of_trec_select_queries_too(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    (folder / "qrels/test.tsv").write_text("2 0 volcano 1\n")
    assert [topic.id for topic in read_topics(folder)] == ["2"]
    assert grades_of(read_qrels(folder)) == {"2": {"volcano": 1}}


def test_a_file_whose_name_looks_like_a_folder_and_a_split_is_a_file(tmp_path: Path) -> None:
    write_folder(tmp_path / "small")
    (tmp_path / "small:dev").write_text("9 0 d 1\n")
    assert grades_of(read_qrels(tmp_path / "small:dev")) == {"9": {"d": 1}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param("1\tbees\n", r"qrels/test.tsv:2: expected the 3 columns of the header", id="two columns"),
        pytest.param("1\t0\tbees\t1\n", r"qrels/test.tsv:2: expected the 3 columns of the header", id="four columns"),
        pytest.param("1\tbees\t1\n\n1\ta b\t1\n", r"qrels/test.tsv:4: expected query-id", id="a space in an id"),
        pytest.param("#1\tbees\t1\n", r"qrels/test.tsv:2: expected query-id", id="a comment"),
        pytest.param("1\tbees\tx\n", r"qrels/test.tsv:2: grade: expected a whole number, found 'x'", id="no grade"),
        pytest.param("", r"qrels/test.tsv: holds no judgment", id="only the header"),
        pytest.param("1\tbees\t1\n1\tbees\t2\n", r"qrels/test.tsv:3: document bees has two grades", id="two grades"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, rows: str, message: str) -> None:
    (write_folder(tmp_path / "small") / "qrels/test.tsv").write_text(HEADER + rows)
    with pytest.raises(UserError, match=message):
        read_qrels(tmp_path / "small")


def test_an_unknown_split_names_the_known_ones(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    for read in (read_qrels, read_topics):
        with pytest.raises(UserError, match=r"has no qrels/train\.tsv, expected .*small:dev or .*small:test$"):
            read(Path(f"{folder}:train"))


def test_a_folder_that_is_none_of_beir_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a folder without queries\.jsonl, expected"):
        read_topics(tmp_path)
    with pytest.raises(UserError, match=r"has no qrels/test\.tsv, expected a file of judgments or a folder of BEIR"):
        read_qrels(tmp_path)


def test_a_split_that_judges_no_query_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    (folder / "qrels/test.tsv").write_text(f"{HEADER}3\tbees\t1\n")
    with pytest.raises(UserError, match=r"none of the queries of .*queries\.jsonl is judged"):
        read_topics(folder)
