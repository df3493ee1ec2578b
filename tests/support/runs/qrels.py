"""Judgments as plain dictionaries."""

from keystone.runs.trec.types import Qrels


def grades_of(qrels: Qrels) -> dict[str, dict[str, int]]:
    pairs = list(zip(qrels.docs.decode_ids(), qrels.grades.tolist(), strict=True))
    return {q: dict(pairs[a:b]) for q, a, b in zip(qrels.query_ids, qrels.offsets, qrels.offsets[1:], strict=False)}
