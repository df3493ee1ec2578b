"""The demo's corpus: the guides in the source archive of Django 5.2, one document a section.

`read_pages` reads the archive as a stream and unpacks nothing. The result is the same on every Python.
"""

import re
import tarfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from keystone.indexing.io.published import Published, find_published
from keystone.indexing.io.writing import write_whole

ARCHIVE = Published("django", "django-5.2.8.tar.gz", "23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f")
KEPT_PAGE = re.compile(r"[^/]+/docs/((?:topics|howto|faq|ref)/.+)\.txt")
SKIPPED_PAGE = re.compile(
    r"topics/(db/examples/.*|external-packages|install)|faq/(contributing|help)"
    r"|howto/(custom-shell|upgrade-version|windows)|ref/(forms|templates|class-based-views|contrib/(gis|postgres))/.*"
    r"|ref/(applications|checks|django-admin|exceptions|paginator|schema-editor|template-response|urlresolvers|utils)"
    r"|ref/models/(conditional-expressions|database-functions|expressions|lookups)"
    r"|ref/contrib/admin/(admindocs|javascript)"
)
MOST_CHARACTERS = 4_000
FEW_CHARACTERS = 1_800
"""A shorter section is joined with its neighbour of the same page."""
FEWEST_CHARACTERS = 400
"""A document that is shorter nonetheless, such as a page of links, is left out."""
SITE = "https://docs.djangoproject.com/en/5.2"

