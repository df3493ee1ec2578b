"""Converting a file into another form, with an account of all that the target cannot hold.

The form of a file is recognised from its first record or its first lines. Losses are found field by field.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import choose_delimiter, name_columns
from keystone.indexing.io.fields import find_names
from keystone.indexing.io.reading import COMPRESSIONS, read_text_lines
from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.nuggets.cited import CitedAnswer
from keystone.runs.evaluation.nuggets.files import Nugget, NuggetBank
from keystone.runs.exchange.forms.scores import is_value
from keystone.runs.exchange.records import read_records
from keystone.runs.exchange.table import FORMS, Form, get_form
from keystone.runs.exchange.types import Candidate, Handover, Kind, Request, find_text_key, get_text
from keystone.runs.track_rules import OPTIONS, TRACKS, KeyContent
from keystone.runs.trec.collections import names_columns
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.topics import LAYOUT, NARRATIVE_KEYS, names_collection, read_topic_narratives

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
        yield "score", number("score", score.run_id, score.topic_id, score.measure), score.value


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
        "sub_narrative": one.sub_narrative,
    }


def _drop_empty(key: Hashable, values: Mapping[str, Any], before: str = "") -> Iterator[Item]:
    for name, value in values.items():
        if value is not None and value not in ("", (), [], {}):
            yield f"{before}{name}", key, value if isinstance(value, Hashable) else orjson.dumps(value)


@dataclass(frozen=True, slots=True)
class ConversionSettings:
    """The form to write (`to`) and the form to read (`source`; None: recognised from the content).

    If `strict` is true, no value may be dropped or changed. The file `topics` has the queries of topics that have none.
    """

    to: str
    source: str | None = None
    strict: bool = False
    topics: Path | None = None
    named: Mapping[KeyContent, str] = field(default_factory=dict)
    """The team, the run, its description or its type, in place of those in the file."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The forms of a conversion, its losses, and the number of values that the target requires and nobody gave."""

    source: Form
    target: Form
    losses: Losses
    missing: Mapping[str, int]


def convert(path: Path, out: Path, settings: ConversionSettings) -> Conversion:
    """Convert the file `path` into another form and write it to `out`, which appears when it is whole.

    The losses come from reading the new file again. If the target cannot hold the kind of content, the function raises
    `UserError`. If `settings` is strict, and the function would drop or change a value, it also raises `UserError`. In
    both cases, it writes no file.
    """
    target = get_form(settings.to, "--to")
    form = get_form(settings.source, "--from") if settings.source else recognise(path)
    content = form.read(path)
    if not (content.requests or content.answers or content.nuggets or content.scores):
        raise UserError(f"{path}: holds no {form.kind}")
    if settings.topics:
        content = fill_queries(content, read_topic_narratives(settings.topics))
    content = name_author(content, settings.named)
    derived, lost = derive(content, form.kind, target.kind)
    if derived is None:
        raise UserError(f"{path}: {form.name} holds {form.kind}, but {target.name} holds {target.kind}; {DERIVED}")
    with TemporaryDirectory(prefix="keystone-") as folder:
        made = Path(folder) / f"made{'' if out.suffix.lower() in COMPRESSIONS else out.suffix}"
        try:
            target.write(made, derived)
            losses = compare(derived, target.read(made), lost)
        except UserError as error:
            raise UserError(
                f"{str(error).replace(str(made), str(out))}; it is made from {path} ({form.name})"
            ) from error
        if settings.strict and (found := describe(losses, ("dropped", "changed"))):
            raise UserError(f"{path}: {target.name} cannot hold all of it: {'; '.join(found)}")
        with made.open("rb") as file, write_whole(out) as whole:
            shutil.copyfileobj(file, whole)
    return Conversion(form, target, losses, find_missing(derived, target))


FIELDS: Mapping[KeyContent, str] = {
    "team": "team_id",
    "run": "run_id",
    "description": "description",
    "type": "type",
    "narrative": "query",
}
"""The fields of an answer that hold the content of a track's keys."""


