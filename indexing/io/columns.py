"""Rows of columns: TSV and CSV, with or without a header. The first line decides between tabs, commas and semicolons.

Quotes of CSV are removed. Most writers of TSV know no quotes: there, quotes that a text does not need belong to it. A
quote that nothing closes belongs to the text in both forms, so that it swallows no rows.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.fields import find_names, reads_as_id

MOST_LINES = 10_000
"""The most lines of a value in quotes."""

_NAME = re.compile(r"(?:[^\W\d][^\s/]*)?")
"""The name of a column as one word: neither a number nor a URL. The index of a frame has an empty name."""
# not possessive: see `keystone.indexing.lucene.analyzer`
_FIRST_DELIMITER = re.compile(r'(?:"[^"]*"|[^",;])*([,;])')

_FIELD = {by: re.compile(rf'(?:\A|{by})("(?:[^"]++|"")*+"(?={by}|\Z)|[^{by}]*+)', re.DOTALL) for by in ("\t", ",", ";")}


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of ids, texts and others, those of files without a header by width (`bare`), and words for an error."""

    ids: Sequence[str]
    texts: Sequence[str]
    others: Sequence[str]
    bare: Mapping[int, Sequence[str]]
    expected: str


def choose_delimiter(line: str) -> str:
    """The character between the columns of a file with this first line: a tab, or what comes first outside of quotes.

    CSV of some countries has semicolons.
    """
    first = None if "\t" in line else _FIRST_DELIMITER.match(line)
    return first[1] if first else next((by for by in "\t,;" if by in line), ",")


def read_columns(
    path: Path, numbered: Iterable[tuple[int, str]], layout: Layout, report: Report = stop
) -> Iterator[tuple[int, dict[str, str]]]:
    """Values by column of each row, with its line. Rows of another width than the header or first are reported."""
    lines = iter(numbered)
    first = next((entry for entry in lines if entry[1].strip()), None)
    if first is None:
        return
    names: Sequence[str] | None = None
    quoted = header = False
    for number, fields in _split_rows(chain([first], lines), choose_delimiter(first[1]), layout.bare):
        if number == first[0]:
            quoted = all(map(_is_quoted, fields)) or "\t" not in first[1]
            values = [_drop_quotes(value, quoted) for value in fields]
            header = bool(names := name_columns(values, layout))
            names = names or layout.bare.get(len(values))
            if header:
                continue
        if names is None or len(fields) != len(names):
            widths = " or ".join(map(str, layout.bare))
            expected = f"the {len(names)} columns of the header" if header and names else f"{widths} columns"
            comma = f", {layout.expected}," if not header else ","
            message = f"{path}:{number}: expected {expected}{comma} found {len(fields)}"
            report(BadRecord(message, "wrong columns"))
            continue
        own = quoted or _is_quoted(fields[0])
        yield number, dict(zip(names, (_drop_quotes(value, own) for value in fields), strict=True))


def name_columns(values: Sequence[str], layout: Layout) -> list[str] | None:
    """The names of the columns if the values of a first row are a header; None for a row of data.

    Of two columns, one may have a name that is not known: a word after a name of ids or texts, or letters before one of
    texts. Of more columns, two must have known names. One is enough if it names ids in the first column, or if all
    names are single words. The first column may also have a name that only reads as one of ids, if another name is
    known or all others are words.
    """
    known = set(find_names(values, [*layout.ids, *layout.texts, *layout.others]))
    if not values or not all(map(str.isprintable, values)):
        return None
    name, *others = values
    are_names = " " in name or not known.isdisjoint(others) or all(len(other.split()) == 1 for other in others)
    if others and are_names and reads_as_id(name) and not find_names(values, layout.ids):
        return [layout.ids[0], *(others if known or len(others) > 1 else layout.texts[:1])]
    are_words = all(_NAME.fullmatch(value.strip()) for value in values)
    if len(values) != 2 or len(known) == 2:
        one_is_enough = len(values) > 2 and (are_words or bool(find_names([name], layout.ids)))
        return list(values) if len(known) > (0 if one_is_enough else 1) else None
    (text,) = others
    if find_names([name], layout.ids):
        return [name, layout.texts[0]] if are_names else None
    if find_names([name], layout.texts) and are_words:
        return list(values)
    return [layout.ids[0], text] if find_names([text], layout.texts) and name.isalpha() else None


def _split_rows(
    numbered: Iterable[tuple[int, str]], by: str, widths: Collection[int]
) -> Iterator[tuple[int, list[str]]]:
    """The columns of each row, still in their quotes. A value in quotes may go on in the next lines.

    In TSV, a line with a tab always begins a row. If nothing closes a quote, or the row would not have as many columns
    as the first one, its lines are rows of their own. `widths` are the numbers of columns that the first one may have.
    """
    lines, searched, is_first = _Lines(numbered), 0, True
    for number, line in lines:
        if not line.strip():
            continue
        fields, is_open = _split(line, by)
        if is_open and number > searched:
            more = lines.take_quoted(by)
            whole, still_open = _split("\n".join([line, *(text for _, text in more)]), by)
            if more and not still_open and len(whole) in widths:
                fields = whole
            else:
                lines.ahead.extendleft(reversed(more))
                searched = more[-1][0] if more else number
        widths, is_first = [len(fields)] if is_first else widths, False
        yield number, fields


class _Lines:
    """Lines that can be given back; those in `ahead` come next."""

    def __init__(self, numbered: Iterable[tuple[int, str]]) -> None:
        self._source, self.ahead = iter(numbered), deque[tuple[int, str]]()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while entry := self.ahead.popleft() if self.ahead else next(self._source, None):
            yield entry

    def take_quoted(self, by: str) -> list[tuple[int, str]]:
        """Take the lines up to the one that closes a quote, or those before a row of TSV; at most `MOST_LINES`."""
        taken: list[tuple[int, str]] = []
        for entry in self:
            if by == "\t" and by in entry[1]:
                self.ahead.appendleft(entry)
                break
            taken.append(entry)
            if entry[1].count('"') % 2 or len(taken) == MOST_LINES:
                break
        return taken


def _split(line: str, by: str) -> tuple[list[str], bool]:
    """The columns of a row, and whether one of them begins with a quote that this row does not close."""
    if '"' not in line:
        return line.split(by), False
    found = list(_FIELD[by].finditer(line))
    start = next((one.start(1) for one in found if one[1].startswith('"') and not _is_quoted(one[1])), 0)
    may_open = start > 0 or (by != "\t" and not _is_quoted(found[0][1]) and line.startswith('"'))
    return [one[1] for one in found], may_open and line.count('"', start) % 2 == 1


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1].replace('""', "")


def _drop_quotes(value: str, quoted: bool) -> str:
    """The text within the quotes of CSV. Quotes that CSV does not need belong to the text, unless `quoted`."""
    if _is_quoted(value) and (quoted or any(special in value[1:-1] for special in ('""', "\t", "\n"))):
        return value[1:-1].replace('""', '"')
    return value
