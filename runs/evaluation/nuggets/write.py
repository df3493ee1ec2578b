"""Writing of nuggets in the forms of nuggetizer, of auto-judge's NuggetBank, and of RAGTIME 2026."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.evaluation.nuggets.read import CODE_POINTS
from keystone.runs.evaluation.nuggets.types import GoldAnswer, Nugget, NuggetBank, Source
from keystone.runs.track_rules import DEFAULT_TEAM


def write_nuggets(path: Path, banks: Iterable[NuggetBank], form: str = "nuggetizer") -> None:
    """Write one bank a line, in one of `FORMS`. The file appears when it is whole.

    `UserError` if a topic has banks of several runs, and the form holds no run.
    """
    banks = list(banks)
    topics = Counter(bank.topic_id for bank in banks)
    if form == "nuggetbank" and banks and max(topics.values()) > 1:
        raise UserError(f"{path}: topic {topics.most_common(1)[0][0]!r} has several runs; a NuggetBank holds none")
    write_json_lines(path, map(FORMS[form], banks))


def encode_for_nuggetizer(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as nuggetizer does. A question becomes one text with its answers; documents have no place here."""
    answer = {"answer_text": bank.answer_text, "response_length": len(bank.answer_text.split()), "run_id": bank.run_id}
    nuggets = [_fill(text=one.describe(), importance=one.importance, assignment=one.assignment) for one in bank.nuggets]
    return {"query": bank.query, "qid": bank.topic_id, **(answer if bank.run_id else {}), "nuggets": nuggets}


def encode_as_nugget_bank(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as auto-judge's NuggetBank, version 3. Labels of an answer's run have no place here."""
    questions = [one for one in bank.nuggets if one.answers is not None]
    claims = [one for one in bank.nuggets if one.answers is None]
    return _fill(
        query_id=bank.topic_id,
        title_query=bank.query,
        format_version="v3",
        nugget_bank=_key_by_text([(one.text, _encode_nugget(bank, one, "question")) for one in questions]),
        claim_bank=_key_by_text([(one.text, _encode_nugget(bank, one, "claim")) for one in claims]),
    )


def encode_for_ragtime(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as a line of RAGTIME's third task. A claim becomes an answer to the question of its topic."""
    run_id = bank.run_id or "nuggets"
    team_id = bank.team_id or DEFAULT_TEAM
    metadata = {"team_id": team_id, "topic_id": bank.topic_id, "run_id": run_id, "run_desc": bank.description}
    nuggets = []
    for one in bank.nuggets:
        answers = (GoldAnswer(one.text, one.sources),) if one.answers is None else one.answers
        encoded = [{"answer": each.text, "references": [source.doc_id for source in each.sources]} for each in answers]
        question = (bank.query or bank.topic_id) if one.answers is None else one.text
        nuggets.append(
            _fill(
                question=question, aggregator_type=one.aggregator or "AND", answers=encoded, importance=one.importance
            )
        )
    return {"metadata": metadata, "nugget_bank": nuggets}


FORMS: Mapping[str, Callable[[NuggetBank], dict[str, Any]]] = {
    "nuggetizer": encode_for_nuggetizer,
    "nuggetbank": encode_as_nugget_bank,
    "ragtime": encode_for_ragtime,
}
"""The forms of files of nuggets."""


def _encode_nugget(bank: NuggetBank, nugget: Nugget, kind: str) -> dict[str, Any]:
    answers = None
    if nugget.answers is not None:
        encoded = [
            (one.text, _fill(answer=one.text, references=_encode_sources(one.sources))) for one in nugget.answers
        ]
        answers = _key_by_text(encoded)
    return _fill(
        **{kind: nugget.text, f"{kind}_id": nugget.name or None},
        query_id=bank.topic_id,
        importance=nugget.importance,
        aggregator_type=nugget.aggregator,
        answers=answers,
        references=_encode_sources(nugget.sources),
    )


def _encode_sources(sources: Sequence[Source]) -> list[dict[str, Any]] | None:
    """Encode sources as references, whose offsets count characters."""
    return [
        _fill(
            doc_id=one.doc_id,
            offsets=one.span and {"start_offset": one.span.start, "end_offset": one.span.end, "encoding": CODE_POINTS},
        )
        for one in sources
    ] or None


def _key_by_text(encoded: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Key objects by their texts. A text that recurs gets a number."""
    found: dict[str, dict[str, Any]] = {}
    for text, one in encoded:
        key, number = text, 1
        while key in found:
            number += 1
            key = f"{text} ({number})"
        found[key] = one
    return found


def _fill(**values: Any) -> dict[str, Any]:
    """Make an object of the values that are there."""
    return {key: value for key, value in values.items() if value is not None}
