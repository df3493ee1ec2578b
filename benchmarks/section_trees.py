"""Section trees against the real headings of ibm-claims-wiki: the share of headings that are in their place.

The articles come without their heading lines, but with the place of each heading. So the benchmark puts the lines back,
in the forms of `FORMS`: Markdown, wikitext, HTML, and that of MS MARCO V2.1 (lines of the text and a flat list beside
it). A heading counts as placed if the tree has a heading of exactly its span, and of its level if the markup gives
levels. Only headings with text below them count: trees leave out empty ones and back matter. The peer takes the first
line that equals each heading.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Row
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.structures.sections import BACK_MATTER, CONTENTS, normal_form, section_tree
from keystone.indexing.types import Document

SHARED = Path(__file__).parents[2] / "shared" / "data"
CORPUS = SHARED / "ibm-claims-wiki" / "corpus.jsonl.gz"
TARGET = 95.0
"""Percent of the headings."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading that the article has at `start`, an offset into its text."""

    level: int
    heading: str
    start: int


@dataclass(frozen=True, slots=True)
class Case:
    """A document with its heading lines, and the level of each heading that a tree should have, by (start, end)."""

    document: Document
    expected: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Form:
    """How an article gets its headings: the markup around each one, and for lists the state of text and list.

    `mark` is repeated once for each level. `contents` puts a table of contents in front. `copies` says how often the
    list has each heading. If `joined` is set, a line break after a sentence becomes a blank, as in segments of MS MARCO
    V2.1.
    """

    format: str = "headings"
    before: str = "\n"
    mark: str = ""
    after: str = "\n"
    contents: bool = False
    copies: int = 1
    joined: bool = False

    def surround(self, section: Section) -> tuple[str, str]:
        """The markup before and after a heading."""
        marks, level = self.mark * section.level, str(section.level)
        return self.before.format(marks=marks, level=level), self.after.format(marks=marks, level=level)


FORMS = {
    "list": Form(),
    "list, table of contents in front": Form(contents=True),
    "list twice, table of contents in front": Form(contents=True, copies=2),
    "list, breaks after sentences lost": Form(joined=True),
    "Markdown": Form("markdown", "\n\n{marks} ", "#", "\n\n"),
    "wikitext": Form("wikitext", "\n{marks} ", "=", " {marks}\n"),
    "HTML": Form("html", "\n<h{level}>", "", "</h{level}>\n<p>"),
}


def read_articles(path: Path = CORPUS) -> Iterator[tuple[Document, list[Section]]]:
    """The articles without heading lines, and their sections."""
    for _, record in read_json_lines(path):
        yield Document(record["docid"], record["text"], record["title"]), [Section(**s) for s in record["sections"]]


def with_headings(article: Document, sections: Sequence[Section], name: str) -> Case:
    """The article with its headings in one of the `FORMS`."""
    form = FORMS[name]
    listed = "".join(f"{section.heading}\n" for section in sections)
    parts, spans, at, length = [], [], 0, 0

    def add(part: str) -> None:
        nonlocal length
        parts.append(part)
        length += len(part)

    if form.contents:
        add(listed + "\n")
    for section in sections:
        before, after = form.surround(section)
        add(article.text[at : section.start] + before)
        spans.append((length, length + len(section.heading)))
        add(section.heading + after)
        at = section.start
    add(article.text[at:])
    kept = _with_text(article.text, sections)
    dropped = BACK_MATTER | CONTENTS | {normal_form(article.title)}
    expected = {
        span: section.level
        for span, section, has_text in zip(spans, sections, kept, strict=True)
        if has_text and normal_form(section.heading) not in dropped
    }
    text = "".join(parts)
    text = re.sub(r"(?<=[.!?])\n", " ", text) if form.joined else text
    document = Document(article.id, text, article.title, headings=listed * form.copies)
    return Case(document, expected)


def _with_text(text: str, sections: Sequence[Section]) -> list[bool]:
    """Whether each section has text before the next one of the same or a higher level."""
    kept = []
    for at, section in enumerate(sections):
        ends = (later.start for later in sections[at + 1 :] if later.level <= section.level)
        kept.append(bool(text[section.start : next(ends, len(text))].strip()))
    return kept


def share_placed(name: str, articles: Sequence[tuple[Document, list[Section]]]) -> tuple[float, float]:
    """Percent of the expected headings that trees have (recall), and of the headings of trees that are expected."""
    right = expected = made = 0
    for article, sections in articles:
        case = with_headings(article, sections, name)
        tree = section_tree(case.document, FORMS[name].format)
        found = {(node.start, node.end): node.level for node in tree.nodes[1:] if node.kind == "heading"}
        flat = FORMS[name].format == "headings"
        right += sum(span in found and (flat or found[span] == level) for span, level in case.expected.items())
        expected, made = expected + len(case.expected), made + len(found)
    return 100 * right / expected, 100 * right / made


def share_first_lines(name: str, articles: Sequence[tuple[Document, list[Section]]]) -> float:
    """Percent of the expected headings that are the first line of their words."""
    right = expected = 0
    for article, sections in articles:
        case = with_headings(article, sections, name)
        first: dict[str, int] = {}
        at = 0
        for line in case.document.text.split("\n"):
            first.setdefault(line, at)
            at += len(line) + 1
        right += sum(first.get(case.document.text[start:end]) == start for start, end in case.expected)
        expected += len(case.expected)
    return 100 * right / expected


def rows() -> list[Row]:
    """A row for each form; there are none without the collection."""
    if not CORPUS.exists():
        return []
    articles = list(read_articles())
    found = []
    for name, form in FORMS.items():
        placed, _ = share_placed(name, articles)
        title = f"section trees, {name}: headings placed, against "
        if form.format == "headings":
            first = share_first_lines(name, articles)
            found.append(Row(f"{title}first lines", placed, first, "%", placed / max(first, 1), None, "equal lines"))
        found.append(Row(f"{title}the aim", placed, TARGET, "%", placed / TARGET, 1, "equal lines"))
    return found