def name_author(content: Handover, named: Mapping[KeyContent, str]) -> Handover:
    """Replace the team, the run, its description or its type. `UserError` for content that has no such field."""
    own = {FIELDS[holds]: value for holds, value in named.items()}

    def name(one: Any) -> Any:
        if lacking := [holds for holds in named if not hasattr(one, FIELDS[holds])]:
            raise UserError(f"{OPTIONS[lacking[0]]}: found it for content that has no {lacking[0]}")
        return replace(one, **own)

    return _change_each(content, name, ("requests", "answers", "nuggets", "scores"))


def _change_each(content: Handover, change: Callable[[Any], Any], kinds: Sequence[Kind]) -> Handover:
    changed: dict[str, Any] = {kind: tuple(map(change, getattr(content, kind))) for kind in kinds}
    return replace(content, **changed)


def find_missing(content: Handover, target: Form) -> dict[str, int]:
    """Count the values that the form's track requires and the answers lack, by the name of their key.

    Team, run and topic are never missing, because they have a default or must be there.
    """
    keys = TRACKS[target.name].keys if target.name in TRACKS else ()
    required = [key for key in keys if key.required and key.holds in ("narrative", "description", "type")]
    counts = {key.name: sum(not getattr(one, FIELDS[key.holds]) for one in content.answers) for key in required}
    if target.name == "biogen24":
        counts["contact_email"] = not content.answers[0].extra.get("contact_email")
    return {name: int(number) for name, number in counts.items() if number}


def describe_missing(done: Conversion) -> list[str]:
    """Describe each required value that is missing, with the option that gives it."""
    keys = TRACKS[done.target.name].keys if done.target.name in TRACKS else ()
    options = {key.name: OPTIONS.get(key.holds, "--topics") for key in keys}
    return [
        f"missing: {name} ({number:,}), which {done.target.name} requires"
        + (f": {options[name]} gives it" if name in options else "")
        for name, number in done.missing.items()
    ]


def fill_queries(content: Handover, queries: Mapping[str, str]) -> Handover:
    """Fill in the queries of topics that have none."""

    def fill(one: Any) -> Any:
        return one if one.query else replace(one, query=queries.get(one.topic_id, ""))

    return _change_each(content, fill, ("requests", "answers", "nuggets"))


DERIVED = "Keystone makes requests from answers or nuggets, and nothing else from another kind"


def derive(content: Handover, source: Kind, target: Kind) -> tuple[Handover | None, Counter[str]]:
    """Derive content of another kind, and count the values that this loses. None if it is impossible.

    An answer becomes a request for its query, with its references as candidates. Nuggets become a request with the
    documents that state them, each with the grade 1 for its nuggets.
    """
    lost = Counter(content.unread)
    if source == target:
        return content, lost
    if target != "requests" or source == "scores":
        return None, lost
    carried = ("topic", "query", "run_id", "references", "document.", "nugget.id", "nugget.references")
    lost += Counter(name for name, _, _ in list_items(content) if not name.startswith(carried))
    requests = *map(_request_answer, content.answers), *map(_request_nuggets, content.nuggets)
    return Handover(requests), lost


def _request_answer(one: CitedAnswer) -> Request:
    candidates = (Candidate(name, parts=one.documents.get(name, {})) for name in one.list_references())
    return Request(one.topic_id, one.query, tuple(candidates), one.run_id, place=one.place)


def _request_nuggets(bank: NuggetBank) -> Request:
    stated: dict[str, dict[str, int]] = {}
    for number, nugget in enumerate(bank.nuggets, 1):
        for source in nugget.list_sources():
            stated.setdefault(source.doc_id, {})[nugget.name or str(number)] = 1
    candidates = (Candidate(name, subtopics=tuple(own.items())) for name, own in stated.items())
    return Request(bank.topic_id, bank.query, tuple(candidates), place=bank.place)


