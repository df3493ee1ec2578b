"""Reading of the answers of a tournament: rows of RAGDoll, answer files of any track, and run directories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import unicode_name
from keystone.runs.evaluation.answers.files import NamedRun, find_answer_file, name_apart
from keystone.runs.track_rules import DEFAULT_TEAM
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import tell_expected

RUN_KEYS = ("run_id",)
TEAM_KEYS = ("team_id",)
TOPIC_KEYS = ("qid", "topic_id", "query_id", "narrative_id", "request_id", "qa_id")
QUERY_KEYS = ("query", "topic", "narrative", "title", "question")
SENTENCE_KEYS = ("answer", "responses", "response")
"""The keys under which a row, or its metadata, says something. The first one with a value counts."""


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """The answers of one run: its name, the texts by topic, and the narratives by topic that its file has."""

    run_id: str
    texts: Mapping[str, str]
    narratives: Mapping[str, str]
    team_id: str = ""


def read_answer_sets(
    paths: Sequence[Path], narratives: Mapping[str, str] | None = None
) -> tuple[list[AnswerSet], dict[str, str]]:
    """Read the answers of files or run directories; also returns the narrative of each topic.

    `narratives` are those of topics for which the files have none. Runs of several teams, or files, with one id get
    names of their own. `UserError` for a bad row, a run without a name, two runs in a file, a run that a team has in
    two files, two answers to a topic, and a topic with two narratives or none.
    """
    sets = list(map(read_answer_set, paths))
    runs = [NamedRun(one.run_id, one.team_id, unicode_name(path)) for path, one in zip(paths, sets, strict=True)]
    sets = [replace(one, run_id=name) for one, name in zip(sets, name_apart(runs), strict=True)]
    known: dict[str, str] = {}
    for path, one in zip(paths, sets, strict=True):
        for topic_id, text in one.narratives.items():
            if known.setdefault(topic_id, text) != text:
                raise UserError(f"{path}: topic {topic_id!r}: has another narrative than in the files before it")
    known = {**(narratives or {}), **known}
    for path, one in zip(paths, sets, strict=True):
        if lost := sorted(one.texts.keys() - known.keys()):
            raise UserError(f"{path}: topic {lost[0]!r} has no narrative; expected --topics, or one in its row")
    return sets, known


def read_answer_set(path: Path) -> AnswerSet:
    """Read the answers of one run. `UserError` as from `read_answer_sets`."""
    file = find_answer_file(path) if path.is_dir() else path
    run_id, team_id, texts, narratives = "", "", dict[str, str](), dict[str, str]()
    for number, record in read_json_lines(file):
        try:
            own, topic_id = _get_name(record, RUN_KEYS), _get_name(record, TOPIC_KEYS)
            text = _get_text(record)
        except ValueError as error:
            raise UserError(f"{file}:{number}: {error}") from error
        if run_id and own != run_id:
            raise UserError(f"{file}:{number}: has an answer of {own}, expected only those of {run_id}")
        if topic_id in texts:
            raise UserError(f"{file}:{number}: topic {topic_id!r} occurs more than once")
        run_id, texts[topic_id] = own, text
        team_id = _find_name(record, TEAM_KEYS)
        if query := _find_name(record, QUERY_KEYS):
            narratives[topic_id] = query
    if not texts:
        raise UserError(f"{file}: is empty, expected answers")
    return AnswerSet(run_id, texts, narratives, team_id if team_id != DEFAULT_TEAM else "")


def _find_name(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Find the first text or integer under these keys of a row, then of its metadata; empty if they have none."""
    metadata = record.get("metadata")
    for place in (record, metadata if isinstance(metadata, dict) else {}):
        for value in map(place.get, keys):
            if (isinstance(value, str) and value.strip()) or is_integer(value):
                return str(value).strip()
    return ""


def _get_name(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    if name := _find_name(record, keys):
        return name
    raise ValueError(f"expected an id under {' or '.join(keys)}, found the keys {', '.join(record) or 'none'}")


def _get_text(record: Mapping[str, Any]) -> str:
    """Get the text of an answer: `answer_text`, or its sentences with single spaces between them."""
    if isinstance(text := record.get("answer_text"), str):
        return text.strip()
    key = next((key for key in SENTENCE_KEYS if key in record), None)
    if key is None:
        raise ValueError(f"expected answer_text or {' or '.join(SENTENCE_KEYS)}, found {', '.join(record)}")
    value = record[key]
    sentences = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(sentences, list):
        raise ValueError(tell_expected(key, "a list of sentences", value))
    texts = list[str]()
    for number, one in enumerate(sentences):
        text = one.get("text") if isinstance(one, dict) else one
        if not isinstance(text, str):
            raise ValueError(tell_expected(f"{key}[{number}]", "a text", one))
        texts.append(text.strip())
    return " ".join(filter(None, texts))