DIRECTIVE = re.compile(r"\.\. ([A-Za-z][\w:-]*)::(?: (.*))?$")
DROPPED = {"contents", "currentmodule", "figure", "highlight", "image", "index", "module", "program", "toctree"}
NAMED = {"django-admin", "fieldlookup", "setting", "templatefilter", "templatetag"}
"""Directives that only name the section below them."""
CODE = {"code-block", "console", "parsed-literal"}
LABELS = {"versionadded": "New in Django", "versionchanged": "Changed in Django", "deprecated": "Deprecated in Django"}
BOXES = {"caution", "hint", "important", "note", "seealso", "tip", "warning"}
ADORNMENT = re.compile(r"([=\-~^#\"'+*`])\1{2,}$")
TABLE = re.compile(r"(\+-|=+ +=|\|)")
BULLET = re.compile(r"([*-]|\d+\.|#\.) ")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its rank (0 for the page), the blocks below it, and the sections inside it."""

    rank: int
    title: str
    blocks: list[str]
    inner: list["Section"]


def write_corpus(path: Path) -> None:
    """Fetch the archive, once for the machine, and write its documents as JSONL.

    `UserError` if the archive cannot be fetched, `NotWritten` if the file cannot be written.
    """
    with write_whole(path) as file:
        for page in read_pages(find_published(ARCHIVE) / ARCHIVE.archive):
            file.write(orjson.dumps(page, option=orjson.OPT_APPEND_NEWLINE))


def read_pages(archive: Path) -> Iterator[dict[str, str]]:
    """Yield the documents of the archive in the order of their pages, with the keys of a JSONL corpus."""
    with tarfile.open(archive, "r|gz") as members:
        sources = {
            found[1]: content.read().decode("utf-8")
            for member in members
            if (found := KEPT_PAGE.fullmatch(member.name)) and not SKIPPED_PAGE.fullmatch(found[1])
            if (content := members.extractfile(member))
        }
    titles = dict(pair for name in sorted(sources) for pair in read_labels(name, sources[name]))
    for name in sorted(sources):
        yield from cut_page(name, read_sections(sources[name], titles))


def read_labels(name: str, source: str) -> Iterator[tuple[str, str]]:
    """Read the titles of a page and of its labelled sections, which references without a text of their own show."""
    yield f"/{name}", plain(source.strip().split("\n", 2)[1], {}).replace("`", "")
    for found in re.finditer(r"^\.\. _([^:\n]+):\n+(?:\.\. .*\n+)*(\S.*)\n([=\-~^])\3{2,}$", source, re.MULTILINE):
        yield found[1], plain(found[2], {}).replace("`", "")


def read_sections(source: str, titles: dict[str, str]) -> Section:
    """Read the tree of sections of a page. The kinds of underlines rank in the order in which they appear."""
    lines = source.expandtabs(8).split("\n")
    root = Section(0, "", [], [])
    path, ranks, start = [root], ["the page"], 0

    def close(end: int) -> None:
        path[-1].blocks.extend(render(lines[start:end], titles))

    for number in range(1, len(lines)):
        title, line = lines[number - 1], lines[number]
        if not ADORNMENT.fullmatch(line) or not title or title[0].isspace() or len(line) < len(title):
            continue
        if ADORNMENT.fullmatch(title) or (number > 1 and lines[number - 2] and not ADORNMENT.match(lines[number - 2])):
            continue
        over = number > 1 and bool(ADORNMENT.fullmatch(lines[number - 2]))
        close(number - 1 - over)
        start = number + 1
        if over and not root.title:
            root = Section(0, plain(title, titles).replace("`", ""), [], [])
            path = [root]
            continue
        if line[0] not in ranks:
            ranks.append(line[0])
        section = Section(ranks.index(line[0]), plain(title, titles).replace("`", ""), [], [])
        while path[-1].rank >= section.rank:
            path.pop()
        path[-1].inner.append(section)
        path.append(section)
    close(len(lines))
    return root


def render(lines: list[str], titles: dict[str, str], indent: str = "") -> Iterator[str]:
    """Render lines of reStructuredText as blocks of readable text: each paragraph on one line, code as it is."""
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        found = DIRECTIVE.match(line.lstrip())
        if found or line.lstrip().startswith(".. "):
            body, at = take_deeper(lines, at, depth)
            if found:
                yield from render_directive(found[1].lower(), found[2] or "", body, titles, indent + " " * depth)
            continue
        end = at
        while end < len(lines) and lines[end].strip():
            end += 1
        chunk, at = lines[at - 1 : end], end
        if TABLE.match(line.lstrip()):
            yield "\n".join(indent + plain(row, titles) for row in chunk)
            continue
        yield textwrap.indent(join_lines(chunk, titles), indent)
        if chunk[-1].rstrip().endswith("::"):
            bullet = BULLET.match(chunk[-1].lstrip())
            last = len(chunk[-1]) - len(chunk[-1].lstrip()) + (bullet.end() if bullet else 0)
            code, at = take_deeper(lines, at, last)
            yield textwrap.indent(dedent(code), indent + " " * last + "    ")


def take_deeper(lines: list[str], at: int, depth: int) -> tuple[list[str], int]:
    """Take the lines from `at` on that are indented by more than `depth`; returns them and where they end."""
    end = at
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > depth):
        end += 1
    return lines[at:end], end


def dedent(lines: Iterable[str]) -> str:
    """Join lines, without their common indentation and without empty lines at both ends."""
    return textwrap.dedent("\n".join(lines)).strip("\n").rstrip()


def render_directive(name: str, argument: str, body: list[str], titles: dict[str, str], indent: str) -> Iterator[str]:
    """Render the blocks of a directive: code stays, boxes keep their text after a label, options and furniture go."""
    if name in DROPPED or name in NAMED:
        return
    while body and (re.match(r"\s+:[\w-]+:", body[0]) or (body[0].strip() and name not in BOXES | LABELS.keys())):
        more = body.pop(0).strip()  # options, or further lines of the argument
        argument += "" if more.startswith(":") else f"\n{more}"
    if name in CODE:
        if text := dedent(body):
            yield textwrap.indent(text, indent + "    ")
        return
    inner = dedent(body).split("\n")
    if name in LABELS:
        yield f"{indent}{LABELS[name]} {argument.strip()}."
    elif name in BOXES:
        inner = dedent([f"    {argument}", *body] if argument else body).split("\n")
        yield f"{indent}{'See also' if name == 'seealso' else name.capitalize()}:"
    elif name in {"admonition", "rubric"}:
        yield f"{indent}{plain(argument, titles)}:"
    elif argument.strip():
        yield "\n".join(f"{indent}{row.strip()}" for row in argument.split("\n") if row.strip())
    yield from render(inner, titles, indent)


def join_lines(chunk: list[str], titles: dict[str, str]) -> str:
    """Join the lines of a paragraph, list or definition. A line begins only with an item or another indentation."""
    rows: list[str] = []
    edge = -1
    for line in chunk:
        depth = len(line) - len(line.lstrip())
        bullet = BULLET.match(line.lstrip())
        if rows and not bullet and depth == edge:
            rows[-1] += " " + line.strip()
        else:
            rows.append(line.rstrip())
            edge = depth + (bullet.end() if bullet else 0)
    return "\n".join(plain(row, titles) for row in rows)


def plain(text: str, titles: dict[str, str]) -> str:
    """Drop roles, links and double backquotes from a line. A name stays in single backquotes."""

    def show_role(found: re.Match[str]) -> str:
        role, body = found[1], found[2]
        if shown := re.fullmatch(r"(.+?)\s*<[^>]*>", body):
            return shown[1] if role in {"doc", "ref", "term"} or " " in shown[1] else f"`{shown[1]}`"
        if role in {"doc", "ref"}:
            return f"“{titles[body]}”" if body in titles else body.strip("/").replace("-", " ")
        if role in {"term", "rfc", "pep", "menuselection", "abbr"}:
            return f"{role.upper()} {body}" if role in {"rfc", "pep"} else body
        return f"`{body.rpartition('.')[2].lstrip('~') if body.startswith('~') else body.lstrip('.')}`"

    text = re.sub(r"\\ |\\(?=[*_`|])", "", text)
    text = re.sub(r"``(.+?)``", r"`\1`", re.sub(r":(?:py:)?([a-z]+):`([^`]+)`", show_role, text))
    text = re.sub(r"(?<=`)\\(?=\w)", "", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`<>]+>`__?", r"\1", text)
    text = re.sub(r"`([^`]+)`__?(?!\w)", r"\1", text)
    text = re.sub(r"\b([A-Za-z][\w-]*[A-Za-z])_(?=[\s.,;)]|$)", r"\1", text)
    text = re.sub(r"^(\s*)#\. ", r"\1* ", text)
    return re.sub(r"::$", ":", re.sub(r"\*\*(\S.*?)\*\*", r"\1", text))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a page that is short enough: the titles that lead to it, and each heading with the text below it."""

    path: tuple[str, ...]
    parts: list[tuple[str, str]]

    @property
    def size(self) -> int:
        """The number of characters, empty lines included."""
        return sum(len(title) + len(text) + 4 for title, text in self.parts)


