"""What judges say of answers: assigned nuggets, rated citations or graded rubrics, told apart by what a file holds.

A judge is a list of files, each of any runs and topics. Two judges agree on the labels of the same items.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import open_binary
from keystone.runs.evaluation.agreement import Agreement
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.kept import keep_items
from keystone.runs.evaluation.nuggets.cited import CitedAnswer, read_cited_answers
from keystone.runs.evaluation.nuggets.files import NuggetBank
from keystone.runs.evaluation.nuggets.score import add_cautions, name_runs, read_assigned, score_banks, score_cited
from keystone.runs.evaluation.rubrics import Rubric, read_rubrics, score_rubrics
from keystone.runs.wording import plural

MOST_BYTES = 10_000_000
"""How many bytes of a line of scored answers are read to tell their kind."""
SCALES = (
    ("not_support", "partial_support", "support"),
    ("none", "partial", "full"),
    ("not_satisfied", "partially_satisfied", "satisfied"),
)
"""The labels of nuggets, citations and criteria, from the worst to the best. No other text is a label."""
LABELS: Mapping[str | None, int] = {name: number for scale in SCALES for number, name in enumerate(scale)}
Record = Any
"""A `NuggetBank`, a `CitedAnswer` or a `Rubric`."""
Items = Iterator[tuple[str, str | None]]
"""The items of an answer by their names, each with its label."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of scored answers: how its files are read, what items an answer has, and how answers are scored."""

    noun: str
    nouns: str
    keys: tuple[str, ...]
    read: Callable[[Path], Sequence[Record]]
    list_items: Callable[[Record], Items]
    score: Callable[[Sequence[Record], Collection[str]], list[Evaluation]]


def _list_nuggets(bank: NuggetBank) -> Items:
    return ((one.describe(), one.assignment) for one in bank.nuggets)


def _list_citations(answer: CitedAnswer) -> Items:
    for place, sentence in enumerate(answer.sentences):
        yield from ((f"{place} {cited.doc_id}", cited.support) for cited in sentence.citations)


def _list_criteria(rubric: Rubric) -> Items:
    return ((one.text, one.verdict) for one in rubric.criteria)


CRITERIA = Kind("criterion", "criteria", ("criteria", "rubrics"), read_rubrics, _list_criteria, score_rubrics)
CITATIONS = Kind("citation", "citations", ("sentences",), read_cited_answers, _list_citations, score_cited)
NUGGETS = Kind("nugget", "nuggets", (), lambda path: list(read_assigned(path)), _list_nuggets, score_banks)
KINDS = (CRITERIA, CITATIONS, NUGGETS)
"""The kinds. A file is of the first kind that shares a key with the file's first line, or else of the last kind."""


def _read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Read the JSON object on each line of a file; empty for any other line."""
    with open_binary(path) as file:
        for line in iter(partial(file.readline, MOST_BYTES), b""):
            try:
                found = parse_json(line)
            except ValueError:
                found = None
            yield found if isinstance(found, dict) else {}


def holds_answers(path: Path) -> bool:
    """Whether a file holds JSON, as answers and scored answers do, and not the rows of a run."""
    with open_binary(path) as file:
        return file.readline(MOST_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def holds_scored_answers(path: Path) -> bool:
    """Tell by its first line or rating whether a file holds rubrics, nuggets or rated citations, not plain answers."""
    for record in _read_records(path):
        parts = [one for one in record.get("sentences") or () if isinstance(one, dict)]
        cited = [own for one in parts for own in one.get("citations") or ()]
        if cited or "sentences" not in record:
            rated = any(isinstance(citation, dict) and "support" in citation for citation in cited)
            return rated or any(key in record for key in ("criteria", "rubrics", "nuggets", "nugget_bank"))
    return False


def find_kind(paths: Sequence[Path]) -> Kind:
    """Find the kind of files. A file whose first line is no JSON has none. `UserError` for files of several kinds."""
    records = {path: record for path in paths if (record := next(_read_records(path), {}))}
    kinds = {
        path: next(one for one in KINDS if not one.keys or record.keys() & one.keys) for path, record in records.items()
    }
    if len({one.noun for one in kinds.values()}) > 1:
        first, other = next((a, b) for a, b in combinations(kinds, 2) if kinds[a] is not kinds[b])
        raise UserError(f"{other}: holds another kind of scored answers than {first}; expected one kind")
    return next(iter(kinds.values()), KINDS[-1])


def read_all(paths: Sequence[Path], kind: Kind) -> list[tuple[Path, Record]]:
    """Read all files, and give each record its file. `UserError` lists the fault of each bad file."""
    good, faults = _read_each_file(paths, kind)
    if faults:
        raise UserError("\n".join(faults))
    return [(path, record) for path, own in good.items() for record in own]


def _read_each_file(paths: Sequence[Path], kind: Kind) -> tuple[dict[Path, Sequence[Record]], list[str]]:
    """Read the good files, and list the fault of each bad one."""
    good, faults = dict[Path, Sequence[Record]](), list[str]()
    for path in paths:
        try:
            good[path] = kind.read(path)
        except UserError as error:
            faults.append(str(error))
    return good, faults


def leave_out_bad(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Leave out the files that cannot be read, and return their faults. `UserError` lists them if no file is left."""
    good, faults = _read_each_file(paths, find_kind(paths))
    if not good:
        raise UserError("\n".join(faults))
    return [*good], faults


