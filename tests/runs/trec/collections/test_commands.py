"""Every command that reads topics or judgments takes a folder of BEIR and a data set of ir_datasets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ir_datasets
import orjson
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseQrels, BaseQueries, GenericQrel, GenericQuery

from keystone.indexing.embedder import Effort
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.evaluate_command import evaluate
from keystone.runs.cli.commands.file_commands import validate
from keystone.runs.cli.commands.report_command import diagnose
from keystone.runs.cli.commands.run_commands import answer
from keystone.runs.cli.commands.tune_commands import tune
from keystone.runs.cli.options import check_outputs
from keystone.runs.config.read import read_config
from keystone.runs.exchange.bundle.reproduce import reproduce
from keystone.runs.exchange.bundle.write import write_bundle
from keystone.runs.pipeline.run import run
from keystone.runs.trec.run_files import read_run
from tests.support.indexes.small_corpus import NARRATIVES
from tests.support.runs.beir_folders import write_folder


class Collection(BaseQueries, BaseQrels):  # type: ignore[misc]
    def queries_iter(self) -> Iterator[Any]:
        return (GenericQuery(name, text) for name, text in NARRATIVES.items())

    def qrels_iter(self) -> Iterator[Any]:
        return iter([GenericQrel("1", "bees", 2), GenericQrel("2", "volcano", 1)])


@pytest.fixture(scope="module")
def data_set() -> Iterator[Path]:
    ir_datasets.registry.register("keystone-test/commands", Dataset(Collection()))
    yield Path("ir_datasets:keystone-test/commands")
    ir_datasets.registry._registered.pop("keystone-test/commands")


def make_run(index: Index, topics: Path, out: Path) -> Path:
    return run(read_config(None, ["run_id=r", f"index={index.folder}", f"topics={topics}", f"out={out}"]))


@pytest.mark.slow
def test_topics_and_judgments_of_a_folder(index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "small")
    dev = Path(f"{folder}:dev")
    made = make_run(index, dev, tmp_path / "out")
    assert read_run(made / "narrative.trec").query_ids == ("2",)
    validate([made], dev)
    evaluate([made / "narrative.trec"], qrels=[dev], measure=["MRR"], out=tmp_path / "mrr.json")
    assert orjson.loads((tmp_path / "mrr.json").read_bytes())["runs"][0]["mean"]["MRR"] == 1.0
    diagnose(made, qrels=dev)
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["2", "1"]
    with pytest.raises(UserError, match=r"narrative\.trec: none of its topics is judged in .*qrels/test\.tsv"):
        evaluate([made / "narrative.trec"], qrels=[folder])


@pytest.mark.slow
def test_a_run_is_made_again_if_the_queries_of_its_folder_change(index: Index, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    made = make_run(index, folder, tmp_path / "out")
    before = orjson.loads((made / "manifest.json").read_bytes())["topics"]
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "Why do wasps build nests?"}\n')
    make_run(index, folder, tmp_path / "out")
    after = orjson.loads((made / "manifest.json").read_bytes())["topics"]
    assert before != after
    assert before["number"] == after["number"] == 1


@pytest.mark.slow
def test_topics_and_judgments_of_a_data_set(index: Index, data_set: Path, tmp_path: Path) -> None:
    made = make_run(index, data_set, tmp_path / "out")
    assert read_run(made / "narrative.trec").query_ids == ("1", "2")
    evaluate([made / "narrative.trec"], qrels=[data_set], measure=["R@10"], out=tmp_path / "r.json")
    assert orjson.loads((tmp_path / "r.json").read_bytes())["runs"][0]["mean"]["R@10"] == 1.0
    (tmp_path / "run.yaml").write_text(f"run_id: r\nindex: {index.folder}\ntopics: {data_set}\nout: {tmp_path}/out\n")
    tune(tmp_path / "run.yaml", data_set, ["fusion.k_narrative=[10, 60]"], measure=["MRR"], folds=2)
    answer(topics=data_set, index=index.folder, out=tmp_path / "answers.jsonl")
    answered = [json.loads(line)["metadata"]["narrative_id"] for line in (tmp_path / "answers.jsonl").open()]
    assert sorted(answered) == ["1", "2"]


@pytest.mark.slow
def test_a_bundle_holds_the_topics_of_a_data_set(index: Index, data_set: Path, tmp_path: Path) -> None:
    write_bundle(make_run(index, data_set, tmp_path / "out"), tmp_path / "r.zip", Effort())
    assert not any(one.difference for one in reproduce(tmp_path / "r.zip", None, Effort()).remade)


def test_no_output_lies_in_the_folder_of_a_split(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "small")
    with pytest.raises(UserError, match="lies in"):
        check_outputs([f"{folder}:dev"], {"--json": folder / "qrels/dev.tsv"})
