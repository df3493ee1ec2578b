"""A run before its stages: the configuration, with the index, the store, the topics and the track that it names.

A job imports what describes its later steps when a step asks for it, so that a search starts without the others.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keystone.indexing.attached.attach import limit_rate
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, hold_open, open_index
from keystone.indexing.io.published import find_cache
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.types import Progress, Store, silent
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.track_rules import TRACKS, Track, encode_rules, set_topic_limits

if TYPE_CHECKING:
    from keystone.generation.context.topic import Sources
    from keystone.generation.grading.grade import GradeSettings
    from keystone.generation.readers.reader import AnswerSettings
    from keystone.runs.tracks.answer_files import Author
    from keystone.runs.trec.run_files import GivenRun

WORD_CHARACTERS = 6
"""About how many characters a word has, with the space after it."""
TOPICS_AT_ONCE = 64
"""How many topics use the model at one time."""
DEFAULT_TRACK = "rag25"
"""If a run names no track, the limits of this one apply."""
ABSOLUTE_PATH = re.compile(r"/|~[\w.-]*/|~$")
"""The beginning of an absolute path, or of one in a user's folder."""


def name_task(index: Index) -> str:
    """Name the task of a run by the languages of its documents; empty if the index was made without `--language`."""
    if not index.languages:
        return "" if index.language == DEFAULT_LANGUAGE else "multilingual"
    return "english" if list(index.languages) == [DEFAULT_LANGUAGE] else "multilingual"