def cut_page(name: str, page: Section) -> Iterator[dict[str, str]]:
    """Yield the documents of a page: its sections, cut where they are too long, joined where they are too short."""
    pieces: list[Piece] = []
    for piece in cut_section(page, ()):
        small = bool(pieces) and min(piece.size, pieces[-1].size) < FEW_CHARACTERS
        if small and pieces[-1].size + piece.size <= MOST_CHARACTERS:
            pieces[-1] = Piece(pieces[-1].path, pieces[-1].parts + piece.parts)
        else:
            pieces.append(piece)
    taken: set[str] = set()
    for piece in pieces:
        slug = re.sub(r"[^a-z0-9]+", "-", "".join(piece.path[1:][-1:]).lower()).strip("-")
        first = f"{name}/{slug[:60].rstrip('-')}" if slug else name
        names = [first, *(f"{first}{'-' if slug else '/'}{number}" for number in range(2, 99))]
        docid = next(each for each in names if each not in taken)
        taken.add(docid)
        (_, opening), *others = piece.parts
        text = "\n\n".join([opening, *(f"{title}\n\n{text}".strip() for title, text in others)]).strip("\n")
        if len(text) >= FEWEST_CHARACTERS:
            yield {
                "docid": docid,
                "url": f"{SITE}/{name}/" + (f"#{slug}" if slug else ""),
                "title": ": ".join(piece.path),
                "headings": "\n".join(dict.fromkeys(title for title, _ in piece.parts)),
                "text": text,
            }


def cut_section(section: Section, above: tuple[str, ...]) -> Iterator[Piece]:
    """Yield the section as one piece if it is short enough; else its own blocks, then each section inside it."""
    path = (*above, section.title)
    whole = Piece(path, list(list_parts(section)))
    if whole.size <= MOST_CHARACTERS:
        yield whole
        return
    kept: list[str] = []
    for block in section.blocks:
        for part in block.split("\n\n") if len(block) > MOST_CHARACTERS else [block]:
            if kept and len("\n\n".join([section.title, *kept, part])) > MOST_CHARACTERS:
                yield Piece(path, [(section.title, "\n\n".join(kept))])
                kept = []
            kept.append(part)
    if kept:
        yield Piece(path, [(section.title, "\n\n".join(kept))])
    for inner in section.inner:
        yield from cut_section(inner, path)


def list_parts(section: Section) -> Iterator[tuple[str, str]]:
    """Yield the headings and texts of the section and all sections inside it, in the order of the page."""
    yield section.title, "\n\n".join(section.blocks)
    for inner in section.inner:
        yield from list_parts(inner)
