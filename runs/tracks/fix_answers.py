"""Repairs of an answer file that keep its meaning: no text changes, and no citation names another document."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import orjson

from keystone.indexing.types import is_id
from keystone.runs.tracks.answer_files import (
    count_fitting_sentences,
    find_citation_form,
    get_metadata,
    is_integer,
    list_cited_ids,
    list_references,
    map_citations,
    resolve_citation,
    sort_citations,
)
from keystone.runs.tracks.check_answers import ID_CONTENTS, read_id
from keystone.runs.tracks.check_sentences import Citable, collect_forms, mixes_forms
from keystone.runs.tracks.rules import CitationForm, Track
from keystone.runs.tracks.violations import Lines, Repair, parse_object, shorten_value
from keystone.runs.wording import plural


def fix_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair the lines of an answer file. Returns the new lines, and the repairs by line of the given file.

    `fix_record` repairs each object. Blank lines are dropped, and so is an object that repeats another one exactly.
    If a file mixes forms of citations, all get the form that the track prefers. Unreadable lines stay as they are, and
    so do objects that need no repair.
    """
    records = {number: parse_object(line) for number, line in content}
    forms = {form for record in records.values() for form in _collect_forms(record, track)}
    form = None if track.one_form != "file" else forms.pop() if len(forms) == 1 else track.citations[0]
    lines: list[str] = []
    repairs: list[Repair] = []
    seen: dict[str, int] = {}
    for number, line in content:
        if not line.strip():
            repairs.append(Repair(number, "blank line dropped"))
            continue
        record, fixed, done = records[number], line, []
        if record is not None:
            done = fix_record(record, track, topics, form)
            try:
                fixed = orjson.dumps(record).decode() if done else line
            except orjson.JSONEncodeError:
                fixed, done = line, []  # nested deeper than can be written
        first = seen.setdefault(fixed, number)
        if first != number and record is not None:
            done = [f"dropped: it repeats line {first}"]
        else:
            lines.append(fixed)
        repairs += [Repair(number, message) for message in done]
    return lines, repairs


def fix_record(
    record: dict[str, Any], track: Track, topics: Mapping[str, str], form: CitationForm | None = None
) -> list[str]:
    """Repair one object in place, and return a message for each repair.

    * Metadata: numbers become ids. If the narrative is missing, or differs only in case, space or Unicode form, the
      topics give it.
    * Sentences: those without text are dropped. The last ones beyond the length limit are cut, but not the first one.
    * References: repeated ones are merged, and cited ids are added. Of those beyond the limit, uncited ones are cut
      first, then the last ones.
    * Citations: each one points to the new position of its document. Repeated ones and those without a reference are
      dropped, and the last ones beyond the limit are cut. They get `form`; if it is None, they keep their own form
      if the track allows it. A sentence without citations follows the others of its answer.

    A part of the wrong type stays as it is.
    """
    done: list[str] = []
    metadata = get_metadata(record, track)
    topic = _fix_metadata(metadata, track, topics, done) if isinstance(metadata, dict) else ""
    answer = record.get(track.sentences)
    if not isinstance(answer, list) or not all(isinstance(sentence, dict) for sentence in answer):
        return done
    _fix_sentences(answer, topic, track, done)
    references = list_references(record, track)
    if references is None and not {"positions"} & collect_forms(answer) & set(track.citations):
        references = list_cited_ids(record, track)
    if isinstance(references, list) and all(is_integer(r) or (isinstance(r, str) and is_id(r)) for r in references):
        kept = _fix_citations(answer, references, track, form, done)
        if record.get("references") is not None:
            record["references"] = kept
        elif track.listed != "optional":
            record["references"] = kept
            done.append(f"references: missing, now the {plural(len(kept), 'cited id')}")
    texts = [sentence.get("text") for sentence in answer]
    if track.length_key:
        length = sum(track.length.measure([text for text in texts if isinstance(text, str)]))
        reported = record.get(track.length_key)
        if not is_integer(reported) or reported != length:
            record[track.length_key] = length
            done.append(f"{track.length_key}: {shorten_value(reported)} is now {length}")
    return done


def _fix_metadata(metadata: dict[str, Any], track: Track, topics: Mapping[str, str], done: list[str]) -> str:
    """Repair ids and narrative, and return the topic's id."""
    for key in track.keys:
        if key.holds in ID_CONTENTS and is_integer(metadata.get(key.name)):
            metadata[key.name] = str(metadata[key.name])
            done.append(f"{key.name}: a number is now text")
    topic = next(read_id(metadata.get(key.name)) for key in track.keys if key.holds == "topic")
    for key in track.keys:
        found, exact = metadata.get(key.name), topics.get(topic)
        if key.holds == "narrative" and exact is not None and found != exact and _has_same_words(found, exact):
            metadata[key.name] = exact
            done.append(f"{key.name}: {'filled in' if found is None else 'made exact'} from the topics file")
    return topic


def _has_same_words(found: Any, exact: str) -> bool:
    """Whether a narrative is missing, or equal apart from case, white space and compatible forms of letters."""
    return found is None or (isinstance(found, str) and _normalise_words(found) in (_normalise_words(exact), []))


