"""Checks of the sentences of an answer: texts, length, citations and their forms."""

from collections.abc import Iterator, Mapping
from typing import Any

from keystone.runs.track_rules import CitationForm, Track
from keystone.runs.tracks.answer_files import find_citation_form, is_integer, is_score, resolve_citation
from keystone.runs.tracks.violations import Violation, make_error, make_warning, shorten_value

Citable = Mapping[str | int, str]
"""The id that each citation of an answer names: by its position among the references, or by the id itself."""


def check_sentences(
    number: int, record: dict[str, Any], names: Citable, track: Track, limit: int | None
) -> Iterator[Violation]:
    """Find the violations of the sentences of an object. `names` maps citations to the ids in its references.

    `limit` is the most that the sentences may measure; None: there is none.
    """
    answer = record[track.sentences]
    if not answer:
        yield make_warning(number, "empty answer", f"{track.sentences}: empty")
    texts = []
    for place, sentence in enumerate(answer):
        where = f"{track.sentences}[{place}]"
        if not isinstance(sentence, dict):
            yield make_error(number, "sentence", f"{where}: expected an object, found {shorten_value(sentence)}")
            continue
        text, citations = sentence.get("text"), sentence.get("citations")
        if not isinstance(text, str) or not text.strip():
            yield make_error(number, "text", f"{where}.text: expected text, found {shorten_value(text)}")
        else:
            texts.append(text)
        if isinstance(citations, list | dict):
            yield from _check_citations(number, f"{where}.citations", citations, names, track)
        else:
            yield make_error(
                number, "citations", f"{where}.citations: expected a list, found {shorten_value(citations)}"
            )
    uncited = set(names.values()) - collect_cited_ids(answer, names)
    if uncited and not track.uncited:
        yield make_error(number, "uncited reference", f"references: found {len(uncited)} that no sentence cites")
    length = sum(track.length.measure(texts))
    if limit is not None and length > limit:
        message = f"{track.sentences}: expected at most {limit} {track.length.unit}, found {length}"
        yield make_error(number, "too long", message)
    if track.length_key:
        yield from _check_length(number, track.length_key, record.get(track.length_key), length)


def collect_cited_ids(answer: list[Any], names: Citable) -> set[str]:
    """Collect the ids that the sentences of an answer cite."""
    lists = [s["citations"] for s in answer if isinstance(s, dict) and isinstance(s.get("citations"), list | dict)]
    return {
        name for citations in lists for citation in citations if (name := resolve_citation(citation, names)) is not None
    }


def _check_length(number: int, key: str, reported: Any, length: int) -> Iterator[Violation]:
    if reported is None:
        yield make_error(number, key, f"{key}: missing; expected {length}")
    elif not is_integer(reported):
        yield make_error(number, key, f"{key}: expected a number, found {shorten_value(reported)}")
    elif reported != length:
        yield make_warning(number, key, f"{key}: expected {length}, found {reported}")


def _check_citations(
    number: int, where: str, citations: list[Any] | dict[str, Any], names: Citable, track: Track
) -> Iterator[Violation]:
    if isinstance(citations, dict):
        if "scores" not in track.citations:
            yield make_error(number, "citation form", f"{where}: expected a list, found an object")
        for score in citations.values():
            if not is_score(score):
                yield make_error(
                    number, "citations", f"{where}: expected a number as score, found {shorten_value(score)}"
                )
    used: set[str] = set()
    for citation in citations:
        if not isinstance(citation, str) and not is_integer(citation):
            yield make_error(
                number, "citations", f"{where}: expected a position or an id, found {shorten_value(citation)}"
            )
            continue
        name = resolve_citation(citation, names)
        if is_integer(citation) and name == str(citation) and "positions" not in track.citations:
            message = f"{where}: expected text, found the number {shorten_value(citation)}"
            yield make_error(number, "id as a number", message)
        elif isinstance(citations, list) and find_citation_form(citation) not in track.citations:
            message = f"{where}: expected {' or '.join(track.citations)}, found {shorten_value(citation)}"
            yield make_error(number, "citation form", message)
        if name is None:
            yield make_error(
                number, "citation without reference", f"{where}: {shorten_value(citation)} names no reference"
            )
        elif name in used:
            yield make_warning(
                number,
                "repeated citation",
                f"{where}: {shorten_value(citation)} names a reference that the sentence cites already",
            )
        else:
            used.add(name)
    if track.cited is not None and len(citations) > track.cited:
        message = f"{where}: expected at most {track.cited}, found {len(citations)}"
        yield make_error(number, "too many citations", message)


def collect_forms(answer: list[Any]) -> set[CitationForm]:
    """Collect the forms of the citations in an answer's lists."""
    lists = [s["citations"] for s in answer if isinstance(s, dict) and isinstance(s.get("citations"), list)]
    return {find_citation_form(c) for citations in lists for c in citations if isinstance(c, str) or is_integer(c)}


def mixes_forms(answer: list[Any]) -> bool:
    """Whether the sentences of an answer have citations of several forms. An empty list beside objects counts, too."""
    kinds = {type(s.get("citations")) for s in answer if isinstance(s, dict)}
    return len(collect_forms(answer)) > 1 or {list, dict} <= kinds


def check_forms(number: int, answer: list[Any], track: Track, forms: dict[CitationForm, int]) -> Iterator[Violation]:
    """Find citations of several forms, in an answer or in the file, as the track says.

    `forms` keeps the first line of each form in the file.
    """
    if track.one_form == "answer" and mixes_forms(answer):
        message = f"citations: expected one form in all sentences, such as lists of {track.citations[0]}, found several"
        yield make_error(number, "mixed citations", message)
    if track.one_form != "file":
        return
    found = sorted(collect_forms(answer), reverse=True)
    for form in found:
        forms.setdefault(form, number)
        expected, line = next(iter(forms.items()))
        if form != expected:
            message = f"citations: expected {expected} as on line {line}, found {form}"
            yield make_error(number, "mixed citations", message)
