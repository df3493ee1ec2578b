"""Texts in memory: indexed, searched and read again, and functions of the caller's in place of Keystone's parts."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import keystone
from tests.support.models.checkpoints import write_checkpoint

pytestmark = pytest.mark.slow

TEXTS = ["Honey bees live in colonies.", "A volcano erupts lava and ash.", "Wasps hunt other insects."]


@pytest.fixture(scope="module")
def made() -> keystone.Index:
    return keystone.index(TEXTS, dense=False)


@pytest.fixture(autouse=True)
def nothing_appears_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert not list((tmp_path / "here").iterdir())


def test_a_text_finds_documents_that_can_be_read(made: keystone.Index) -> None:
    hits = keystone.search(made, "Where do bees live?", k=1)
    assert [(hit.id, hit.text) for hit in hits] == [("0", TEXTS[0])]
    assert hits[0].score > 0
    assert TEXTS[0] in hits._repr_html_()
    assert [one.text for one in keystone.documents(made, ["2", "1"])] == [TEXTS[2], TEXTS[1]]
    with pytest.raises(keystone.UserError, match="ids: found '9', which is no document"):
        keystone.documents(made, ["9"])
    with pytest.raises(keystone.UserError, match="ids: found the id 0, expected an id as a text"):
        keystone.documents(made, [0])  # type: ignore[list-item]


def test_a_search_finds_as_many_documents_as_are_asked_for(made: keystone.Index) -> None:
    shallow = keystone.configure(retrieval={"depth": 1})
    assert len(keystone.search(made, "bees, lava, insects", shallow, k=np.int64(3))) == 3  # type: ignore[call-overload]
    assert len(keystone.search(made, "bees, lava, insects", shallow)) == 1
    with pytest.raises(keystone.UserError, match=r"k: found 2\.5, expected a whole number"):
        keystone.search(made, "bees", k=2.5)  # type: ignore[call-overload]


def test_several_texts_find_a_run_that_can_be_measured(made: keystone.Index) -> None:
    run = keystone.search(made, ["bees", "lava"], k=1)
    assert (len(run), list(run), [doc_id for doc_id, _ in run["1"]]) == (2, ["0", "1"], ["1"])
    assert keystone.search(made, [("a", "bees")])["a"] == run["0"]
    assert keystone.search(made, {"0": "bees", "1": "lava"}, k=1) == run
    assert run != keystone.search(made, ["lava", "bees"], k=1)
    qrels = keystone.to_qrels({"0": {"0": 1}, "1": {"1": 1}})
    assert qrels["1"] == {"1": 1}
    found = keystone.evaluate(run, qrels, "nDCG@10")
    assert found == keystone.evaluate(run, qrels, "nDCG@10")
    assert found["nDCG@10"].tolist() == [1, 1]
    assert "<pre>" in run._repr_html_()


@pytest.mark.parametrize(
    "documents",
    [
        {"a": "red clay", "b": "blue sky"},
        [("a", "red clay"), ("b", "blue sky")],
        [{"id": "a", "text": "red clay"}, {"docno": "b", "contents": "blue sky", "other": object()}],
        pd.DataFrame({"docno": ["a", "b"], "text": ["red clay", "blue sky"]}),
        ({"id": name, "text": text} for name, text in [("a", "red clay"), ("b", "blue sky")]),
    ],
    ids=["dictionary", "pairs", "dictionaries", "frame", "generator"],
)
def test_documents_come_in_any_usual_form(documents: Any) -> None:
    assert [hit.id for hit in keystone.search(keystone.index(documents, dense=False), "sky")] == ["b"]


def test_a_document_without_text_is_left_out_with_a_warning() -> None:
    frame = pd.DataFrame({"id": [1, 2], "text": ["red clay", None]})
    with pytest.warns(UserWarning, match="1 documents are left out, such as documents: row 2: "):
        assert keystone.index(frame, dense=False).documents == 1


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("corpus.jsonl", "documents: found str, expected a list of texts"),
        ([1], "documents: row 1: found int, expected a text"),
        (SimpleNamespace(columns=["id", "text"]), "documents: found SimpleNamespace, expected a data frame of pandas"),
        (["a \ud800"], "documents: row 1: "),
        ([], "documents: holds no document$"),
        ([{"id": "1"}], "documents: holds no document: documents: row 1: expected one of the keys text"),
    ],
)
def test_what_are_no_documents_is_named(documents: Any, message: str) -> None:
    with pytest.raises(keystone.UserError, match=f"^{message}") as raised:
        keystone.index(documents, dense=False)
    assert "/" not in str(raised.value)


def encode(texts: list[str]) -> Any:
    return [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


def test_a_function_embeds_texts_also_for_an_index_that_is_opened_again(tmp_path: Path) -> None:
    config = keystone.configure(retrieval={"systems": ["dense"]})
    first = keystone.index(TEXTS, tmp_path / "index", encoder=encode)
    opened = keystone.open_index(tmp_path / "index", encoder=encode)
    assert opened == first
    assert keystone.search(opened, TEXTS[1], config)[0].id == "1"
    with pytest.raises(keystone.UserError, match="encoder: found another function"):
        keystone.open_index(tmp_path / "index", encoder=lambda texts: -np.ones((len(texts), 3)))
    with pytest.raises(keystone.UserError, match="encoder: found 2 for 1 texts"):
        keystone.index(TEXTS, encoder=lambda _: [1.0, 2.0])
    with pytest.raises(keystone.UserError, match="encoder: found 1 x 0 for 1 texts"):
        keystone.index(TEXTS, encoder=lambda own: [[] for _ in own])


def test_a_second_function_of_the_same_name_must_have_the_same_vectors() -> None:
    def count(texts: list[str], *words: str) -> list[list[float]]:
        return [[text.count(word) + 0.1 for word in words] for text in texts]

    config = keystone.configure(retrieval={"systems": ["dense"]})
    first = keystone.index(TEXTS, encoder=lambda texts: count(texts, "bees", "lava"))
    keystone.index(TEXTS[:2], encoder=lambda texts: count(texts, "bees", "lava"))
    with pytest.raises(keystone.UserError, match="encoder: found another function test_a_second"):
        keystone.index(TEXTS, encoder=lambda texts: count(texts, "lava", "bees"))
    assert keystone.search(first, "bees", config)[0].id == "0"


def test_functions_fuse_rerank_and_answer(made: keystone.Index) -> None:
    topics = ["Where do bees live, and what is lava?"]
    runs = {"bm25": {"0": {"0": 2.0, "1": 1.0}}, "other": {"0": {"1": 9.0}}}
    query = keystone.Query("0", "0", "q", "q", "q")

    def add(rankings: list[dict[str, float]]) -> dict[str, float]:
        return {name: sum(own.get(name, 0) for own in rankings) for name in rankings[0] | rankings[-1]}

    fused = keystone.fuse(runs, [query], method=add)
    assert fused["0"] == [("1", 10.0), ("0", 2.0)]
    again = keystone.rerank(made, topics, fused, reranker=lambda _, texts: [text.count("bees") for text in texts])
    assert [doc_id for doc_id, _ in again["0"]] == ["0", "1"]
    (answer,) = keystone.answer(made, topics, ranking=again, reader=lambda _, found: [(found[0].text, [found[0].id])])
    assert (answer.sentences[0].text, answer.sentences[0].citations) == (TEXTS[0], ("0",))
    with pytest.raises(keystone.UserError, match="reranker: found 1 scores for 2 texts"):
        keystone.rerank(made, topics, fused, reranker=lambda _, __: [1.0])
    with pytest.raises(keystone.UserError, match="reranker: found 'bge', expected a function"):
        keystone.rerank(made, topics, fused, reranker="bge")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([("It is.", ["7"])], "reader: found a citation of '7'"),
        (None, "reader: found NoneType, expected a text, or"),
        ([("It is.", None)], r"reader: found \('It is.', None\), expected a text, or"),
        ([("It is.", [1])], r"reader: found \('It is.', \[1\]\), expected a text, or"),
        ([("It is.", "01")], r"reader: found \('It is.', '01'\), expected a text, or"),
        ([("It is.",)], r"reader: found \('It is.',\), expected a text, or"),
    ],
)
def test_an_impossible_reply_of_a_reader_is_shown(found: Any, message: str, made: keystone.Index) -> None:
    with pytest.raises(keystone.UserError, match=message):
        keystone.answer(made, ["bees"], ranking={"0": {"0": 2.0, "1": 1.0}}, reader=lambda _, __: found)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "method: found list, expected a dictionary"),
        ({"0": None}, "method: .*, expected a score for each document id"),
        ({"0": 1.0, "1": np.nan}, "method: found the score nan of '1', expected a finite number"),
        ({"a b": 1.0}, "method: found the id 'a b', expected an id without space"),
        ({0: 1.0, 1: -np.inf}, "method: found the score -inf of '1', expected a finite number"),
    ],
)
def test_an_impossible_reply_of_a_method_of_fusion_is_shown(found: Any, message: str) -> None:
    query = keystone.Query("0", "0", "q", "q", "q")
    with pytest.raises(keystone.UserError, match=message):
        keystone.fuse({"bm25": {"0": {"0": 2.0, "1": 1.0}}}, [query], method=lambda _: found)


def test_a_configuration_is_changed_and_depths_follow() -> None:
    small = keystone.configure(retrieval={"depth": 10})
    assert (small.fusion.depth, small.answer.documents) == (10, 10)
    changed = keystone.configure(small, fusion={"depth": 5})
    assert (changed.retrieval.depth, changed.fusion.depth, changed.answer.documents) == (10, 5, 5)
    assert keystone.configure(retrieval={"depth": np.int64(10)}) == small
    with pytest.raises(keystone.UserError, match=r"fusion\.depth: found 50, above retrieval\.depth 10"):
        keystone.configure(retrieval={"depth": 10}, fusion={"depth": 50})


def test_the_version_is_that_of_the_package() -> None:
    assert keystone.__version__


def test_documents_of_an_index_are_added_replaced_and_removed(tmp_path: Path) -> None:
    index = keystone.index(TEXTS, tmp_path / "index", encoder=encode)
    documents = {"0": "Ants build hills.", "new": "Rain falls."}
    with pytest.warns(UserWarning, match="1 documents are left out, such as delete: row 2: the index holds no"):
        updated = keystone.update_index(index, documents, delete=["1", "zz"], encoder=encode)
    assert [one.text for one in keystone.documents(updated, documents)] == list(documents.values())
    assert keystone.search(updated, "hills")[0].id == "0"
    with pytest.raises(keystone.UserError, match=r"documents: row 1: found str, expected an \(id, text\) pair"):
        keystone.update_index(updated, ["Ants build hills."])
    with pytest.raises(keystone.UserError, match="delete: row 1: found the id 'new' of a document in documents"):
        keystone.update_index(updated, documents, delete="new")
    with pytest.raises(keystone.UserError, match=r"^delete: names all 3 documents of the index"):
        keystone.update_index(updated, delete=["0", "2", "new"], encoder=encode)
    with pytest.raises(keystone.UserError, match=r"was replaced or removed.* use what update_index returned"):
        keystone.search(index, "hills")


def test_sets_of_an_index_are_added_and_dropped(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "encoder", pooling="mean", prompts={"query": "q: "})
    write_checkpoint(tmp_path / "splade", head="words")
    index = keystone.index(TEXTS, tmp_path / "index", dense=False)
    models: dict[str, Any] = {
        "short": str(tmp_path / "encoder"),
        "long": {"model": str(tmp_path / "encoder"), "window": 8},
    }
    larger = keystone.change_parts(index, vectors=models, impacts={"s": str(tmp_path / "splade")})
    assert [*larger.vectors, *larger.impacts] == ["short", "long", "s"]
    assert (larger.vectors["short"].embedding.query_prefix, larger.vectors["long"].embedding.window) == ("q: ", 8)
    system = {"kind": "dense", "vectors": "long"}
    found = keystone.search(larger, ["bees"], keystone.configure(retrieval={"systems": {"own": system}}))
    assert {name for name, _ in found["0"]} == {"0", "1", "2"}
    smaller = keystone.change_parts(larger, drop=["short", "s"])
    assert [*smaller.vectors, *smaller.impacts] == ["long"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "found no vectors, impacts, PLAID indexes or names to drop"),
        ({"drop": "a"}, "holds no set 'a' to drop"),
        ({"vectors": {"A b": "all-MiniLM-L6-v2"}}, "vectors: found the name 'A b', expected a new one"),
        ({"vectors": {"a": {"model": "m", "windows": 8}}}, "vectors: a: found windows: 8, expected model, url, window"),
        ({"vectors": {"a": {"url": "http://x"}}}, "vectors: a: expected a model"),
        ({"vectors": {"a": "nowhere"}}, "found no such folder"),
        ({"impacts": {"s": "nowhere"}}, "found no such folder"),
    ],
)
def test_a_set_that_cannot_be_is_named(change: dict[str, Any], message: str, made: keystone.Index) -> None:
    with pytest.raises(keystone.UserError, match=message):
        keystone.change_parts(made, **change)
    assert keystone.search(made, "bees")[0].id == "0"
