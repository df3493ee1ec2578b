"""WikiText: the plain files of the WikiText-2 and WikiText-103 language modelling data sets (Merity et al., 2016).

An article begins with a line ` = Title = `. Its sections begin with ` = = Section = = `, ` = = = Subsection = = = ` and
so on. A heading follows a blank line; a formula does not. Every other line is a paragraph. The module reads neither the
markup of MediaWiki nor its XML dumps.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_text_lines
from keystone.indexing.types import Document


def read(file: Path, name: str, report: Report = stop) -> Iterator[Document]:
    """The documents of a file, one for each article, with its sections as headings.

    Ids are `name:line`, since titles can repeat. Tokens such as `@-@` and `<unk>` stay. The function reports text
    before the first title once, and reports and skips an article that is too long.
    """
    start, title, headings, paragraphs, size = 0, "", [""], [""], 0

    def article() -> Document:
        text, sections, place = "\n\n".join(paragraphs), "\n".join(headings), f"{file}:{start}"
        return Document(f"{name}:{start}", text, title, headings=sections, place=place)

    blank = True
    for number, line in read_text_lines(file, report):
        text = line.strip()
        level, heading = heading_of(text) if blank else (0, "")
        if level == 1:
            if start > 0:
                yield article()
            start, title, headings, paragraphs, size = number, heading, [], [], 0
        elif text and start > 0:
            headings += [heading] if level else []
            paragraphs.append(heading or text)
            size += len(text)
            if size > LONGEST_LINE_BYTES:
                found = f"{file}:{start}: expected an article of at most {LONGEST_LINE_BYTES} characters"
                report(BadRecord(found, "too long"))
                start = -1
        elif text and start == 0:
            start = -1
            report(BadRecord(f"{file}:{number}: expected ` = Title = ` before the first text", "no title"))
        blank = not text
    if start > 0:
        yield article()


def heading_of(line: str) -> tuple[int, str]:
    """Level and text of a heading; (0, "") if the line is not a heading. `= = Section = =` has level 2."""
    if not line.startswith("= "):
        return 0, ""
    words = line.split()
    level = sum(1 for _ in itertools.takewhile("=".__eq__, words))
    if len(words) <= 2 * level or words[-level:] != ["="] * level:
        return 0, ""
    return level, " ".join(words[level:-level])
