"""Making the later stages of a run again from the parts in a bundle, and comparing each artifact by its lines."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from keystone.indexing.errors import NotRecorded, UserError
from keystone.indexing.index import Index
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import Store
from keystone.indexing.vectors.types import Effort
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.file_names import CONFIG, GRADES
from keystone.runs.pipeline.job import DEFAULT_TRACK, Job
from keystone.runs.pipeline.model_runner import RunWithModel
from keystone.runs.pipeline.stages.search import list_system_files
from keystone.runs.pipeline.table import bind_stages, list_rankings, list_wanted
from keystone.runs.pipeline.values import Values
from keystone.runs.track_rules import TRACKS, set_topic_limits
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.topics import read_topics

FORMAT = 1
"""The version of the content of a bundle."""
FACTS = "bundle.json"
"""The file with the facts about the index, the numbers of parts, and the stages that are only stored."""
DOCUMENTS = "documents.jsonl"
REPLIES = "replies.jsonl"
VECTORS = "vectors"
RUN = "run"
"""The folder of a bundle that holds the artifacts of the run."""
FOLDERS = re.compile(r"(?<![\w.])[/~][^\s:'\"]*/")
"""The folders of an absolute path in a message."""
SHOWN_BEFORE, SHOWN_CHARACTERS = 20, 80
"""How many characters before the first difference of two lines a message shows, and how many in all."""


def open_sealed_job(folder: Path, index: Index, store: Store, effort: Effort) -> Job:
    """Open the job of an unpacked bundle, whose index cannot be searched."""
    config = read_config(folder / RUN / CONFIG)
    topics = read_topics(folder / config.topics.name)
    track = set_topic_limits(TRACKS[config.track or DEFAULT_TRACK], topics)
    return Job(config, index, store, topics, track, effort.threads, effort.progress)


def find_searching_stages(config: RunConfig) -> dict[str, str]:
    """Find the stages that no bundle can make again, each with the reason."""
    return {stage.name: reason for stage, _ in list_wanted(config) if (reason := stage.why_kept(config))}


def list_ranked_ids(folder: Path, config: RunConfig) -> Iterator[str]:
    """List the ids of all documents that the artifacts of a run rank or grade."""
    rankings = list_rankings(config)
    for file in (*list_system_files(config), *rankings.query_rankings, *rankings.narrative_rankings):
        if (folder / file.name).exists():
            yield from read_run(folder / file.name).docs.find_distinct()[0]
    if (folder / GRADES).exists():
        for _, record in read_json_lines(folder / GRADES):
            yield from record["documents"]


def replay(config: RunConfig, replies: Path | None, cache: Path | None = None) -> RunConfig:
    """Change a configuration so that its model gives recorded replies, from a file, a cache, or both."""
    if config.model is None:
        return config
    sources = {"backend": "replay", "replies": replies, "cache": cache, "budget": None}
    return config.model_copy(update={"model": config.model.model_copy(update=sources)})


@dataclass(frozen=True, slots=True)
class Remade:
    """An artifact that was made again. Without a difference, it has the same bytes as the stored one."""

    stage: str
    name: str
    difference: str


def remake(job: Job, run_with_model: RunWithModel, stored: Path, out: Path, kept: Collection[str]) -> Iterator[Remade]:
    """Make each stage again that is not in `kept`, from the stored artifacts before it; yields its artifacts."""
    values = Values(stored, job, out=out)
    for stage in bind_stages(job, run_with_model):
        if stage.name in kept:
            continue
        try:
            stage.make(values)
        except (UserError, LookupError, TypeError, ValueError) as error:  # stored artifacts may contradict each other
            reason = f"cannot be made: {_describe_failure(error)}"
            yield from (Remade(stage.name, name, reason) for name in stage.artifacts)
            continue
        for name in stage.artifacts:
            yield Remade(stage.name, name, find_difference(out / name, stored / name))


def _describe_failure(error: Exception) -> str:
    """Describe why a stage failed, without the folders of paths."""
    if isinstance(error, NotRecorded):
        return "a reply of the model is missing: its call failed, or its cache was removed"
    return FOLDERS.sub("", str(error) if isinstance(error, UserError) else repr(error))


def find_difference(made: Path, stored: Path) -> str:
    """Find the first line in which two files differ, and describe it; empty if their bytes are the same."""
    with made.open("rb") as ours, stored.open("rb") as theirs:
        for number, (found, expected) in enumerate(zip_longest(ours, theirs), 1):
            if found != expected:
                pairs = enumerate(zip_longest(found or b"", expected or b""))
                start = max(0, next(place for place, (a, b) in pairs if a != b) - SHOWN_BEFORE)
                return f"line {number}: found {_show(found, start)}, expected {_show(expected, start)}"
    return ""


def _show(line: bytes | None, start: int) -> str:
    """Show the part of a line that begins at `start`."""
    if line is None:
        return "no such line"
    text = line[start : start + SHOWN_CHARACTERS].decode(errors="replace")
    return f"{'...' * (start > 0)}{text!r}"