def _normalise_words(text: str) -> list[str]:
    return unicodedata.normalize("NFKC", text).casefold().split()


def _fix_sentences(answer: list[dict[str, Any]], topic: str, track: Track, done: list[str]) -> None:
    filled = [s for s in answer if not isinstance(s.get("text"), str) or s["text"].strip()]
    if len(filled) < len(answer):
        done.append(f"{track.sentences}: {plural(len(answer) - len(filled), 'sentence')} without text dropped")
    for place, sentence in enumerate(filled):
        if sentence.get("citations") is None:
            sentence["citations"] = []
            done.append(f"{track.sentences}[{place}].citations: missing, now an empty list")
    if track.one_form == "answer" and "scores" in track.citations and not collect_forms(filled) and mixes_forms(filled):
        for sentence in filled:
            sentence["citations"] = sentence["citations"] or {}
        done.append(f"{track.sentences}: empty lists of citations are now empty objects, as the others are objects")
    texts = [s["text"] if isinstance(s.get("text"), str) else "" for s in filled]
    kept = count_fitting_sentences(texts, topic, track)
    if 0 < kept < len(filled):
        done.append(
            f"{track.sentences}: the last {len(filled) - kept} of {plural(len(filled), 'sentence')} cut, for the length"
        )
        filled = filled[:kept]
    answer[:] = filled


def _fix_citations(
    answer: list[dict[str, Any]], references: list[Any], track: Track, form: CitationForm | None, done: list[str]
) -> list[str]:
    """Repair the citations of all sentences, and return the new references."""
    names = map_citations(references, track.integers)
    ids = dict.fromkeys(str(reference) for reference in references)
    if any(is_integer(reference) for reference in references):
        done.append("references: numbers are now text")
    if len(ids) < len(references):
        done.append(f"references: {plural(len(references) - len(ids), 'repeated reference')} merged")
    cited = [_resolve_citations(sentence.get("citations"), names, track) for sentence in answer]
    used = dict.fromkeys(name for own in cited for _, name in own if name is not None)
    kept = _choose_references(ids | used, used, track)
    if added := [name for name in kept if name not in ids]:
        done.append(f"references: {plural(len(added), 'cited reference')} added, first {shorten_value(added[0])}")
    if cut := [name for name in ids if name not in kept]:
        done.append(f"references: {len(cut)} cut, first {shorten_value(cut[0])}")
    position = {name: place for place, name in enumerate(kept)}
    if track.one_form == "answer" and mixes_forms(answer):
        form = track.citations[0]
    for place, (sentence, own) in enumerate(zip(answer, cited, strict=True)):
        given = sentence.get("citations")
        if isinstance(given, list | dict):
            pointed = [(raw, name) for raw, name in own if name is None or name in position]
            sentence["citations"] = new = _write_citations(given, pointed, position, track, form)
            if new != given or type(new) is not type(given):
                done.append(f"{track.sentences}[{place}].citations: {shorten_value(given)} is now {shorten_value(new)}")
    return kept


def _resolve_citations(citations: Any, names: Citable, track: Track) -> list[tuple[Any, str | None]]:
    """Resolve the citations to keep, best first, each with the id that it names; None for a value of no valid form."""
    found: dict[Any, tuple[Any, str | None]] = {}
    for place, raw in enumerate(sort_citations(citations) if isinstance(citations, list | dict) else []):
        if not isinstance(raw, str) and not is_integer(raw):
            found[place] = (raw, None)
            continue
        name, own = resolve_citation(raw, names), str(raw)
        is_name = "positions" not in track.citations or (isinstance(raw, str) and track.owns(raw))
        if name is None and is_name and is_id(own):
            name = own
        if name is not None:
            found.setdefault(name, (raw, name))
    return list(found.values())[: track.cited]


def _choose_references(ids: Mapping[str, Any], used: Mapping[str, Any], track: Track) -> list[str]:
    """Choose the references to keep, in their order. If there are too many, cited ones go before uncited ones."""
    allowed = [name for name in ids if track.uncited or name in used]
    best = set(sorted(allowed, key=lambda name: name not in used)[: track.references])
    return [name for name in allowed if name in best]


def _write_citations(
    given: list[Any] | dict[str, Any],
    cited: list[tuple[Any, str | None]],
    position: Mapping[str, int],
    track: Track,
    form: CitationForm | None,
) -> list[Any] | dict[str, Any]:
    """Write the citations of a sentence in `form`, or in their own. If the track forbids it, they get the track's."""
    if isinstance(given, dict) and "scores" in track.citations and form is None:
        kept = {raw for raw, _ in cited}
        return {raw: score for raw, score in given.items() if raw in kept}
    written: list[Any] = []
    for raw, name in cited:
        own = form or find_citation_form(raw)
        by_position = (own if own in track.citations else track.citations[0]) == "positions"
        written.append(raw if name is None else position[name] if by_position else name)
    return written


def _collect_forms(record: dict[str, Any] | None, track: Track) -> set[CitationForm]:
    answer = record.get(track.sentences) if record else None
    return collect_forms(answer) if isinstance(answer, list) else set()
