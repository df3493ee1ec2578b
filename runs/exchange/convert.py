"""Converting a file into another form, with an account of all that the target cannot hold.

Recognising the form of a file from its first record or its first lines.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import choose_delimiter, name_columns
from keystone.indexing.io.reading import COMPRESSIONS, STDIN, read_text_lines
from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.nuggets.types import NuggetBank
from keystone.runs.exchange.losses import Losses, compare, list_items
from keystone.runs.exchange.records import read_records
from keystone.runs.exchange.table import FORMS, Form, get_form
from keystone.runs.exchange.types import Candidate, CitedAnswer, Handover, Kind, Request
from keystone.runs.tracks.rules import OPTIONS, TRACKS, KeyContent
from keystone.runs.trec.collections.named_rows import names_columns
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.topics import LAYOUT, names_collection, read_topics

T = TypeVar("T", Request, CitedAnswer, NuggetBank)


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
    if path == STDIN:
        raise UserError(f"{path}: is read several times, expected a file")
    form = get_form(settings.source, "--from") if settings.source else recognise(path)
    content = form.read(path)
    if not (content.requests or content.answers or content.nuggets or content.scores):
        raise UserError(f"{path}: holds no {form.kind}")
    if settings.topics:
        content = fill_queries(content, {topic.id: topic.narrative for topic in read_topics(settings.topics)})
    content = name_author(content, settings.named)
    derived, lost = derive(content, form.kind, target.kind)
    if derived is None:
        raise UserError(f"{path}: {form.name} holds {form.kind}, but {target.name} holds {target.kind}; {DERIVED}")
    with TemporaryDirectory(prefix="keystone-") as folder:
        made = Path(folder) / f"made{'' if out.suffix in COMPRESSIONS else out.suffix}"
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

    return replace(
        content,
        requests=tuple(map(name, content.requests)),
        answers=tuple(map(name, content.answers)),
        nuggets=tuple(map(name, content.nuggets)),
        scores=tuple(map(name, content.scores)),
    )


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

    def fill(one: T) -> T:
        return one if one.query else replace(one, query=queries.get(one.topic_id, ""))

    return replace(
        content,
        requests=tuple(map(fill, content.requests)),
        answers=tuple(map(fill, content.answers)),
        nuggets=tuple(map(fill, content.nuggets)),
    )


DERIVED = "Keystone makes requests from answers or nuggets, and nothing else from another kind"


def derive(content: Handover, source: Kind, target: Kind) -> tuple[Handover | None, Counter[str]]:
    """Derive content of another kind, and count the values that are lost by that. None if that is impossible.

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
    return Request(bank.topic_id, bank.query, tuple(candidates), place=bank.nuggets[0].place if bank.nuggets else "")


def describe(losses: Losses, kinds: Iterable[str] = ("dropped", "changed", "added")) -> list[str]:
    """Describe the losses of each kind in a line, with the number of values of each field. No line without losses.

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
"""The lines of a run that are looked at."""
GRADES = frozenset(map(str, range(-2, 6)))
ITERATIONS = frozenset(("0", "1", "Q0"))
"""Second columns of judgments without nuggets. Any other word is one as well if all rows have it, as a judge's name."""


def recognise(path: Path) -> Form:
    """Recognise the form of a file. `UserError` if it has none that is known, or if several forms are possible."""
    if names_collection(path):
        raise UserError(f"{path}: holds topics and qrels; name one of them by --from")
    line = next((line for _, line in read_text_lines(path) if line.strip() and not line.startswith("#")), None)
    if line is None:
        raise UserError(f"{path}: holds no line; name the form by --from")
    if line.lstrip()[:1] in ("{", "["):
        record = next(record for _, record in read_records(path))
        form = _recognise_record(record)
        if form is None:
            keys = ", ".join(record) or "none"
            raise UserError(f"{path}: no form is known by the keys {keys}; name the form by --from, see --forms")
        return form
    if names_columns(line):
        return FORMS["qrels"]
    if line.lstrip().startswith("<"):
        return FORMS["topics"]
    is_header = name_columns(line.split(choose_delimiter(line)), LAYOUT) is not None
    if is_header or (line.count("\t") == 1 and len(line.split()) != 6):
        return FORMS["topics-tsv"]
    return FORMS[_recognise_columns(path)]


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
        raise UserError(f"{path}: is nugget-qrels, leaderboard or ir-measures; name the form by --from")
    found = ", ".join(map(str, sorted(widths)))
    raise UserError(f"{path}: no form is known by lines of {found} columns; name the form by --from, see --forms")