def describe(losses: Losses, kinds: Iterable[str] = ("dropped", "changed", "added")) -> list[str]:
    """Describe each kind of losses in a line, with the number of values of each field. A kind without any has no line.

    A field to which one value was added everywhere is described with that value.
    """
    values = {("added", name): f": {value!r}" for name, value in losses.values.items() if isinstance(value, str)}
    counts = {kind: getattr(losses, kind) for kind in kinds}
    shown = {
        kind: [f"{name} ({number:,}{values.get((kind, name), '')})" for name, number in sorted(own.items())]
        for kind, own in counts.items()
    }
    return [f"{kind}: {', '.join(fields)}" for kind, fields in shown.items() if fields]


SHOWN_LINES = 1000
"""How many lines of a run are looked at to recognise it."""
GRADES = frozenset(map(str, range(-2, 6)))
ITERATIONS = frozenset(("0", "1", "Q0"))
"""The second columns of judgments without nuggets. A word that all rows have counts as well, such as a judge's name."""


def recognise(path: Path) -> Form:
    """Recognise the form of a file. `UserError` if no known form fits, or if several do."""
    if names_collection(path):
        raise UserError(f"{path}: holds topics and qrels; name one of them with --from")
    line = next((line for _, line in read_text_lines(path) if line.strip() and not line.startswith("#")), None)
    if line is None:
        raise UserError(f"{path}: holds no line; name the form with --from")
    if line.lstrip()[:1] in ("{", "["):
        record = next(record for _, record in read_records(path))
        form = _recognise_record(record)
        if form is None:
            keys = ", ".join(record) or "none"
            raise UserError(f"{path}: no known form has the keys {keys}; name the form with --from, see --forms")
        return form
    if names_columns(line):
        return FORMS["qrels"]
    if line.lstrip().startswith("<"):
        return FORMS["topics"]
    header = name_columns(line.split(choose_delimiter(line)), LAYOUT)
    if find_names(header or (), NARRATIVE_KEYS) or (line.count("\t") == 1 and not _is_ranked(line.split())):
        return FORMS["topics-tsv"]
    return FORMS[_recognise_columns(path)]


def _is_ranked(columns: Sequence[str]) -> bool:
    """Whether columns may be a row of a run, with a rank and a score, rather than a topic of five words."""
    return len(columns) == 6 and columns[3].isdecimal() and is_value(columns[4])


def _recognise_record(record: dict[str, Any]) -> Form | None:
    """The last of our forms that fits a record, else the first one of another package."""
    names = [*reversed(list(FORMS.own)), *FORMS.list_added()]
    return next((form for form in map(FORMS.__getitem__, names) if form.fits and form.fits(record)), None)


def _recognise_columns(path: Path) -> str:
    rows = []
    for number, line in read_text_lines(path):
        if line.strip() and not line.startswith("#"):
            rows.append(split_columns(line))
        if number >= SHOWN_LINES and len(rows[0]) != 4:
            break
    widths = {len(row) for row in rows}
    second, third, fourth, fifth = ({row[place] for row in rows if len(row) > place} for place in (1, 2, 3, 4))
    if min(widths) >= 6:
        ranked = len({(row[0], row[3]) for row in rows}) == len(rows)
        return "qrels" if fourth | fifth <= GRADES and not ranked else "run"
    if widths == {4}:
        if second == {"all"} or "all" in second - third or "query_id" in second:
            return "ir-measures"
        if "all" in third - second:
            return "leaderboard"
        if {grade.removesuffix(".0") for grade in fourth} <= GRADES and (second <= ITERATIONS or len(second) == 1):
            return "qrels"
        raise UserError(f"{path}: is nugget-qrels, leaderboard or ir-measures; name the form with --from")
    found = ", ".join(map(str, sorted(widths)))
    raise UserError(f"{path}: no known form has lines of {found} columns; name the form with --from, see --forms")
