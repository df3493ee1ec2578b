"""Reading of runs and answer files for the report: ranks and grades, runs that lack something, and errors."""

from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest
import yaml

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.store import build_store
from keystone.indexing.types import Document
from keystone.runs.report.html.read_run import (
    STEP_CHARACTERS,
    CitedText,
    Place,
    QueryView,
    read_answer_view,
    read_view,
)
from keystone.runs.report.html.write import write_report
from keystone.runs.trec.run_files import find_ranks, list_first
from tests.runs.report.test_trace import RESEARCH
from tests.support.indexes.small_corpus import write_index_file
from tests.support.runs.command_line import keystone
from tests.support.runs.report_runs import (
    DOC_IDS,
    HOSTILE,
    SEGMENT_IDS,
    TEXT,
    TOPIC_IDS,
    write_index,
    write_report_run,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_report_run(tmp_path / "runs" / "second", write_index(tmp_path / "index"), graded=True)


def test_a_view_has_the_queries_ranks_grades_answer_and_steps_of_a_topic(run: Path) -> None:
    view = read_view(run, "name")
    assert (view.label, view.usage["total"]["cost"]) == ("name", 0.25)
    assert list(view.topics) == list(TOPIC_IDS)
    topic = view.topics[TOPIC_IDS[0]]
    assert topic.narrative == f"About {TOPIC_IDS[0]} {HOSTILE}"
    assert topic.queries[1] == QueryView(f"{TOPIC_IDS[0]}#1", f"{TOPIC_IDS[0]}#1? {HOSTILE}")
    first, second, *others = topic.documents
    assert (first.id, first.title, first.fused, first.last, first.chosen) == (DOC_IDS[1], f"Title 1 {HOSTILE}", 2, 1, 1)
    assert first.places == (Place(None, (2, 1), 29), Place(3, (2, 1), 29), Place(1, (2, 1), 29))
    assert second.places[1:] == (Place(0, (3, 2), 1), Place(None, (3, 2), 1))
    assert len(others) == 27
    assert others[0].places[1] == Place(None, (4, 3), 2)
    assert topic.answer is not None
    assert [cited for _, cited in topic.answer.sentences] == [(0,), (1, 0), ()]
    assert [(one.id, one.text) for one in topic.answer.cited] == [(SEGMENT_IDS[1], TEXT), (SEGMENT_IDS[2], TEXT)]
    (step,) = topic.steps
    assert (step.prompt_tokens + step.reply_tokens, step.action) == (1020, HOSTILE)
    assert step.observation == f"{'x' * STEP_CHARACTERS} …"
    assert (step.shown, step.reply, step.added) == ("", "", ())


def test_the_report_tells_the_path_of_an_agent_and_escapes_what_it_searched_for(run: Path, tmp_path: Path) -> None:
    hostile = "Search '<img src=x>': 9 documents found, 2 new ones shown."
    steps = [replace(RESEARCH[0], shown=hostile), *RESEARCH[1:]]
    lines = [orjson.dumps({"topic_id": TOPIC_IDS[0], **asdict(step)}) for step in steps]
    (run / "trace.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    path = read_view(run, "name").topics[TOPIC_IDS[0]].path
    assert path[0].startswith("round 1, query 1#0: searched for '<img src=x>' (2 new), ")
    assert path[-3:] == (
        "round 2, query 1#1: searched for nothing; 0 notes; done",
        "round 2, the judge: 1#1: not",
        "Ended: nothing new",
    )
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "&lt;img src=x" in page
    assert "<img src=x>" not in page


def test_ranks_count_from_one_and_are_zero_for_documents_that_a_list_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("1 Q0 a 1 2 t\n1 Q0 b 2 1 t\n2 Q0 b 1 1 t\n")
    assert find_ranks(path, {"2": ["a", "b"], "3": ["a"], "1": ["b", "a", "c"]}) == {
        "2": [0, 1],
        "3": [0],
        "1": [2, 1, 0],
    }
    assert list_first(path, 1) == {"1": ["a"], "2": ["b"]}
    assert find_ranks(tmp_path / "missing", {"1": ["a"]}) == {"1": [0]}
    assert list_first(tmp_path / "missing", 1) == {}


def test_an_answer_file_of_another_team_has_its_references_as_documents(tmp_path: Path) -> None:
    ids = [f"msmarco_v2.1_doc_00_{n}#0_{n}" for n in range(3)]
    answer = [{"text": "One.", "citations": [2, 0]}, {"text": "Two.", "citations": []}]
    record = {"run_id": "theirs", "topic_id": "2024-1", "topic": HOSTILE, "references": ids, "answer": answer}
    (tmp_path / "theirs.jsonl").write_bytes(orjson.dumps(record))
    view = read_answer_view(tmp_path / "theirs.jsonl", "name")
    assert view.remarks == ("an answer file of rag24, run theirs: it has no queries, rankings, grades and cited texts",)
    topic = view.topics["2024-1"]
    assert (topic.narrative, topic.queries) == (HOSTILE, ())
    assert [(one.id, one.last) for one in topic.documents] == [(ids[0], 1), (ids[1], 2), (ids[2], 3)]
    assert topic.answer is not None
    assert topic.answer.sentences == (("One.", (0, 1)), ("Two.", ()))
    assert [one.id for one in topic.answer.cited] == [ids[2], ids[0]]
    (tmp_path / "qrels.txt").write_text(f"2024-1 0 {ids[2]} 2\n")
    write_report([tmp_path / "theirs.jsonl"], tmp_path / "report.html", tmp_path / "qrels.txt")
    page = (tmp_path / "report.html").read_text()
    assert f'<tr data-n="ccaa"><th><bdi>{ids[1]}</bdi></th></tr>' in page
    assert f'<tr data-n="ddad"><th><bdi>{ids[2]}</bdi></th></tr>' in page


def test_judgments_of_other_topics_are_refused_and_so_is_a_run_file(tmp_path: Path) -> None:
    qrels, page = tmp_path / "qrels.txt", tmp_path / "report.html"
    qrels.write_text("999 0 a 1\n")
    record = {"run_id": "r", "topic_id": "2024-1", "topic": "t", "references": [], "answer": []}
    (tmp_path / "theirs.jsonl").write_bytes(orjson.dumps(record))
    with pytest.raises(UserError, match=r"qrels\.txt: judges none of the topics of the runs: they look like '999'"):
        write_report([tmp_path / "theirs.jsonl"], page, qrels)
    rows = tmp_path / "run.trec"
    rows.write_text("2024-1 Q0 a 1 1.0 r\n")
    with pytest.raises(UserError, match=r"run\.trec: holds no answers, expected a run directory or an answer file"):
        write_report([rows], page)
    unclear = tmp_path / "unclear.jsonl"
    unclear.write_text('{"answer": [{"text": "a", "citations": []}]}')
    with pytest.raises(UserError, match=r"fits no track, expected that of one of rag24") as raised:
        write_report([unclear], page)
    assert "--track" not in str(raised.value)  # which the command lacks
    assert not page.exists()


def test_an_unfinished_run_says_which_files_it_lacks(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"track": "rag25", "answer": {"method": "rules"}}))
    for name in ("keystone.trec", "grades.jsonl", "narrative.trec", "answers.jsonl", "usage.json"):
        (run / name).unlink()
    view = read_view(run, "name")
    (remark,) = view.remarks
    assert remark == (
        "unfinished: the run has no narrative.trec, grades.jsonl, keystone.trec, r_output_trec_rag_2025.tsv, "
        "evidence.jsonl, answers.jsonl, rag_output_trec_rag_2025.jsonl yet"
    )
    assert view.topics[TOPIC_IDS[0]].documents == ()
    assert len(view.topics[TOPIC_IDS[0]].queries) == 3


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, []),
        ({"rerank": {"method": "listwise"}}, ["reranked.trec"]),
        ({"grading": {"method": "grid"}}, ["grades.jsonl", "keystone.trec"]),
        (
            {"grading": {"method": "grid"}, "rerank": {"method": "listwise", "after": "grades"}},
            ["grades.jsonl", "graded.trec", "keystone.trec"],
        ),
    ],
    ids=["fusion alone", "a reranker", "grades", "a reranker after the grades"],
)
def test_a_run_without_a_track_is_unfinished_until_its_last_ranking_is_there(
    tmp_path: Path, settings: dict[str, object], missing: list[str]
) -> None:
    run = write_report_run(tmp_path / "runs" / "first", write_index(tmp_path / "index"), graded=False)
    config = yaml.safe_load((run / "config.yaml").read_text())
    model = {"name": "m", "urls": ["http://localhost:1/v1"]}
    (run / "config.yaml").write_text(yaml.safe_dump({**config, "model": model, **settings}))
    expected = (f"unfinished: the run has no {', '.join(missing)} yet",) if missing else ()
    assert read_view(run, "name").remarks == expected