def read_scored(paths: Sequence[Path], kind: Kind) -> tuple[list[Record], list[str]]:
    """Read scored answers of a kind; also cautions about run ids that are shared."""
    return name_runs(read_all(paths, kind))


def score_answers(paths: Sequence[Path], topics: Collection[str] = ()) -> list[Evaluation]:
    """Score the runs of files of one kind on these topics, as `keystone nuggets score` and `rubrics score` do.

    `UserError` as from those commands, and for files of several kinds.
    """
    kind = find_kind(paths)
    records, cautions = read_scored(paths, kind)
    return add_cautions(kind.score(records, topics), cautions)


@dataclass(frozen=True, slots=True)
class Judged:
    """The same runs by several judges, and the agreement of each pair of judges on the labels of the same items."""

    judges: tuple[Path, ...]
    evaluations: tuple[list[Evaluation], ...]
    """For each judge, the evaluations of the same runs in one order."""
    agreements: list[Agreement]
    """One for each pair of judges, in the order of `itertools.combinations`."""
    cautions: list[str]
    files: Mapping[str, Path] = field(default_factory=dict)
    """By the name of a run, the file that holds this run alone."""


def judge_answers(
    paths: Sequence[Path],
    judges: Mapping[Path, Sequence[Path]],
    topics: Collection[str] = (),
    most_cited: int | None = None,
) -> Judged:
    """Score files of one kind by one judge, or by several, each with files of items, which may be labelled.

    A judge's labelled items are scored as they are. If a judge has plain items, the answers of `paths` with these items
    are scored. The topics are `topics`, or else those of the judge's plain items. `UserError` as from `score_answers`,
    and for one judge without `paths`.
    """
    kind = find_kind(paths or [file for own in judges.values() for file in own])
    if kind.score is score_cited:
        kind = replace(kind, score=partial(score_cited, most_cited=most_cited))
    if len(judges) < 2:
        if not paths:
            raise UserError(f"{next(iter(judges))}: found as both judges, expected two judges or answers to score")
        records, cautions = name_runs(read := read_all(paths, kind))
        wanted = topics or {
            one.topic_id for own in judges.values() for path in own for one in find_kind([path]).read(path)
        }
        scores = add_cautions(kind.score(records, wanted), cautions)
        return Judged((*judges,), (scores,), [], [], _list_files(read, records))
    read = read_all(paths, kind)
    said = [_share_out(read, path, files, kind) for path, files in judges.items()]
    scored = [kind.score(own, topics or own_topics) for own, own_topics, _, _ in said]
    cautions = [caution for _, _, own, _ in said for caution in own]
    by_name = [{one.name: one for one in own} for own in scored]
    names = [name for name in by_name[0] if all(name in own for own in by_name)]
    if not names:
        listed = ", ".join(f"{path} {next(iter(own))!r}" for path, own in zip(judges, by_name, strict=True))
        raise UserError(f"no run is judged by all; the runs look like: {listed}")
    every = dict.fromkeys(name for own in by_name for name in own)
    cautions += [f"{name}: not judged by all, so it is left out" for name in every if name not in names]
    labels = [dict(label_items(own, kind)) for own, *_ in said]
    pairs = [count_agreement(*pair) for pair in combinations(labels, 2)]
    files = {name: file for *_, own in reversed(said) for name, file in own.items()}
    return Judged((*judges,), tuple([own[name] for name in names] for own in by_name), pairs, cautions, files)


