"""The doctor on incomplete machines, with real folders of package metadata on the path, and what it measures."""

import re
from pathlib import Path

import pytest

from keystone.indexing.opensearch.index import SIMILARITY
from keystone.runs.doctor import machine
from keystone.runs.doctor.cluster import (
    check_analyzer,
    check_documents,
    check_health,
    check_heap,
    check_plugins,
    check_settings,
    check_shards,
    check_version,
)
from keystone.runs.doctor.machine import Finding, _estimate, examine_machine, measure_speeds
from tests.support.runs.command_line import keystone


def distribution(folder: Path, name: str, version: str, record: str = "", needs: str = "numpy") -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: {needs}\n"
    (metadata / "METADATA").write_text(head)
    (metadata / "RECORD").write_text(record)


@pytest.mark.slow
def test_clashes_of_packages_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "orjson", "1.0")
    distribution(tmp_path, "other", "1.0", "keystone/__init__.py,,\n")
    distribution(tmp_path, "faiss-gpu", "1.15")
    monkeypatch.syspath_prepend(tmp_path)
    shown = "\n".join(f"{one.subject}: {one.message}" for one in examine_machine() if one.state == "problem")
    assert "packages: keystone-rag needs orjson>=3.10, found 1.0: pip install" in shown
    assert "packages: other also ships a package 'keystone'" in shown
    assert "FAISS: faiss-cpu and faiss-gpu are both installed" in shown


@pytest.mark.slow
def test_a_missing_requirement_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "orjson", "3.99", needs="absent")
    monkeypatch.syspath_prepend(tmp_path)
    found = [one.message for one in examine_machine() if one.subject == "packages" and one.state == "problem"]
    assert found == ["orjson needs absent: pip install 'absent'"]


@pytest.mark.slow
def test_faiss_for_gpus_takes_the_place_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"faiss-cpu": None, "faiss-gpu": "1.15.1"}
    find = machine._find_version
    monkeypatch.setattr(machine, "_find_version", lambda name: installed.get(name, find(name)))
    assert not [one for one in examine_machine() if "faiss-cpu" in one.message]


@pytest.mark.slow
def test_a_missing_java_is_a_problem_and_a_gpu_that_faiss_cannot_use_is_noted(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    shown = keystone("doctor", JAVA_HOME="/nowhere", PATH=str(tmp_path))
    assert shown.returncode == 1
    assert "problem  Java: JAVA_HOME=/nowhere: found no Java runtime" in shown.stdout
    assert ", though the machine has one: uninstall faiss-" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("finding", "state", "part"),
    [
        pytest.param(check_version({"number": "3.5.0", "distribution": "opensearch"}, 3), "ok", "3.5.0", id="new"),
        pytest.param(
            check_version({"number": "3.4.1", "distribution": "opensearch"}, 3),
            "note",
            "has 3",
            id="rank fusion for each shard",
        ),
        pytest.param(check_version({"number": "1.3.20", "distribution": "opensearch"}, 1), "problem", "2.19", id="old"),
        pytest.param(
            check_version({"number": "8.1.0"}, 1), "problem", "found elasticsearch 8.1.0", id="another engine"
        ),
        pytest.param(check_heap("a", 2**29, 2**35), "note", "-Xms and -Xmx to 16g", id="little heap"),
        pytest.param(check_heap("a", 2**36, 2**37), "note", "-Xms and -Xmx to 31g", id="much heap"),
        pytest.param(check_heap("a", 2**31, 2**33), "ok", "2.0 GiB of 8 GiB", id="fair heap"),
        pytest.param(check_plugins(["opensearch-knn"]), "ok", "installed", id="k-NN"),
        pytest.param(check_plugins(["analysis-icu"]), "note", "--dense pool", id="no k-NN"),
        pytest.param(check_analyzer([(["bee"], ["bee"])]), "ok", "Anserini", id="same stems"),
        pytest.param(
            check_analyzer([(["bees"], ["bee"])]), "problem", "found 'bees', expected 'bee'", id="other stems"
        ),
        pytest.param(check_analyzer([([], ["bee"])]), "problem", "found '', expected 'bee'", id="no stem"),
        pytest.param(check_health("red", 2), "problem", "no copy left", id="red"),
        pytest.param(check_health("yellow", 2), "note", "2 copies have no node", id="yellow"),
        pytest.param(check_documents(finished=False, found=3, expected=9), "problem", "3 so far", id="not finished"),
        pytest.param(check_documents(finished=True, found=3, expected=9), "problem", "expected 9", id="lost documents"),
        pytest.param(check_documents(finished=True, found=9, expected=9), "ok", "9", id="all documents"),
    ],
)
def test_a_finding_gives_advice(finding: Finding, state: str, part: str) -> None:
    assert finding.state == state
    assert part in finding.message


SETTINGS = {f"index.similarity.default.{name}": str(value) for name, value in SIMILARITY.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "nodes", "expected"),
    [
        pytest.param({"index.number_of_replicas": "1"}, 3, [], id="good settings"),
        pytest.param({"index.number_of_replicas": "0"}, 1, [], id="one node"),
        pytest.param({"index.number_of_replicas": "0"}, 3, ["copies"], id="no copies"),
        pytest.param({"index.number_of_replicas": "3"}, 3, ["copies"], id="more copies than nodes"),
        pytest.param(
            {"index.number_of_replicas": "1", "index.refresh_interval": "-1"}, 3, ["refresh"], id="no refresh"
        ),
        pytest.param(
            {"index.number_of_replicas": "1", "index.similarity.default.k1": "1.2"}, 3, ["similarity"], id="other k1"
        ),
    ],
)
def test_settings_that_should_change_are_reported(settings: dict[str, str], nodes: int, expected: list[str]) -> None:
    found = check_settings({**SETTINGS, **settings}, nodes)
    assert [finding.subject for finding in found if finding.state != "ok"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "gigabytes", "segments", "expected"),
    [(1, 0.1, 1, []), (3, 0.1, 3, ["size"]), (3, 80.0, 3, []), (1, 5.0, 12, ["segments"])],
)
def test_too_many_shards_and_segments_are_reported(
    shards: int, gigabytes: float, segments: int, expected: list[str]
) -> None:
    found = check_shards(shards, gigabytes, segments)
    assert [finding.subject for finding in found if finding.state != "ok"] == expected


@pytest.mark.slow
def test_an_unreachable_cluster_is_a_problem() -> None:
    shown = keystone("doctor", "--opensearch", "http://127.0.0.1:9")
    assert shown.returncode == 1
    assert "problem  OpenSearch: http://127.0.0.1:9: cannot be reached" in shown.stdout


@pytest.mark.slow
def test_the_doctor_measures_texts_and_vectors_a_second() -> None:
    found = list(measure_speeds())
    assert [(one.state, one.subject) for one in found] == [("ok", "speed of BM25"), ("ok", "speed of embeddings")]
    rates = [float(re.split(r"\s", one.message)[0].replace(",", "")) for one in found]
    assert rates[0] > rates[1] > 0


@pytest.mark.parametrize(
    ("rate", "taken"), [(1000.0, "17 minutes"), (10_000.0, "2 minutes"), (50.0, "5.6 hours"), (0.5, "555.6 hours")]
)
def test_a_million_documents_take_their_number_by_the_rate(rate: float, taken: str) -> None:
    assert _estimate(rate) == f": 1,000,000 such documents take {taken}"
