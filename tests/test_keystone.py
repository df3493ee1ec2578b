"""The Python API: the names it exports, and each function on a real index, equal to the command line."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

import keystone
from keystone.generation.types import Sentence
from keystone.indexing.index import Index
from keystone.retrieval.types import Query
from keystone.runs.config.read import read_config
from keystone.runs.pipeline.file_names import ANSWERS, NARRATIVE
from keystone.runs.pipeline.run import run
from keystone.runs.trec.types import make_run
from tests.support import programs
from tests.support.indexes.small_corpus import write_topics
from tests.support.models.plain_model import say
from tests.support.places import ROOT
from tests.support.runs.command_line import keystone_here
from tests.support.servers.chat import serving

NAMES = """\
Answer Document Evaluation Grades Hit Hits Index Qrels Query Run RunConfig Topic UserError Verdict agree answer
as_pyterrier_transformer assign_nuggets assign_rubrics bound change_parts compare compare_pairs configure create_nuggets
decompose describe_pooled diagnose documents evaluate explain fuse grade index judge judge_battles leaderboard
list_topics make_run open_index plot pool read_nuggets read_qrels read_rubrics read_run read_topics rerank score_nuggets
score_rubrics search to_ir_measures to_pandas to_qrels to_ranx to_run to_topics tune update_index validate
write_nuggets write_qrels write_rubrics write_run"""
SLOW_PACKAGES = ["onnxruntime", "faiss", "jnius", "pandas", "pyterrier", "ranx", "vllm"]


def test_the_exported_names_are_these() -> None:
    assert keystone.__all__ == NAMES.split()
    assert all(hasattr(keystone, name) for name in keystone.__all__)
    assert all(getattr(keystone, name).__doc__ for name in keystone.__all__)


def test_importing_keystone_loads_no_model_and_no_java() -> None:
    code = f"import sys, keystone; print([name for name in {SLOW_PACKAGES} if name in sys.modules])"
    assert programs.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def as_float32(ranking: keystone.Run) -> dict[str, list[tuple[str, float]]]:
    """The documents and scores of each query, in the precision in which runs are compared."""
    listed = ranking.list_hits()
    return {query: [(doc_id, float(np.float32(score))) for doc_id, score in own] for query, own in listed.items()}


@pytest.fixture
def directory(index: Index, topics: Path, tmp_path: Path) -> Path:
    """A run by rules, as `keystone run` makes it."""
    settings = ["run_id=r", f"index={index.folder}", f"topics={topics}", f"out={tmp_path}"]
    return run(read_config(None, settings))


@pytest.mark.slow
def test_steps_in_python_give_what_a_run_gives(index: Index, topics: Path, directory: Path) -> None:
    opened, narratives = keystone.open_index(str(index.folder)), keystone.read_topics(str(topics))
    queries = keystone.decompose(opened, narratives)
    found = keystone.search(opened, queries)
    made = {f"{system}.trec": ranking for system, ranking in found.items()}
    made[NARRATIVE] = keystone.fuse(found, queries)
    for name, ranking in made.items():
        assert as_float32(ranking) == as_float32(keystone.read_run(directory / name)), name


@pytest.mark.slow
def test_answers_in_python_are_those_of_a_run(index: Index, topics: Path, directory: Path) -> None:
    answers = keystone.answer(index, keystone.read_topics(topics))
    lines = (directory / ANSWERS).read_text().splitlines()
    assert len(answers) == len(lines) == 2
    for answer, line in zip(answers, lines, strict=True):
        assert all(sentence.text in line for sentence in answer.sentences)
        assert str(answer).startswith(f"{answer.sentences[0].text} [1]")


@pytest.mark.slow
def test_grades_come_from_the_model_of_the_configuration(index: Index, topics: Path, tmp_path: Path) -> None:
    with serving(model=say) as server:
        model = {"name": "plain", "urls": [server.url], "window": 4096}
        config = keystone.configure("keystone", model=model, out=tmp_path / "out")
        narratives = keystone.read_topics(topics)
        queries = keystone.decompose(index, narratives, config)
        grades = keystone.grade(index, narratives, queries, keystone.search(index, queries, config), config)
    assert {"1", "2"} <= set(grades.qrels.query_ids)
    assert grades.run.query_ids == ("1", "2")


@pytest.mark.slow
def test_queries_may_alternate_between_topics(index: Index, topics: Path, tmp_path: Path) -> None:
    with serving(model=say) as server:
        model = {"name": "plain", "urls": [server.url], "window": 4096}
        config = keystone.configure("keystone", model=model, grading={"pool": 2}, out=tmp_path / "out")
        narratives = keystone.read_topics(topics)
        queries = keystone.decompose(index, narratives, config)
        runs = keystone.search(index, queries, config)
        alternating = sorted(queries, key=lambda query: query.id.partition("#")[2])
        graded = [keystone.grade(index, narratives, own, runs, config) for own in (queries, alternating)]
    assert alternating != queries
    assert graded[0] == graded[1]


@pytest.mark.slow
def test_a_run_is_made_measured_and_judged(index: Index, topics: Path, tmp_path: Path) -> None:
    made = keystone.make_run(run_id="r", index=index.folder, topics=topics, out=tmp_path / "out")
    ranking = keystone.read_run(made / NARRATIVE)
    (tmp_path / "q.txt").write_text("1 0 bees 2\n1 0 wasps 0\n2 0 volcano 1\n")
    qrels = keystone.read_qrels(tmp_path / "q.txt")
    keystone.write_qrels(tmp_path / "copy.txt", qrels)
    assert keystone.read_qrels(tmp_path / "copy.txt").grades.tolist() == qrels.grades.tolist()
    evaluation = keystone.evaluate(ranking, qrels, ["nDCG@10", "R@100"])
    assert evaluation.mean("R@100") == 1
    keystone.write_run(tmp_path / "copy.trec", ranking)
    assert keystone.read_run(tmp_path / "copy.trec").list_hits() == ranking.list_hits()
    verdict = keystone.validate(made / "rag_output_trec_rag_2025.jsonl", keystone.read_topics(topics), "rag25")
    assert not any(violation.severity == "error" for violation in verdict.violations)
    (tmp_path / "bad.trec").write_text("<1> Q0 bees 1 0.5 r\n")
    html = keystone.validate(tmp_path / "bad.trec", keystone.read_topics(topics), "rag25")._repr_html_()
    assert "line 1: error: " in html
    assert "&lt;1&gt;" in html


@pytest.mark.slow
def test_runs_are_compared_drawn_explained_and_diagnosed(directory: Path, tmp_path: Path) -> None:
    ranking = keystone.read_run(directory / NARRATIVE)
    qrels = {"1": {"bees": 2, "wasps": 0}, "2": {"volcano": 1}}
    runs = {"mine": ranking, "theirs": {"1": {"wasps": 1.0}, "2": {"volcano": 1.0}}}
    found = keystone.compare(runs, qrels, ["R@100"])
    assert list(found) == ["theirs"]
    assert found["theirs"]["R@100"].mean == -0.5
    assert len(keystone.plot(runs, qrels).axes) == 3
    explained = keystone.explain(directory, "1", "bees")
    assert "bees" in str(explained).splitlines()[0]
    (tmp_path / "q.txt").write_text("1 0 bees 2\n2 0 volcano 1\n")
    diagnosed = keystone.diagnose(directory, qrels=tmp_path / "q.txt")
    assert len(diagnosed.findings) == 2
    shown = keystone_here("diagnose", directory, "--qrels", tmp_path / "q.txt")
    assert str(diagnosed).splitlines() == shown.stdout.splitlines()
    assert "documents" in shown.stdout
    with pytest.raises(keystone.UserError, match="diagnose: expected either qrels or nuggets"):
        keystone.diagnose(directory)
    with pytest.raises(keystone.UserError, match="runs: found dict, expected a dictionary with two runs or more"):
        keystone.compare({"mine": ranking}, qrels)


@pytest.mark.slow
def test_values_print_in_a_few_lines(index: Index, directory: Path) -> None:
    ranking = keystone.read_run(directory / NARRATIVE)
    first = repr(ranking).splitlines()
    assert first[0] == f"Run('r': 2 queries, {len(ranking.scores)} rows)"
    assert first[1].split()[:2] == ["1", ranking.list_hits()["1"][0][0]]
    assert len(first) == 6
    assert repr(index) == f"Index({str(index.folder)!r}: 9 documents, BM25 by lucene, embeddings by all-MiniLM-L6-v2)"
    assert len(index) == 9
    assert "9 documents" in index._repr_html_()
    unknown = replace(index, documents=None)
    assert unknown
    with pytest.raises(keystone.UserError, match="does not tell the number of documents"):
        len(unknown)
    sentences = Sentence("Bees <dance>.", ("a&b#1",)), Sentence("Wasps hunt.", ("c", "a&b#1"))
    html = "<p>Bees &lt;dance&gt;. [1] Wasps hunt. [2] [1]</p><ol><li>a&amp;b#1</li><li>c</li></ol>"
    assert keystone.Answer("1", sentences)._repr_html_() == html


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retrieval": {"depht": 5}}, "retrieval.depht: unknown key"),
        ({"fusion": {"method": "mean"}}, "fusion.method: found 'mean'"),
        ({"preset": "best"}, "^preset best: unknown"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(keystone.UserError, match=message):
        keystone.configure(**settings)  # type: ignore[arg-type]


def test_a_document_that_the_index_lacks_is_named(index: Index, topics: Path) -> None:
    queries = keystone.decompose(index, keystone.read_topics(topics))
    runs = keystone.search(index, queries)
    with pytest.raises(keystone.UserError, match=r"grading\.method: found none"):
        keystone.grade(index, [], queries, runs, keystone.configure())
    foreign = {"other": make_run("other", {queries[0].id: [("nowhere", 1.0)]})}
    config = keystone.configure("keystone", model={"name": "m", "urls": ["http://localhost:9/v1"]})
    with pytest.raises(keystone.UserError, match="other: found document 'nowhere'"):
        keystone.grade(index, keystone.read_topics(topics), queries, foreign, config)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/data-scientist.md", "README.md"])
def test_the_python_of_a_page_runs(
    page: str, index: Index, topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    Path("index").symlink_to(index.folder)
    Path("qrels.txt").write_text("1 0 bees 2\n2 0 volcano 1\n")
    assert topics == Path("topics.jsonl").resolve()
    exec("\n".join(blocks), {})
    assert Path("my.trec").exists()


@pytest.mark.slow
def test_the_cells_of_the_notebook_run_in_their_order(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    for folder in ("docs", "demo-out", "runs/demo"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "demo-out" / "index").symlink_to(index.folder)
    write_topics(tmp_path / "runs" / "demo" / "narratives.jsonl")
    (tmp_path / "runs" / "demo" / "qrels.txt").write_text("1 0 bees 2\n2 0 volcano 1\n")
    monkeypatch.chdir(tmp_path / "docs")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["table"].index.tolist() == ["fused", "baseline"]
    assert names["table"]["R@20"].tolist() == [1, 1]
    assert (names["directory"] / "manifest.json").exists()


HONEY = [keystone.Topic("1", "Who makes honey?")]
QUERY = Query("1", "1", "honey", "honey", "honey")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda api, index: api.decompose(index, []), "topics: found none"),
        (lambda api, index: api.answer(index, {}), "topics: found none"),
        (lambda api, index: api.answer(index, HONEY, {"track": "rag25"}), "config: found dict"),
        (lambda api, index: api.search(index, [QUERY], {}), "config: found dict"),
        (lambda api, index: api.search(str(index.folder), [QUERY]), "index: found str"),
        (lambda api, index: api.search(index, " "), "topics:1: narrative: expected a narrative, found ' '"),
        (lambda api, index: api.search(index, "honey", k=0), "k: found 0"),
        (lambda api, index: api.search(index, None), "topics: found NoneType"),
        (lambda api, index: api.search(index, []), "topics: found none"),
        (lambda api, index: api.search(index, [QUERY, QUERY]), "queries: found the id '1' twice"),
        (lambda api, index: api.search(index, [replace(QUERY, id="a b")]), "queries: found the id 'a b'"),
        (lambda api, index: api.search(index, [replace(QUERY, id=1)]), "queries: found the id 1"),  # type: ignore[arg-type]
        (lambda api, _: api.fuse({}, [QUERY]), "runs: found none"),
        (lambda api, _: api.fuse(["run"], [QUERY]), "runs: found list"),
        (lambda api, _: api.evaluate({"1": {"a": 1.0}}, {"1": {"a": 1}}, None), "measure 'None': unknown"),
    ],
)
def test_a_wrong_value_is_one_error(index: Index, call: Callable[[Any, Any], object], message: str) -> None:
    with pytest.raises(keystone.UserError, match=f"^{message}"):
        call(keystone, index)


def test_one_measure_of_ir_measures_is_a_measure() -> None:
    run, qrels = {"1": {"a": 1.0}}, {"1": {"a": 1}}
    one = keystone.evaluate(run, qrels, ir_measures.nDCG @ 10)
    assert repr(one) == repr(keystone.evaluate(run, qrels, "nDCG@10"))


def test_an_index_opened_by_a_relative_path_stays_open_in_another_directory(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(index.folder.parent)
    opened = keystone.open_index(index.folder.name)
    monkeypatch.chdir(tmp_path)
    assert keystone.search(opened, [QUERY], keystone.configure(retrieval={"systems": ["bm25"]}))


@pytest.mark.slow
def test_a_step_that_fails_leaves_no_event_loop_open(index: Index) -> None:
    code = f"""
import keystone
index = keystone.open_index({str(index.folder)!r})
try:
    keystone.answer(index, {{"1": "honey"}}, ranking={{"1": {{"nowhere": 1.0}}}})
except keystone.UserError:
    print("failed")
"""
    done = programs.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True)
    assert done.stdout == "failed\n"
    assert "event loop" not in done.stderr
