"""What the answers of files have to do: the narrative of each topic, and its questions."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.runs.config.read import read_config
from keystone.runs.evaluation.answers.files import get_topic_id, read_by_topic
from keystone.runs.pipeline.file_names import CONFIG, QUERIES
from keystone.runs.tracks.violations import shorten_value
from keystone.runs.trec.topics import ID_KEYS, read_topics

QUESTION_KEYS = ("question", "text")
"""The keys under which a question stands that has further properties."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A topic's narrative and the questions that it consists of, at least one."""

    narrative: str
    questions: tuple[str, ...]


def read_asked(paths: Sequence[Path], questions: Path | None = None, topics: Path | None = None) -> dict[str, Asked]:
    """Read what was asked, by topic: the narratives of `topics`, with the questions of `questions`.

    `questions` is a run directory or a file in the form of its `queries.jsonl`. Without one, it is the first run
    directory of `paths`, so that all files are judged by the same questions. Without topics, they are those of that
    run, else of the first run. A topic without a question is one question. `UserError` if there are no questions or no
    topics.
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
    """Read the narratives of `topics`, else those of the first run directory of `paths`, by topic.

    `UserError` if there are none.
    """
    if topics is not None:
        return _read_narratives(topics)
    folder = next((path for path in paths if (path / CONFIG).is_file()), None)
    if folder is None:
        raise UserError(f"found no narratives: expected --topics, or a run directory, whose {CONFIG} names them")
    try:
        return _read_narratives(read_config(folder / CONFIG).topics)
    except UserError as error:
        raise UserError(f"{error}; expected the narratives of the run, or --topics") from error


def _read_narratives(path: Path) -> dict[str, str]:
    return {topic.id: topic.narrative for topic in read_topics(path)}


def find_narratives(paths: Sequence[Path]) -> dict[str, str]:
    """Find the narratives of run directories, by topic; none for a run whose topics are gone, or for a file."""
    found: dict[str, str] = {}
    for path in paths:
        with suppress(UserError):
            found = read_narratives([path]) | found
    return found


def read_questions(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the questions of each topic, each a text or an object with it under one of `QUESTION_KEYS`.

    `UserError` with file, line and key for a bad line, and for two lines of one topic.
    """
    return dict(read_by_topic(path, _parse_questions, lambda one: one[0]).values())


def _parse_questions(record: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    listed = record.get("questions")
    if not isinstance(listed, list):
        raise ValueError(f"questions: expected a list, found {shorten_value(listed)}")
    texts = []
    for place, one in enumerate(listed):
        text = next((one[key] for key in QUESTION_KEYS if key in one), None) if isinstance(one, dict) else one
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"questions[{place}]: expected a question, found {shorten_value(one)}")
        texts.append(text)
    return get_topic_id(dict(record), ID_KEYS), tuple(texts)
