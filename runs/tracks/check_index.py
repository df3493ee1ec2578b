"""The check that a submission names documents of an index, for tracks whose ids tell too little by their form."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from keystone.indexing.types import Store, document_id
from keystone.runs.track_rules import Track
from keystone.runs.tracks.answer_files import list_cited_ids, list_references
from keystone.runs.tracks.check_answers import read_id
from keystone.runs.tracks.check_nuggets import holds_nuggets
from keystone.runs.tracks.check_nuggets import list_references as list_nugget_references
from keystone.runs.tracks.check_run import is_row
from keystone.runs.tracks.validate import holds_answers
from keystone.runs.tracks.violations import Lines, Violation, make_error, parse_object, read_lines, shorten_value
from keystone.runs.trec.rows import split_columns


def check_index(path: Path, track: Track, store: Store) -> Iterator[Violation]:
    """Find ids of a run, an answer file or a file of nuggets that the index lacks, each at its first line.

    The id of a segment may also stand for its document.
    """
    content = read_lines(path)
    named: dict[str, int] = {}
    if not holds_answers(path, content):
        listed = _list_ranked(content)
    else:
        listed = _list_of_nuggets(content) if holds_nuggets(content) else _list_cited(content, track)
    for number, name in listed:
        named.setdefault(name, number)
    own, documents = (store.rows(ids).tolist() for ids in (list(named), list(map(document_id, named))))
    for (name, number), *rows in zip(named.items(), own, documents, strict=True):
        if max(rows) < 0:
            yield make_error(number, "not in the index", f"{shorten_value(name)}: no document of the index")


def _list_cited(content: Lines, track: Track) -> Iterator[tuple[int, str]]:
    for number, line in content:
        if record := parse_object(line):
            references = list_references(record, track)
            listed = map(read_id, references if isinstance(references, list) else ())
            yield from ((number, name) for name in filter(None, chain(listed, list_cited_ids(record, track))))


def _list_of_nuggets(content: Lines) -> Iterator[tuple[int, str]]:
    for number, line in content:
        yield from ((number, name) for name in list_nugget_references(parse_object(line) or {}))


def _list_ranked(content: Lines) -> Iterator[tuple[int, str]]:
    return ((number, split_columns(line)[2]) for number, line in content if is_row(line))
