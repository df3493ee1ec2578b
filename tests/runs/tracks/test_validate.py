"""Judging of submission files: each violation is reported with its line, for any bytes."""

import bz2
import gzip
import json
import re
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.retrieval.types import Topic
from keystone.runs.python.files import validate as keystone_validate
from keystone.runs.track_rules import TRACKS, Track
from keystone.runs.tracks.check_answers import describe_difference
from keystone.runs.tracks.validate import check_runs, detect_track, judge, summarise_violations, validate
from keystone.runs.tracks.violations import MOST_SHOWN_CHARACTERS, Violation, shorten_value
from keystone.runs.trec.topics import read_topics
from tests.support.indexes.small_corpus import NARRATIVES
from tests.support.places import SHARED
from tests.support.runs.answer_files import (
    ANSWERED_TRACKS,
    FILE,
    HOW,
    IDS,
    NEWS,
    WHY,
    A,
    B,
    make_line,
    make_record,
    make_sentences,
)
from tests.support.runs.command_line import keystone

MATERIAL = SHARED / "trec-rag-material"


ANSWER_FAULTS = [
    pytest.param("rag25", "{", "not JSON", id="not JSON"),
    pytest.param("rag25", "[" * 3000, "not JSON", id="nested too deep"),
    pytest.param("rag25", "[1]", "expected an object, found [1]", id="not an object"),
    pytest.param("rag25", make_line(metadata=7), "metadata: expected an object, found 7", id="a number as metadata"),
    pytest.param(
        "rag25", make_line(metadata__team_id=""), "metadata.team_id: expected text, found ''", id="an empty team"
    ),
    pytest.param("rag25", make_line(metadata__team_id=None), "metadata.team_id: missing", id="no team"),
    pytest.param(
        "rag25",
        make_line(metadata__type=None),
        "metadata.type: missing; keystone convert --to rag25 --type adds it",
        id="no type",
    ),
    pytest.param("rag25", make_line(metadata__narrative=None), "metadata.narrative: missing", id="no narrative"),
    pytest.param("rag25", make_line(metadata__narrative_id="9"), "topic '9' is not in the topics file", id="topic"),
    pytest.param(
        "rag25", make_line(metadata__narrative_id=1), "narrative_id: expected text, found the number 1", id="a number"
    ),
    pytest.param("rag25", make_line(metadata__narrative="why?"), "differs from the topics file", id="narrative"),
    pytest.param("rag25", make_line(metadata__type="magic"), "one of automatic, manual, found 'magic'", id="type"),
    pytest.param("rag25", make_line(metadata__run_id="s"), "run_id: expected 'r' on every line, found 's'", id="runs"),
    pytest.param("rag25", make_line(), "topic '1' is already answered on line 1", id="a topic twice"),
    pytest.param("rag25", make_line(references="a"), "references: expected a list of ids, found 'a'", id="references"),
    pytest.param(
        "rag25", make_line(references=[A, 7]), "references[1]: expected text, found the number 7", id="number"
    ),
    pytest.param(
        "rag25",
        make_line(references=[A, "b c"]),
        "references[1]: expected an id without space, found 'b c'",
        id="space",
    ),
    pytest.param("rag25", make_line(references=["a", "a"]), "listed more than once", id="a reference twice"),
    pytest.param(
        "rag25", make_line(references=[*map(str, range(101))]), "expected at most 100, found 101", id="101 references"
    ),
    pytest.param(
        "rag24", make_line("rag24", references=[*map(str, range(21))]), "at most 20, found 21", id="21 references"
    ),
    pytest.param("rag25", make_line(answer={}), "answer: expected a list, found {}", id="answer not a list"),
    pytest.param(
        "rag25", make_line(answer=["x"]), "answer[0]: expected an object, found 'x'", id="text instead of a sentence"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(text=" ")), "answer[0].text: expected text, found ' '", id="no text"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(text="w " * 401)), "at most 400 words, found 401", id="too many words"
    ),
    pytest.param(
        "rag26", make_line("rag26", answer=make_sentences(text="w " * 1025)), "at most 1024 words", id="1025 words"
    ),
    pytest.param(
        "biogen", make_line("biogen", responses=make_sentences(text="w " * 251)), "at most 250 words", id="251 words"
    ),
    *(
        pytest.param(
            "biogen",
            make_line("biogen", references=None, responses=make_sentences(citations=[name])),
            f"{name!r}: not an id of the track's corpus",
            id=f"{name} as a PMID",
        )
        for name in ("PMC12345", "PMID:1", "007", "123456789")
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=None)), "citations: expected a list", id="no citations"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=[2])), "citations: 2 names no reference", id="outside"
    ),
    pytest.param(
        "rag25",
        make_line(references=["10", "20"], answer=make_sentences(citations=[0, 20])),
        "citations: 20 names no reference",
        id="a number that a reference has",
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=[-1])), "citations: -1 names no reference", id="negative"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=[True])), "a position or an id, found True", id="a boolean"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=[0.0])), "a position or an id, found 0.0", id="a fraction"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations=["c"])), "'c' names no reference", id="an unknown segment"
    ),
    pytest.param(
        "rag25", make_line(answer=make_sentences(citations={A: 1})), "expected a list, found an object", id="an object"
    ),
    pytest.param(
        "rag25",
        make_line(answer=make_sentences(citations=[A])),
        "expected positions as on line 1, found ids",
        id="ids after positions",
    ),
    pytest.param(
        "rag24",
        make_line("rag24", answer=make_sentences(citations=[A])),
        "expected positions, found 'msm",
        id="ids where only positions are allowed",
    ),
    pytest.param(
        "rag26",
        make_line("rag26", answer=make_sentences(citations=[0, 1, 0, 1])),
        "at most 3, found 4",
        id="four citations",
    ),
    pytest.param(
        "rag26",
        make_line("rag26", answer=[*make_sentences(), *make_sentences(citations=["shard_00001_1"])]),
        "citations: expected one form in all sentences",
        id="positions and ids in one answer",
    ),
    pytest.param(
        "ragtime26",
        make_line("ragtime26", responses=[*make_sentences(citations={NEWS[0]: 1}), *make_sentences(citations=[])]),
        "citations: expected one form in all sentences",
        id="scores, and a list in one answer",
    ),
    pytest.param(
        "ragtime25",
        make_line("ragtime25", references=None),
        "references: expected a list of ids, found None",
        id="no references in 2025",
    ),
    pytest.param(
        "ragtime25",
        make_line("ragtime25", responses=make_sentences(citations=[NEWS[0]])),
        "found 1 that no sentence cites",
        id="an uncited story in 2025",
    ),
    pytest.param(
        "rag26",
        make_line("rag26", metadata__task="generation"),
        "metadata.task: found 'generation'; the organisers' program expects: Input should be 'multilingual', 'english'",
        id="a value that the organisers' program cannot read",
    ),
    pytest.param(
        "rag26",
        make_line("rag26", responses=make_sentences()),
        "found both answer and responses",
        id="two lists of sentences",
    ),
    pytest.param(
        "ragtime26",
        make_line("ragtime26", metadata__narrative_id=7),
        "metadata.narrative_id: expected '1' as elsewhere, found 7",
        id="two topics",
    ),
    pytest.param(
        "rag26",
        make_line("rag26", metadata__run_desc=None),
        "metadata.run_desc: missing; keystone convert --to rag26 --run-desc adds it",
        id="run_desc",
    ),
    pytest.param("rag26", make_line("rag26", metadata__narrative=None), "metadata.narrative: missing", id="narrative"),
    pytest.param("rag24", make_line("rag24", topic="why?"), "topic: differs from the topics file", id="topic's text"),
    pytest.param(
        "rag24", make_line("rag24", response_length=None), "response_length: missing; expected 1", id="length"
    ),
    pytest.param(
        "rag24", make_line("rag24", response_length="1"), "response_length: expected a number", id="length as text"
    ),
    pytest.param(
        "biogen",
        make_line("biogen", responses=make_sentences(citations=["7"])),
        "found 1 that no sentence cites",
        id="uncited",
    ),
    pytest.param(
        "responses", make_line("responses", responses=make_sentences()), "ids or scores, found 0", id="a position"
    ),
    pytest.param(
        "responses",
        make_line("responses", responses=make_sentences(citations={A: "high"})),
        "a number as score",
        id="a score",
    ),
]


