"""The judgments of use in the report: the means of each run, and the questions of each narrative."""

import re
from pathlib import Path

import pytest

from keystone.generation.grading.rate_sentences import QuestionUse, SentenceUse, Use
from keystone.runs.evaluation.use import UseRecord, name_use_file, write_use_records
from keystone.runs.report.html.write import write_report
from tests.support.runs.answered_runs import write_answers
from tests.support.runs.report_runs import HOSTILE

QUESTIONS = ("Why dance?", f"How? {HOSTILE}", "When?")
SENTENCES = ("Bees dance.", f"Ants walk. {HOSTILE}")
LEVELS = (QuestionUse("yes", True), QuestionUse("partly"), QuestionUse("no", True))


def make_record(topic_id: str, mark: int, lead: bool) -> UseRecord:
    use = Use(LEVELS, (SentenceUse(True, 1), SentenceUse(False, 0)), lead, mark)
    return UseRecord(topic_id, f"judge {HOSTILE}", QUESTIONS, SENTENCES, use)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two answer files on two narratives, of which the first was judged."""
    answers = {"1": SENTENCES, "2": SENTENCES}
    paths = [write_answers(tmp_path / f"{name}.jsonl", name, answers) for name in ("judged", "other")]
    write_use_records(name_use_file(paths[0]), [make_record("1", 2, True), make_record("2", 5, False)])
    return paths


def write(files: list[Path]) -> str:
    out = files[0].parent / "report.html"
    write_report(files, out)
    return out.read_text()


def test_the_table_has_the_means_of_the_runs_that_were_judged(files: list[Path]) -> None:
    (table,) = re.findall(r'aria-label="Use of the answers".*?</table>', write(files), re.DOTALL)
    heads = re.findall(r'<th scope="col">(.*?)</th>', table)
    assert heads == ["Run", "judged", "mark", "answered", "partly", "unanswered", "no use", "gaps admitted", "lead"]
    (row,) = re.findall(r"<tr>(?=<th scope=.row).*?</tr>", table)
    assert re.findall(r"<td>(.*?)</td>", row) == ["2 of 2", "3.50", "0.33", "0.33", "0.33", "0.50", "0.50", "0.50"]


def test_a_narrative_has_its_questions_with_their_judgments_and_the_useless_sentences(files: list[Path]) -> None:
    page = write(files)
    first, second = re.findall(r"<h3>Use</h3>(.*?)</details>", page, re.DOTALL)
    assert "mark 2 of 5; the answer opens with what was asked for." in first
    assert "mark 5 of 5; the answer does not open with what was asked for." in second
    levels = re.findall(r"<small>((?:not |partly )?answered.*?)</small>", first)
    assert levels == ["answered", "partly answered", "not answered, and the answer says so"]
    assert "Of no use, 1 of 2:" in first
    assert "Ants walk." in first.partition("Of no use")[2]
    assert "<script>document.title" not in page


def test_judgments_of_an_answer_that_has_changed_are_not_shown(files: list[Path]) -> None:
    write_answers(files[0], "judged", {"1": SENTENCES, "2": ["Bees dance."]})
    page = write(files)
    assert page.count("<h3>Use</h3>") == 1
    assert "<td>1 of 2</td><td>2.00</td>" in page


def test_a_report_without_judgments_says_nothing_of_use(files: list[Path]) -> None:
    name_use_file(files[0]).unlink()
    page = write(files)
    assert "Use of the answers" not in page
    assert "<h3>Use</h3>" not in page