@dataclass(frozen=True, slots=True)
class Job:
    """The input of every step of a run. `topics` may be a part of the configuration's topics."""

    config: RunConfig
    index: Index
    store: Store
    topics: list[Topic]
    track: Track
    """The rules of the run's track. If the run names none, these are the rules of the default track."""
    threads: int = 1
    progress: Progress = silent
    given: "tuple[GivenRun, ...]" = ()
    """The runs of `retrieval.runs`."""

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.config.out / self.config.run_id

    @property
    def ranks_candidates(self) -> bool:
        """Whether a system ranks what another one finds for any query, so that all queries of a topic go together."""
        return self.index.pooled or any(
            system.base or system.needs_candidates(self.index) for system in self.config.make_systems().values()
        )

    @property
    def identity(self) -> dict[str, str]:
        """The id of the run and the key of its index, as values of JSON."""
        return {"run_id": self.config.run_id, "index": self.index.key}

    @property
    def plain_topics(self) -> list[list[str]]:
        """The topics as values of JSON."""
        return [[topic.id, topic.narrative] for topic in self.topics]

    @property
    def plain_track(self) -> dict[str, Any]:
        """The rules of the track as values of JSON."""
        return encode_rules(self.track)

    @property
    def segment_settings(self) -> list[int]:
        """The number of segments of a document that are ranked; empty for a run that ranks documents."""
        return [self.config.segments_per_document] if self.config.ranks_segments else []

    @property
    def words(self) -> int:
        """The most words of an answer, if its topic sets no limit of its own."""
        return self.config.answer.words or self.track.words

    def get_word_limit(self, topic: Topic) -> int:
        """Get the most words of the answer to a topic.

        A limit in characters is converted, and replaces the track's number of words. A number in the configuration
        still counts.
        """
        limit, unit = self.track.limit(topic.id), self.track.length.unit
        if limit is None:
            return self.words
        if unit == "words":
            return max(1, min(self.words, limit))
        return max(1, min(self.config.answer.words or limit, limit // WORD_CHARACTERS))

    @property
    def author(self) -> "Author":
        """The team, the run and its description, for the files that are submitted."""
        from keystone.runs.tracks.answer_files import Author

        config = self.config
        task = name_task(self.index) if self.track.task_key else ""
        return Author(config.team_id, config.run_id, config.run_desc or describe_settings(config), task)

    @property
    def sources(self) -> "Sources":
        """The index and the store that documents and vectors are read from."""
        from keystone.generation.context.topic import Sources

        return Sources(self.index, self.store, self.threads)

    @property
    def answer_settings(self) -> "AnswerSettings":
        """How topics are answered. The configuration must name a method."""
        from keystone.generation.readers.reader import AnswerSettings

        settings, model = self.config.answer, self.config.model
        assert settings.method is not None
        own = settings.model_dump(exclude={"method", "words", "gaps"})
        gaps = self.config.track is None if settings.gaps is None else settings.gaps
        return AnswerSettings(
            settings.method, window=0 if model is None else model.window, gaps=gaps, language=self.track.language, **own
        )

    @property
    def grade_settings(self) -> "GradeSettings":
        """How candidates are graded. The configuration must name a method."""
        from keystone.generation.grading.grade import GradeSettings

        model = self.config.model
        in_one_wave = model is not None and model.backend == "batch"
        used_elsewhere = {"pool", "rounds", "round_documents", "narrative", "deeper", "neighbours"}
        settings = self.config.grading.model_dump(exclude=used_elsewhere)
        return GradeSettings(**settings, in_one_wave=in_one_wave)


def open_job(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    topics: list[Topic] | None = None,
    held: bool = False,
) -> Job:
    """Open everything that a configuration names. `UserError` if the index, the topics or a file is missing.

    If `topics` is None, they are read from the configuration's file. If `held` is true, the parts of the index stay
    open, as `hold_open` says.
    """
    reads_topics = topics is None
    _check_paths(config, reads_topics)
    index = hold_open(open_index(config.index)) if held else open_index(config.index)
    job = make_job(config, index, _read_topics_file(config.topics) if topics is None else topics, threads, progress)
    topics = job.topics
    if (unknown := config.fusion.depths.keys() - {topic.id for topic in topics}) and reads_topics:
        raise UserError(f"fusion.depths: topic {min(unknown)!r} is not in {config.topics}")
    if config.grading.neighbours and index.faiss is None:
        raise UserError(
            f"grading.neighbours: found {config.grading.neighbours} for {index.folder}, which has no vectors of all "
            "documents: set 0, or build it with vectors of all"
        )
    return job


def make_job(
    config: RunConfig, index: Index, topics: list[Topic], threads: int = 1, progress: Progress = silent
) -> Job:
    """Make the job of a configuration over an index and topics. `UserError` if they do not fit together."""
    index = limit_rate(index, config.retrieval.max_rate)
    config = fit_systems(config, index)
    track = set_topic_limits(TRACKS[config.track or DEFAULT_TRACK], topics)
    store = open_store(index)
    return Job(config, index, store, topics, track, threads, progress, read_given_runs(config, store, topics))


def place_replies(config: RunConfig) -> RunConfig:
    """Keep the model's replies in the user's cache, unless there is a folder `out`, or the configuration names one."""
    if "out" in config.model_fields_set or config.out.exists():  # nothing appears where nobody asked for it
        return config
    return config.model_copy(update={"out": find_cache() / "replies"})


def fit_systems(config: RunConfig, index: Index) -> RunConfig:
    """Leave dense search out of a configuration that does not name its systems, if the index has no embeddings.

    `UserError` if the configuration needs dense search all the same.
    """
    unfit = [name for name, system in config.make_systems().items() if not system.fits(index)]
    if not unfit:
        return config
    if "systems" in config.retrieval.model_fields_set:
        raise UserError(
            f"retrieval.systems: found {unfit[0]} for {index.folder}, which has no embeddings: "
            "set [bm25], or build the index with them"
        )
    if config.queries.passages in ("hyde", "both"):
        raise UserError(
            f"queries.passages: found {config.queries.passages!r} for {index.folder}, which has no embeddings: "
            "set query2doc or null, or build the index with them"
        )
    retrieval = config.retrieval.model_copy(update={"systems": ["bm25"]})
    return config.model_copy(update={"retrieval": retrieval})


def read_given_runs(config: RunConfig, store: Store, topics: Sequence[Topic]) -> "tuple[GivenRun, ...]":
    """Read the run files of other systems that a configuration names. `UserError` as from `read_given_run`."""
    if not config.retrieval.runs:
        return ()
    from keystone.runs.trec.run_files import read_given_run

    return tuple(read_given_run(path, store, [topic.id for topic in topics]) for path in config.retrieval.runs)


def _check_paths(config: RunConfig, reads_topics: bool) -> None:
    """Raise `UserError` for a path without a file or folder. The message says where a relative path starts."""
    paths: dict[str, Path | None] = {"index": config.index}
    if reads_topics:
        from keystone.runs.trec.topics import names_collection

        paths["topics"] = None if names_collection(config.topics) else config.topics
    if config.model is not None:
        paths |= {"model.replies": config.model.replies, "model.key_file": config.model.key_file}
    paths |= {f"retrieval.runs.{place}": path for place, path in enumerate(config.retrieval.runs)}
    for key, path in paths.items():
        if path is not None and not os.access(path, os.F_OK):
            place = "" if path.is_absolute() else f" in {Path.cwd()}, from which the paths of a run go"
            raise UserError(f"{key}: {path}: no such file or folder{place}")


def _read_topics_file(path: Path) -> list[Topic]:
    """Read the topics of a file or a collection, which a repeated run can read again. `UserError` for a pipe."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: is a pipe or a device, expected a file of topics, which a run can read again")
    from keystone.runs.trec.topics import read_topics

    return read_topics(path)


def place_calibration(config: RunConfig, folder: Path) -> RunConfig:
    """Change a configuration so that the file of its calibration, if it has one, is in a folder."""
    choice = config.fusion.choice
    if choice is None or choice.calibration is None:
        return config
    choice = choice.model_copy(update={"calibration": folder / choice.calibration.name})
    return config.model_copy(update={"fusion": config.fusion.model_copy(update={"choice": choice})})


def shorten_paths(value: Any) -> Any:
    """Replace each absolute path within a value of JSON by the name of its file."""
    if isinstance(value, dict):
        return {key: shorten_paths(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(shorten_paths, value))
    return Path(value).name if isinstance(value, str) and ABSOLUTE_PATH.match(value) else value


def describe_settings(config: RunConfig) -> str:
    """Describe the settings of a run in one line, part by part, without the folders of files."""
    config = place_calibration(config, Path())
    parts = []
    rerank = () if config.rerank.method is None else ("rerank",)
    for part in ("queries", "retrieval", "fusion", *rerank, "grading", "answer"):
        section = getattr(config, part)
        settings = section.describe() if part == "rerank" else section.model_dump(mode="json", exclude={"depths"})
        values = ", ".join(
            f"{key} {'+'.join(Path(one).name for one in v) if isinstance(v, list) else v}"
            for key, v in shorten_paths(settings).items()
            if v not in (None, []) and key != "endpoint"
        )
        parts.append(f"{part}: {values}")
    if config.fusion.depths:
        parts.append(f"depths: of {len(config.fusion.depths)} narratives")
    if config.ranks_segments:
        parts.append(f"ranking: segments, at most {config.segments_per_document} of a document")
    return f"Keystone, from whole narratives to cited answers; {'; '.join(parts)}"