@pytest.mark.parametrize(("track", "line", "message"), ANSWER_FAULTS)
def test_a_violation_of_an_answer_file_is_reported_with_its_line(
    tmp_path: Path, track: str, line: str, message: str
) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(f"{json.dumps(make_record(track))}\n{line}\n")
    found = validate(path, TRACKS[track], [WHY])
    assert any(v.line == 2 and v.severity == "error" and message in v.message for v in found), found


@pytest.mark.parametrize(
    ("track", "line"),
    [
        pytest.param("rag25", make_line(answer=make_sentences(citations=[0, 1])), id="positions"),
        pytest.param("rag25", make_line(answer=make_sentences(citations=[A, B])), id="ids"),
        pytest.param("rag25", make_line(answer=make_sentences(citations=[])), id="no citation"),
        pytest.param(
            "rag26",
            make_line("rag26", answer=[*make_sentences(), *make_sentences(citations=[])]),
            id="positions, and no citation",
        ),
        pytest.param("rag26", make_line("rag26", metadata__run_id="-A.b_9" + 14 * "x"), id="a run id of 20 characters"),
        pytest.param("ragtime25", make_line("ragtime25", metadata__run_id=25 * "x"), id="a run id of 25 characters"),
        pytest.param("biogen", make_line("biogen", references=None), id="ids that are listed nowhere"),
        pytest.param(
            "rag26", make_line("rag26", metadata__prompt={"x": [1]}, more=1), id="keys that the track does not know"
        ),
        pytest.param(
            "rag26",
            make_line("rag26", answer=make_sentences(text="\ufdfa " * 1000, citations=[])),
            id="words counted without NFKC",
        ),
        pytest.param(
            "responses", make_line("responses", responses=make_sentences(citations={A: 0.5, B: 1})), id="scores"
        ),
        pytest.param(
            "responses",
            make_line("responses", responses=make_sentences(text="w " * 9999, citations=[A])),
            id="no limit",
        ),
        *(pytest.param(name, json.dumps(make_record(name)), id=name) for name in ANSWERED_TRACKS),
    ],
)
def test_an_answer_that_a_track_allows_has_no_violation(tmp_path: Path, track: str, line: str) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(line)
    assert validate(path, TRACKS[track], [WHY]) == []


