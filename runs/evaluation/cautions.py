"""Cautions: one sentence for each reason why the measures of a run may mislead."""

from collections.abc import Iterable, Sequence

import numpy as np

from keystone.indexing.types import document_id
from keystone.runs.evaluation.measures import SUBTOPIC_FAMILIES, Measure
from keystone.runs.trec.arrays import Flags, Ints
from keystone.runs.trec.types import Qrels, Run
from keystone.runs.wording import plural

HEAD_ROWS = 100
"""The number of rows of each topic that Keystone examines to explain why no row is judged."""


def caution_about_judgments(qrels: Qrels, measures: Sequence[Measure]) -> list[str]:
    """Caution about measures that have no relevant document, and about topics that have none."""
    found = []
    best = np.maximum.reduceat(qrels.grades, qrels.offsets[:-1])
    for grade in sorted({measure.relevant_from for measure in measures if measure.of_relevance}):
        of_grade = ", ".join(str(m) for m in measures if m.relevant_from == grade and m.of_relevance)
        without = int(np.count_nonzero(best < grade))
        if without == len(best):
            found.append(f"{of_grade}: not measured, as no judged topic has a document of grade {grade} or more")
        elif without:
            share = f"{without:,} of {len(best):,}"
            found.append(f"judged topics without a document of grade {grade} or more, which count 0: {share}")
    if qrels.subtopics is None:
        if blind := [str(measure) for measure in measures if measure.family in SUBTOPIC_FAMILIES]:
            found.append(f"{', '.join(blind)}: the judgments name no subtopics in their second column")
    elif merged := len(qrels.subtopics.grades) - len(qrels.grades):
        share = f"{merged:,} of {len(qrels.subtopics.grades):,} judgments are of a document's further subtopics"
        found.append(f"{share}; measures without subtopics take its highest grade")
    return found


def caution_about_topics(
    name: str, asked: Sequence[str], judged: Sequence[str], row: str = "a row", judgment: str = "judgment"
) -> list[str]:
    """Caution about topics that only the run or only the judgments have; `row` and `judgment` name an entry of each."""
    missing, extra = sorted(set(judged) - set(asked)), sorted(set(asked) - set(judged))
    found = []
    if missing:
        share = f"{len(missing):,} of {len(judged):,}"
        found.append(f"{name}: judged topics without {row}, which count 0: {share}, such as {missing[0]}")
    if extra:
        share = f"{len(extra):,} of {len(asked):,}"
        found.append(f"{name}: topics without a {judgment}, which are left out: {share}, such as {extra[0]}")
    plain = {_normalise_topic_id(topic): topic for topic in extra}
    if alike := next(
        ((plain[_normalise_topic_id(topic)], topic) for topic in missing if _normalise_topic_id(topic) in plain), None
    ):
        found.append(f"{name}: its topic {alike[0]!r} is not {alike[1]!r} of the {judgment}s; ids must be the same")
    return found


def caution_about_order(name: str, run: Run) -> list[str]:
    """Caution about scores that are all equal, or grow from row to row. The run has the order of its file."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(run.scores.astype(np.float32))
    within = np.ones(len(steps), dtype=bool)
    ends = run.offsets[1:-1]
    within[ends[(ends > 0) & (ends < len(run.scores))] - 1] = False
    steps = steps[within]
    if len(steps) and not np.any(steps):
        return [
            f"{name}: all scores of a topic are equal, so document ids order its rows, not their places in the file"
        ]
    if len(steps) and np.all(steps >= 0):
        return [f"{name}: scores grow from row to row, so the last row of a topic is ranked first; are they distances?"]
    return []


def caution_about_sets(name: str, measures: Iterable[str]) -> list[str]:
    """Caution about measures of sets, for a ranking from which the run submits only chosen rows."""
    sets = ", ".join(measure for measure in measures if measure.startswith("Set"))
    return [f"{name}: {sets} of all rows, of which the run submits some; measure the file it submits"] if sets else []


def caution_about_negative_grades(
    name: str, rows: Flags, offsets: Ints, measures: Sequence[Measure], condensed: bool
) -> list[str]:
    """Caution about rows with a negative grade, which `rows` (bool[rows]) marks, where tools treat them differently."""
    ranks = np.flatnonzero(rows) - np.repeat(offsets[:-1], np.diff(offsets))[rows]
    found = []
    if condensed and len(ranks):
        negative = plural(len(ranks), "row")
        found.append(f"{name}: {negative} with a negative grade left out of condensed lists, as by trec_eval -J")
    counts = {str(one): int(np.count_nonzero(ranks < one.cutoff)) for one in measures if one.family == "judged"}
    judged = "with a negative grade as judged"
    return found + [
        f"{name}: {one} counts {plural(number, 'row')} {judged}" for one, number in counts.items() if number
    ]


def caution_about_ids(name: str, run: Run, qrels: Qrels, places: Ints) -> list[str]:
    """Caution about the form of ids, if no row is judged. `places` (int64[rows]) is -1 for a row without a judgment."""
    if not len(places) or np.any(places >= 0):
        return []
    lengths = np.diff(run.offsets)
    head = np.arange(len(places)) - np.repeat(run.offsets[:-1], lengths) < HEAD_ROWS
    rows = list(zip(np.repeat(run.query_ids, lengths)[head].tolist(), run.docs[head].decode_ids(), strict=True))
    judged = list(qrels.list_rows())
    documents = {(topic, document_id(doc)) for topic, doc, _ in judged}
    alike = sum((topic, document_id(doc)) in documents for topic, doc in rows)
    ids = f"its ids look like {rows[0][1]!r}, those of the judgments like {judged[0][1]!r}"
    found = [f"{name}: no row is judged; {ids}"]
    if alike:
        own, other = ("segments", "documents") if any("#" in doc for _, doc in rows) else ("documents", "segments")
        share = f"{alike:,} of the first {len(rows):,} rows are of a judged document"
        found.append(f"{name}: its rows are {own}, the judgments {other}: {share}")
    return found


def _normalise_topic_id(topic: str) -> str:
    """Normalise a topic id: no leading zeros, no case."""
    return topic.lstrip("0").casefold()
