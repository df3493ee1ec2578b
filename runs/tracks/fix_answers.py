"""Repairs of an answer file that keep its meaning: no sentence is changed, and no citation names another document."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import orjson

from indexing.types import is_id
from runs.tracks.answer_files import best_first, citable, fitting, form_of, is_number, metadata_of, named
from runs.tracks.check_answers import IDS, Citable, as_text, forms_in
from runs.tracks.rules import CitationForm, Track
from runs.tracks.violations import Lines, Repair, object_of, shown
from runs.wording import plural


def fix_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """The lines of the repaired file, and what was done to those of the given one.

    Each object is repaired by `fix_record`; blank lines go, and so does an object that repeats another one word
    for word. A file with both forms of citations gets the one that its track prefers. Lines that cannot be read
    stay as they are, and so do objects in which nothing is to be repaired.
    """
    records = {number: object_of(line) for number, line in content}
    forms = {form for record in records.values() for form in _forms(record, track)}
    form = None if track.mixed else forms.pop() if len(forms) == 1 else track.citations[0]
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
    """Repair one object in place; returns what was done.

    Numbers become ids and a narrative that is missing or differs in letters' forms, case or space is taken from
    the topics. Sentences without text go, and the last ones beyond the track's length, unless none would be left.
    References that are listed twice are merged, those beyond the limit are cut (uncited ones first, then from the
    end), and every citation is pointed to where its document is now. Citations that are repeated, that name
    nothing, or that are too many for their sentence go, the last first; an id that is no reference yet becomes one.
    A part of the wrong type is left as it is. With `form`, citations get it; else they keep their own if they may.
    """
    done: list[str] = []
    metadata = metadata_of(record, track)
    topic = _fix_metadata(metadata, track, topics, done) if isinstance(metadata, dict) else ""
    answer, references = record.get(track.sentences), record.get("references")
    if not isinstance(answer, list) or not all(isinstance(sentence, dict) for sentence in answer):
        return done
    _fix_sentences(answer, topic, track, done)
    if isinstance(references, list) and all(is_number(r) or (isinstance(r, str) and is_id(r)) for r in references):
        record["references"] = _fix_citations(answer, references, track, form, done)
    texts = [sentence.get("text") for sentence in answer]
    if track.length_key:
        length = sum(track.length.sizes([text for text in texts if isinstance(text, str)]))
        reported = record.get(track.length_key)
        if not is_number(reported) or reported != length:
            record[track.length_key] = length
            done.append(f"{track.length_key}: {shown(reported)} is now {length}")
    return done


def _fix_metadata(metadata: dict[str, Any], track: Track, topics: Mapping[str, str], done: list[str]) -> str:
    """Repairs ids and narrative; returns the topic's id."""
    for key in track.keys:
        if key.holds in IDS and is_number(metadata.get(key.name)):
            metadata[key.name] = str(metadata[key.name])
            done.append(f"{key.name}: a number is now text")
    topic = next(as_text(metadata.get(key.name)) for key in track.keys if key.holds == "topic")
    for key in track.keys:
        found, exact = metadata.get(key.name), topics.get(topic)
        if key.holds == "narrative" and exact is not None and found != exact and _same_words(found, exact):
            metadata[key.name] = exact
            done.append(f"{key.name}: {'filled in' if found is None else 'made exact'} from the topics file")
    return topic


def _same_words(found: Any, exact: str) -> bool:
    """Whether a narrative is missing or says the same but for case, white space and compatible forms of letters."""
    return found is None or (isinstance(found, str) and _plain(found) in (_plain(exact), []))


def _plain(text: str) -> list[str]:
    return unicodedata.normalize("NFKC", text).casefold().split()


