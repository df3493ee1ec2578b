"""The doctor on machines that lack something: distributions are real folders of metadata on the path."""

from pathlib import Path

import pytest

from tests.conftest import keystone


def distribution(folder: Path, name: str, version: str, record: str = "") -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "RECORD").write_text(record)


@pytest.mark.parametrize(
    ("name", "version", "record", "problem"),
    [
        pytest.param("orjson", "1.0", "", "keystone-rag needs orjson>=3.10, found 1.0: pip install", id="too old"),
        pytest.param("other", "1.0", "runs/__init__.py,,\n", "other also ships a package 'runs'", id="our name"),
        pytest.param("faiss-gpu", "1.15", "", "faiss-cpu and faiss-gpu are both installed", id="two FAISS"),
    ],
)
def test_a_clash_of_packages_is_a_problem(name: str, version: str, record: str, problem: str, tmp_path: Path) -> None:
    distribution(tmp_path, name, version, record)
    shown = keystone("doctor", PYTHONPATH=str(tmp_path))
    assert shown.returncode == 1
    assert f"problem  {'FAISS' if 'faiss' in problem else 'packages'}: {problem}" in shown.stdout


def test_a_missing_java_is_a_problem() -> None:
    shown = keystone("doctor", JAVA_HOME="/nowhere")
    assert shown.returncode == 1
    assert "problem  Java: JAVA_HOME=/nowhere: found no Java runtime" in shown.stdout


def test_a_gpu_that_faiss_cannot_use_is_noted(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    shown = keystone("doctor", PATH=str(tmp_path))
    assert "though the machine has one: uninstall it, pip install faiss-gpu" in shown.stdout
