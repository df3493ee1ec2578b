"""The command `keystone evaluate --answers`: its table, its JSON, its judgments by a model, and its errors."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT
from tests.support.runs.command_line import keystone, keystone_here
from tests.support.servers.chat import serving

REFERENCES = [
    {"id": "1", "question": "Why?", "references": ["bees dance"], "answers": [["bees"]], "gold_ids": ["d1"]},
    {"id": "2", "question": "How?", "references": ["by night"], "answers": [["day"]], "gold_ids": ["d2"]},
]


def write_run(folder: Path, *texts: str) -> None:
    folder.mkdir(parents=True)
    with (folder / "responses.jsonl").open("w") as answers, (folder / "evidence.jsonl").open("w") as evidence:
        for topic, text in enumerate(texts, 1):
            sentence = {"text": text, "citations": ["d1"]}
            metadata = {"team_id": "t", "run_id": "r", "topic_id": str(topic)}
            answers.write(json.dumps({"metadata": metadata, "references": ["d1"], "responses": [sentence]}) + "\n")
            item = {"text": f"{text} indeed", "span": {"doc_id": "d1", "start": 0, "end": 1}}
            evidence.write(json.dumps({"topic_id": str(topic), "items": [item]}) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two runs, of which the first is the better one, and references."""
    write_run(tmp_path / "out/a", "bees dance", "by day")
    write_run(tmp_path / "out/b", "bees")
    (tmp_path / "references.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in REFERENCES))
    return tmp_path


def list_documented_commands() -> list[list[str]]:
    """The commands of the page that measure answers, without the first word."""
    text = (ROOT / "docs/evaluate.md").read_text().replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(r"^keystone evaluate .*--answers.*$", text, re.MULTILINE)]


def judge(body: dict[str, Any]) -> str:
    """A model that rates everything as partially right, and always prefers the first slot."""
    system = body["messages"][0]["content"]
    if '"better"' in system:
        return '{"better": "A"}'
    return "Yes, partially" if "partially" in system else "No"


@pytest.mark.slow
def test_the_documented_commands_run_as_they_stand(folder: Path) -> None:
    plain, judged = list_documented_commands()
    done = keystone(*plain, cwd=folder)
    assert done.returncode == 0, done.stderr
    head, first, *_ = (line.split() for line in done.stdout.splitlines())
    assert (head[:2], first[0]) == (["measure", "out/a"], "ROUGE-L")
    with serving(model=judge) as server:
        asked = [word.replace("http://localhost:8000/v1", server.url) for word in judged]
        done = keystone(*asked, cwd=folder)
        assert done.returncode == 0, done.stderr
        head, *rows = (line.split() for line in done.stdout.splitlines())
        assert head[:3] == ["run", "LR-1", "LR-2"]
        assert (rows[0][:3], rows[1][:3]) == (["out/a", "0.0000", "1.0000"], ["out/b", "0.0000", "0.5000"])
        expected = "out/a against out/b: 1 win (9.5% to 90.5%), 1 tie (9.5% to 90.5%), 0 losses (0.0% to 65.8%)"
        assert f"{expected} of 2 topics; first slot 100.0%\n" in done.stdout
        calls = len(server.requests)
        assert calls == 2 * 3 + 2
        assert keystone(*asked, cwd=folder).stdout == done.stdout
        assert len(server.requests) == calls


def test_the_table_and_the_json_say_the_same(folder: Path) -> None:
    names = [part for name in ("ROUGE-L", "EM", "ids") for part in ("-m", name)]
    arguments = ["evaluate", "out/a", "out/b", "--answers", "--references", "references.jsonl", *names]
    done = keystone(*arguments, "--out", "report.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["run", "out/a", "out/b"]
    assert lines[4] == "out/b against out/a:"
    report = json.loads((folder / "report.json").read_text())
    first, second = (run["mean"] for run in report["runs"])
    assert first == pytest.approx(
        {
            "ROUGE-L P": 3 / 4,
            "ROUGE-L R": 3 / 4,
            "ROUGE-L F1": 3 / 4,
            "EM": 1,
            "hit": 1,
            "ids P": 1 / 2,
            "ids R": 1 / 2,
            "ids F1": 1 / 2,
            "words": 2,
            "cited": 1,
            "evidence tokens": (5 + 4) / 2,
        }
    )
    assert (second["EM"], second["words"], second["cited"]) == (0.5, 0.5, 0.5)
    assert report["runs"][1]["topics"]["2"]["EM"] == 0
    assert report["comparisons"] == []
    assert "warning: out/b: judged topics without an answer, which count 0: 1 of 2, such as 2" in done.stderr


def test_a_batch_has_the_requests_of_ratings_and_comparisons(folder: Path) -> None:
    files = ["out/a", "out/b", "--answers", "--references", "references.jsonl"]
    judged = ["-m", "LR", "-m", "pairwise", "--set", "model={name: m, backend: batch}"]
    done = keystone("evaluate", *files, *judged, cwd=folder)
    assert done.returncode == 3, done.stderr
    lines = [line for path in (folder / "out/batch").glob("*.requests.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 2 * 3 + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["out/a"], "expected --qrels with judgments of runs, or --answers, with or without --references"),
        (["out/a", "--answers", "-m", "EM"], "measure 'EM': no line of the references has answers"),
        (["out/a", "--references", "references.jsonl"], "expected --qrels with judgments of runs"),
        (["out/a", "--answers", "--qrels", "references.jsonl"], "expected --qrels with judgments of runs"),
        (["out/a", "--qrels", "references.jsonl", "--set", "a=b"], "--config and --set for answers only"),
        (["out/a", "--answers", "--references", "none", "--skip-own"], "--strict and --resample-judges for runs only"),
        (["references.jsonl", "--answers", "--references", "references.jsonl"], "are those of no track"),
        (["out/a", "--answers", "--references", "out/a/responses.jsonl"], ":1: expected a topic id under id, _id"),
        (["out/a", "--answers", "--references", "none"], "none: cannot be read"),
        (["out", "--answers", "--references", "references.jsonl"], "out: expected one answer file of a track"),
    ],
)
def test_wrong_input_is_one_message(folder: Path, arguments: list[str], message: str) -> None:
    done = keystone_here("evaluate", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
