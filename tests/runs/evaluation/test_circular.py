"""The guard against circular evaluation: a run's own grades are recognised in any file of judgments."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.circular import JudgeRecord, PooledRun, count_circular_rows, name_record, write_record
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.pipeline.grade_files import Judgment
from keystone.runs.trec.types import make_run
from tests.support.runs.command_line import keystone, keystone_here

GRADES = ["1#1 model a 3", "1 model a 3", "1 model b 1", "2 model a 0"]


def make_run_directory(folder: Path) -> Path:
    """Make the files of a run whose grades selected keystone.trec, and from it the file to submit."""
    folder.mkdir()
    entries: dict[str, dict[str, object]] = {}
    rows = "1 Q0 a 1 2 t\n1 Q0 b 2 1 t\n2 Q0 x 1 1 t\n"
    contents = {"narrative.trec": rows, "grades.qrels": "".join(f"{line}\n" for line in GRADES),
                "keystone.trec": f"{rows}2 Q0 a 2 0.5 t\n", "submitted.tsv": f"{rows}2 Q0 a 2 0.25 t\n"}  # fmt: skip
    inputs = {
        "grades.qrels": ["narrative.trec"],
        "keystone.trec": ["narrative.trec"],
        "submitted.tsv": ["keystone.trec"],
    }
    keys = {"grades.qrels": "grades", "keystone.trec": "grades"}
    for name, text in contents.items():
        (folder / name).write_text(text)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        entries[name] = {
            "key": keys.get(name, name),
            "sha256": sha256,
            "inputs": dict.fromkeys(inputs.get(name, []), ""),
        }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": entries}))
    return folder


def count(run: Path, qrels: Path) -> int:
    (found,) = evaluate_files([run], qrels, [parse_measure("MRR"), parse_measure("judged@5")])
    assert any("the very grades" in caution for caution in found.cautions) == bool(found.circular_rows)
    return found.circular_rows


@pytest.mark.slow
def test_only_files_that_grades_have_shaped_are_marked(tmp_path: Path) -> None:
    directory = make_run_directory(tmp_path / "run")
    found = {name: count(directory / name, directory / "grades.qrels")
             for name in ("narrative.trec", "keystone.trec", "submitted.tsv")}  # fmt: skip
    assert found == {"narrative.trec": 0, "keystone.trec": 3, "submitted.tsv": 3}


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param(GRADES, 3, id="a copy"),
        pytest.param(["# by two models", *(line.replace(" ", "\t") for line in GRADES), "3 other a 1"], 3, id="merged"),
        pytest.param(["1 model b 1"], 1, id="a part"),
        pytest.param([line.replace("model", "other") for line in GRADES], 0, id="another judge"),
        pytest.param([*(line.replace("model", "0") for line in GRADES)], 0, id="people"),
        pytest.param(["1 model a 2", "1 model b 2"], 0, id="the same judge with other grades"),
    ],
)
def test_the_grades_are_recognised_in_other_files(tmp_path: Path, lines: list[str], rows: int) -> None:
    directory = make_run_directory(tmp_path / "run")
    qrels = tmp_path / "qrels.gz"
    qrels.write_bytes(gzip.compress("".join(f"{line}\r\n" for line in lines).encode()))
    assert count(directory / "keystone.trec", qrels) == rows


def test_judgments_of_segments_by_the_judge_of_their_documents_are_circular(tmp_path: Path) -> None:
    grades = tmp_path / "grades.qrels"
    grades.write_text("1 model a 3\n1 other b 3\n")
    run = make_run("run", {"1": [("a#1", 3.0), ("b#1", 2.0), ("c#1", 1.0)]})
    judged = {Judgment("1", "model", name, 2) for name in ("a#1", "b#1", "c#1")}
    assert count_circular_rows(run, judged, grades, "model") == 1


def test_a_copy_of_the_run_is_recognised_beside_its_grades(tmp_path: Path) -> None:
    directory = make_run_directory(tmp_path / "run")
    copy = shutil.copy(directory / "keystone.trec", tmp_path / "copy.trec")
    assert count(Path(copy), directory / "grades.qrels") == 3


@pytest.mark.parametrize("manifest", ["", "{}", '{"artifacts": {"keystone.trec": {}, "grades.qrels": {}}}'])
def test_a_damaged_manifest_is_no_error(tmp_path: Path, manifest: str) -> None:
    directory = make_run_directory(tmp_path / "run")
    (directory / "manifest.json").write_text(manifest)
    assert count(directory / "keystone.trec", directory / "grades.qrels") in (0, 3)


@pytest.mark.slow
def test_the_command_marks_figures_and_strict_refuses_them(tmp_path: Path) -> None:
    directory = make_run_directory(tmp_path / "run")
    files = [directory / "narrative.trec", directory / "keystone.trec"]
    asked: list[str | Path] = ["evaluate", *files, "--qrels", directory / "grades.qrels", "-m", "P@1", "--quiet"]
    done = keystone(*asked)
    figures = [line.split()[1] for line in done.stdout.splitlines()[1:3]]
    assert figures == ["0.3333", "0.3333*"]
    assert "\n* measured on the grades that selected the run's documents: no evidence of effect\n" in done.stdout
    assert f"warning: {files[1]}: 3 rows judged by the very grades that selected its documents" in done.stderr
    assert r"| **0.3333**\* |" in keystone(*asked, "--format", "markdown").stdout
    refused = keystone(*asked, "--strict")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith("expected judgments by others\n")
    assert keystone("evaluate", files[0], *asked[3:], "--strict").returncode == 0


@pytest.mark.slow
def test_each_of_several_judges_is_checked(tmp_path: Path) -> None:
    directory = make_run_directory(tmp_path / "run")
    people, grades = tmp_path / "people", directory / "grades.qrels"
    people.write_text("1 0 a 1\n1 0 b 0\n2 0 x 1\n")
    files = directory / "narrative.trec", directory / "keystone.trec"
    asked: list[str | Path] = ["evaluate", *files, "--qrels", people, "--qrels", grades, "-m", "P@1"]
    report = json.loads(keystone_here(*asked, "--format", "json").stdout)
    assert (
        f"{grades}: {files[1]}: 3 rows judged by the very grades that selected its documents, see {grades}"
        in (report["warnings"])
    )
    assert [row["run"][-1] == "*" for row in report["tables"]["P@1 by each judge:"]].count(True) == 1
    refused = keystone_here(*asked, "--strict")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "judged by the very grades" in refused.stderr


def write_judged(folder: Path, lines: list[str], *runs: PooledRun) -> Path:
    """Write judgments with the record that `keystone judge` puts beside them."""
    qrels = folder / "judged"
    qrels.write_text("".join(f"{line}\n" for line in lines))
    write_record(qrels, JudgeRecord("model", {}, "2026-01-01", "", 20, 1, False, 0, list(runs), []))
    return qrels


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param(["1 model a 2", "1 model b 2"], 2, id="the same judge with other grades"),
        pytest.param(["1 model a 2", "1 model c 2"], 1, id="and documents that it had not graded"),
        pytest.param(["1 other a 2", "1 other b 2"], 0, id="another judge"),
    ],
)
def test_judgments_with_a_record_are_compared_by_their_judge(tmp_path: Path, lines: list[str], rows: int) -> None:
    directory = make_run_directory(tmp_path / "run")
    assert count(directory / "keystone.trec", write_judged(tmp_path, lines)) == rows
    assert count(directory / "narrative.trec", write_judged(tmp_path, lines)) == 0


def test_a_copy_of_a_pooled_run_is_known_by_the_record(tmp_path: Path) -> None:
    directory = make_run_directory(tmp_path / "run")
    copy = Path(shutil.copy(directory / "keystone.trec", tmp_path / "copy.trec"))
    sha256 = hashlib.sha256(copy.read_bytes()).hexdigest()
    assert count(copy, write_judged(tmp_path, ["1 model a 2"], PooledRun("run/keystone.trec", sha256, 1))) == 1
    assert count(copy, write_judged(tmp_path, ["1 model a 2"], PooledRun("run/keystone.trec", sha256, 0))) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 1}'])
def test_a_damaged_record_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    directory = make_run_directory(tmp_path / "run")
    qrels = write_judged(tmp_path, ["1 model a 2"])
    name_record(qrels).write_text(text)
    with pytest.raises(UserError, match=r"judged\.judge\.json: not a record of judgments: "):
        count(directory / "keystone.trec", qrels)
