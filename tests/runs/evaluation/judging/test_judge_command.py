"""The command `keystone judge`: pooling, repeats, a cascade, agreement, its record, and its errors."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from keystone.generation.prompts.grading import BY_QUESTIONS, BY_USE
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.cli.commands.evaluate_command import evaluate
from keystone.runs.cli.commands.judge_command import judge_runs
from keystone.runs.evaluation.circular import JudgeRecord, name_record, read_record
from keystone.runs.evaluation.evaluate import evaluate_files
from keystone.runs.evaluation.judging.redraw import JudgeInterval, find_judge_intervals
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.resample import find_bootstrap_interval
from tests.support.models.plain_model import say
from tests.support.servers.chat import Server, serving

RUNS = {
    "a.trec": "1 Q0 bees 1 2 a\n1 Q0 wasps 2 1 a\n2 Q0 volcano 1 2 a\n2 Q0 glacier 2 1 a\n",
    "b.trec": "1 Q0 twin-a 1 2 b\n1 Q0 bees 2 1 b\n2 Q0 volcano#w0_0 1 2 b\n3 Q0 bees 1 1 b\n2 Q0 gone 2 1 b\n",
}


def grade(body: dict[str, Any]) -> str:
    """Grade as the plain model; the other prompts give 3 to documents with bees, and a seed above 2 gives 0."""
    system, user = (message["content"] for message in body["messages"][:2])
    if body.get("seed", 0) > 2:
        return '{"grade": 0}'
    if system in (BY_QUESTIONS, BY_USE):
        return json.dumps({"grade": 3 * ("Bees" in user)})
    return say(body)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(model=grade) as found:
        yield found


@dataclass
class Made:
    """The command in this process, with two runs in a folder."""

    folder: Path
    settings: list[str]

    @property
    def files(self) -> list[Path]:
        return [self.folder / name for name in RUNS]

    def start(self, **options: Any) -> None:
        given = {"out": self.folder / "q", "set": self.settings, "quiet": True, "threads": 1, **options}
        judge_runs(self.files, **given)

    def read_lines(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "q").read_text().splitlines()]

    def read_record(self) -> JudgeRecord:
        record = read_record(self.folder / "q")
        assert record is not None
        return record


@pytest.fixture
def made(tmp_path: Path, index: Index, topics: Path, server: Server) -> Made:
    for name, text in RUNS.items():
        (tmp_path / name).write_text(text)
    model = f"model={{name: a judge, urls: ['{server.url}']}}"
    return Made(tmp_path, ["run_id=r", f"index={index.folder}", f"topics={topics}", f"out={tmp_path / 'out'}", model])


@pytest.mark.slow
def test_the_pool_is_judged_once_and_the_record_tells_by_whom(
    made: Made, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(server.requests)
    made.start(depth=1)
    said = capsys.readouterr()
    assert said.out == f"{made.folder / 'q'}: 4 judgments by a_judge\n"
    assert said.err == "warning: 1 topic of the runs without a narrative, such as 3\n"
    assert [row[:3] for row in made.read_lines()] == [
        ["1", "a_judge", "bees"],
        ["1", "a_judge", "twin-a"],
        ["2", "a_judge", "volcano"],
        ["2", "a_judge", "volcano#w0_0"],
    ]
    record = made.read_record()
    assert (record.model, record.depth, [*record.prompts], record.grades) == ("a_judge", 1, ["umbrela"], [])
    assert [Path(run.file).name for run in record.runs] == [*RUNS]
    kept = [path.read_bytes() for path in (made.folder / "q", name_record(made.folder / "q"))]
    made.start(depth=1)
    assert kept == [path.read_bytes() for path in (made.folder / "q", name_record(made.folder / "q"))]
    assert len(server.requests) <= before + 4  # two passages can be the same request


@pytest.mark.slow
def test_a_folder_stands_for_its_runs(made: Made) -> None:
    made.start()
    named = made.read_lines()
    (folder := made.folder / "runs").mkdir()
    for path in made.files:
        path.rename(folder / path.name)
    judge_runs([folder], out=made.folder / "q", set=made.settings, quiet=True, threads=1)
    assert made.read_lines() == named
    assert [Path(run.file).name for run in made.read_record().runs] == [*RUNS]


def test_a_document_that_the_index_lacks_has_no_judgment(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.start()
    assert "1 document of the runs not in the index and not judged, such as gone" in capsys.readouterr().err
    found = [row[2] for row in made.read_lines()]
    assert found == ["bees", "twin-a", "wasps", "glacier", "volcano", "volcano#w0_0"]


@pytest.mark.slow
def test_repeats_are_sampled_and_their_median_counts(made: Made, server: Server) -> None:
    before = len(server.requests)
    made.start(repeats=5)
    asked = server.requests[before:]
    assert {(body["seed"], body["temperature"]) for body in asked} == {(seed, 1.0) for seed in range(1, 6)}
    assert all(own[0] == own[1] and own[2:] == [0, 0, 0] for own in made.read_record().grades)
    assert {row[3] for row in made.read_lines()} == {"0"}
    (found,) = find_judge_intervals(made.files[:1], made.folder / "q", [parse_measure("judged@2")])
    assert found.means["judged@2"] == JudgeInterval(1.0, 1.0, 1.0)


def test_a_cascade_asks_a_third_prompt_only_where_two_grades_differ_widely(made: Made) -> None:
    made.start(cascade=True)
    record = made.read_record()
    assert [*record.prompts] == ["umbrela", "by_questions", "by_use"]
    assert {len(own) for own in record.grades} == {2, 3}
    for own, row in zip(record.grades, made.read_lines(), strict=True):
        assert (len(own) == 3) == (abs(own[0] - own[1]) >= 2)
        assert int(row[3]) == sorted(own)[(len(own) - 1) // 2]


@pytest.mark.slow
def test_agreement_with_other_judgments_is_printed_and_feeds_the_intervals(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made.start()
    other = made.folder / "other"
    other.write_text((made.folder / "q").read_text())
    capsys.readouterr()
    made.start(against=other)
    said = capsys.readouterr().out
    assert "Cohen's kappa: 1.0000\n" in said
    assert "Cohen's kappa of relevance (from grade 1): 1.0000\n" in said
    assert "Kendall's tau-b of 2 runs by nDCG@10: " in said
    made.start(against=other, json=True)
    result = orjson.loads(capsys.readouterr().out)["result"]
    assert (result["judgments"], result["graded_by"], result["agreement"]["kappa"]) == (6, "a_judge", 1.0)
    measures = [parse_measure("nDCG@2")]
    ordinary = evaluate_files(made.files, made.folder / "q", measures)
    for one, own in zip(ordinary, find_judge_intervals(made.files, made.folder / "q", measures), strict=True):
        interval = own.means["nDCG@2"]
        assert (interval.low, interval.high) == pytest.approx(find_bootstrap_interval(one.values["nDCG@2"]))
    with (made.folder / "q").open("a") as file:
        file.write("9 a_judge x 1\n")
    with pytest.raises(UserError, match="has changed since"):
        find_judge_intervals(made.files, made.folder / "q", measures)


def test_judgments_without_a_comparison_or_repeats_tell_no_noise(made: Made) -> None:
    made.start()
    with pytest.raises(UserError, match="tells no noise of the judge; expected judgments that keystone judge made"):
        find_judge_intervals(made.files, made.folder / "q", [parse_measure("nDCG@2")])
    with pytest.raises(UserError, match=r"other\.judge\.json: no such file"):
        find_judge_intervals(made.files, made.folder / "other", [parse_measure("nDCG@2")])


def test_a_failed_grade_is_no_judgment_and_is_asked_for_again(
    made: Made, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.model = lambda body: "none" if "Wasps" in str(body) else grade(body)
    made.start()
    server.model = grade
    assert "wasps" not in [row[2] for row in made.read_lines()]
    assert made.read_record().failed == 1
    assert "1: no grade for wasps: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"cascade": True, "repeats": 3}, "found --cascade and --repeats 3, expected one", id="both"),
        pytest.param({"set": ["index=i", "topics=t", "run_id=r"]}, "model: missing; expected a language", id="model"),
        pytest.param({"measure": ["nDGC"]}, "measure 'nDGC': unknown", id="measure"),
        pytest.param({"against": Path("q")}, "--out .*: is", id="out"),
        pytest.param({"against": Path("q.judge.json")}, "the record of --out .*: is", id="record"),
        pytest.param({"against": Path("gone")}, "gone: ", id="against"),
    ],
)
def test_an_impossible_command_is_an_error(made: Made, options: dict[str, Any], message: str) -> None:
    (made.folder / "q").touch()
    if "against" in options:
        options = {**options, "against": made.folder / options["against"]}
    with pytest.raises(UserError, match=message):
        made.start(**options)


@pytest.mark.slow
def test_evaluate_prints_and_writes_intervals_over_judges(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.start(repeats=3)
    qrels, json = made.folder / "q", made.folder / "report.json"
    capsys.readouterr()
    evaluate(made.files, qrels=[qrels], measure=["judged@2"], resample_judges=True, out=json, quiet=True)
    said = capsys.readouterr().out
    assert "With the judge's noise (mean, 95 % interval over topics and judges):\n" in said
    assert f"{made.files[1]} against {made.files[0]}: judged@2 -0.2500, -0.5000 to +0.0000\n" in said
    _, second = orjson.loads(json.read_bytes())["judge_intervals"]
    assert second["differences"]["judged@2"] == {"mean": -0.25, "low": -0.5, "high": 0.0}