@pytest.mark.parametrize(
    ("track", "line", "message"),
    [
        ("rag25", make_line(answer=[]), "answer: empty"),
        (
            "rag25",
            make_line(answer=make_sentences(citations=[0, 0])),
            "0 names a reference that the sentence cites already",
        ),
        ("rag24", make_line("rag24", response_length=9), "response_length: expected 1, found 9"),
        ("rag25", " ", "blank line"),
    ],
)
def test_a_violation_that_organisers_accept_is_a_warning(tmp_path: Path, track: str, line: str, message: str) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(f"{json.dumps(make_record(track, HOW))}\n{line}")
    found = [v for v in validate(path, TRACKS[track], [WHY, HOW]) if v.line]
    assert [(v.line, v.severity, message in v.message) for v in found] == [(2, "warning", True)]


def test_a_missing_answer_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(json.dumps(make_record("rag25")))
    assert validate(path, TRACKS["rag25"], [WHY, HOW]) == [
        Violation(0, "error", "missing topic", "topic '2': no answer")
    ]


@pytest.mark.parametrize(
    ("lines", "line", "severity", "message"),
    [
        (["1 Q0 a 1 0.5"], 1, "error", "expected 6 columns, found 5"),
        (["# a comment of 6 words"], 1, "error", "a comment"),
        (["  # a comment of 6"], 1, "error", "a comment"),
        (["1 Q0 a 1\xa00.5 t"], 1, "error", "expected 6 columns, found 5"),
        (["\xa0"], 1, "error", "expected 6 columns, found 1"),
        (["1 Q0 a\x0b 1 0.5 t"], 1, "error", "holds the control character '\\x0b'"),
        (
            ["1 Q0 a\u200b 1 0.5 t"],
            1,
            "error",
            "document id: expected an id without the invisible character U+200B, found 'a\\u200b'",
        ),
        (["1 Q0 a 1 0.5 t", "\ufeff1 Q0 b 2 0.4 t"], 2, "error", "topic '\\ufeff1' is not in the topics file"),
        ([""], 1, "warning", "blank line"),
        (["9 Q0 a 1 0.5 t"], 1, "error", "topic '9' is not in the topics file"),
        (["1 Q0 a 1 0.5 t", "1 Q0 a 2 0.4 t"], 2, "error", "'a' is already listed for topic '1' on line 1"),
        (["1 Q0 a 1 0.5 t", "2 Q0 a 1 0.5 t", "1 Q0 b 2 0.4 t"], 3, "warning", "do not stand together"),
        (["1 Q0 a 0 0.5 t"], 1, "error", "rank: expected 1, found '0'"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 3 0.4 t"], 2, "error", "rank: expected 2, found '3'"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.6 t"], 2, "error", "score 0.6 is above that of line 1"),
        (["1 Q0 a 1 0.5 t", "1 Q0 b 2 0.5 t"], 2, "warning", "equals that of line 1 in float32"),
        (["1 Q0 a 1 x t"], 1, "error", "expected a number that float32 can hold, found 'x'"),
        (["1 Q0 a 1 nan t"], 1, "error", "found 'nan'"),
        (["1 Q0 a 1 1_0 t"], 1, "error", "found '1_0'"),
        (["1 Q0 a 1 1e39 t"], 1, "error", "found '1e39'"),
        (["1 Q0 a 1 0.5 t", "2 Q0 b 1 0.4 u"], 2, "error", "run tag: expected 't' on every line, found 'u'"),
        (["1 0 a 1 0.5 t"], 1, "warning", "second column: expected Q0, found '0'"),
        (["1 Q0 a 1 0.5 t"], 0, "warning", "topic '2': no row"),
        ([f"1 Q0 d{n} {n} {1 / n} t" for n in range(1, 102)], 101, "error", "topic '1': more than 100 rows"),
    ],
)
def test_a_violation_of_a_run_is_reported_with_its_line(
    tmp_path: Path, lines: list[str], line: int, severity: str, message: str
) -> None:
    path = tmp_path / "run.tsv"
    path.write_text("\n".join(lines) + "\n")
    found = validate(path, TRACKS["rag25"], [WHY, HOW])
    assert any(v.line == line and v.severity == severity and message in v.message for v in found), found


