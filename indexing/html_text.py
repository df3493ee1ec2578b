"""The text of an HTML page, with its title and headings."""

import re
from html.parser import HTMLParser


def read_html(page: str) -> tuple[str, list[str], str]:
    """Title, headings and visible text of a page; blocks are parted by one blank line."""
    parser = _Page()
    parser.feed(page)
    parser.close()
    headings = [" ".join(heading.split()) for heading in parser.headings]
    return " ".join(parser.title.split()), [heading for heading in headings if heading], parser.text()


class _Page(HTMLParser):
    """Collects the visible text, the title and the headings of a page."""

    BLOCKS = frozenset(
        "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header "
        "hr li main nav ol p pre section table td th tr ul".split()
    )
    HIDDEN = frozenset("script style template noscript svg".split())

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.headings: list[str] = []
        self._parts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in self.HIDDEN or tag == "title" or re.fullmatch("h[1-6]", tag):
            self._open.append(tag)
            if tag.startswith("h"):
                self.headings.append("")
        if tag in self.BLOCKS:
            self._parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]
        if tag in self.BLOCKS:
            self._parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if self.HIDDEN.intersection(self._open):
            return
        if inside == "title":
            self.title += data
        else:
            self._parts.append(data)
            if inside:
                self.headings[-1] += data

    def text(self) -> str:
        """The text with one blank line between blocks."""
        lines = [re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
