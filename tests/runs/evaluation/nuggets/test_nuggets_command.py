"""The commands `keystone nuggets`: from judgments to scores, with a scripted model, and on real answers."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from keystone.generation.llm.model import Model
from keystone.generation.types import Request
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.retrieval.backends import open_store
from keystone.runs.cli.commands.nuggets_commands import assign, convert, create, support
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.diagnosis.wanted import list_nuggets
from keystone.runs.evaluation.nuggets.files import Nugget, NuggetBank, read_nuggets, read_texts, write_nuggets
from keystone.runs.evaluation.nuggets.judge import assign_banks, create_banks, find_sources
from keystone.runs.evaluation.nuggets.score import CITATION_MEASURES
from keystone.runs.evaluation.scored_answers import score_answers
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.trec.topics import read_topics
from tests.support.models.scripted import Scripted
from tests.support.places import SHARED
from tests.support.runs.command_line import keystone
from tests.support.servers.chat import serving

T = TypeVar("T")

REAL = SHARED / "trec-rag-material"


def judge(system: str, user: str) -> str:
    """A model that takes a nugget of each passage, and goes by words in all else."""
    if '"nuggets"' in system:
        return json.dumps({"nuggets": re.findall(r"<document id=\"\d+\">\n(\w+)", user)})
    if '"support": "full"' in system:
        return json.dumps({"support": "full" if "colonies" in user else "none"})
    nuggets = re.findall(r"^\d+\. (.*)$", user, re.MULTILINE)
    if "vital" in system:
        return json.dumps({"labels": ["vital" if nugget == "Bees" else "okay" for nugget in nuggets]})
    answer = user.split("</document>")[0]
    return json.dumps({"labels": ["support" if nugget in answer else "not_support" for nugget in nuggets]})


def answer_by_server(body: dict[str, Any]) -> str:
    return judge(body["messages"][0]["content"], body["messages"][1]["content"])


def run_with(say: Callable[[Request], str]) -> RunWithModel:
    def run(work: Callable[[Model | None], Awaitable[T]]) -> T:
        async def wait() -> T:
            return await work(Scripted(say))

        return asyncio.run(wait())

    return run


@pytest.mark.slow
def test_the_commands_go_from_judgments_to_scores_and_ask_once(
    index: Index, topics: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, qrels, config = tmp_path / "answers.jsonl", tmp_path / "qrels", tmp_path / "run.yaml"
    made, assigned, rated = (tmp_path / name for name in ("nuggets.jsonl", "assigned.jsonl", "support.jsonl"))
    qrels.write_text("1 0 bees 3\n1 0 flowers 2\n1 0 wasps 1\n1 0 gone 2\n")
    sentences = [{"text": "Bees dance in colonies.", "citations": ["bees"]}, {"text": "So.", "citations": ["volcano"]}]
    record = {"metadata": {"team_id": "t", "run_id": "r", "topic_id": "1"}, "references": ["bees", "volcano"]}
    answers.write_text(json.dumps(record | {"responses": sentences}))
    with serving(model=answer_by_server) as server:
        model = {"name": "m", "urls": [server.url], "key_env": "NO_KEY"}
        places = {"index": str(index.folder), "topics": str(topics), "out": str(tmp_path / "out")}
        config.write_text(json.dumps({"run_id": "r", "model": model} | places))

        def make_all() -> list[bytes]:
            create(config, made, qrels, None, 2, quiet=True)
            create(config, tmp_path / "kept.jsonl", qrels, None, 2, "nuggetbank", quiet=True)
            assign([answers], made, assigned, config, None, quiet=True)
            support([answers], config, rated, None, quiet=True)
            return [path.read_bytes() for path in (made, assigned, rated)]

        files, calls = make_all(), len(server.requests)
        assert calls == 2 + 1 + 2
        assert make_all() == files
        assert len(server.requests) == calls
        for path, content, (old, new), noun in zip(
            (made, assigned, rated),
            files,
            (("vital", "okay"), ("not_support", "support"), ('"support":"0"', '"support":"2"')),
            ("nugget", "label", "label"),
            strict=True,
        ):
            path.write_text(corrected := path.read_text().replace(old, new))
            with pytest.raises(UserError, match=f"{path.name}: 1 {noun} would be lost or changed"):
                make_all()
            assert path.read_text() == corrected
            path.write_bytes(content)
    told = capsys.readouterr().err
    assert f"warning: {qrels}: 1 relevant document not in the index, such as gone\n" in told
    assert "warning: 1 topic without a relevant document, which get no nuggets\n" in told
    (bank,) = read_nuggets(assigned)
    assert [(one.text, one.importance, one.assignment) for one in bank.nuggets] == [
        ("Bees", "vital", "support"),
        ("Flowers", "okay", "not_support"),
    ]
    done = keystone("nuggets", "score", assigned, "--out", tmp_path / "scores.json")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["r", "A", "A_strict", "V", "V_strict", "W", "W_strict"]
    assert rows[1][1:] == rows[2][1:] == ["0.5000", "0.5000", "1.0000", "1.0000", "0.6667", "0.6667"]
    assert json.loads((tmp_path / "scores.json").read_bytes())["runs"][0]["mean"]["V"] == 1
    (evaluation,) = score_answers([rated])
    assert {name: evaluation.mean(name) for name in evaluation.values} == {
        **dict.fromkeys(CITATION_MEASURES, 0.5),
        "cited": 1.0,
    }
    convert(made, "nuggetbank", tmp_path / "bank.jsonl")
    assert json.loads((tmp_path / "bank.jsonl").read_bytes())["claim_bank"]["Bees"]["importance"] == "vital"
    wanted = list_nuggets(read_nuggets(tmp_path / "kept.jsonl"))
    assert ("1", "Bees", "bees") in {(one.topic_id, one.text, one.doc_id) for one in wanted}


@pytest.mark.parametrize(
    ("nugget", "sources"),
    [
        pytest.param("A queen lays 2,000 eggs.", ["hive"], id="one document says it"),
        pytest.param("Drones leave in autumn.", ["hive", "year"], id="two say it"),
        pytest.param("Drones leave in autumn to die of hunger in 1,900 hives.", ["hive"], id="in part"),
        pytest.param("Lava is molten rock.", [], id="none says it"),
    ],
)
def test_the_documents_of_a_nugget_are_those_whose_words_support_it(nugget: str, sources: list[str]) -> None:
    passages = {
        "hive#1": "In a hive, a queen lays 2,000 eggs. Drones leave in autumn.",
        "year#0": "In autumn, drones leave. In spring, swarms form.",
        "wax": "Wax is made of honey.",
    }
    (found,) = find_sources([nugget], passages)
    assert [source.doc_id for source in found] == sources


@pytest.mark.skipif(not REAL.exists(), reason="the collections are not here")
def test_real_answers_of_another_team_get_a_table(tmp_path: Path) -> None:
    topics = read_topics(REAL / "topics.rag24.test.jsonl")
    words = ("the", "is", "of", "zebra")
    banks = [NuggetBank(one.id, tuple(Nugget(f" {word} ", "vital") for word in words), one.narrative) for one in topics]
    write_nuggets(tmp_path / "nuggets.jsonl", banks)
    answers = REAL / "answers.rag24.ragnarok-gpt-4o.jsonl.gz"
    model = run_with(lambda request: judge(request.messages[0][1], request.messages[1][1]))
    assigned, cautions = assign_banks([answers], read_nuggets(tmp_path / "nuggets.jsonl"), "nuggets.jsonl", model)
    assert (len(assigned), cautions) == (301, [])
    write_nuggets(tmp_path / "assigned.jsonl", assigned)
    assert read_nuggets(tmp_path / "assigned.jsonl") == assigned
    (evaluation,) = score_answers([tmp_path / "assigned.jsonl"])
    assert (evaluation.name, len(evaluation.topics)) == ("baseline_rag24.test_gpt-4o_top20", 301)
    assert 0.6 < evaluation.mean("A") < 0.8


@pytest.mark.slow
def test_ids_name_documents_or_segments(index: Index) -> None:
    store = open_store(index)
    (bees,) = store.get(store.rows(["bees"]))
    segment = bees.segments[0]
    found = read_texts(store, [segment.id, "bees", "gone", "bees#gone"])
    assert found == {segment.id: bees.segment_text(segment), "bees": bees.contents}


def test_two_files_of_one_run_and_foreign_topics_are_refused(tmp_path: Path) -> None:
    record = {"metadata": {"team_id": "t", "run_id": "r", "topic_id": "1"}, "references": [], "responses": []}
    for name in ("a", "b"):
        (tmp_path / name).write_text(json.dumps(record))
    write_nuggets(tmp_path / "n", [NuggetBank("2", (Nugget("a"),))])
    model = run_with(lambda _: "")
    with pytest.raises(UserError, match="b: found run 'r' in another file too, expected different runs"):
        assign_banks([tmp_path / "a", tmp_path / "b"], read_nuggets(tmp_path / "n"), "n", model)
    with pytest.raises(UserError, match="its topics look like '1', those of the nuggets like '2'"):
        assign_banks([tmp_path / "a"], read_nuggets(tmp_path / "n"), "n", model)


@pytest.mark.slow
def test_judgments_without_a_relevant_document_of_the_index_are_refused(
    index: Index, topics: Path, tmp_path: Path
) -> None:
    (tmp_path / "qrels").write_text("1 0 bees 1\n1 0 gone 3\n")
    settings = ["run_id=r", f"index={index.folder}", f"topics={topics}", "model.name=m"]
    with pytest.raises(UserError, match="names no document of grade 2 or more"):
        create_banks(read_config(None, settings), tmp_path / "qrels", 2, run_with(lambda _: ""))
    with pytest.raises(UserError, match="needs a language model"):
        create_banks(read_config(None, settings[:-1]), tmp_path / "qrels", 2, run_with(lambda _: ""))


@pytest.mark.slow
def test_a_run_without_judgments_gives_a_nugget_bank_of_ragtime(index: Index, topics: Path, tmp_path: Path) -> None:
    ranked, made, config = tmp_path / "r.trec", tmp_path / "nuggets.jsonl", tmp_path / "run.yaml"
    ranked.write_text("1 Q0 flowers 1 3 t\n1 Q0 bees 2 2 t\n1 Q0 gone 3 1 t\n")
    with serving(model=answer_by_server) as server:
        model = {"name": "m", "urls": [server.url], "key_env": "NO_KEY"}
        places = {"index": str(index.folder), "topics": str(topics), "out": str(tmp_path / "out")}
        said = {"run_id": "r1", "team_id": "us", "run_desc": "Ours.", "track": "ragtime26", "model": model}
        config.write_text(json.dumps(said | places))
        create(config, made, to="ragtime", run=ranked, quiet=True)
        config.write_text(json.dumps(said | places | {"run_desc": None}))
        create(config, undescribed := tmp_path / "undescribed.jsonl", to="ragtime", run=ranked, quiet=True)
    assert json.loads(undescribed.read_text())["metadata"]["run_desc"].startswith("Keystone, ")
    (record,) = [json.loads(line) for line in made.read_text().splitlines()]
    assert record["metadata"] == {"team_id": "us", "topic_id": "1", "run_id": "r1", "run_desc": "Ours."}
    cited = {name for one in record["nugget_bank"] for answer in one["answers"] for name in answer["references"]}
    assert cited <= {"bees", "flowers"}
    assert cited


def test_nuggets_need_judgments_or_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected --qrels with judgments, or --run"):
        create(tmp_path / "run.yaml", tmp_path / "out.jsonl")