def test_a_run_of_documents_may_have_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "run.tsv"
    path.write_text(
        "".join(f"1 Q0 shard_00001_{n} {n} {-n}e-3 t\n" for n in range(1, 3001)) + "2\tQ0\tshard_00001_1\t1\t7\tt\n"
    )
    assert validate(path, TRACKS["rag26"], [WHY, HOW]) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("run.tsv", "", "holds no row, expected rows for 2 topics", id="a run"),
        pytest.param("run.tsv", "\n# 1\n", "holds no row, expected rows for 2 topics", id="a run without rows"),
        pytest.param("rag.jsonl", "", "holds no answer, expected answers to 2 topics", id="answers"),
        pytest.param("rag.jsonl", "\n", "holds no answer, expected answers to 2 topics", id="a blank line"),
        pytest.param(
            "rag.jsonl", make_line(answer=[]), "holds no sentence in 1 answer", id="an answer without sentences"
        ),
    ],
)
def test_a_file_without_content_is_invalid(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    found = validate(tmp_path / name, TRACKS["rag25"], [WHY, HOW])
    assert next(v.message for v in found if v.line == 0 and v.severity == "error") == message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps([make_record("rag25"), make_record("rag25", HOW)]), id="on one line"),
        pytest.param(json.dumps([make_record("rag25"), make_record("rag25", HOW)], indent=1), id="on many lines"),
        pytest.param("\n  [\n" + json.dumps(make_record("rag25")) + ",\n", id="truncated"),
    ],
)
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x"])
def test_a_json_array_is_distinguished_from_a_run(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (found,) = validate(tmp_path / name, TRACKS["rag25"], [WHY, HOW])
    assert (found.severity, found.kind) == ("error", "JSON array")
    with pytest.raises(UserError, match="a JSON array, expected one JSON object on each line"):
        detect_track(tmp_path / name)


def test_a_run_whose_topics_begin_with_a_bracket_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[1] Q0 a 1 0.5 t\n")
    assert validate(tmp_path / "x", TRACKS["responses"], [Topic("[1]", "Why?")]) == []


@pytest.mark.parametrize(
    ("found", "message"),
    [
        pytest.param("How does it warm? ", "at character 18: expected 'How does it warm?', found", id="a space"),
        pytest.param("How did it warm?", "at character 6: expected 'How does it warm?', found 'How did", id="a word"),
        pytest.param("How", "at character 4: expected 'How does it warm?', found 'How'", id="an end"),
        pytest.param("How does\xa0it warm?", r"at character 9: expected 'How does it warm?', found 'How does\xa0it",
                     id="a no-break space"),
        pytest.param("How does ﬁt", "at character 10", id="another letter"),
    ],
)  # fmt: skip
def test_the_message_shows_the_first_difference_of_a_narrative(tmp_path: Path, found: str, message: str) -> None:
    narrative = "How does it warm?"
    path = tmp_path / "rag.jsonl"
    path.write_text(make_line(metadata__narrative=found))
    (fault,) = validate(path, TRACKS["rag25"], [Topic("1", narrative)])
    assert f"metadata.narrative: differs from the topics file {message}" in fault.message


def test_letters_that_look_alike_are_shown_as_escapes() -> None:
    assert (
        describe_difference("caf\u0065\u0301", "caf\u00e9")
        == "at character 4: expected 'caf\\xe9', found 'cafe\\u0301'"
    )


@given(st.text(max_size=90), st.text(max_size=90))
def test_a_difference_is_the_first_one_and_printable(one: str, other: str) -> None:
    shown = describe_difference(one, other)
    place = int(re.match(r"at character (\d+)", shown)[1]) - 1  # type: ignore[index]
    assert one[:place] == other[:place]
    assert one == other or one[place : place + 1] != other[place : place + 1]
    assert shown.isprintable()


CORPORA = {"rag24": A, "rag25": A, "rag26": "shard_00001_1", "ragtime25": NEWS[0], "ragtime26": NEWS[0]}


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("beside", [True, False], ids=["beside one of the corpus", "alone"])
def test_a_reference_of_another_corpus_is_an_error_where_the_organisers_refuse_it(
    tmp_path: Path, name: str, beside: bool
) -> None:
    """The checkers of 2025 take a file over another corpus altogether, so that it can be a trial."""
    sentences = TRACKS[name].sentences
    ids = ["elsewhere", *[CORPORA[name]] * beside]
    cited = [0] if TRACKS[name].citations[0] == "positions" else ["elsewhere", *ids[1:]]
    path = tmp_path / "rag.jsonl"
    path.write_text(make_line(name, **{"references": ids, sentences: make_sentences(citations=cited)}))
    (found,) = validate(path, TRACKS[name], [WHY])
    expected = "warning" if name == "rag25" and not beside else "error"
    assert (found.line, found.severity, found.kind) == (1, expected, "id of another corpus")


def test_a_cited_id_of_another_corpus_is_an_error_where_references_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "rag.jsonl").write_text(make_line("ragtime26", responses=make_sentences(citations=["elsewhere"])))
    found = validate(tmp_path / "rag.jsonl", TRACKS["ragtime26"], [WHY])
    assert {(v.severity, v.kind) for v in found} == {
        ("warning", "citation without reference"),
        ("error", "id of another corpus"),
    }


