"""The main part of pages: precision, recall and time of Keystone and of three extractors, against parts chosen by hand.

`python -m benchmarks.extraction FOLDER...` takes folders of Debian's packages `python3-doc`, `python-django-doc` and
`postgresql-doc`, unpacked. An extractor that is not installed is left out.
"""

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from keystone.indexing.corpora.markup import BLOCK_ELEMENTS, read_html

PAGES = 40
UNUSED = ("genindex", "_modules")
"""Indexes and sources, which have no main part in prose."""

GOLD = (("#yui-main", "div.nav"), ("div.body", ""), ("body", ".navheader, .navfooter"))
"""The main part of Django's, Python's and PostgreSQL's pages: a selector, and what does not belong to it."""


def find_gold(page: str) -> Counter[str]:
    """The words of the part that a person chose."""
    tree = LexborHTMLParser(page)
    selector, dropped = next(pair for pair in GOLD if tree.css_first(pair[0]))
    part = tree.css_first(selector)
    assert part is not None
    for node in reversed(part.css(", ".join(filter(None, (dropped, "a.headerlink, script, style, svg, title"))))):
        node.decompose()
    for node in part.css(", ".join(BLOCK_ELEMENTS)):
        node.insert_before(" ")
        node.insert_after(" ")
    return count_words(part.text())


def count_words(text: str) -> Counter[str]:
    """The words of a text with their numbers."""
    return Counter(re.findall(r"\w+", text))


def readability(page: str) -> str:
    """The text of the summary of readability-lxml."""
    summary = import_module("readability").Document(page).summary()
    return read_html(str(summary)).text


WAYS: dict[str, Callable[[str], str]] = {
    "all": lambda page: read_html(page).text,
    "main": lambda page: read_html(page, main=True).text,
    "trafilatura": lambda page: import_module("trafilatura").extract(page, include_comments=False) or "",
    "resiliparse": lambda page: str(
        import_module("resiliparse.extract.html2text").extract_plain_text(page, main_content=True, links=False)
    ),
    "readability": readability,
}


def main(folders: list[Path]) -> None:
    """Print one line for each folder and way: mean precision, mean and lowest recall, processor time a page."""
    for folder in folders:
        files = [file for file in sorted(folder.rglob("*.html")) if not any(name in str(file) for name in UNUSED)]
        pages = [file.read_text("utf-8", "replace") for file in random.Random(1).sample(files, PAGES)]
        golds = [find_gold(page) for page in pages]
        for name, extract in WAYS.items():
            try:
                extract(pages[0])
            except ImportError:
                continue
            began = time.process_time()
            found = [count_words(extract(page)) for page in pages]
            ms = 1000 * (time.process_time() - began) / PAGES
            common = [(one & gold).total() for one, gold in zip(found, golds, strict=True)]
            precisions = [both / max(1, one.total()) for both, one in zip(common, found, strict=True)]
            recalls = [both / max(1, gold.total()) for both, gold in zip(common, golds, strict=True)]
            means = f"precision {sum(precisions) / PAGES:.3f} recall {sum(recalls) / PAGES:.3f}"
            print(f"{folder.name} {name:12} {means} lowest {min(recalls):.3f} {ms:.1f} ms")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
