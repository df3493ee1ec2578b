"""The differences between a file's content and what another form holds of it, field by field."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from keystone.runs.evaluation.nuggets.types import Nugget, NuggetBank
from keystone.runs.exchange.types import CitedAnswer, Handover, Request, find_text_key, get_text

Item = tuple[str, Hashable, Any]
"""The name of a field, the record that it belongs to, and its value."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The numbers of values that a form lacks, holds otherwise, or adds, by the name of their field."""

    dropped: Mapping[str, int]
    changed: Mapping[str, int]
    added: Mapping[str, int]
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The value of each added field that has the same one everywhere."""


def compare(source: Handover, target: Handover, dropped: Counter[str]) -> Losses:
    """Compare the content of a file with the content of another file that was made from it.

    `dropped` counts values that are lost already.
    """
    found = {(name, key): value for name, key, value in list_items(source)}
    kept = {(name, key): value for name, key, value in list_items(target)}
    added = {(name, key): value for (name, key), value in kept.items() if (name, key) not in found}
    values: dict[str, set[Any]] = {}
    for (name, _), value in added.items():
        values.setdefault(name, set()).add(value)
    return Losses(
        dict(Counter(name for name, key in found if (name, key) not in kept) + dropped),
        dict(Counter(name for (name, key), value in found.items() if kept.get((name, key), value) != value)),
        dict(Counter(name for name, _ in added)),
        {name: next(iter(own)) for name, own in values.items() if len(own) == 1},
    )


def list_items(content: Handover) -> Iterator[Item]:
    """List all values of a content that are not empty, each with the name of its field and its record."""
    seen: Counter[Hashable] = Counter()

    def number(*key: Hashable) -> Hashable:
        seen[key] += 1
        return *key, seen[key]

    for request in content.requests:
        own = number("request", request.topic_id or request.query)
        yield from _drop_empty(own, _list_request(request))
        ranked = any(each.score is not None for each in request.candidates)
        for place, each in enumerate(request.candidates):
            key = number(own, each.doc_id or each.text)
            yield "candidate", key, True
            values = {"docid": each.doc_id, "score": each.score, "grade": each.grade, "text": each.text}
            values |= {"rank": place if ranked else None} | _name_parts(each.parts)
            yield from _drop_empty(key, values, "candidate.")
            yield from (("candidate.nugget", (key, name), grade) for name, grade in each.subtopics)
    for answer in content.answers:
        yield from _list_answer(answer, number("answer", answer.topic_id))
    for bank in content.nuggets:
        yield from _list_bank(bank, number("bank", bank.topic_id))
    for score in content.scores:
        yield "score", (score.run_id, score.topic_id, score.measure), score.value


def _list_request(one: Request) -> dict[str, Any]:
    values = {"topic": one.topic_id, "query": one.query, "run_id": one.run_id}
    return values | {f"topic.{key}": value for key, value in one.extra.items()}


def _name_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Name the parts of a document apart from the one that is its text."""
    chosen = find_text_key(parts)
    return {key: value for key, value in parts.items() if key != chosen}


def _list_answer(one: CitedAnswer, own: Hashable) -> Iterator[Item]:
    yield "answer", own, True
    texts = {"topic": one.topic_id, "query": one.query, "run_id": one.run_id, "team_id": one.team_id}
    further = {"type": one.type, "description": one.description, "references": one.references}
    metadata = {f"metadata.{key}": value for key, value in one.extra.items()}
    yield from _drop_empty(own, {**texts, **further, **metadata})
    for name, parts in one.documents.items():
        yield from _drop_empty((own, name), {"text": get_text(parts), **_name_parts(parts)}, "document.")
    for place, sentence in enumerate(one.sentences):
        yield "sentence", (own, place), sentence.text
        yield from _drop_empty((own, place), {"contradicted": sentence.contradicted, "existing": sentence.existing})
        for number, cited in enumerate(sentence.citations):
            key = (own, place, cited.doc_id)
            yield "citation", key, number
            yield from _drop_empty(key, {"score": cited.score, "support": cited.support}, "citation.")


def _list_bank(bank: NuggetBank, own: Hashable) -> Iterator[Item]:
    values = {"topic": bank.topic_id, "query": bank.query, "run_id": bank.run_id, "answer_text": bank.answer_text}
    yield from _drop_empty(own, {**values, "team_id": bank.team_id, "description": bank.description})
    seen: Counter[str] = Counter()
    for nugget in bank.nuggets:
        seen[nugget.text] += 1
        key = (own, nugget.text, seen[nugget.text])
        yield "nugget", key, True
        yield from _drop_empty(key, _list_nugget(nugget), "nugget.")


def _list_nugget(one: Nugget) -> dict[str, Any]:
    return {
        "importance": one.importance,
        "assignment": one.assignment,
        "id": one.name,
        "references": one.sources,
        "aggregator": one.aggregator,
        "answers": one.answers,
    }


def _drop_empty(key: Hashable, values: Mapping[str, Any], before: str = "") -> Iterator[Item]:
    for name, value in values.items():
        if value is not None and value not in ("", (), [], {}):
            yield f"{before}{name}", key, value if isinstance(value, Hashable) else orjson.dumps(value)
