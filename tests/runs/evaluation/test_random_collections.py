"""Random collections with bad files: every fault is listed once, and the other runs have the values of ir_measures."""

import gzip
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from typer.testing import CliRunner

from keystone.indexing.errors import UserError
from keystone.runs.cli.main import app
from keystone.runs.evaluation.batch import evaluate_batch
from keystone.runs.evaluation.measures import parse_measures, read_ir_measure

COLLECTIONS, SUITE = 200, 25
"""The number of collections in the nightly tests, and in the suite."""
NAMES = ("nDCG@5", "P@5", "AP")
SEEDS = [pytest.param(n, marks=[pytest.mark.nightly] if n >= SUITE else []) for n in range(COLLECTIONS)]
Rows = list[list[str]]


@dataclass
class Collection:
    """The files of a collection, and what a user should be told about them."""

    draw: np.random.Generator
    topics: list[str]
    good: dict[str, Rows] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    two_tags: dict[str, int] = field(default_factory=dict)
    copies: list[tuple[str, str]] = field(default_factory=list)

    def make_rows(self, name: str) -> Rows:
        rows = []
        for topic in self.topics:
            docs = self.draw.permutation(40)[: int(self.draw.integers(8, 30))]
            rows += [[topic, "Q0", f"d{doc}", str(rank), str(99 - rank), name] for rank, doc in enumerate(docs)]
        return rows


def write(path: Path, rows: Rows) -> None:
    path.write_text("".join(" ".join(row) + "\n" for row in rows))


def tear(path: Path, rows: Rows, draw: np.random.Generator) -> None:
    write(path, [*rows[:-1], rows[-1][: int(draw.integers(1, 5))]])


def repeat_document(path: Path, rows: Rows, draw: np.random.Generator) -> None:
    place = int(draw.integers(0, len(rows)))
    write(path, [*rows[: place + 1], rows[place], *rows[place + 1 :]])


def spoil_score(path: Path, rows: Rows, draw: np.random.Generator) -> None:
    rows = [list(row) for row in rows]
    rows[int(draw.integers(0, len(rows)))][4] = "high"
    write(path, rows)


def rename_topics(path: Path, rows: Rows, _: np.random.Generator) -> None:
    write(path, [[f"other{row[0]}", *row[1:]] for row in rows])


def cut_gzip(path: Path, rows: Rows, _: np.random.Generator) -> None:
    data = gzip.compress("".join(" ".join(row) + "\n" for row in rows).encode())
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path, _rows: Rows, _draw: np.random.Generator) -> None:
    path.write_text("")


FAULTS: tuple[Callable[[Path, Rows, np.random.Generator], None], ...] = (
    tear, repeat_document, spoil_score, rename_topics, cut_gzip, empty,
)  # fmt: skip


def write_collection(folder: Path, seed: int) -> Collection:
    draw = np.random.default_rng(seed)
    made = Collection(draw, [f"t{n}" for n in range(int(draw.integers(2, 6)))])
    for number in range(int(draw.integers(4, 10))):
        name = f"team{number}-run"
        rows = made.make_rows(name)
        kind = "good" if number == 0 else draw.choice(["good", "missing", "tags", "copy", "bad", "bad"])
        if kind == "bad":
            fault = FAULTS[int(draw.integers(0, len(FAULTS)))]
            name += ".gz" if fault is cut_gzip else ""
            fault(folder / name, rows, draw)
            made.bad.append(name)
            continue
        if kind == "missing":
            lost = set(draw.choice(made.topics, int(draw.integers(1, len(made.topics))), replace=False))
            rows = [row for row in rows if row[0] not in lost]
            made.missing[name] = len(lost)
        if kind == "tags":
            place = int(draw.integers(1, len(rows)))
            rows = [*rows[:place], *([*row[:5], "other-run"] for row in rows[place:])]
            made.two_tags[name] = place + 1
        if kind == "copy":
            first = sorted(made.good)[int(draw.integers(0, len(made.good)))]
            rows = [[*row[:5], name] for row in made.good[first]]
            made.missing[name] = made.missing[first]
            group = {first, *(own for pair in made.copies if first in pair for own in pair)}
            made.copies += [(one, name) for one in group]
        made.good[name] = rows
        write(folder / name, rows)
    grades = [f"{topic} 0 d{doc} {int(draw.integers(0, 3))}" for topic in made.topics for doc in range(0, 40, 2)]
    grades += [f"{topic} 0 d1 1" for topic in made.topics]
    (folder / "qrels").write_text("\n".join(grades) + "\n")
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_is_listed_once_and_the_rest_is_scored_right(tmp_path: Path, seed: int) -> None:
    made = write_collection(tmp_path, seed)
    qrels, wanted = tmp_path / "qrels", parse_measures(NAMES)
    files = sorted(path for path in tmp_path.iterdir() if path != qrels)
    bad = [str(path) for path in files if path.name in made.bad]
    if bad:
        with pytest.raises(UserError) as refused:
            evaluate_batch(files, [qrels], wanted)
        assert [line.split(":")[0] for line in str(refused.value).splitlines()] == bad
    batch = evaluate_batch(files, [qrels], wanted, skip_bad=True)
    assert [fault.split(":")[0] for fault in batch.faults] == bad
    assert [path.name for path in batch.paths] == sorted(made.good)
    check_cautions(tmp_path, made, list(batch.cautions))
    judged = list(ir_measures.read_trec_qrels(str(qrels)))
    for path, one in zip(batch.paths, batch.evaluations[0], strict=True):
        lost = [caution for caution in one.cautions if "without a row" in caution]
        share = f"{made.missing[path.name]} of {len(made.topics)}"
        assert len(lost) == bool(made.missing[path.name])
        assert all(share in caution for caution in lost)
        measures = list(map(read_ir_measure, NAMES))
        theirs = ir_measures.iter_calc(measures, judged, ir_measures.read_trec_run(str(path)))
        values = {(str(found.measure), found.query_id): found.value for found in theirs}
        for name in NAMES:
            expected = [values.get((name, topic), 0.0) for topic in one.topics]
            assert one.values[name] == pytest.approx(expected, abs=1e-9)


def check_cautions(folder: Path, made: Collection, cautions: list[str]) -> None:
    """Check that each file with two tags, and each pair of copies, is named once, and nothing else."""
    expected = [f"{folder / name}:{line}: found the run tag 'other-run'" for name, line in made.two_tags.items()]
    expected += [" and ".join(str(folder / name) for name in sorted(pair)) + ": the same" for pair in made.copies]
    assert sorted(start for caution in cautions for start in expected if caution.startswith(start)) == sorted(expected)
    assert len(cautions) == len(expected)


@pytest.mark.slow
def test_the_command_prints_each_fault_once(tmp_path: Path) -> None:
    made = write_collection(tmp_path / ".", 2)
    (tmp_path / "torn").write_text("t0 Q0\n")
    files = [str(path) for path in sorted(tmp_path.iterdir()) if path.name != "qrels"]
    command = ["evaluate", *files, "--qrels", str(tmp_path / "qrels"), "-m", "AP", "--sort", "AP", "-q"]
    shown = CliRunner().invoke(app, [*command, "--skip-bad"])
    assert shown.exit_code == 0
    lines = shown.stderr.splitlines()
    for name in [*made.bad, "torn"]:
        assert sum(line.startswith(f"left out: {tmp_path / name}:") for line in lines) == 1
