"""Evaluation of answer files: the whole way from files to numbers, hostile files, and judgments by a model."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from keystone.generation.llm.model import Model
from keystone.generation.types import Evidence, Failure, Request
from keystone.indexing.errors import UserError
from keystone.indexing.types import Span
from keystone.runs.evaluation.answers.evaluate_answers import (
    Comparison,
    compute_first_slot_rate,
    compute_wilson_interval,
    evaluate_answer_files,
    report_comparison,
)
from keystone.runs.evaluation.answers.files import read_references, read_submission
from keystone.runs.evaluation.compare import collect_cautions
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.pipeline.file_names import EVIDENCE
from tests.support.models.scripted import Said, Scripted, run_with
from tests.support.runs.answer_files import BROKEN, FILE, make_line, make_sentences

BEES: dict[str, Any] = {
    "id": "1",
    "question": "Why do bees dance?",
    "references": ["Bees dance to show the way.", "To find food"],
    "answers": [["way", "path"], ["sun"]],
    "keywords": ["dance way"],
    "gold_ids": ["d1", "d2"],
}


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def write_answers(path: Path, answers: dict[str, list[tuple[str, list[str]]]]) -> Path:
    """Write an answer file whose sentences are texts with the ids that they cite."""
    records = [
        {
            "metadata": {"team_id": "t", "run_id": "r", "narrative_id": topic},
            "references": sorted({one for _, cited in sentences for one in cited}),
            "answer": [{"text": text, "citations": cited} for text, cited in sentences],
        }
        for topic, sentences in answers.items()
    ]
    return write_lines(path, *records)


def write_run(folder: Path, answers: dict[str, list[tuple[str, list[str]]]], evidence: dict[str, list[str]]) -> Path:
    """Write a run directory whose evidence are texts, each from the document d1."""
    folder.mkdir()
    write_answers(folder / "rag_output_trec_rag_2025.jsonl", answers)
    records = [
        {"topic_id": topic, "items": [asdict(Evidence(Span("d1", 0, 1), text, 1.0, topic)) for text in texts]}
        for topic, texts in evidence.items()
    ]
    write_lines(folder / EVIDENCE, *records)
    return folder


def evaluate(
    paths: list[Path], references: Path, *names: str, model: Model | None = None
) -> tuple[list[Evaluation], list[Comparison]]:
    return evaluate_answer_files(paths, references, names, run_with(model))


def get_means(evaluation: Evaluation) -> dict[str, float]:
    return {name: evaluation.mean(name) for name in evaluation.values}


def test_a_run_directory_gives_all_measures_of_prose(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "references.jsonl", BEES)
    answers = {"1": [("Bees dance.", ["d1#3_4", "d1#5"]), ("The way!", ["d3"]), ("It is so.", [])]}
    run = write_run(tmp_path / "run", answers, {"1": ["bees show the", "way"]})
    (evaluation,), comparisons = evaluate([run], references)
    assert comparisons == []
    assert get_means(evaluation) == pytest.approx(
        {
            # bees dance the way it is so; bees dance to show the way: 4 of 7 and 4 of 6
            "ROUGE-L P": 4 / 7,
            "ROUGE-L R": 4 / 6,
            "ROUGE-L F1": 8 / 13,
            "context P": 1,
            "context R": 4 / 6,
            "context F1": 8 / 10,
            "EM": 1 / 2,
            "hit": 0,
            # without the article: 3 common of 6 and 5 tokens
            "F1*": 6 / 11,
            # two segments of the gold document d1 are one id
            "ids P": 1 / 2,
            "ids R": 1 / 2,
            "ids F1": 1 / 2,
            "documents P": 1,
            "documents R": 1 / 2,
            "documents F1": 2 / 3,
            "words": 7,
            "cited": 2 / 3,
            "evidence tokens": 4 + 1,
        }
    )
    assert str(evaluation.counts) == "1 of 1 judged topics answered"


def test_files_are_compared_topic_by_topic_and_missing_topics_count_0(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", *({"id": str(n), "references": [f"w{n} x"]} for n in range(4)))
    whole = write_answers(tmp_path / "a.jsonl", {str(n): [(f"w{n} x", [])] for n in range(4)})
    part = write_answers(tmp_path / "b.jsonl", {"0": [("w0 x", [])], "1": [("w1", [])], "9": [("x", [])]})
    evaluations, _ = evaluate([whole, part], references)
    assert [list(one.values["ROUGE-L R"]) for one in evaluations] == [[1, 1, 1, 1], [1, 0.5, 0, 0]]
    assert [one.mean("words") for one in evaluations] == [2, 0.75]
    assert [str(one.counts) for one in evaluations] == [f"{n} of 4 judged topics answered" for n in (4, 2)]
    cautions = collect_cautions(evaluations)
    assert f"{part}: judged topics without an answer, which count 0: 2 of 4, such as 2" in cautions
    assert f"{part}: topics without a reference, which are left out: 1 of 3, such as 9" in cautions


def test_a_topic_without_the_fields_of_a_measure_is_left_out_of_it(tmp_path: Path) -> None:
    references = write_lines(
        tmp_path / "r.jsonl", {"id": 1, "answers": [["x"]]}, {"id": "2", "references": ["x"]}, {"id": "3", "title": "?"}
    )
    file = write_answers(tmp_path / "a.jsonl", {n: [("x", [])] for n in "123"})
    (evaluation, _), _ = evaluate([file, file], references)
    assert evaluation.mean("EM") == evaluation.mean("ROUGE-L F1") == 1
    assert list(map(math.isnan, evaluation.values["EM"])) == [False, True, True]
    assert "EM, hit: topics without answers, which are left out: 2 of 3, such as 2" in evaluation.cautions
    assert "F1*" not in evaluation.values


def test_a_file_without_evidence_has_no_measures_of_context(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", BEES)
    run = write_run(tmp_path / "run", {"1": [("Bees.", [])]}, {})
    file = write_answers(tmp_path / "a.jsonl", {"1": [("Bees.", [])]})
    (of_run, of_file), _ = evaluate([run, file], references)
    assert (of_run.mean("context F1"), of_run.mean("evidence tokens")) == (0, 0)
    assert math.isnan(of_file.mean("context F1"))
    assert math.isnan(of_file.mean("evidence tokens"))
    (alone,), _ = evaluate([file], references)
    assert {"context F1", "evidence tokens"}.isdisjoint(alone.values)


def test_passages_are_measured_in_the_order_of_the_evidence(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", BEES)
    run = write_run(tmp_path / "run", {"1": [("Bees.", [])]}, {"1": ["no", "a path and the sun"]})
    (evaluation,), _ = evaluate([run], references, "P-EM")
    values = get_means(evaluation)
    assert (values["P-EM"], values["P-hit"], values["P-score"]) == (1, 1, 1 / 4)


def test_named_measures_are_the_only_ones_beside_sizes(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", BEES)
    file = write_answers(tmp_path / "a.jsonl", {"1": [("Path, moon", [])]})
    (evaluation,), _ = evaluate([file], references, "F1-5", "EM", "F1-5")
    assert list(evaluation.values) == ["recall-5", "F1-5", "EM", "hit", "words", "cited"]
    assert get_means(evaluation)["F1-5"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("track", ["rag24", "rag25", "rag26", "responses", "ragtime25", "ragtime26", "biogen"])
def test_answers_of_every_track_are_read(tmp_path: Path, track: str) -> None:
    (tmp_path / "a.jsonl").write_text(make_line(track) + "\n")
    (answer,) = read_submission(tmp_path / "a.jsonl").answers.values()
    assert (answer.topic_id, answer.sentences[0].text, len(answer.sentences[0].citations)) == ("1", "Because.", 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"references": ["x"]},
            "expected a topic id under id, _id, qid, topic_id, narrative_id, request_id, query_id, number",
        ),
        ({"id": ["x"]}, "id: expected an id, found"),
        ({"id": "1", "question": 1}, "question: expected a text, found 1"),
        ({"id": "1", "references": "x"}, "references: expected a list of texts, found 'x'"),
        ({"id": "1", "references": []}, "references: expected a list of texts, found []"),
        ({"id": "1", "references": [" "]}, "references: expected a list of texts"),
        ({"id": "1", "answers": ["x", "y"]}, "answers: expected a list of lists, each with the spellings of one short"),
        ({"id": "1", "answers": [["x"], []]}, "answers[1]: expected a list of texts, found []"),
        ({"id": "1", "keywords": "x"}, "keywords: expected a list of texts, found 'x'"),
        ({"id": "1", "gold_ids": [1]}, "gold_ids: expected a list of texts, found [1]"),
        ({"id": "0"}, "topic '0' occurs more than once"),
        (["x"], "expected a JSON object"),
    ],
)
def test_a_bad_reference_is_named_with_file_line_and_key(tmp_path: Path, line: Any, message: str) -> None:
    path = write_lines(tmp_path / "r.jsonl", {"id": "0", "references": ["x"]}, line)
    with pytest.raises(UserError) as caught:
        read_references(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"topic_id": "1"}, "items: expected a list, found None"),
        ({"topic_id": "1", "items": [1]}, "items[0].text: expected a text, found None"),
        ({"topic_id": "1", "items": [{"text": "x"}]}, "items[0].span.doc_id: expected an id, found None"),
        ({"items": []}, "expected a topic id under topic_id, found the keys items"),
        ({"topic_id": "0", "items": []}, "topic '0' occurs more than once"),
    ],
)
def test_bad_evidence_is_named_with_file_line_and_key(tmp_path: Path, line: Any, message: str) -> None:
    run = write_run(tmp_path / "run", {"0": []}, {})
    path = write_lines(run / "evidence.jsonl", {"topic_id": "0", "items": []}, line)
    with pytest.raises(UserError) as caught:
        read_submission(run)
    assert str(caught.value) == f"{path}:2: {message}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILE | BROKEN)
def test_any_file_of_answers_is_read_or_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    refusals = []
    for read in (read_submission, read_references):
        try:
            read(path)
        except UserError as error:
            refusals.append(str(error))
    assert [message for message in refusals if not message.startswith(f"{path}")] == []


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    references = write_lines(tmp_path / "r.jsonl", {"id": "1", "references": ["x"]})
    file = write_answers(tmp_path / "a.jsonl", {"1": [("x", [])]})
    other = write_answers(tmp_path / "b.jsonl", {"01": [("x", [])]})
    bare = write_lines(tmp_path / "bare.jsonl", {"id": "1"})
    empty = write_lines(tmp_path / "empty.jsonl")
    (tmp_path / "folder").mkdir()
    (tmp_path / "twice.jsonl").write_text(file.read_text() * 2)
    for paths, known, names, message in (
        ([file], references, ["nDCG@10"], "measure 'nDCG@10': unknown; expected one of ROUGE-L, context, EM, P-EM, F"),
        ([file], references, ["EM"], "measure 'EM': no line of the references has answers"),
        ([file], references, ["F1*"], "measure 'F1*': no line of the references has references and keywords"),
        ([file], references, ["context"], "measure 'context': expected a run directory with evidence.jsonl"),
        ([file], references, ["pairwise"], "measure 'pairwise': found one answer file, expected two or more"),
        ([file], references, ["LR"], "measure 'LR': needs a language model"),
        ([other], references, [], "none of its topics has references: its topics look like '01', those of the"),
        ([file], bare, [], "no line has the fields of a measure: references, answers, keywords, gold_ids"),
        ([file], empty, [], "holds no line, expected the references of a topic on each line"),
        ([empty], references, [], "is empty, expected answers"),
        ([references], references, [], "the keys id, references are those of no track"),
        ([tmp_path / "folder"], references, [], "expected one answer file of a track"),
        ([tmp_path / "twice.jsonl"], references, [], "topic '1' is answered more than once"),
        ([tmp_path / "none.jsonl"], references, [], "none.jsonl: cannot be read: No such file"),
    ):
        with pytest.raises(UserError) as caught:
            evaluate(paths, known, *names)
        assert message in str(caught.value)
    with pytest.raises(UserError, match="measure 'LR': no line has question and references"):
        evaluate([file], references, "LR", model=Scripted(lambda _: "Yes"))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(make_line(answer=make_sentences(text=1)))
    with pytest.raises(UserError, match=r"bad.jsonl:1: answer\[0\].text: expected text, found 1"):
        evaluate([bad], references)


def make_topics(tmp_path: Path, topics: int) -> Path:
    return write_lines(
        tmp_path / "r.jsonl", *({"id": str(n), "question": f"Why {n}?", "references": [f"w{n}"]} for n in range(topics))
    )


def test_ratings_are_columns_and_failures_are_left_out(tmp_path: Path) -> None:
    references = make_topics(tmp_path, 4)
    file = write_answers(tmp_path / "a.jsonl", {str(n): [(f"answer {n}", [])] for n in range(3)})

    def say(request: Request) -> Said:
        text = request.messages[1][1]
        lenient = "partially" in request.messages[0][1]
        if "answer 0" in text:
            return "Yes"
        return Failure("gone") if "answer 1" in text else "Yes, partially" if lenient else "No"

    model = Scripted(say)
    (evaluation,), _ = evaluate([file], references, "LR", model=model)
    assert list(evaluation.values["LR-1"]) == pytest.approx([1, math.nan, 0, 0], nan_ok=True)
    assert list(evaluation.values["LR-2"]) == pytest.approx([1, math.nan, 1, 0], nan_ok=True)
    assert evaluation.mean("LR-2") == pytest.approx(2 / 3)
    assert f"{file}: answers without a rating, which are left out: 1, such as 1: gone" in evaluation.cautions
    assert len(model.requests) == 6  # the missing answer is rated without asking


def test_a_model_that_always_prefers_the_first_slot_makes_ties(tmp_path: Path) -> None:
    references = make_topics(tmp_path, 3)
    files = [write_answers(tmp_path / f"{k}.jsonl", {str(n): [(f"{k} {n}", [])] for n in range(3)}) for k in "abc"]
    model = Scripted(lambda _: '{"better": "A"}')
    _, comparisons = evaluate(files, references, "pairwise", model=model)
    assert [(one.first, one.second) for one in comparisons] == [(str(files[0]), str(files[k])) for k in (1, 2)]
    for comparison in comparisons:
        assert comparison.counts == {"win": 0, "tie": 3, "loss": 0}
        assert comparison.first_slot_rate == 1
    assert len(model.requests) == 2 * 3 * 2


def test_a_fair_model_finds_wins_and_a_missing_answer_loses(tmp_path: Path) -> None:
    references = make_topics(tmp_path, 5)
    one = write_answers(tmp_path / "a.jsonl", {n: [("good", [])] for n in "0123"})
    other = write_answers(tmp_path / "b.jsonl", {n: [("bad", [])] for n in "012"})

    def say(request: Request) -> Said:
        text = request.messages[1][1]
        if "Why 2?" in text:
            return "I cannot say."
        return '{"better": "A"}' if text.index("good") < text.index("bad") else '{"better": "B"}'

    model = Scripted(say)
    _, (comparison,) = evaluate([one, other], references, "pairwise", model=model)
    assert comparison.outcomes == {"0": 1, "1": 1, "3": 1, "4": 0.5}
    assert comparison.unjudged == ("2",)
    assert comparison.first_slot_rate == 0.5
    _, (turned,) = evaluate([other, one], references, "pairwise", model=model)
    assert turned.outcomes == {"0": 0, "1": 0, "3": 0, "4": 0.5}


def test_ratings_and_comparisons_are_made_together(tmp_path: Path) -> None:
    references = make_topics(tmp_path, 1)
    file = write_answers(tmp_path / "a.jsonl", {"0": [("x", [])]})
    model = Scripted(lambda request: "Yes" if request.purpose == "rate_answer" else '{"better": "tie"}')
    evaluations, comparisons = evaluate([file, file], references, "pairwise", "LR", model=model)
    assert [one.mean("LR-1") for one in evaluations] == [1, 1]
    assert [one.counts["tie"] for one in comparisons] == [1]


@given(st.integers(1, 10_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_equals_that_of_scipy(counts: tuple[int, int]) -> None:
    expected = binomtest(*counts).proportion_ci(method="wilson")
    assert compute_wilson_interval(*counts) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_no_trial_is_everything() -> None:
    assert compute_wilson_interval(0, 0) == (0, 1)


def test_the_interval_of_the_papers_win_rate() -> None:
    """DiscoRAG, table 4: 68 wins of 111."""
    low, high = compute_wilson_interval(68, 111)
    assert (round(low, 2), round(high, 2)) == (0.52, 0.70)


def test_the_first_slot_rate_leaves_out_ties() -> None:
    assert compute_first_slot_rate(["A", "B", "tie", "A"]) == pytest.approx(2 / 3)
    assert math.isnan(compute_first_slot_rate(["tie"]))


def test_a_comparison_says_its_counts_and_who_was_not_judged() -> None:
    outcomes = {"1": 1.0, "2": 0.5, "3": 0.0, "4": 1.0}
    comparison = Comparison("a", "b", outcomes, 0.5, ("5",))
    assert str(comparison) == (
        "a against b: 2 wins (15.0% to 85.0%), 1 tie (4.6% to 69.9%), 1 loss (4.6% to 69.9%) of 4 topics; "
        "first slot 50.0%; no verdict on 1 topic, such as 5"
    )
    assert report_comparison(comparison)["counts"] == {"win": 2, "tie": 1, "loss": 1}
    assert "0 topics; first slot -" in str(Comparison("a", "b", {}, math.nan))
