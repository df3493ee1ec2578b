"""Checks and repairs of files of nuggets. Each line of such a file has the questions and answers for a topic.

Source: the guidelines of RAGTIME 2026, task 3, as autojudge-base 1.0.0 has them (`ragtime26_nugget_data`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from keystone.runs.track_rules import Aggregator, Track
from keystone.runs.tracks.answer_files import get_metadata, is_integer
from keystone.runs.tracks.check_answers import check_metadata, find_topic, read_id
from keystone.runs.tracks.check_run import check_ids
from keystone.runs.tracks.fix import fix_ids, fix_objects
from keystone.runs.tracks.violations import (
    Lines,
    Repair,
    Violation,
    make_error,
    make_warning,
    parse_object,
    put_on_line,
    shorten_value,
    tell_expected,
)
from keystone.runs.wording import plural

BANK = "nugget_bank"
"""The key of the list of nuggets. Other forms of nuggets have an object there."""


def holds_nuggets(content: Lines) -> bool:
    """Whether the first object among these lines has a list of nuggets."""
    first = next((record for _, line in content if (record := parse_object(line)) is not None), {})
    return isinstance(first.get(BANK), list)


def check_nuggets(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """Find the violations of a file of nuggets. `topics` maps topic ids to narratives."""
    if track.nugget_run_id_length is None:
        yield make_error("nuggets", f"holds nuggets, expected a run or answers: {track.name} has no task of nuggets")
        return
    own = replace(track, run_id_length=track.nugget_run_id_length)
    answered, runs, foreign = dict[str, int](), dict[str, int](), dict[str, int]()
    for number, line in content:
        if not line.strip():
            yield make_warning("blank line", "blank line", number)
            continue
        record = parse_object(line)
        if record is None:
            yield make_error("not an object", f"expected a JSON object, found {shorten_value(line)}", number)
            continue
        metadata, topic = get_metadata(record, track), find_topic(record, track)
        if isinstance(metadata, dict):
            yield from put_on_line(number, check_metadata(metadata, own, topic, topics))
            if run_id := read_id(metadata.get(track.run_key)):
                runs.setdefault(run_id, number)
        else:
            yield make_error("metadata", tell_expected(f"{track.metadata}", "an object", metadata), number)
        if topic and (first := answered.setdefault(topic, number)) != number:
            message = f"topic {shorten_value(topic)} already has nuggets on line {first}"
            yield make_error("repeated topic", message, number)
        yield from put_on_line(number, _check_bank(record.get(BANK)))
        for name in list_references(record):
            if not track.owns(name):
                foreign.setdefault(name, number)
    if len(runs) > 1:
        yield make_error("run id", f"found the run ids {', '.join(runs)}, expected one", list(runs.values())[1])
    yield from check_ids(foreign, track, "error")
    for topic in topics:
        if topic not in answered:
            yield make_error("missing topic", f"topic {shorten_value(topic)}: no nuggets")


def _check_bank(bank: Any) -> Iterator[Violation]:
    if not isinstance(bank, list) or not bank:
        yield make_error("no nugget", tell_expected(BANK, "a list of nuggets", bank))
        return
    questions: Counter[str] = Counter()
    for place, one in enumerate(bank):
        where = f"{BANK}[{place}]"
        if not isinstance(one, dict):
            yield make_error("nugget", tell_expected(where, "an object", one))
            continue
        yield from _check_text(f"{where}.question", one.get("question"))
        questions[read_id(one.get("question"))] += 1
        if (kind := one.get("aggregator_type")) is not None and kind not in get_args(Aggregator):
            expected = " or ".join(get_args(Aggregator))
            yield make_error("aggregator", tell_expected(f"{where}.aggregator_type", expected, kind))
        answers = one.get("answers")
        if answers is None or answers == []:
            yield make_warning("no gold answer", f"{where}.answers: expected an answer, found none")
        elif not isinstance(answers, list):
            yield make_error("answers", tell_expected(f"{where}.answers", "a list", answers))
        else:
            for inner, answer in enumerate(answers):
                yield from _check_answer(f"{where}.answers[{inner}]", answer)
    if repeated := [question for question, times in questions.items() if question and times > 1]:
        yield make_warning("repeated question", f"{BANK}: found {shorten_value(repeated[0])} more than once")


def _check_answer(where: str, answer: Any) -> Iterator[Violation]:
    if not isinstance(answer, dict):
        yield make_error("answers", tell_expected(where, "an object", answer))
        return
    yield from _check_text(f"{where}.answer", answer.get("answer"))
    references = answer.get("references")
    if not isinstance(references, list | None):
        yield make_error("references", tell_expected(f"{where}.references", "a list of ids", references))
        return
    names = [read_reference(one) for one in references or ()]
    if not names:
        yield make_warning("no reference", f"{where}.references: expected an id of a document, found none")
    for place, one in enumerate(references or ()):
        if not names[place] or is_integer(one):
            kind = "id as a number" if is_integer(one) else "references"
            yield make_error(kind, tell_expected(f"{where}.references[{place}]", "an id", one))
    if len(set(names)) < len(names):
        yield make_warning("repeated reference", f"{where}.references: expected each id once")


def _check_text(where: str, value: Any) -> Iterator[Violation]:
    if not isinstance(value, str) or not value.strip():
        yield make_error("no text", tell_expected(where, "text", value))


def read_reference(one: Any) -> str:
    """Read the id of a reference, which may be an object with a place in the document; empty for another value."""
    return read_id(one.get("doc_id") if isinstance(one, dict) else one)


def _list_answers(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    bank = record.get(BANK)
    for one in bank if isinstance(bank, list) else ():
        answers = one.get("answers") if isinstance(one, dict) else None
        yield from (answer for answer in (answers if isinstance(answers, list) else ()) if isinstance(answer, dict))


def list_references(record: Mapping[str, Any]) -> list[str]:
    """List the ids of the documents that the nuggets of a topic refer to, each once."""
    lists = [one["references"] for one in _list_answers(record) if isinstance(one.get("references"), list)]
    return list(dict.fromkeys(filter(None, (read_reference(one) for references in lists for one in references))))


def fix_nuggets(content: Lines, track: Track, _topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair a file without changing its meaning; returns the new lines, and the repairs by line.

    Ids that are numbers become text, repeated references of an answer and blank lines are dropped.
    """

    def repair(record: dict[str, Any]) -> list[str]:
        metadata = get_metadata(record, track)
        done = fix_ids(metadata, track) if isinstance(metadata, dict) else []
        for answer in _list_answers(record):
            given = answer.get("references")
            if not isinstance(given, list) or not all(map(read_id, given)):
                continue
            if (kept := list(dict.fromkeys(map(str, given)))) != given:
                answer["references"] = kept
                done.append(f"references: {shorten_value(given)} is now {shorten_value(kept)}")
        return done

    return fix_objects(content, repair)


def describe_nuggets(content: Lines, track: Track, topics: Mapping[str, str]) -> str:
    """Describe the size of a file: its topics, nuggets and answers."""
    records = [record for _, line in content if (record := parse_object(line)) is not None]
    found = {find_topic(record, track) for record in records}
    nuggets = sum(len(record[BANK]) for record in records if isinstance(record.get(BANK), list))
    answers = sum(1 for record in records for _ in _list_answers(record))
    size = f"{len(found & topics.keys()):,} of {plural(len(topics), 'topic')}, {plural(nuggets, 'nugget')}"
    return f"{size}, {plural(answers, 'answer')}"
