"""Judgments of use of answer files: what was asked, the files of judgments, and the measures from them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.rate_sentences import QuestionUse, SentenceUse, Use
from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.answers.evaluate_answers import evaluate_answer_files, judge_files
from keystone.runs.evaluation.answers.files import Asked, read_asked, read_narratives, read_questions
from keystone.runs.evaluation.compare import collect_cautions
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.use import (
    UseRecord,
    measure_agreement,
    measure_use,
    name_use_file,
    read_use_records,
    write_use_records,
)
from tests.support.models.scripted import Said, Scripted, run_with
from tests.support.runs.answered_runs import NARRATIVES, judge, write_answered_run, write_answers, write_lines

GOOD = {"1": ["Bees dance to tell.", "They dance in eights.", "Ants walk."], "2": ["The sources do not say it."]}
BAD = {"1": ["Ants walk."]}
CONFIG = ["run_id=r", "index=i", "topics=t", "model.name=a judge"]


def judge_all(
    paths: list[Path],
    say: Callable[[str], Said] = judge,
    questions: Path | None = None,
    topics: Path | None = None,
    references: Path | None = None,
) -> list[Evaluation]:
    model = Scripted(lambda request: say(request.messages[1][1]))
    asked = read_asked(paths, questions, topics)
    return judge_files(paths, asked, references, read_config(None, CONFIG), run_with(model))


def evaluate(paths: list[Path], *names: str, references: Path | None = None) -> list[Evaluation]:
    return evaluate_answer_files(paths, references, names, run_with(None))[0]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [write_answered_run(tmp_path / "good", GOOD), write_answered_run(tmp_path / "bad", BAD)]


def test_questions_are_texts_or_objects_and_a_narrative_without_any_is_one_question(runs: list[Path]) -> None:
    assert read_asked(runs) == {
        "1": Asked(NARRATIVES["1"], ("Why do bees dance?", "How do bees dance?")),
        "2": Asked(NARRATIVES["2"], (NARRATIVES["2"],)),
    }


def test_all_files_are_judged_by_the_questions_of_the_first_run_or_of_a_file(runs: list[Path], tmp_path: Path) -> None:
    other = write_lines(tmp_path / "q.jsonl", [{"id": "1", "questions": [{"text": "Dances?"}]}])
    answers = write_answers(tmp_path / "answers.jsonl", "r", GOOD)
    assert read_asked([answers, runs[1]]) == read_asked(runs)
    topics = tmp_path / "topics.jsonl"
    assert read_asked([answers, *runs], other) == {"1": Asked(NARRATIVES["1"], ("Dances?",))}
    assert read_asked([answers], other, topics) == {"1": Asked(NARRATIVES["1"], ("Dances?",))}
    assert read_asked([answers], runs[0]) == read_asked(runs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"topic_id": "1"}, "questions: expected a list, found None"),
        ({"topic_id": "1", "questions": "Why?"}, "questions: expected a list, found 'Why?'"),
        ({"topic_id": "1", "questions": ["Why?", " "]}, "questions[1]: expected a question"),
        ({"topic_id": "1", "questions": [{"form": "list"}]}, "questions[0]: expected a question"),
        ({"topic_id": "1", "questions": [3]}, "questions[0]: expected a question"),
        ({"questions": ["Why?"]}, "expected a topic id under id"),
    ],
)
def test_a_bad_line_of_questions_is_named(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        read_questions(write_lines(tmp_path / "q.jsonl", [line]))
    assert f"q.jsonl:1: {message}" in str(error.value)


def test_missing_questions_and_narratives_are_errors(runs: list[Path], tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "answers.jsonl", "r", GOOD)
    questions = write_lines(tmp_path / "q.jsonl", [{"id": "9", "questions": ["Why?"]}])
    with pytest.raises(UserError, match="found no questions: expected --questions, or a run directory"):
        read_asked([answers])
    with pytest.raises(UserError, match="found no narratives: expected --topics, or a run directory"):
        read_asked([answers], questions)
    with pytest.raises(UserError, match="has questions of no topic: they look like '9', those of the narratives"):
        read_asked(runs, questions, tmp_path / "topics.jsonl")
    (tmp_path / "topics.jsonl").unlink()
    with pytest.raises(UserError, match="expected the narratives of the run, or --topics"):
        read_narratives(runs)


def test_judgments_lie_beside_the_answers_with_all_texts(runs: list[Path], tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "answers.jsonl", "r", GOOD)
    good, bad, _ = judge_all([*runs, answers])
    written = [runs[0] / "use.jsonl", runs[1] / "use.jsonl", tmp_path / "answers.jsonl.use.jsonl"]
    assert (good.mean("mark"), good.mean("answered"), bad.mean("mark")) == (2, 0.5, 1)
    assert good.cautions == ()
    assert bad.cautions == (f"{runs[1]}: judged topics without an answer, which count 0: 1 of 2, such as 2",)
    first, second = map(json.loads, written[0].read_text().splitlines())
    assert first == {
        "topic_id": "1",
        "judge": "a judge",
        "mark": 3,
        "lead": True,
        "questions": [
            {"question": "Why do bees dance?", "answered": "yes", "open": False},
            {"question": "How do bees dance?", "answered": "yes", "open": False},
        ],
        "sentences": [
            {"text": "Bees dance to tell.", "use": True, "question": 1},
            {"text": "They dance in eights.", "use": True, "question": 1},
            {"text": "Ants walk.", "use": False, "question": 0},
        ],
    }
    assert second["questions"] == [{"question": NARRATIVES["2"], "answered": "no", "open": True}]
    assert json.loads(written[1].read_text().splitlines()[1])["sentences"] == []
    assert written[2].read_bytes() == written[0].read_bytes()


def test_evaluate_measures_judgments_where_they_are_and_the_form_everywhere(runs: list[Path]) -> None:
    judge_all(runs)
    good, bad = evaluate(runs)
    values = {name: [*map(float, own)] for name, own in good.values.items()}
    assert (values["mark"], values["answered"], values["unanswered"]) == ([3, 1], [1, 0], [0, 1])
    assert (values["partly"], values["lead"]) == ([0, 0], [1, 0])
    assert values["no use"] == pytest.approx([1 / 3, 1])
    assert math.isnan(values["gaps admitted"][0])
    assert values["gaps admitted"][1] == 1
    assert (values["gaps"], values["opening"]) == ([0, 1], [1, 0])
    assert (values["pointing"], values["repeated"]) == ([1, 0], [0, 0])
    assert "agreement" not in values
    assert bad.values["answered"].tolist() == [0, 0]
    assert math.isnan(bad.values["no use"][1])


def test_references_add_agreement(runs: list[Path], tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", [{"id": "1", "references": ["Bees dance to tell the way."]}])
    assert judge_all(runs, references=references)[0].mean("agreement") == 0.5
    (good, _) = evaluate(runs, "agreement")
    assert good.values["agreement"][0] == 0.5
    assert math.isnan(good.values["agreement"][1])
    assert "answered" in evaluate(runs, references=references)[0].values


def test_a_changed_answer_is_no_longer_judged(runs: list[Path]) -> None:
    judge_all(runs)
    write_answers(runs[0] / "rag_output_trec_rag_2025.jsonl", "good", {**GOOD, "1": ["Bees dance."]})
    good, bad = evaluate(runs, "use")
    assert [*map(math.isnan, good.values["mark"])] == [True, False]
    assert f"{runs[0]}: topics whose answer now has no judgment of use: 1 of 2, such as 1" in good.cautions
    assert not any("no judgment" in caution for caution in bad.cautions)


def test_different_questions_are_a_caution(runs: list[Path], tmp_path: Path) -> None:
    judge_all(runs[:1])
    judge_all(runs[1:], questions=write_lines(tmp_path / "q.jsonl", [{"id": "1", "questions": ["Dances?"]}]),
              topics=tmp_path / "topics.jsonl")  # fmt: skip
    expected = "judged by other questions than another file: 1 topic, such as 1"
    assert expected in collect_cautions(evaluate(runs, "use"))


@pytest.mark.parametrize("name", ["use", "agreement"])
def test_a_measure_without_judgments_is_an_error(runs: list[Path], name: str) -> None:
    if name == "agreement":
        judge_all(runs)
    with pytest.raises(UserError, match=f"measure '{name}': found no judgment for it; `keystone judge use` makes"):
        evaluate(runs, name)


def test_a_failure_is_a_warning_and_nothing_but_failures_is_an_error(runs: list[Path]) -> None:
    (found,) = judge_all(runs[:1], lambda user: judge(user) if "bees" in user else "Good.")
    assert [*(read_use_records(runs[0]) or {})] == ["1"]
    assert [*map(math.isnan, found.values["mark"])] == [False, True]
    assert any(caution.startswith(f"{runs[0]}: 2: no judgment: ") for caution in found.cautions)
    name_use_file(runs[0]).unlink()
    with pytest.raises(UserError, match="good: 1: no judgment: "):
        judge_all(runs[:1], lambda _: "Good.")
    assert not name_use_file(runs[0]).exists()


def test_a_judgment_that_stands_is_kept_and_asked_no_more(runs: list[Path], tmp_path: Path) -> None:
    judge_all(runs[:1], lambda user: judge(user) if "bees" in user else "Good.")
    judge_all(runs)
    file = name_use_file(runs[1])
    assert [*(read_use_records(runs[0]) or {})] == ["1", "2"]
    file.write_text(corrected := file.read_text().replace('"mark":1', '"mark":2', 1))

    def refuse(user: str) -> str:
        raise AssertionError(user)

    one = write_lines(tmp_path / "one.jsonl", [{"id": "1", "questions": ["Why do bees dance?", "How do bees dance?"]}])
    judge_all(runs, refuse)
    judge_all(runs, refuse, questions=one, topics=tmp_path / "topics.jsonl")
    assert file.read_text() == corrected
    assert [one.values["mark"][0] for one in evaluate(runs, "use")] == [3, 2]
    others = write_lines(
        tmp_path / "two.jsonl", [{"id": "1", "questions": ["Dances?"]}, {"id": "2", "questions": ["?"]}]
    )
    asked: dict[str, Any] = {"questions": others, "topics": tmp_path / "topics.jsonl"}
    found = judge_all(runs[1:], lambda user: "Good." if "Ants" in user else judge(user), **asked)[0]
    assert file.read_text().splitlines()[0] == corrected.splitlines()[0]
    assert any(caution.startswith(f"{runs[1]}: 1: no judgment: ") for caution in found.cautions)
    assert f"{runs[1]}: 1 judgment by another judge or other questions replaced" in found.cautions
    write_answers(runs[1] / "rag_output_trec_rag_2025.jsonl", "bad", {"1": ["Bees dance."]})
    judge_all(runs)
    assert file.read_text().splitlines()[0] != corrected.splitlines()[0]


def test_a_file_of_other_topics_is_an_error(runs: list[Path], tmp_path: Path) -> None:
    other = write_answers(tmp_path / "answers.jsonl", "r", {"9": ["Bees dance."]})
    with pytest.raises(UserError, match="none of its topics has questions: they look like '9'"):
        judge_all([runs[0], other])


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"topic_id": "1", "judge": "m", "questions": [], "sentences": [], "lead": true, "mark": 3}',
        '{"topic_id": "1", "judge": "m", "questions": [{"question": "?", "answered": "yes"}], "sentences": [], '
        '"lead": true, "mark": 6}',
        '{"topic_id": "1", "judge": "m", "questions": ["ab"], "sentences": [], "lead": true, "mark": 3}',
        '{"topic_id": "1", "judge": "m", "questions": [{"answered": "yes"}], "sentences": [], "lead": true, "mark": 3}',
        '{"topic_id": "1", "judge": "m", "questions": [{"question": "?", "answered": "well"}], "sentences": [], '
        '"lead": true, "mark": 3}',
        '{"topic_id": "1", "judge": "m", "questions": 1, "sentences": [], "lead": true, "mark": 3}',
    ],
)
def test_a_damaged_file_of_judgments_is_named(runs: list[Path], line: str) -> None:
    name_use_file(runs[0]).write_text(f"{line}\n")
    with pytest.raises(UserError, match=r"use\.jsonl:1: not a judgment of use, as keystone judge use makes them"):
        evaluate(runs)


QUESTIONS = st.builds(
    QuestionUse,
    st.sampled_from(["yes", "partly", "no"]),
    st.booleans(),
    st.sampled_from(["yes", "partly", "no", "unknown", None]),
)
USES = st.builds(
    Use,
    st.lists(QUESTIONS, min_size=1, max_size=5).map(tuple),
    st.lists(st.builds(SentenceUse, st.booleans(), st.integers(0, 5)), max_size=5).map(tuple),
    st.booleans(),
    st.integers(1, 5),
)


@given(USES)
def test_shares_are_between_0_and_1_and_those_of_the_three_levels_add_up_to_1(use: Use) -> None:
    mark, answered, partly, unanswered, *rest = measure_use(use)
    assert 1 <= mark <= 5
    assert answered + partly + unanswered == pytest.approx(1)
    assert all(math.isnan(value) or 0 <= value <= 1 for value in (answered, partly, unanswered, *rest))
    assert math.isnan(agreement := measure_agreement(use)) or 0 <= agreement <= 1


@given(USES)
def test_judgments_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, use: Use) -> None:
    path = tmp_path_factory.getbasetemp() / "answers.jsonl"
    record = UseRecord(
        "1", "m", tuple(f"{n}?" for n in range(len(use.questions))), ("Bees.",) * len(use.sentences), use
    )
    write_use_records(name_use_file(path), [record])
    assert read_use_records(path) == {"1": record}