def test_a_run_without_its_index_and_topics_is_shown_without_their_texts(run: Path) -> None:
    for path in run.parent.parent.glob("index/**/*"):
        if path.is_file():
            path.unlink()
    (run.parent / "topics.jsonl").unlink()
    view = read_view(run, "name")
    narratives, texts, unfinished = sorted(view.remarks)
    assert narratives.startswith("narratives are missing: ")
    assert texts.startswith("titles and cited texts are missing: ")
    assert unfinished.startswith("unfinished: ")
    topic = view.topics[TOPIC_IDS[0]]
    assert topic.narrative == f"{TOPIC_IDS[0]}? {HOSTILE}"
    assert topic.documents[0].title == ""
    assert topic.answer is not None
    assert topic.answer.cited[0].text == ""


def test_a_citation_of_a_document_whose_id_has_a_number_sign_has_its_text(run: Path, tmp_path: Path) -> None:
    index = Index(tmp_path / "pieces", "key", None, 1, {}, 0, None)
    build_store([Document("bees#0_12", "Bees dance.", "Bees")], index.store)
    write_index_file(index)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"index": str(index.folder)}))
    sentences = [{"text": "Bees dance.", "citations": ["bees#0_12", "bees#0_12#w0_0"]}]
    answers = [orjson.dumps({"topic_id": name, "sentences": sentences}) for name in TOPIC_IDS]
    (run / "answers.jsonl").write_bytes(b"\n".join(answers))
    topic = read_view(run, "name").topics[TOPIC_IDS[0]]
    assert topic.answer is not None
    assert topic.answer.cited == tuple(CitedText(name, "Bees", "Bees dance.") for name in sentences[0]["citations"])
    assert [one.id for one in topic.documents if one.id.startswith("bees")] == ["bees#0_12"]


