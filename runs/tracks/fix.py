"""Repairs of runs and answer files that keep their meaning.

Each topic of a run keeps its best documents in their order. No text of an answer changes, and no citation names another
document.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from keystone.indexing.types import is_id
from keystone.retrieval.ties import decrease_strictly
from keystone.runs.track_rules import CitationForm, Track
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
from keystone.runs.tracks.check_answers import ID_CONTENTS, Citable, collect_forms, mixes_forms, read_id
from keystone.runs.tracks.check_run import is_blank, is_comment, is_row, parse_score
from keystone.runs.tracks.violations import Lines, Repair, is_utf8, parse_object, shorten_value
from keystone.runs.trec.rows import split_columns
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a run, with its columns as text."""

    line: int
    fields: tuple[str, ...]

    @property
    def document(self) -> str:
        """The id of the document or segment."""
        return self.fields[2]


def fix_run(content: Lines, track: Track, _topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair the lines of a run. Returns the new lines, and the repairs by line of the given file.

    * Blank lines and comments are dropped. Other lines that are no rows come last, unchanged.
    * Rows are grouped by topic, best first, with ranks from 1 and scores that strictly decrease in float32. The second
      column becomes Q0.
    * If a topic lists a document twice, the better row stays. Rows beyond the track's limit are dropped.

    Scores give the order. If scores are equal, ranks do; if ranks are equal, too, lines do. If a topic's ranks
    contradict its scores, or a score is unusable, its rows stay as they are.
    """
    topics: dict[str, list[Row]] = {}
    apart: set[str] = set()
    repairs, rest = list[Repair](), list[str]()
    previous = ""
    for number, line in content:
        if is_row(line):
            row = Row(number, tuple(split_columns(line)))
            topic = row.fields[0]
            if topic != previous and topic in topics:
                apart.add(topic)
            topics.setdefault(topic, []).append(row)
            previous = topic
        elif is_blank(line) or (is_comment(line) and is_utf8(line)):
            repairs.append(Repair(number, "blank line dropped" if is_blank(line) else "comment dropped"))
        else:
            rest.append(line)
    given = dict(content)
    lines: list[str] = []
    for topic, rows in topics.items():
        kept, done = _repair_topic(rows, track)
        if topic in apart:
            done.append(Repair(rows[0].line, f"its {len(rows)} rows put together"))
        repairs += [Repair(repair.line, f"topic {shorten_value(topic)}: {repair.message}") for repair in done]
        was = {row.line: row.fields for row in rows}
        lines += [given[row.line] if row.fields == was[row.line] else " ".join(row.fields) for row in kept]
    return lines + rest, sorted(repairs, key=lambda repair: repair.line)


def _repair_topic(rows: list[Row], track: Track) -> tuple[list[Row], list[Repair]]:
    """Repair the rows of a topic. Returns the new rows and the repairs."""
    done: list[Repair] = []
    rows = _set_column(rows, 1, ["Q0"] * len(rows), "second column", done)
    ordered = _sort_rows(rows)
    if ordered is None:
        return rows, done
    if ordered != rows:
        done.append(Repair(rows[0].line, "rows put in the order of their scores"))
    kept: dict[str, Row] = {}
    for row in ordered:
        best = kept.setdefault(row.document, row)
        if best is not row:
            done.append(Repair(row.line, f"{shorten_value(row.document)} dropped: line {best.line} ranks it higher"))
    rows = list(kept.values())
    if track.rows is not None and len(rows) > track.rows:
        message = f"{plural(len(rows) - track.rows, 'row')} beyond the {track.rows} best dropped"
        done.append(Repair(rows[track.rows].line, message))
        rows = rows[: track.rows]
    rows = _set_column(rows, 3, [str(rank) for rank in range(1, len(rows) + 1)], "rank", done)
    scores = np.array([parse_score(row.fields[4]) for row in rows], dtype=np.float64)
    try:
        decreasing = decrease_strictly(scores)
    except ValueError:
        return rows, done
    texts = [
        row.fields[4] if np.float32(score) == new else f"{new:.9g}"
        for row, score, new in zip(rows, scores, decreasing, strict=True)
    ]
    return _set_column(rows, 4, texts, "score", done), done


def _sort_rows(rows: Sequence[Row]) -> list[Row] | None:
    """Sort rows best first. None if a score is unusable, or if ranks that all differ contradict the scores."""
    scores = {row.line: parse_score(row.fields[4]) for row in rows}
    ranks = {row.line: int(row.fields[3]) for row in rows if row.fields[3].isdecimal() and len(row.fields[3]) < 19}
    if len(set(ranks.values())) < len(rows):
        ranks = {row.line: 0 for row in rows}
    order = [(-score, ranks[row.line], row.line) for row in rows if (score := scores[row.line]) is not None]
    found = sorted(range(len(order)), key=order.__getitem__)
    sorted_ranks = [order[i][1] for i in found]
    if len(order) < len(rows) or sorted_ranks != sorted(sorted_ranks):
        return None
    return [rows[i] for i in found]


def _set_column(rows: list[Row], column: int, values: list[str], name: str, done: list[Repair]) -> list[Row]:
    """Set a column of all rows. If values change, add one repair to `done`, on the line of the first change."""
    changed = [row.line for row, value in zip(rows, values, strict=True) if row.fields[column] != value]
    if changed:
        done.append(Repair(min(changed), f"{name} rewritten on {len(changed)} of its rows"))
    return [
        Row(row.line, (*row.fields[:column], value, *row.fields[column + 1 :]))
        for row, value in zip(rows, values, strict=True)
    ]


def fix_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair the lines of an answer file. Returns the new lines, and the repairs by line of the given file.

    `fix_record` repairs each object. Blank lines are dropped, and so is an object that repeats another one exactly.
    If a file mixes forms of citations, all get the form that the track prefers. Unreadable lines stay as they are, and
    so do objects that need no repair.
    """
    form: CitationForm | None = None
    if track.one_form == "file":
        records = (parse_object(line) for _, line in content)
        answers = (record.get(track.sentences) for record in records if record)
        forms = {one for answer in answers if isinstance(answer, list) for one in collect_forms(answer)}
        form = forms.pop() if len(forms) == 1 else track.citations[0]
    return fix_objects(content, lambda record: fix_record(record, track, topics, form), drops_repeated=True)


def fix_objects(
    content: Lines, repair: Callable[[dict[str, Any]], list[str]], drops_repeated: bool = False
) -> tuple[list[str], list[Repair]]:
    """Repair each object by a function, which changes it in place and returns a message for each repair.

    Blank lines are dropped, and if `drops_repeated`, objects that repeat another one. Lines that are no object stay,
    and so do objects without repairs. Returns the new lines, and the repairs by line.
    """
    lines, repairs, seen = list[str](), list[Repair](), dict[str, int]()
    for number, line in content:
        if not line.strip():
            repairs.append(Repair(number, "blank line dropped"))
            continue
        record = parse_object(line)
        done = [] if record is None else repair(record)
        fixed = orjson.dumps(record).decode() if done else line
        first = seen.setdefault(fixed, number)
        if drops_repeated and first != number and record is not None:
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
    """Repair ids, and a narrative that is missing, blank, or equal in words to the topic's; return the topic's id."""
    done += fix_ids(metadata, track)
    topic = read_id(metadata.get(track.topic_key))
    for key in track.keys:
        found, exact = metadata.get(key.name), topics.get(topic)
        if key.holds != "narrative" or exact is None or found == exact:
            continue
        words = _normalise_words(found) if isinstance(found, str) else None
        if found is None or words in (_normalise_words(exact), []):
            metadata[key.name] = exact
            done.append(f"{key.name}: {'filled in' if found is None else 'made exact'} from the topics file")
    return topic


def fix_ids(metadata: dict[str, Any], track: Track) -> list[str]:
    """Turn ids that are numbers into text, in place. Returns a message for each."""
    keys = [one.name for one in track.keys if one.holds in ID_CONTENTS and is_integer(metadata.get(one.name))]
    metadata |= {key: str(metadata[key]) for key in keys}
    return [f"{key}: a number is now text" for key in keys]


def _normalise_words(text: str) -> list[str]:
    """Split a text into words, without differences of case and of compatible forms of letters."""
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
        cut = f"the last {len(filled) - kept} of {plural(len(filled), 'sentence')} cut, for the length"
        done.append(f"{track.sentences}: {cut}")
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