def _fix_sentences(answer: list[dict[str, Any]], topic: str, track: Track, done: list[str]) -> None:
    told = [s for s in answer if not isinstance(s.get("text"), str) or s["text"].strip()]
    if len(told) < len(answer):
        done.append(f"{track.sentences}: {plural(len(answer) - len(told), 'sentence')} without text dropped")
    for place, sentence in enumerate(told):
        if sentence.get("citations") is None:
            sentence["citations"] = []
            done.append(f"{track.sentences}[{place}].citations: missing, now an empty list")
    texts = [s["text"] if isinstance(s.get("text"), str) else "" for s in told]
    kept = fitting(texts, topic, track)
    if 0 < kept < len(told):
        done.append(
            f"{track.sentences}: the last {len(told) - kept} of {plural(len(told), 'sentence')} cut, for the length"
        )
        told = told[:kept]
    answer[:] = told


def _fix_citations(
    answer: list[dict[str, Any]], references: list[Any], track: Track, form: CitationForm | None, done: list[str]
) -> list[str]:
    """Repairs the citations of all sentences; returns the references as they then are."""
    names = citable(references)
    ids = dict.fromkeys(str(reference) for reference in references)
    if any(is_number(reference) for reference in references):
        done.append("references: numbers are now text")
    if len(ids) < len(references):
        done.append(f"references: {plural(len(references) - len(ids), 'repeated one')} merged")
    cited = [_readable(sentence.get("citations"), names, track) for sentence in answer]
    used = dict.fromkeys(name for own in cited for _, name in own if name is not None)
    kept = _within(ids | used, used, track)
    if added := [name for name in kept if name not in ids]:
        done.append(f"references: {plural(len(added), 'cited one')} added, first {shown(added[0])}")
    if cut := [name for name in ids if name not in kept]:
        done.append(f"references: {len(cut)} cut, first {shown(cut[0])}")
    position = {name: place for place, name in enumerate(kept)}
    for place, (sentence, own) in enumerate(zip(answer, cited, strict=True)):
        given = sentence.get("citations")
        if isinstance(given, list | dict):
            pointed = [(raw, name) for raw, name in own if name is None or name in position]
            sentence["citations"] = new = _written(given, pointed, position, track, form)
            if new != given or type(new) is not type(given):
                done.append(f"{track.sentences}[{place}].citations: {shown(given)} is now {shown(new)}")
    return kept


def _readable(citations: Any, names: Citable, track: Track) -> list[tuple[Any, str | None]]:
    """The citations of a sentence that stay, best first, each with the id that it names; None: it is of no form."""
    found: dict[Any, tuple[Any, str | None]] = {}
    for place, raw in enumerate(best_first(citations) if isinstance(citations, list | dict) else []):
        if not isinstance(raw, str) and not is_number(raw):
            found[place] = (raw, None)
            continue
        name = named(raw, names)
        if name is None and isinstance(raw, str) and is_id(raw) and track.owns(raw):
            name = raw
        if name is not None:
            found.setdefault(name, (raw, name))
    return list(found.values())[: track.cited]


def _within(ids: Mapping[str, Any], used: Mapping[str, Any], track: Track) -> list[str]:
    """The references that stay, in their order: those that are cited before those that are not."""
    allowed = [name for name in ids if track.uncited or name in used]
    best = set(sorted(allowed, key=lambda name: name not in used)[: track.references])
    return [name for name in allowed if name in best]


def _written(
    given: list[Any] | dict[str, Any],
    cited: list[tuple[Any, str | None]],
    position: Mapping[str, int],
    track: Track,
    form: CitationForm | None,
) -> list[Any] | dict[str, Any]:
    """The citations of a sentence, in the form that they have or, where they may not have it, in the track's."""
    if isinstance(given, dict) and "scores" in track.citations:
        kept = {raw for raw, _ in cited}
        return {raw: score for raw, score in given.items() if raw in kept}
    written: list[Any] = []
    for raw, name in cited:
        own = form or form_of(raw)
        by_position = (own if own in track.citations else track.citations[0]) == "positions"
        written.append(raw if name is None else position[name] if by_position else name)
    return written


def _forms(record: dict[str, Any] | None, track: Track) -> set[CitationForm]:
    answer = record.get(track.sentences) if record else None
    return forms_in(answer) if isinstance(answer, list) else set()
