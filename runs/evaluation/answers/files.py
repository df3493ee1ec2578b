"""What answers in files respond to, and what they say: narratives, questions, references, answers and evidence.

Runs of different teams, or files, get different names.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from keystone.generation.types import Answer, Sentence
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import unicode_name
from keystone.runs.evaluation.use import UseRecord, keep_fresh, read_use_records
from keystone.runs.pipeline.file_names import CONFIG, EVIDENCE, QUERIES
from keystone.runs.track_rules import TRACKS, Track
from keystone.runs.tracks.answer_files import SubmittedAnswer, get_metadata, is_integer, read_answer_file
from keystone.runs.tracks.violations import parse_lines, tell_expected
from keystone.runs.trec.topics import ID_KEYS, NARRATIVE_KEYS, read_topic_narratives

T = TypeVar("T")

QUESTION_KEYS = ("question", *NARRATIVE_KEYS)
REFERENCE_FIELDS = ("references", "answers", "keywords", "gold_ids")
"""The keys of a line of references that measures need. A line may lack any of them."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The references of a topic. If its line lacks a field, the field is empty."""

    topic_id: str
    question: str = ""
    references: tuple[str, ...] = ()
    """Texts of experts, each of which answers the question."""
    answers: tuple[tuple[str, ...], ...] = ()
    """Short answers, all of which are wanted; each has all its spellings."""
    keywords: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    """Ids of the segments or documents that answer the question."""


@dataclass(frozen=True, slots=True)
class Context:
    """The evidence that an answer was made from: the text of each item, in the file's order, and the documents."""

    texts: tuple[str, ...] = ()
    doc_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Submission:
    """The answers of a file by topic, and the evidence by topic. `contexts` is None if the evidence is not known.

    `uses` has the judgments of use of these answers by topic. It is None if nobody made any.
    """

    name: str
    answers: Mapping[str, Answer]
    contexts: Mapping[str, Context] | None = None
    run_id: str = ""
    uses: Mapping[str, UseRecord] | None = None
    team_id: str = ""

    def get_text(self, topic_id: str) -> str:
        """Get the sentences of an answer with single spaces between them; empty if there is no answer."""
        return join_sentences(self.answers[topic_id]) if topic_id in self.answers else ""


def join_sentences(answer: Answer) -> str:
    """Join the sentences of an answer by single spaces."""
    return " ".join(sentence.text for sentence in answer.sentences).strip()


def read_references(path: Path) -> list[Reference]:
    """Read a line for each topic. `UserError` with file, line and key for a bad one, and for a file without a line.

    The id is under one of `ID_KEYS`, the question under one of `QUESTION_KEYS`. The fields `REFERENCE_FIELDS` are lists
    of texts, and `answers` is a list of such lists. No list may be empty, and no text blank.
    """
    found = read_by_topic(path, _parse_reference, lambda reference: reference.topic_id)
    if not found:
        raise UserError(f"{path}: holds no line, expected the references of a topic on each line")
    return list(found.values())


def read_by_topic(path: Path, parse: Callable[[dict[str, Any]], T], get_topic_id: Callable[[T], str]) -> dict[str, T]:
    """Read an object from each line. `UserError` names the line if `parse` raises `ValueError` or a topic recurs."""
    found: dict[str, T] = {}
    for place, one in parse_lines(path, parse):
        if found.setdefault(get_topic_id(one), one) is not one:
            raise UserError(f"{place}: topic {get_topic_id(one)!r} occurs more than once")
    return found


def _parse_reference(record: dict[str, Any]) -> Reference:
    key = find_field(record, QUESTION_KEYS) or ""
    question = record.get(key, "")
    if not isinstance(question, str):
        raise ValueError(tell_expected(key, "a text", question))
    names = record.get("answers")
    if names is not None and not (isinstance(names, list) and names and all(isinstance(one, list) for one in names)):
        raise ValueError("answers: expected a list of lists, each with the spellings of one short answer")
    return Reference(
        get_topic_id(record, ID_KEYS),
        question,
        _get_texts(record.get("references"), "references"),
        tuple(_get_texts(one, f"answers[{place}]") for place, one in enumerate(names or [])),
        _get_texts(record.get("keywords"), "keywords"),
        _get_texts(record.get("gold_ids"), "gold_ids"),
    )