@pytest.mark.parametrize(
    ("name", "run_id"),
    [
        ("rag26", "a-run-id-of-31-characters-12345"),
        ("rag26", 21 * "x"),
        ("ragtime25", 26 * "x"),
        ("ragtime26", 21 * "x"),
        *((name, run) for name in ("rag26", "ragtime25", "ragtime26") for run in (".x", "run one", "x/Ω", "x\n", "é")),
    ],
)
def test_a_run_id_that_a_track_refuses_is_an_error_in_answers_and_in_runs(
    tmp_path: Path, name: str, run_id: str
) -> None:
    (tmp_path / "rag.jsonl").write_text(make_line(name, metadata__run_id=run_id))
    (found,) = validate(tmp_path / "rag.jsonl", TRACKS[name], [WHY])
    most = TRACKS[name].run_id_length
    wanted = f"expected at most {most} letters, digits, '-', '_' and '.', not beginning with '.', found {run_id!r}"
    assert (found.severity, found.message) == ("error", f"metadata.run_id: {wanted}")
    if run_id == run_id.strip() and " " not in run_id:
        (tmp_path / "run.tsv").write_text(f"1 Q0 {CORPORA[name]} 1 0.5 {run_id}\n1 Q0 {CORPORA[name]}2 2 0.4 {run_id}")
        (found,) = validate(tmp_path / "run.tsv", TRACKS[name], [WHY])
        assert (found.line, found.severity, found.message) == (1, "error", f"run tag: {wanted}")


PMIDS = make_sentences(citations=[30000001, 7])


@pytest.mark.parametrize(
    ("track", "line", "kinds"),
    [
        ("biogen", make_line("biogen", references=None, responses=PMIDS), {"id as a number"}),
        ("biogen", make_line("biogen", references=["30000001", "7"], responses=PMIDS), {"id as a number"}),
        ("biogen", make_line("biogen", references=[7, 30000001], responses=PMIDS), {"id as a number"}),
        ("biogen", make_line("biogen", references=None, metadata__topic_id=1), {"id as a number"}),
        ("ragtime26", make_line("ragtime26", references=None), {"references"}),
        ("ragtime26", make_line("ragtime26", references=[NEWS[0]]), {"citation without reference"}),
        ("ragtime26", make_line("ragtime26", metadata__run_desc=None), {"no run_desc"}),
        *(
            (name, make_line(name, responses=make_sentences(citations=[*NEWS, NEWS[0][:-1] + "2", NEWS[0] + "3"]),
                             references=[*NEWS, NEWS[0][:-1] + "2", NEWS[0] + "3"]), {"too many citations"})
            for name in ("ragtime25", "ragtime26")
        ),
    ],
)  # fmt: skip
def test_what_the_organisers_of_biogen_and_ragtime_accept_is_a_warning(
    tmp_path: Path, track: str, line: str, kinds: set[str]
) -> None:
    path = tmp_path / "rag.jsonl"
    path.write_text(line)
    found = validate(path, TRACKS[track], [WHY])
    assert ({v.kind for v in found}, {v.severity for v in found}) == (kinds, {"warning"})