def _list_files(read: Sequence[tuple[Path, Record]], records: Sequence[Record]) -> dict[str, Path]:
    """List the files that hold one run alone, by the name that the run has in `records`."""
    held = dict.fromkeys((one.run_id, path) for (path, _), one in zip(read, records, strict=True))
    runs = Counter(path for _, path in held)
    return {name: path for name, path in held if runs[path] == 1}


def _share_out(
    read: Sequence[tuple[Path, Record]], path: Path, files: Sequence[Path], kind: Kind
) -> tuple[Sequence[Record], Collection[str], list[str], dict[str, Path]]:
    """Find the records of a judge, its topics if its files have plain items, cautions, and the files of runs.

    `UserError` for a judge without any record.
    """
    own, cautions = name_runs(held := read_all(files, kind))
    if any(label is not None for one in own for _, label in kind.list_items(one)):
        return own, (), cautions, _list_files(held, own)
    known = {one.topic_id: {name for name, _ in kind.list_items(one)} for one in own}
    found = [o for o in read if {name for name, _ in kind.list_items(o[1])} <= known.get(o[1].topic_id, set())]
    if not found:
        raise UserError(f"{path}: no answer has labels of these items alone; expected some for each judge")
    records, cautions = name_runs(found)
    return records, known.keys(), cautions, _list_files(found, records)


def label_items(records: Sequence[Record], kind: Kind) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Label the items of each run and topic by numbers; a better label has a higher number."""
    for one in records:
        for name, label in kind.list_items(one):
            if label in LABELS:
                yield (one.run_id, one.topic_id, name), LABELS[label]


def keep_labels(out: Path, made: Sequence[Record], kind: Kind) -> None:
    """Raise `UserError` if the file `out` has a label that `made` lacks or changes, as one that a person corrected."""
    keep_items(out, ("label", "labels"), lambda path: label_items(kind.read(path), kind), label_items(made, kind))


Labels = Mapping[tuple[str, str, str], int]
"""The number of each label, by run, topic and item."""


def count_agreement(first: Labels, second: Labels) -> Agreement:
    """Count the labels of the items that both judges have labelled."""
    size = len(SCALES[0])
    counts = np.zeros((size, size), dtype=np.int64)
    for key in first.keys() & second.keys():
        counts[first[key], second[key]] += 1
    return Agreement(tuple(range(size)), counts)


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """The agreement of two judges on the labels of the same items of a kind."""

    kind: Kind
    agreement: Agreement

    def report(self) -> dict[str, Any]:
        """Report the number of items, the share with equal labels, and kappa, plain and with linear weights.

        Kappa is NaN if chance alone agrees.
        """
        total = int(self.agreement.counts.sum())
        return {
            self.kind.nouns: total,
            "equal": float(np.trace(self.agreement.counts)) / total,
            "kappa": self.agreement.compute_kappa(),
            "weighted_kappa": self.agreement.compute_kappa("linear"),
        }

    def describe(self) -> str:
        """Describe the agreement in a line."""
        found = self.report()
        items = plural(int(self.agreement.counts.sum()), self.kind.noun, self.kind.nouns)
        return (
            f"agreement on {items}: {found['equal']:.1%} equal, "
            f"kappa {found['kappa']:.4f}, weighted kappa {found['weighted_kappa']:.4f}"
        )


def compare_labels(paths: Sequence[Path], others: Sequence[Path]) -> LabelAgreement:
    """Compare the labels of files with those of another judge's files, item by item.

    Two items are the same if run, topic and text are the same; for citations, run, topic, place and cited id.
    `UserError` if no item has a label in both.
    """
    kind = find_kind([*paths, *others])
    ours, theirs = (dict(label_items(read_scored(own, kind)[0], kind)) for own in (paths, others))
    agreement = count_agreement(ours, theirs)
    if not agreement.counts.any():
        raise UserError(
            f"{others[0]}: labels no {kind.noun} that the other files label, expected the same runs and topics"
        )
    return LabelAgreement(kind, agreement)
