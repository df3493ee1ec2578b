"""The answer to one question for a terminal: prose as wide as the terminal, and numbered sources with their quotes."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from keystone.generation.rules.support import DOUBT
from keystone.generation.rules.words import find_quote
from keystone.generation.types import Answer
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.types import Store
from keystone.runs.report.passages import Result
from keystone.runs.wording import escape_controls

INDENT = 5
"""The columns before the text of a source."""


def list_quotes(answer: Answer, result: Result, store: Store) -> list[list[str]]:
    """List what each passage of a result says for the answer: its closest sentences, each once, on one line.

    A passage without such a sentence is quoted whole.
    """
    quotes: list[list[str]] = []
    documents = store.get(store.rows([passage.document for passage in result.passages]))
    for passage, document in zip(result.passages, map(cut_segments, documents), strict=True):
        citing = [sentence.text for sentence in answer.sentences if passage.id in sentence.citations]
        spans = dict.fromkeys(span for text in citing if (span := find_quote(text, document, passage.id)))
        texts = [document.text[span.start : span.end] for span in spans] or [passage.text]
        quotes.append([" ".join(text.split()) for text in texts])
    return quotes


def print_answer(console: Console, result: Result, quotes: Sequence[Sequence[str]]) -> None:
    """Print an answer with the numbers of its sources, and below it the sources with their quotes."""
    prose = Text()
    for sentence in result.sentences:
        numbers = "".join(f" [{number}]" for number in sentence.citations)
        prose.append(f"{' ' if prose else ''}{escape_controls(sentence.text)}").append(numbers, "cyan")
    _print_wrapped(console, prose)
    console.print()
    if result.passages:
        _print_wrapped(console, Text("Sources", "bold"))
    for number, (passage, own) in enumerate(zip(result.passages, quotes, strict=True), 1):
        _print_source(console, f"[{number}]", passage.title, passage.id, passage.url)
        for quote in own:
            _print_wrapped(console, Text(escape_controls(quote)), INDENT)


def print_doubt(console: Console, result: Result) -> None:
    """Say that no sentence seems to answer the question, and name the documents that are closest."""
    _print_wrapped(console, Text(DOUBT, "yellow"))
    console.print()
    _print_wrapped(console, Text("The closest documents", "bold"))
    for passage in {passage.document: passage for passage in reversed(result.passages)}.values():
        _print_source(console, "  -", passage.title, passage.document, passage.url)


def _print_source(console: Console, mark: str, title: str, name: str, url: str) -> None:
    heading = Text(escape_controls(title or name), "bold")
    for place, line in enumerate(heading.wrap(console, console.width - INDENT, overflow="fold")):
        line.rstrip()
        console.print(Text.assemble((mark if not place else "").ljust(INDENT), line), soft_wrap=True)
    for text in filter(None, (name if title else "", url)):  # whole, so that a reader can copy them
        console.print(Text(" " * INDENT + escape_controls(text), "dim"), soft_wrap=True)


def _print_wrapped(console: Console, text: Text, indent: int = 0) -> None:
    for line in text.wrap(console, console.width - indent, overflow="fold"):
        line.rstrip()
        console.print(Text.assemble(" " * indent, line), soft_wrap=True)