def test_the_default_team_is_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "rag.jsonl"
    records = [make_record("rag25"), make_record("rag25", HOW)]
    for record in records:
        record["metadata"]["team_id"] = "keystone"
    path.write_text("\n".join(map(json.dumps, records)))
    assert validate(path, TRACKS["rag25"], [WHY, HOW]) == [
        Violation(
            1,
            "warning",
            "default team",
            "team: found 'keystone', the default of Keystone, on 2 lines; expected your team",
        )
    ]


def test_ids_of_another_corpus_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / "run.tsv").write_text(f"1 Q0 {A} 1 0.5 t\n1 Q0 b 2 0.4 t\n1 Q0 c 3 0.3 t\n")
    (tmp_path / "rag.jsonl").write_text(make_line(references=["b", "c"]))
    for name, line in (("run.tsv", 2), ("rag.jsonl", 1)):
        (found,) = validate(tmp_path / name, TRACKS["rag25"], [WHY])
        assert (found.line, found.severity) == (line, "warning")
        assert "'b': not an id of the track's corpus; found 2 such ids" in found.message


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("r_output_trec_rag_2024.tsv", "", "rag24", id="the name of a run"),
        pytest.param("rag_output_trec_rag_2026.jsonl.gz", "", "rag26", id="the name of an answer file"),
        pytest.param("rag_output_trec_rag_2026.jsonl.zst", "", "rag26", id="the name of a compressed answer file"),
        pytest.param("rag_output_trec_rag_2026.jsonl.bz2", "", "rag26", id="the name with the ending of bzip2"),
        pytest.param("x.jsonl", json.dumps(make_record("rag24")), "rag24", id="keys in the answer itself"),
        pytest.param("x.jsonl", json.dumps(make_record("rag25")), "rag25", id="the keys of 2025"),
        pytest.param("x.jsonl", make_line(metadata__type=None), "rag25", id="the ids of 2025"),
        pytest.param("x.jsonl", f"broken\n\n{json.dumps(make_record('rag26'))}", "rag26", id="the keys of 2026"),
        pytest.param("x.jsonl", make_line("rag26", metadata__run_desc=None), "rag26", id="the ids of 2026"),
        pytest.param("x", json.dumps(make_record("biogen")), "responses", id="the format that several tracks share"),
        pytest.param("x", "1 Q0 shard_00001_1 1 0.5 t", "rag26", id="a run of documents"),
        pytest.param("x", f"2024-7 Q0 {A} 1 0.5 t", "rag24", id="segments for topics of 2024"),
        pytest.param("x", f"14 Q0 {A} 1 0.5 t", "rag25", id="segments for other topics"),
        pytest.param("x", "rag2026-7 Q0 a 1 0.5 t", "rag26", id="topics of 2026 over any corpus"),
        pytest.param(
            "x.jsonl",
            make_line(metadata__narrative_id="rag2026-7", metadata__type=None, references=["a"]),
            "rag26",
            id="answers to topics of 2026 over any corpus",
        ),
    ],
)
def test_the_track_is_detected_by_name_keys_and_ids(tmp_path: Path, name: str, text: str, expected: str) -> None:
    content = text.encode()
    packed = {".gz": gzip.compress(content), ".zst": zstandard.compress(content), ".bz2": bz2.compress(content)}
    (tmp_path / name).write_bytes(packed.get(Path(name).suffix, content))
    assert detect_track(tmp_path / name).name == expected


@pytest.mark.parametrize("name", ["responses.jsonl", "filed"])
@pytest.mark.parametrize("track", ["responses", "ragtime25", "ragtime26", "biogen"])
def test_a_form_that_tracks_share_says_that_no_limit_was_checked(tmp_path: Path, track: str, name: str) -> None:
    path = tmp_path / name
    path.write_text(make_line(track))
    assert judge(path, detect_track(path), [WHY]).violations == [
        Violation(
            0,
            "warning",
            "no limit checked",
            "no limit was checked: its form is that of responses, ragtime25, ragtime26, dragun25, biogen; "
            "--track names one",
        )
    ]
    assert validate(path, TRACKS[track], [WHY]) == []


def test_the_official_form_of_biogen_without_a_track_has_no_error(tmp_path: Path) -> None:
    path = tmp_path / "filed"
    path.write_text(make_line("biogen", references=None, responses=PMIDS))
    found = judge(path, detect_track(path), [WHY]).violations
    assert {v.kind for v in found} == {"no limit checked", "references", "id as a number"}
    assert {v.severity for v in found} == {"warning"}