def test_a_folder_without_a_run_or_with_a_damaged_one_is_an_error(tmp_path: Path, run: Path) -> None:
    out = tmp_path / "report.html"
    with pytest.raises(UserError, match=r"holds no manifest\.json, expected the directory of a run"):
        write_report([tmp_path], out)
    with pytest.raises(UserError, match="expected different runs"):
        write_report([run, run], out)
    (tmp_path / "qrels.txt").write_text("77 0 a 1\n")
    with pytest.raises(UserError, match="none of its topics is judged in "):
        write_report([run], out, tmp_path / "qrels.txt")
    (run / "trace.jsonl").write_text('{"topic_id": "1"}\n')
    with pytest.raises(UserError, match=r"trace\.jsonl:1: expected a step of a trace: query_id: missing$"):
        write_report([run], out)
    (run / "trace.jsonl").unlink()
    (run / "queries.jsonl").write_text('{"topic_id": "1"}\n')
    with pytest.raises(UserError, match="one of its files is not of a run: KeyError"):
        write_report([run], out)
    (run / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="one of its files is not of a run"):
        write_report([run], out)
    assert not out.exists()


@pytest.mark.slow
def test_the_command_names_the_file_that_it_writes_and_folders_without_a_run(tmp_path: Path, run: Path) -> None:
    shown = keystone("report", run, "--out", tmp_path / "page.html", "--quiet")
    assert (shown.returncode, shown.stdout) == (0, f"{tmp_path / 'page.html'}\n"), shown.stderr
    assert "<title>second – Keystone</title>" in (tmp_path / "page.html").read_text()
    shown = keystone("report", tmp_path, "--out", tmp_path.parent / "page.html", "--quiet")
    assert shown.returncode == 1
    assert shown.stderr.startswith(f"error: {tmp_path}: holds no manifest.json")
