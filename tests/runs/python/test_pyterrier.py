"""Keystone's steps as PyTerrier transformers: in pipelines and experiments, without PyTerrier's Java."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import keystone
from keystone.indexing.index import Index
from keystone.runs.pipeline.file_names import NARRATIVE
from keystone.runs.python.frame_steps import _list_queries, _list_topics
from tests.support import programs
from tests.support.indexes.small_corpus import NARRATIVES
from tests.support.models.plain_model import say
from tests.support.servers.chat import serving

pt = pytest.importorskip("pyterrier")
TOPICS = pd.DataFrame(NARRATIVES.items(), columns=["qid", "query"])
QRELS = pd.DataFrame([("1", "bees", 2), ("1", "beekeeping", 1), ("2", "volcano", 2)], columns=["qid", "docno", "label"])


def make(index: Index, step: str, **settings: Any) -> Any:
    return keystone.as_pyterrier_transformer(index, step, keystone.configure(**settings))


def list_docs(frame: pd.DataFrame) -> dict[str, list[str]]:
    return dict(frame.sort_values(["qid", "rank"]).groupby("qid")["docno"].agg(list).items())


@pytest.mark.slow
def test_decompose_search_and_fuse_give_the_ranking_of_a_run(index: Index, topics: Path, tmp_path: Path) -> None:
    made = keystone.make_run(run_id="r", index=index.folder, topics=topics, out=tmp_path / "out", track=None)
    found = (make(index, "decompose") >> make(index, "search") >> make(index, "fuse"))(TOPICS)
    wanted = keystone.read_run(made / NARRATIVE)
    assert list_docs(found) == {query: [doc_id for doc_id, _ in own] for query, own in wanted.list_hits().items()}
    assert dict(zip(found["qid"], found["query"], strict=True)) == NARRATIVES
    assert found["score"].tolist() == pytest.approx(wanted.scores.tolist())


@pytest.mark.slow
def test_an_experiment_measures_pipelines_of_keystone_and_of_pyterrier(index: Index) -> None:
    bm25 = make(index, "search", retrieval={"systems": ["bm25"]})
    fused = make(index, "decompose") >> make(index, "search") >> make(index, "fuse")
    table = pt.Experiment([bm25, bm25 % 1, fused], TOPICS, QRELS, ["ndcg_cut_10", "recip_rank"], names=["b", "b1", "f"])
    means = table.set_index("name")
    runs = {
        "b": keystone.search(index, [narrative_query(*topic) for topic in NARRATIVES.items()])["bm25"],
        "f": fused(TOPICS),
    }
    for name, run in runs.items():
        assert means.loc[name].to_dict() == pytest.approx(measure(run))
    assert means.loc["b1", "ndcg_cut_10"] < means.loc["b", "ndcg_cut_10"]
    assert not pt.java.started()


def narrative_query(topic_id: str, text: str) -> keystone.Query:
    return keystone.Query(topic_id, topic_id, text, text, text)


def measure(run: Any) -> dict[str, float]:
    found = keystone.evaluate(run, QRELS, ["nDCG@10", "MRR"])
    return {"ndcg_cut_10": found.mean("nDCG@10"), "recip_rank": found.mean("MRR")}


def test_a_single_system_keeps_its_scores(index: Index) -> None:
    found = make(index, "search", retrieval={"systems": ["bm25"]}).search("honey bees")
    query = narrative_query("1", "honey bees")
    hits = keystone.search(index, [query], keystone.configure(retrieval={"systems": ["bm25"]}))["bm25"].list_hits()["1"]
    assert list(zip(found["docno"], found["score"], strict=True)) == hits


@pytest.mark.slow
def test_answers_come_from_a_given_ranking_or_from_what_keystone_finds(index: Index) -> None:
    answer = make(index, "answer")
    found = answer(TOPICS).set_index("qid")
    wanted = keystone.answer(index, NARRATIVES)
    assert {topic_id: row["qanswer"] for topic_id, row in found.iterrows()} == {
        one.topic_id: one.number_citations() for one in wanted
    }
    assert found["qcitations"].tolist() == [one.list_citations() for one in wanted]
    only = pd.DataFrame([("1", NARRATIVES["1"], "beekeeping", 1.0)], columns=["qid", "query", "docno", "score"])
    (cited,) = answer(only)["qcitations"]
    assert {citation.split("#")[0] for citation in cited} == {"beekeeping"}


def test_a_reranker_of_the_configuration_ranks_again_and_keeps_other_columns(index: Index, tmp_path: Path) -> None:
    with serving(model=say) as server:
        model = {"name": "plain", "urls": [server.url], "window": 4096}
        settings = {"rerank": {"method": "listwise"}, "model": model, "out": tmp_path}
        ranked = make(index, "search")(TOPICS).assign(note="kept")
        found = make(index, "rerank", **settings)(ranked)
    assert {query: sorted(own) for query, own in list_docs(found).items()} == {
        query: sorted(own) for query, own in list_docs(ranked).items()
    }
    assert found["note"].eq("kept").all()
    assert (found.groupby("qid")["rank"].agg(max) + 1).tolist() == found.groupby("qid").size().tolist()


STEPS: Mapping[str, tuple[list[str], set[str]]] = {
    "decompose": (["qid", "query"], {"qid", "query", "query_0", "qtopic", "qsparse", "qdense", "qpassage"}),
    "search": (["qid", "query"], {"qid", "query", "docno", "score", "rank"}),
    "fuse": (["qid", "query", "docno", "score", "qtopic", "query_0"], {"qid", "query", "docno", "score", "rank"}),
    "rerank": (["qid", "query", "docno", "score"], {"qid", "query", "docno", "score", "rank"}),
    "answer": (["qid", "query"], {"qid", "query", "qanswer", "qcitations"}),
}


@pytest.mark.parametrize("step", STEPS)
def test_pyterrier_learns_the_columns_that_a_step_takes_and_gives(step: str, index: Index) -> None:
    transformer, (taken, given) = make(index, step), STEPS[step]
    assert pt.inspect.transformer_inputs(transformer) == [taken]
    assert set(pt.inspect.transformer_outputs(transformer, taken)) == given
    assert repr(transformer) == f"keystone.{step}"


@pytest.mark.parametrize(
    ("step", "frame", "message"),
    [
        ("serach", TOPICS, "step: found 'serach', expected one of decompose, search, fuse, rerank, answer"),
        ("rerank", TOPICS.assign(docno="bees", score=1.0), "rerank.method: found none, expected a reranker"),
        ("answer", TOPICS.assign(docno="nowhere", score=1.0), "run: found document 'nowhere', which .* lacks"),
        ("search", TOPICS.assign(query=" "), "topics:1: narrative: expected a narrative, found ' '"),
    ],
)
def test_a_wrong_step_or_frame_is_named(step: str, frame: pd.DataFrame, message: str, index: Index) -> None:
    with pytest.raises(keystone.UserError, match=message):
        make(index, step)(frame)


def test_translations_go_from_topics_to_queries_and_into_their_search(index: Index) -> None:
    topic = keystone.Topic("1", NARRATIVES["1"], record={"translations": {"de": "Wie leben Bienen?"}})
    topics = [topic, keystone.Topic("2", NARRATIVES["2"])]
    queries = keystone.decompose(index, topics)
    assert any(query.translations for query in queries)
    found = make(index, "decompose")(keystone.to_pandas(topics))
    assert _list_queries(found) == _list_queries(keystone.to_pandas(queries)) == queries
    assert _list_topics(found)[0].record == {"translations": dict(queries[0].translations)}
    plain = keystone.decompose(index, [keystone.Topic("3", NARRATIVES["2"])])
    together = pd.concat([keystone.to_pandas(queries), keystone.to_pandas(plain)])
    assert _list_queries(together) == [*queries, *plain]


def test_a_missing_column_is_an_error_of_pyterrier(index: Index) -> None:
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        make(index, "search")(TOPICS[["qid"]])


def test_a_missing_pyterrier_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyterrier", None)
    monkeypatch.delitem(sys.modules, "keystone.runs.python.transformer", raising=False)
    with pytest.raises(keystone.UserError, match="PyTerrier is needed: pip install pyterrier"):
        make(index, "search")


def test_a_narrative_without_a_ranking_has_an_answer_without_sentences(index: Index) -> None:
    with pytest.warns(UserWarning, match="ranking: lacks 1 of 2 topics, such as '2', whose answers have no sentence"):
        first, second = keystone.answer(index, NARRATIVES, ranking={"1": {"bees": 1.0}})
    assert first.sentences
    assert not second.sentences
    with pytest.raises(keystone.UserError, match=r"run: found rankings of other ids, such as '3', expected .* '1'"):
        keystone.answer(index, NARRATIVES, ranking={"3": {"bees": 1.0}})


@pytest.mark.slow
def test_a_java_that_another_package_started_is_named() -> None:
    code = "import jnius; from keystone.indexing.lucene.java import java_class; java_class('java.lang.String')"
    done = programs.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UserError: found Java already started in this process by another package" in str(done.stderr)


def test_texts_follow_a_ranking_so_that_a_reranker_can(index: Index) -> None:
    bm25 = make(index, "search", retrieval={"systems": ["bm25"]})
    found = (bm25 >> pt.text.get_text(bm25, ["text", "title"]))(TOPICS)
    assert len(found)
    read = keystone.documents(index, found["docno"])
    assert found["text"].tolist() == [one.text for one in read]
    assert found["title"].tolist() == [one.title for one in read]
    longest = bm25 >> pt.text.get_text(bm25) >> pt.apply.doc_score(lambda row: len(row["text"]))
    assert len(longest(TOPICS)) == len(found)
    with pytest.raises(keystone.UserError, match="get_text: found the field 'body', expected one of text, title, url"):
        pt.text.get_text(bm25, "body")(bm25(TOPICS))