def get_topic_id(record: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Get the id under the first of these keys that has a value. `ValueError` if none has one, or if it is no id."""
    key = find_field(record, keys)
    if key is None:
        raise ValueError(f"expected a topic id under {', '.join(keys)}, found the keys {', '.join(record) or 'none'}")
    value = record[key]
    if not isinstance(value, str) and not is_integer(value):
        raise ValueError(tell_expected(key, "an id", value))
    return str(value)


def _get_texts(value: Any, key: str) -> tuple[str, ...]:
    """Get the texts of a list; none if the value is None. `ValueError` for anything but texts that are not blank."""
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text.strip() for text in value):
        raise ValueError(tell_expected(key, "a list of texts", value))
    return tuple(value)


def read_submission(path: Path) -> Submission:
    """Read an answer file of any track, rows of RAGDoll, or the answer file of a run directory with its evidence.

    `UserError` with file and line for an unreadable answer or item of evidence, or for two answers to one topic. It
    is also raised if the file holds two runs, or the folder no answer file or several.
    """
    contexts = None
    if path.is_dir() and (path / EVIDENCE).exists():
        contexts = dict(read_by_topic(path / EVIDENCE, _parse_context, lambda one: one[0]).values())
    submitted = _read_answers(find_answer_file(path) if path.is_dir() else path)
    answers = {topic: one.answer for topic, one in submitted.items()}
    first = next(iter(submitted.values()))
    if other := next((one for one in submitted.values() if one.run_id != first.run_id), None):
        both = f"topic {other.answer.topic_id!r} is of run {other.run_id!r}, the first of run {first.run_id!r}"
        raise UserError(f"{path}: {both}; expected one run in a file")
    return Submission(unicode_name(path), answers, contexts, first.run_id, team_id=first.team_id)


def read_judged_submission(path: Path) -> Submission:
    """Read answers as `read_submission` does, with the judgments of use of answers that have not changed since."""
    submission, records = read_submission(path), read_use_records(path)
    return submission if records is None else replace(submission, uses=keep_fresh(records, submission.answers))


def find_answer_file(folder: Path) -> Path:
    """Find the answer file of a run directory. `UserError` if the folder holds none, or several."""
    names = {track.answer_file for track in TRACKS.values()}
    found = sorted(path for path in folder.iterdir() if path.name in names)
    if len(found) != 1:
        held = ", ".join(path.name for path in found) or "none"
        raise UserError(f"{folder}: expected one answer file of a track ({', '.join(sorted(names))}), found {held}")
    return found[0]


def _read_answers(path: Path) -> dict[str, SubmittedAnswer]:
    """Read the answers of a file by topic. The file holds at least one."""
    found: dict[str, SubmittedAnswer] = {}
    rows = [one for _, one in parse_lines(path, _parse_row)] if holds_texts(path) else None
    for submitted in read_answer_file(path, _find_form(path)) if rows is None else rows:
        if found.setdefault(submitted.answer.topic_id, submitted) is not submitted:
            raise UserError(f"{path}: topic {submitted.answer.topic_id!r} is answered more than once")
    return found


def holds_texts(path: Path) -> bool:
    """Tell whether a file has rows of RAGDoll, each with a whole answer under `answer_text`, and no sentences."""
    if path.is_dir():
        return False
    _, record = next(read_json_lines(path), (0, {}))
    return "answer_text" in record and not any(track.sentences in record for track in TRACKS.values())


def _parse_row(record: dict[str, Any]) -> SubmittedAnswer:
    """Parse a row of RAGDoll, whose answer has sentences without citations."""
    topic_id, run_id = get_topic_id(record, ID_KEYS), get_topic_id(record, ("run_id",))
    text = record.get("answer_text")
    if not isinstance(text, str):
        raise ValueError(tell_expected("answer_text", "a text", text))
    sentences = tuple(Sentence(text[start:end], ()) for start, end in split_sentences(text))
    return SubmittedAnswer(run_id, (), Answer(topic_id, sentences))


def _find_form(path: Path) -> Track:
    """Find a track whose files have the form of the first answer. Other tracks of that form are read alike."""
    _, record = next(read_json_lines(path), (0, None))
    if record is None:
        raise UserError(f"{path}: is empty, expected answers")
    for track in TRACKS.values():
        metadata = get_metadata(record, track)
        if track.sentences in record and isinstance(metadata, dict) and track.topic_key in metadata:
            return track
    keys = ", ".join(record) or "none"
    raise UserError(f"{path}: the keys {keys} are those of no track; see the page for participants")


def _parse_context(record: dict[str, Any]) -> tuple[str, Context]:
    items = record.get("items")
    if not isinstance(items, list):
        raise ValueError(tell_expected("items", "a list", items))
    texts, doc_ids = [], set()
    for place, item in enumerate(items):
        text, span = (item.get("text"), item.get("span")) if isinstance(item, dict) else (None, None)
        if not isinstance(text, str):
            raise ValueError(tell_expected(f"items[{place}].text", "a text", text))
        if not isinstance(span, dict) or not isinstance(span.get("doc_id"), str):
            raise ValueError(tell_expected(f"items[{place}].span.doc_id", "an id", span))
        texts.append(text)
        doc_ids.add(span["doc_id"])
    return get_topic_id(record, ("topic_id",)), Context(tuple(texts), frozenset(doc_ids))


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run as its file names it. `topic_id` is the topic of one of its answers; empty for all of them together."""

    run_id: str
    team_id: str
    file: str
    topic_id: str = ""


def name_apart(runs: Sequence[NamedRun]) -> list[str]:
    """Name each run so that no name has two answers to a topic: by its id, as long as that is enough.

    A run id of several teams becomes `TEAM-RUN`. A name without a team that has answers to a topic in several files
    becomes `NAME (FILE)`. `UserError` for two answers of a run to a topic in one file, or of the same team.
    """
    teams = _group((one.run_id, one.team_id) for one in runs)
    names = [f"{o.team_id}-{o.run_id}" if o.team_id and len(teams[o.run_id]) > 1 else o.run_id for o in runs]
    files = _group(((name, one.topic_id), one.file) for name, one in zip(names, runs, strict=True))
    shared = {name for (name, _), own in files.items() if len(own) > 1}
    found, seen = list[str](), set[tuple[str, str]]()
    for name, one in zip(names, runs, strict=True):
        found.append(f"{name} ({one.file})" if name in shared and not one.team_id else name)
        if (found[-1], one.topic_id) in seen:
            of_topic = f": topic {one.topic_id!r} occurs more than once" if one.topic_id else " in another file too"
            raise UserError(f"{one.file}: found run {one.run_id!r}{of_topic}, expected different runs")
        seen.add((found[-1], one.topic_id))
    return found


def caution_about_names(runs: Sequence[NamedRun], names: Sequence[str]) -> list[str]:
    """Caution about each run id that several files share, so that their runs get other names."""
    files = _group((one.run_id, one.file) for one, name in zip(runs, names, strict=True) if name != one.run_id)
    return [
        f"the run id {run_id!r} is that of several runs, which have names of their own: {', '.join(sorted(own))}"
        for run_id, own in files.items()
    ]


K = TypeVar("K")


def _group(pairs: Iterable[tuple[K, str]]) -> dict[K, set[str]]:
    found = defaultdict[K, set[str]](set)
    for key, value in pairs:
        found[key].add(value)
    return found


QUESTION_TEXT_KEYS = ("question", "text")
"""The keys under which a question with further properties has its text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A topic's narrative and the questions that it consists of, at least one."""

    narrative: str
    questions: tuple[str, ...]


def read_asked(paths: Sequence[Path], questions: Path | None = None, topics: Path | None = None) -> dict[str, Asked]:
    """Read what was asked, by topic: the narratives of `topics`, with the questions of `questions`.

    `questions` is a run directory or a file in the form of its `queries.jsonl`. By default, it is the first run
    directory of `paths`, so that all files are judged by the same questions. By default, the topics are those of that
    run, or else of the first run. A topic without a question is one question. `UserError` if there are no questions or
    no topics.
    """
    source = questions or next((path for path in paths if (path / QUERIES).is_file()), None)
    if source is None:
        raise UserError(
            f"found no questions: expected --questions, or a run directory, whose {QUERIES} has those of its narratives"
        )
    narratives = read_narratives([source, *paths], topics)
    found = read_questions(source / QUERIES if source.is_dir() else source)
    asked = {name: Asked(text, found.get(name) or (text,)) for name, text in narratives.items() if name in found}
    if not asked:
        like = f"they look like {min(found, default='')!r}, those of the narratives like {min(narratives)!r}"
        raise UserError(f"{source}: has questions of no topic: {like}")
    return asked


def read_narratives(paths: Sequence[Path], topics: Path | None = None) -> dict[str, str]:
    """Read the narratives of `topics`, else of the first run directory, by topic. `UserError` if there are none."""
    from keystone.runs.pipeline.made_config import read_run_config  # which loads YAML and all settings

    if topics is not None:
        return read_topic_narratives(topics)
    folder = next((path for path in paths if (path / CONFIG).is_file()), None)
    if folder is None:
        raise UserError(f"found no narratives: expected --topics, or a run directory, whose {CONFIG} names them")
    try:
        return read_topic_narratives(read_run_config(folder).topics)
    except UserError as error:
        raise UserError(f"{error}; expected the narratives of the run, or --topics") from error


def find_narratives(paths: Sequence[Path]) -> dict[str, str]:
    """Find the narratives of run directories, by topic. Files, and runs whose topics are gone, have none."""
    found: dict[str, str] = {}
    for path in paths:
        with suppress(UserError):
            found = read_narratives([path]) | found
    return found


def read_questions(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the questions of each topic, each a text or an object with the text under one of `QUESTION_TEXT_KEYS`.

    `UserError` with file, line and key for a bad line, and for two lines of one topic.
    """
    return dict(read_by_topic(path, _parse_questions, lambda one: one[0]).values())


def _parse_questions(record: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    listed = record.get("questions")
    if not isinstance(listed, list):
        raise ValueError(tell_expected("questions", "a list", listed))
    texts = []
    for place, one in enumerate(listed):
        text = next((one[key] for key in QUESTION_TEXT_KEYS if key in one), None) if isinstance(one, dict) else one
        if not isinstance(text, str) or not text.strip():
            raise ValueError(tell_expected(f"questions[{place}]", "a question", one))
        texts.append(text)
    return get_topic_id(dict(record), ID_KEYS), tuple(texts)
