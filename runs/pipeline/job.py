"""A run about to be made: its configuration and all that it names, opened."""

import os
from dataclasses import dataclass
from pathlib import Path

from generation.context.topic import Sources
from generation.grading.grade import GradeSettings
from generation.readers.reader import AnswerSettings
from indexing.errors import UserError
from indexing.index import Index, open_index
from indexing.stores import open_store
from indexing.types import Progress, Store, silent
from retrieval.types import Topic
from runs.config.run_config import RunConfig
from runs.tracks.answer_files import Author
from runs.tracks.rules import TRACKS, Track, set_topic_limits
from runs.trec.topics import read_topics

WORD_CHARACTERS = 6
"""Characters that a word has, about, with the space after it."""
DEFAULT_TRACK = "rag25"
"""The track whose limits hold for a run that names no track."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every step of a run is given; `topics` may be a part of the configuration's."""

    config: RunConfig
    index: Index
    store: Store
    topics: list[Topic]
    track: Track
    """The rules of the run's track; those of the default track where it has none."""
    threads: int = 1
    progress: Progress = silent

    @property
    def directory(self) -> Path:
        """Where all artifacts go."""
        return self.config.out / self.config.run_id

    @property
    def words(self) -> int:
        """The words that an answer has at most, where its topic sets no limit of its own."""
        return self.config.answer.words or self.track.words

    def get_word_limit(self, topic: Topic) -> int:
        """The words that the answer to a topic has at most."""
        limit, unit = self.track.limit(topic.id), self.track.length.unit
        if limit is None:
            return self.words
        return max(1, min(self.words, limit if unit == "words" else limit // WORD_CHARACTERS))

    @property
    def author(self) -> Author:
        """Who submits."""
        config = self.config
        return Author(config.team_id, config.run_id, config.run_desc or describe_settings(config))

    @property
    def sources(self) -> Sources:
        """Where documents and their vectors come from."""
        return Sources(self.index, self.store, self.threads)

    @property
    def answer_settings(self) -> AnswerSettings:
        """How topics are answered; the configuration must name a method."""
        settings, model = self.config.answer, self.config.model
        assert settings.method is not None
        window = 0 if model is None else model.window
        return AnswerSettings(settings.method, settings.documents, window, settings.prompt_with, settings.synthesis)

    @property
    def grade_settings(self) -> GradeSettings:
        """How candidates are graded; the configuration must name a method."""
        model = self.config.model
        in_one_wave = model is not None and model.backend == "batch"
        return GradeSettings(**self.config.grading.model_dump(exclude={"pool"}), in_one_wave=in_one_wave)


def open_job(
    config: RunConfig, threads: int = 1, progress: Progress = silent, topics: list[Topic] | None = None
) -> Job:
    """What a configuration names, opened. `UserError` for an index or topics that are not there.

    `topics` are those of the run where they are not read from the configuration's file here.
    """
    _check_paths(config, topics is None)
    index = open_index(config.index)
    topics = _read_topics_file(config.topics) if topics is None else topics
    track = set_topic_limits(TRACKS[config.track or DEFAULT_TRACK], topics)
    job = Job(config, index, open_store(index), topics, track, threads, progress)
    if config.track is not None or config.grading.method is not None:
        _ = job.sources.embedding
    return job


def _check_paths(config: RunConfig, reads_topics: bool) -> None:
    """`UserError` for a path that leads nowhere, which says from where it goes."""
    paths: dict[str, Path | None] = {"index": config.index, "topics": config.topics if reads_topics else None}
    if config.model is not None:
        paths |= {"model.replies": config.model.replies, "model.key_file": config.model.key_file}
    for key, path in paths.items():
        if path is not None and not os.access(path, os.F_OK):
            place = "" if path.is_absolute() else f" in {Path.cwd()}, from which the paths of a run go"
            raise UserError(f"{key}: {path}: no such file or folder{place}")


def _read_topics_file(path: Path) -> list[Topic]:
    """The topics of a file that the manifest can name by its bytes, and that a repeated run reads again."""
    if path.exists() and not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"
        raise UserError(f"{path}: is a {kind}, expected a file of topics, which a run can read again")
    return read_topics(path)


def describe_settings(config: RunConfig) -> str:
    """A run in one line: what each part of it does, with its settings."""
    parts = []
    for part in ("queries", "retrieval", "fusion", "grading", "answer"):
        settings = getattr(config, part).model_dump(mode="json").items()
        values = ", ".join(f"{key} {'+'.join(v) if isinstance(v, list) else v}" for key, v in settings if v is not None)
        parts.append(f"{part}: {values}")
    return f"Keystone, from whole narratives to cited answers; {'; '.join(parts)}"
