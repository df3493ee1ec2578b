"""Run and qrels files: all tools read the written order, and an error names the line of a broken row."""

import gzip
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.retrieval.ties import decrease_strictly
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.run_files import read_qrels, read_run, write_run
from keystone.runs.trec.types import Run, make_qrels, make_run
from tests.support.mutation import FUZZ_CASES
from tests.support.places import SHARED
from tests.support.runs.qrels import grades_of

pytestmark = pytest.mark.slow

T = TypeVar("T")
LF = b"\n"
Hits = dict[str, list[tuple[str, float]]]
SCORES = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120)
    | st.sampled_from([0.0, -0.0, 1.0, 1 / 61, 1e-40]),
    max_size=30,
)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Broken(Exception):
    """The refusal of a plain reader: the file, and the line of a broken row."""


def read_plain_rows(path: Path, columns: int) -> list[tuple[int, list[str]]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Broken(f"{path}:{content.count(LF, 0, error.start) + 1}") from None
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r").strip(" \t")
        if line.startswith("#") or not line:
            continue
        fields = re.split("[ \t]+", line, maxsplit=5 if columns == 6 else 0)
        if any(ord(c) < 32 and c != "\t" for c in line) or len(fields) != columns:
            raise Broken(f"{path}:{number}")
        if columns == 6 and not (NUMBER.fullmatch(fields[4]) and math.isfinite(float(fields[4]))):
            raise Broken(f"{path}:{number}")
        if columns == 4 and not (re.fullmatch("[+-]?[0-9]+", fields[3]) and abs(int(fields[3])) < 2**53):
            raise Broken(f"{path}:{number}")
        found.append((number, fields))
    return found


def read_plain_run(path: Path) -> tuple[str, Hits]:
    """Read a run as `read_run` does, but line by line."""
    rows = read_plain_rows(path, 6)
    hits: dict[str, dict[str, float]] = {}
    for number, (query, _, doc, _, score, _) in rows:
        if doc in hits.setdefault(query, {}):
            raise Broken(f"{path}:{number}")
        hits[query][doc] = float(score)
    with np.errstate(over="ignore"):
        best_first = {
            query: sorted(own.items(), key=lambda hit: (np.float32(hit[1]), hit[0].encode()), reverse=True)
            for query, own in hits.items()
        }
    return rows[0][1][5] if rows else "", best_first


def read_plain_qrels(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for number, (query, _, doc, grade) in read_plain_rows(path, 4):
        if found.setdefault(query, {}).setdefault(doc, int(grade)) != int(grade):
            raise Broken(f"{path}:{number}")
    if not found:
        raise Broken(f"{path}")
    return found


def find_outcome(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return the value that a reader gives, or the place of its error."""
    try:
        return read(), ""
    except UserError as error:
        return None, str(error).split(": ")[0]
    except Broken as error:
        return None, str(error)


def assert_both_readers_agree(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    def run() -> tuple[str, Hits]:
        found = read_run(path)
        return found.tag, found.list_hits()

    assert find_outcome(run) == find_outcome(lambda: read_plain_run(path))
    assert find_outcome(lambda: grades_of(read_qrels(path))) == find_outcome(lambda: read_plain_qrels(path))


WORDS = (
    "1 2 10 Q0 0 d d# msmarco_v2.1_doc_12_201312571#0_394394285 é 😀 0.5 .5 5. -3 +1.5 1e-3 1E400 nan inf 1_0 ٣ "
    "0.03278688524590164 123456789012345678901234567890 9007199254740993 tag # #x"
)
SPACES = [" ", " ", " ", "\t", "\n", "\n", "\r\n", "\r", "\0", "\x0b", "\xa0"]
PIECES = st.sampled_from(WORDS.split() + SPACES)
ROW = st.builds(
    "{} {} {} {} {} {}\n".format,
    st.sampled_from(["1", "2", "10"]),
    st.sampled_from(["Q0", "0"]),
    st.sampled_from(["d", "e", "longer_than_eight#1", "longer_than_eight#2"]),
    st.sampled_from(["1", "x"]),
    st.sampled_from(["0.5", "1e-3", "7", "0.50000000001"]) | st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(["tag", "my tag"]),
)
JUDGMENT = st.builds("{} 0 {} {}\n".format, st.sampled_from("12"), st.sampled_from("de"), st.integers(-1, 1))
CONTENT = st.builds(
    lambda pieces, cut, byte: "".join(pieces).encode()[:cut] + byte,
    st.lists(PIECES | ROW, max_size=25) | st.lists(ROW, max_size=25) | st.lists(JUDGMENT, max_size=6),
    st.none() | st.integers(0, 500),
    st.sampled_from([b"", b"", b"\xff", b"\n"]),
)


@settings(max_examples=400)
@given(CONTENT)
def test_any_bytes_are_read_or_refused_at_the_same_line_as_by_the_plain_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    assert_both_readers_agree(tmp_path_factory.getbasetemp() / "any", content)


@pytest.mark.slow
@settings(max_examples=FUZZ_CASES or 500)
@given(CONTENT)
def test_hundreds_of_files_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert_both_readers_agree(tmp_path_factory.getbasetemp() / "any", content)


@pytest.mark.parametrize(
    ("content", "tag", "hits"),
    [
        pytest.param("", "", {}, id="an empty file"),
        pytest.param(
            "# ir_metadata.start\n# tag: x\n# ir_metadata.end\n1 Q0 a 1 0.5 t", "t", {"1": "a"}, id="ir_metadata"
        ),
        pytest.param("1 Q0 a 1 2 t\n\n \t\n# note\n1 Q0 b 2 1 t\n\n", "t", {"1": "ab"}, id="blank lines and comments"),
        pytest.param("#1 Q0 a 1 2 t\n1 Q0 #b 1 2 t\n", "t", {"1": ["#b"]}, id="a # inside a line is not a comment"),
        pytest.param("  # note\n1 Q0 a 1 2 t\n\t#1 Q0 b 1 2 t\n", "t", {"1": "a"}, id="indented comments"),
        pytest.param("1\tQ0\ta\t1\t0.5\tt\r\n", "t", {"1": "a"}, id="tabs and CRLF"),
        pytest.param("1 Q0 a 1 0.5 t\r\r\n\r\r\n1 Q0 b 1 0.4 t\r", "t", {"1": "ab"}, id="several CR at a line end"),
        pytest.param("\ufeff1 Q0 a 1 0.5 t\n", "t", {"1": "a"}, id="a byte order mark"),
        pytest.param("  1 Q0 a 1 0.5 t  \n", "t", {"1": "a"}, id="spaces around a line"),
        pytest.param("1 0 a - 0.5 t\n1 1 b . 0.4 t\n1 x c 0 0.3 t", "t", {"1": "abc"}, id="columns 2 and 4 are free"),
        pytest.param("1 Q0 a 1 0.5 my  own tag \n1 Q0 b 2 0.4 x", "my  own tag", {"1": "ab"}, id="a tag with spaces"),
        pytest.param("1 Q0 b 9 0.4 t\n1 Q0 a 9 0.5 t\n", "t", {"1": "ab"}, id="rows out of order"),
        pytest.param("1 Q0 a 1 0.5 t\n1 Q0 b 2 0.5 t\n", "t", {"1": "ba"}, id="ties go to the larger id"),
        pytest.param("1 Q0 a 1 0.03278688525 t\n1 Q0 b 2 0.03278688524 t", "t", {"1": "ba"}, id="ties in float32"),
        pytest.param("1 Q0 a 1 1e-3 t\n1 Q0 b 2 -1.5E+2 t\n1 Q0 c 3 +1.5 t", "t", {"1": "cab"}, id="forms of numbers"),
        pytest.param(
            "2 Q0 a 1 1 t\n1 Q0 b 1 1 t\n2 Q0 c 2 2 t\n",
            "t",
            {"2": "ca", "1": "b"},
            id="rows of two queries that alternate",
        ),
        pytest.param("1 Q0 a 1 1e300 t\n1 Q0 b 1 1e200 t\n", "t", {"1": "ba"}, id="scores above float32 tie"),
        pytest.param("é Q0 日本 1 1 t\n", "t", {"é": ["日本"]}, id="ids in other scripts"),
    ],
)
def test_a_run_in_any_accepted_form_is_read(tmp_path: Path, content: str, tag: str, hits: dict[str, list[str]]) -> None:
    (tmp_path / "run").write_bytes(content.encode())
    run = read_run(tmp_path / "run")
    assert run.tag == tag
    assert {query: [doc for doc, _ in own] for query, own in run.list_hits().items()} == {
        q: [*d] for q, d in hits.items()
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("1 Q0 d 1 0.5", "expected 6 columns, found 5", id="one column missing"),
        pytest.param('{"id": "1", "text": "a b c d"}', "found a JSON object, expected 6 columns", id="JSON lines"),
        pytest.param("1 d 1 0.5", "expected 6 columns, found 4", id="two columns missing"),
        pytest.param("1 Q0 d 1 high tag", "expected a finite number, found 'high'", id="a word as score"),
        pytest.param("1 Q0 d 1 nan tag", "expected a finite number, found 'nan'", id="not a number"),
        pytest.param("1 Q0 d 1 -inf tag", "expected a finite number, found '-inf'", id="an infinite score"),
        pytest.param("1 Q0 d 1 1e999 tag", "expected a finite number, found '1e999'", id="above float64"),
        pytest.param("1 Q0 d 1 1_000 tag", "expected a finite number, found '1_000'", id="an underscore in a number"),
        pytest.param("1 Q0 d 1 ٣ tag", "expected a finite number, found '٣'", id="Arabic digits"),
        pytest.param("1 Q0 d 1 0x1p3 tag", "expected a finite number, found '0x1p3'", id="a hexadecimal number"),
        pytest.param("1 Q0 a 2 0.1 tag", "a occurs more than once for 1, see line 1", id="a repeated document"),
        pytest.param("1 Q0 a\0 2 0.1 tag", r"holds the control character '\\x00'", id="a NUL byte"),
        pytest.param(
            "1 Q0 b 2 0.1 tag\r1 Q0 c 3 0.1 tag", r"holds the control character '\\r'", id="lines that end in CR"
        ),
        pytest.param("1 Q0 b\udcff 2 0.1 tag", "not UTF-8: invalid start byte at byte 6 of the line", id="not UTF-8"),
        pytest.param(
            "\ufeff1 Q0 b 2 0.1 tag", "holds a byte order mark inside the file", id="a byte order mark inside the file"
        ),
        pytest.param("1\xa0Q0 b 2 0.1 tag", "expected 6 columns, found 5", id="a no-break space"),
    ],
)
def test_a_broken_run_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.run"
    path.write_bytes(f"1 Q0 a 1 0.9 tag\n{line}\n1 Q0 z 3 0.1 tag\n".encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=rf"x\.run:2: .*{message}"):
        read_run(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("1 0 a", "expected 4 columns, found 3", id="one column missing"),
        pytest.param('{"id": "1", "text": "a"}', "found a JSON object, expected 4 columns", id="JSON lines"),
        pytest.param("1 0 a 2 1 me", "expected 4 columns, found 6", id="a run, or judgments with confidence"),
        pytest.param("1 0 a 1.5", "expected a whole number, found '1.5'", id="a broken grade"),
        pytest.param("1 0 a 1_0", "expected a whole number, found '1_0'", id="an underscore in a number"),
        pytest.param(
            "1 0 a 12345678901234567890",
            "expected a whole number between -2.53 and 2.53, found '1234",
            id="a huge grade",
        ),
        pytest.param(
            "1 0 a 9007199254740993",
            "expected a whole number between -2.53 and 2.53, found '9007",
            id="a grade above float64's exact integers",
        ),
        pytest.param("1 0 d 2", "document d has two grades for 1, see line 1", id="two grades"),
    ],
)
def test_broken_qrels_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.qrels"
    path.write_text(f"1 0 d 1\n{line}\n")
    with pytest.raises(UserError, match=rf"x\.qrels:2: .*{message}"):
        read_qrels(path)


@pytest.mark.parametrize("second", ["0", "1", "Q0"])
def test_the_second_column_of_qrels_is_ignored(tmp_path: Path, second: str) -> None:
    path = tmp_path / "qrels"
    path.write_text(f"# by hand\n007 {second} msmarco_v2.1_doc_0_1#2_3\t4\n7 {second} d -1\n\n7 {second} d -1")
    assert grades_of(read_qrels(path)) == {"007": {"msmarco_v2.1_doc_0_1#2_3": 4}, "7": {"d": -1}}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            "# judged\r\n1 Q0 a#0_1 2 1 me\r\n\n 1\tQ0 b  2 4 me \n2 Q0 a 0 0 me",
            {"1": {"a#0_1": 2, "b": 2}, "2": {"a": 0}},
            id="TREC RAG 2025",
        ),
        pytest.param("1 Q0 a 1 4 tag\n1 Q0 b 2 3 tag\n2 Q0 a 1 4 tag", None, id="a run of few rows"),
        pytest.param("1 Q0 a 1 0.9 tag\n1 Q0 b 1 0.5 tag", None, id="a run of equal ranks"),
        pytest.param("1 Q0 a 1 1 me\n1 Q0 b 1 1 me\n1 Q0 c 1", None, id="a row of four columns"),
        pytest.param("1 Q0 a 1 1 me\n1 Q0 b 1 1 me\n1 Q0 c 5 1 me", None, id="a grade beyond the scale"),
    ],
)
def test_judgments_with_confidence_are_read_and_runs_are_not(
    tmp_path: Path, rows: str, expected: dict[str, dict[str, int]] | None
) -> None:
    path = tmp_path / "qrels"
    path.write_text(rows)
    if expected is None:
        with pytest.raises(UserError, match="qrels:1: expected 4 columns, found 6"):
            read_qrels(path)
    else:
        assert grades_of(read_qrels(path)) == expected


def test_a_compressed_run_is_read_and_a_truncated_one_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"1 Q0 d%d 1 %d t\n" % (i, -i) for i in range(20_000)))
    (tmp_path / "run.gz").write_bytes(packed)
    assert len(read_run(tmp_path / "run.gz").scores) == 20_000
    (tmp_path / "run.gz").write_bytes(packed[:-100])
    with pytest.raises(UserError, match=r"run\.gz: cannot be read"):
        read_run(tmp_path / "run.gz")


TINY = np.finfo(np.float32).tiny
"""The least normal number above 0. Some readers take the denormal numbers below it for 0."""


def test_the_score_after_0_is_a_normal_number() -> None:
    found = decrease_strictly([1e-40, 1e-44, 0, 0, -1e-45])
    assert found.tolist() == [0, *(-float(TINY) * (1 + step / 2**23) for step in range(4))]


@given(SCORES)
def test_scores_decrease_strictly_in_float32_by_the_least_change(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    found = decrease_strictly(ordered + ordered, np.array([0, len(ordered), 2 * len(ordered)]))
    expected: list[np.float32] = []
    for score in ordered:
        below = np.nextafter(expected[-1], np.float32(-np.inf)) if expected else np.float32(np.inf)
        least = min(np.float32(score), below)
        if 0 < abs(least) < TINY:
            least = np.float32(0) if not expected or expected[-1] > 0 else -TINY
        expected.append(least)
    assert found.tolist() == [float(score) for score in expected] * 2


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e300])
def test_a_score_that_float32_cannot_hold_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        decrease_strictly([score])


def count_significant_digits(number: str) -> int:
    """Count the significant digits of a written number."""
    return len(number.lstrip("-").split("e")[0].replace(".", "").strip("0"))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_scores_are_written_exactly_and_with_few_digits(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float]
) -> None:
    path = tmp_path_factory.getbasetemp() / "scores"
    write_run(path, make_run("t", {str(i): [("d", score)] for i, score in enumerate(scores)}))
    for line, score in zip(path.read_text().splitlines(), scores, strict=True):
        text = line.split(" ")[4]
        is_normal = abs(score) >= np.finfo(np.float32).tiny
        assert np.float32(float(text)) == np.float32(score if is_normal else 0), "no reader flushes a normal number"
        usual = f"{score:.9g}"
        assert count_significant_digits(text) <= count_significant_digits(usual)
        longer = 1 if 1e-5 <= abs(score) < 1e-4 else 10 - len("1e+09") if 1e9 <= abs(score) < 1e10 else 0
        assert len(text) <= len(usual) + longer, "%g turns to exponents sooner at both ends"


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "0"),
        (1 / 61, "0.016393442"),
        (29.96721, "29.96721"),
        (100, "100"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (123456792, "123456790"),
        (-1.5e30, "-1.5e+30"),
        (3.4028235e38, "3.4028235e+38"),
        (1e-45, "0"),
    ],
)
def test_a_score_is_written_in_its_shortest_form(tmp_path: Path, score: float, text: str) -> None:
    write_run(tmp_path / "run", make_run("t", {"1": [("d", score)]}))
    assert (tmp_path / "run").read_text() == f"1 Q0 d 1 {text} t\n"


IDS = st.lists(st.text(st.sampled_from("aZ0_#.é"), min_size=1, max_size=20), unique=True, max_size=20)


@given(IDS, SCORES)
def test_trec_eval_reads_the_order_in_which_a_run_was_written(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], scores: list[float]
) -> None:
    path = tmp_path_factory.getbasetemp() / "run.trec"
    hits = list(zip(ids, sorted(scores, reverse=True), strict=False))
    write_run(path, make_run("tag", {"q": hits}))
    found = read_run(path).list_hits().get("q", [])
    assert [doc_id for doc_id, _ in found] == [doc_id for doc_id, _ in hits]
    as_double = sorted(found, key=lambda hit: (hit[1], hit[0]), reverse=True)
    assert as_double == found


def test_a_small_run_is_written_byte_for_byte(tmp_path: Path) -> None:
    hits = {"14": [("b", 0.5), ("a", 0.5)], "2": [], "3": [("d", 12.0)]}
    write_run(tmp_path / "run", make_run("tag", hits))
    assert (tmp_path / "run").read_text() == "14 Q0 b 1 0.5 tag\n14 Q0 a 2 0.49999997 tag\n3 Q0 d 1 12 tag\n"


def test_a_run_of_many_parts_is_written_in_order(tmp_path: Path) -> None:
    hits = {f"q{i}": [(f"d{i}_{j}", 0.5 - j) for j in range(i % 5 * 10_000)] for i in range(12)}
    write_run(tmp_path / "run", make_run("tag", hits))
    expected = {query: own for query, own in hits.items() if own}
    assert read_run(tmp_path / "run").list_hits() == expected


LONG = st.builds("{}{}e-{}".format, st.sampled_from(["", "-"]), st.integers(2**53 - 99, 10**19), st.integers(0, 30))
MIDWAY = st.builds(
    lambda m, e: format((2 * Decimal(m) + 1) / 2 * Decimal(2) ** e, "f"), st.integers(2**52, 2**53), st.integers(-9, 9)
)


@settings(max_examples=300)
@given(st.lists(LONG | MIDWAY | st.floats(allow_nan=False, allow_infinity=False).map(repr), max_size=50))
def test_scores_are_read_exactly(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "exact"
    path.write_text("".join(f"{i} Q0 d 1 {text} t\n" for i, text in enumerate(texts)))
    assert read_run(path).scores.tolist() == [float(text) for text in texts]


def test_several_threads_read_a_file_as_one_would(tmp_path: Path) -> None:
    rows = [f"q{i // 50_000} Q0 document-{i % 50_000:05d} 1 {100_000 - i} tag" for i in range(120_000)]
    rows += ["q0 Q0 late 1 -1e9 tag"]
    path = tmp_path / "run"
    path.write_text("\n".join(rows))
    hits = read_run(path).list_hits()
    assert {query: len(own) for query, own in hits.items()} == {"q0": 50_001, "q1": 50_000, "q2": 20_000}
    assert hits["q0"][-2:] == [("document-49999", 50_001.0), ("late", -1e9)]
    for broken in ([110_000], [70_000, 110_000], [5, 70_000, 110_000]):
        damaged = [row.replace("Q0", "\0") if i in broken else row for i, row in enumerate(rows)]
        path.write_text("\n".join(damaged))
        with pytest.raises(UserError, match=rf"run:{broken[0] + 1}: holds the control character"):
            read_run(path)
    path.write_text("\n".join([*rows, rows[77_777]]))
    with pytest.raises(UserError, match=r"run:120002: document document-27777 .* for q1, see line 77778"):
        read_run(path)


@given(st.lists(st.text(st.sampled_from("ab#é"), max_size=10), max_size=50))
def test_distinct_ids_and_their_positions_restore_all_ids(strings: list[str]) -> None:
    distinct, positions = encode_ids(strings).find_distinct()
    assert distinct == list(dict.fromkeys(strings))
    assert [distinct[i] for i in positions] == strings


def test_selected_queries_keep_their_rows() -> None:
    run = make_run("t", {"1": [("a", 2.0), ("b", 1.0)], "2": [("c", 1.0)]})
    assert run.select(["2", "x", "1"]).list_hits() == {"2": [("c", 1.0)], "x": [], "1": [("a", 2.0), ("b", 1.0)]}
    assert isinstance(run.select([]), Run)
    assert run.select([]).list_hits() == {}
    assert grades_of(make_qrels({"1": {"a": 0, "b": 2}}).select(["1"])) == {"1": {"b": 2, "a": 0}}


def test_judgments_are_listed_from_a_grade_on() -> None:
    judged = make_qrels({"1": {"a": 0, "b": 2}, "0": {"c": -1}, "2": {"d": 1}})
    assert list(judged.list_rows()) == [("1", "b", 2), ("1", "a", 0), ("0", "c", -1), ("2", "d", 1)]
    assert list(judged.list_rows(1)) == [("1", "b", 2), ("2", "d", 1)]
    assert list(judged.select([]).list_rows(1)) == []


@pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")
def test_real_qrels_are_read_as_by_the_plain_reader() -> None:
    for path in sorted(SHARED.glob("*/qrels*")):
        assert grades_of(read_qrels(path)) == read_plain_qrels(path), path