@pytest.mark.parametrize(
    ("config", "judged_by"),
    [
        pytest.param("track: ragtime26", "ragtime26", id="a run"),
        pytest.param("track: biogen", "biogen", id="another run"),
        pytest.param("track: rag25", "responses", id="a run with other files"),
        pytest.param("track: none", "responses", id="a run without files to submit"),
        pytest.param("track: [", "responses", id="no YAML"),
        pytest.param("tracks: biogen", "responses", id="another program"),
    ],
)
def test_a_file_in_a_run_directory_is_judged_by_the_track_of_the_run(
    tmp_path: Path, topics: Path, config: str, judged_by: str
) -> None:
    """The answer is too long for both tracks."""
    topics.write_text('{"id": "1", "narrative": "Why?", "limit": 200}\n')
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(f"run_id: r\nindex: i\ntopics: t\n{config}\n")
    (run / "responses.jsonl").write_text(
        make_line(
            judged_by if judged_by in IDS else "ragtime26",
            responses=make_sentences(text="w " * 251, citations=list(IDS.get(judged_by, NEWS))),
        )
    )
    shown = keystone("validate", "run", "--topics", topics, cwd=tmp_path)
    verdict = shown.stdout.splitlines()[-1]
    limit = {"ragtime26": "at most 200 characters, found 502", "biogen": "at most 250 words, found 251"}
    assert limit.get(judged_by, "no limit was checked") in shown.stdout
    assert verdict == "run/responses.jsonl: " + (
        "valid for responses: 0 errors, 1 warning"
        if judged_by == "responses"
        else f"invalid for {judged_by}: 1 error, 0 warnings"
    )
    assert [v.kind for v in keystone_validate(run / "responses.jsonl", read_topics(topics)).violations] == [
        "no limit checked" if judged_by == "responses" else "too long"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"1 Q0 {A} 1 0.5 t\n2024-7 Q0 a 1 0.5 t", "fits no track, expected that of one of rag24"),
        ("1 Q0 a 1 0.5 t", "fits no track, expected that of one of rag24"),
        ("{}", "fits no track"),
        ("", "is empty, expected a run or answers"),
        ("{\n}", "holds no JSON object, expected one on each line"),
    ],
)
def test_a_format_that_fits_no_track_or_several_asks_for_the_track(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=message):
        detect_track(tmp_path / "x")


@given(FILE, st.sampled_from(["x.tsv", "x.jsonl", "x.jsonl.gz"]), st.sampled_from(list(TRACKS.values())))
def test_any_bytes_are_judged(tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str, track: Track) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(data)
    try:
        found = validate(path, track, [WHY, HOW])
    except UserError:
        assert name.endswith(".gz")  # a file that is not gzip cannot be read at all
        return
    assert found
    assert all(v.message.isprintable() and len(v.message) < 300 and 0 <= v.line <= data.count(b"\n") + 1 for v in found)


def test_a_deeply_nested_value_is_shown_in_one_short_line() -> None:
    value = dict[str, object]()
    for _ in range(6):
        value = {A + key: value for key in "abcdef"}
    assert len(shorten_value(value)) == MOST_SHOWN_CHARACTERS


def test_a_summary_counts_violations_by_kind() -> None:
    found = [Violation(0, "warning", "missing topic", "x"), *(Violation(n, "error", "rank", "y") for n in (3, 4))]
    assert list(summarise_violations(found)) == ["2 errors: rank, first on line 3", "1 warning: missing topic"]


@pytest.mark.slow
def test_the_command_prints_violations_then_counts_then_the_verdict(tmp_path: Path, topics: Path) -> None:
    path = tmp_path / "run.tsv"
    path.write_bytes(b"1 Q0 a 0 0.5 t\n1 Q0 b 1 0.4 t\n2 Q0 \xff 1 1 t\n")
    shown = keystone("validate", path, "--topics", topics, "--track", "responses")
    assert shown.returncode == 1
    assert shown.stdout.splitlines() == [
        f"{path}: warning: topic '2': no row",
        f"{path}:1: error: rank: expected 1, found '0'",
        f"{path}:2: error: rank: expected 2, found '1'",
        f"{path}:3: error: not UTF-8: '2 Q0 \\udcff 1 1 t'",
        f"{path}: 2 errors: rank, first on line 1",
        f"{path}: 1 warning: missing topic",
        f"{path}: 1 error: not UTF-8, first on line 3",
        f"{path}: 1 of 2 topics, 2 rows, 2 a topic",
        f"{path}: invalid for responses: 3 errors, 1 warning",
    ]


@pytest.mark.slow
def test_five_messages_of_a_kind_are_printed_and_all_are_counted(tmp_path: Path, topics: Path) -> None:
    path = tmp_path / "run.tsv"
    path.write_text("".join(f"1 0 a{n} {n} {1 / n} t\n" for n in range(1, 40)) + "2 Q0 b 1 1 t\n")
    shown = keystone("validate", path, "--topics", topics, "--track", "responses")
    assert shown.stdout.splitlines() == [
        *(f"{path}:{n}: warning: second column: expected Q0, found '0'" for n in range(1, 5)),
        f"{path}:5: warning: second column: expected Q0, found '0'; further ones are counted",
        f"{path}: 39 warnings: second column, first on line 1",
        f"{path}: 2 of 2 topics, 40 rows, 1 to 39 a topic",
        f"{path}: valid for responses: 0 errors, 39 warnings",
    ]


def test_several_files_and_folders_are_judged_each_by_its_track(tmp_path: Path, topics: Path) -> None:
    run, answers = (
        "1 Q0 shard_00001_1 1 0.5 t\n2 Q0 shard_00001_1 1 0.5 t\n",
        [make_record("rag25"), make_record("rag25", HOW)],
    )
    for record, narrative in zip(answers, NARRATIVES.values(), strict=True):
        record["metadata"]["narrative"] = narrative
    files = {
        "out/a/r_output_trec_rag_2026.tsv": run,
        "out/a/rag_output_trec_rag_2025.jsonl": "\n".join(map(json.dumps, answers)),
        "out/a/queries.jsonl": "no submission",
        "out/.trash/r_output_trec_rag_2025.tsv": "hidden",
        "team/one": run,
        "team/two": run.replace("2 Q0", "9 Q0"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "none").mkdir()
    shown = keystone("validate", "out", "team/one", "--topics", topics, cwd=tmp_path)
    verdicts = [line for line in shown.stdout.splitlines() if " for rag" in line or "files" in line]
    assert (shown.returncode, verdicts) == (
        0,
        [
            "out/a/r_output_trec_rag_2026.tsv: valid for rag26: 0 errors, 0 warnings",
            "out/a/rag_output_trec_rag_2025.jsonl: valid for rag25: 0 errors, 0 warnings",
            "team/one: valid for rag26: 0 errors, 0 warnings",
            "3 files: 3 valid, 0 invalid",
        ],
    )
    shown = keystone("validate", "team", "not-there", "--topics", topics, cwd=tmp_path)
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (1, "3 files: 1 valid, 2 invalid")
    assert "error: not-there: cannot be read" in shown.stderr
    shown = keystone("validate", "team", "--topics", topics, "--fix", "new", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (
        1,
        "error: --fix new: found 2 files to repair into one, expected one file\n",
    )
    shown = keystone("validate", "none", "--topics", topics, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (1, "error: none: holds no file to judge\n")


@pytest.mark.parametrize(
    ("run_ids", "kinds"),
    [
        (["us-a", "us-b"], [set(), set()]),
        (["us-a", "us-b", "them"], [set(), set(), {"run prefix"}]),
        (["a", "a"], [set(), {"run of another file"}]),
        (["", "", "us"], [set(), set(), set()]),
        ([f"us{number}" for number in range(11)], [*[set()] * 10, {"too many runs"}]),
    ],
    ids=["two", "another team's", "the same", "none", "eleven"],
)
def test_the_runs_of_a_team_have_ids_of_their_own(tmp_path: Path, run_ids: list[str], kinds: list[set[str]]) -> None:
    seen: dict[tuple[str, bool], dict[str, Path]] = {}
    found = []
    for number, run_id in enumerate(run_ids):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(make_line("biogen", metadata={"team_id": "t", "run_id": run_id, "topic_id": "1"}))
        found.append({one.kind for one in check_runs(path, TRACKS["biogen"], seen)})
        assert not list(check_runs(path, TRACKS["rag25"], seen))
    assert found == kinds


@pytest.mark.skipif(not MATERIAL.exists(), reason="the answers of the TREC RAG track are not on this machine")
def test_the_301_answers_of_a_team_are_valid() -> None:
    shown = keystone(
        "validate",
        MATERIAL / "answers.rag24.ragnarok-gpt-4o.jsonl.gz",
        "--topics",
        MATERIAL / "topics.rag24.test.jsonl",
    )
    assert (shown.returncode, shown.stdout.count("\n")) == (0, 2), shown.stdout
    assert ": 301 of 301 topics, 3,975 sentences, 1,662 without citation\n" in shown.stdout
    assert shown.stdout.endswith("valid for rag24: 0 errors, 0 warnings\n")
