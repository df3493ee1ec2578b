"""Reproducing a run from its bundle: without corpus, embedding model, language model or network."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keystone.indexing.embedder import Effort, Vectors
from keystone.indexing.errors import NotRecorded, UserError
from keystone.indexing.index import Index
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import make_folder
from keystone.indexing.store import from_record
from keystone.indexing.types import Document, Store
from keystone.indexing.vectors.embed import stand_in
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.exchange.bundle.parts import KnownVectors, PartStore, load_vectors, open_sealed_index, unpack
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import CONFIG, EVIDENCE, GRADES
from keystone.runs.pipeline.job import DEFAULT_TRACK, Job, place_calibration
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.stage import Work
from keystone.runs.pipeline.stages.search import list_system_files
from keystone.runs.pipeline.table import list_rankings, list_wanted
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
CALIBRATION = "calibration"
"""The folder of a bundle that holds the file of `fusion.depth.calibration`, under its own name."""
FOLDERS = re.compile(r"(?<![\w.])[/~][^\s:'\"]*/")
"""The folders of an absolute path in a message."""
SHOWN_BEFORE, SHOWN_CHARACTERS = 20, 80
"""How many characters before the first difference of two lines a message shows, and how many in all."""


def open_sealed_job(folder: Path, index: Index, store: Store, effort: Effort) -> Job:
    """Open the job of an unpacked bundle, whose index cannot be searched."""
    config = read_run_config(folder / RUN)
    if (folder / CALIBRATION).is_dir():  # bundles of older versions lack it
        config = place_calibration(config, folder / CALIBRATION)
    topics = read_topics(folder / config.topics.name)
    track = set_topic_limits(TRACKS[config.track or DEFAULT_TRACK], topics)
    return Job(config, index, store, topics, track, effort.threads, effort.progress)


def find_searching_stages(config: RunConfig) -> dict[str, str]:
    """Find the stages that no bundle can make again, each with the reason."""
    return {stage.name: reason for stage, _ in list_wanted(config) if (reason := stage.why_kept(config))}


def list_ranked_ids(folder: Path, config: RunConfig) -> Iterator[str]:
    """List the ids of all documents that the artifacts of a run rank or grade, or that a reader found by itself."""
    rankings = list_rankings(config)
    for file in (*list_system_files(config), *rankings.query_rankings, *rankings.narrative_rankings):
        if (folder / file.name).exists():
            yield from read_run(folder / file.name).docs.find_distinct()[0]
    if (folder / GRADES).exists():
        for _, record in read_json_lines(folder / GRADES):
            yield from record["documents"]
    if (folder / EVIDENCE).exists():
        for _, record in read_json_lines(folder / EVIDENCE):
            sources = [span for note in record.get("notes", ()) for span in note["sources"]]
            yield from (span["doc_id"] for span in (*sources, *(item["span"] for item in record["items"])))
            yield from record.get("added", ())


def replay(config: RunConfig, replies: Path | None, cache: Path | None = None) -> RunConfig:
    """Change a configuration so that its model gives recorded replies, from a file, a cache, or both."""
    if config.model is None:
        return config
    sources = {"backend": "replay", "replies": replies, "cache": cache, "budget": None}
    return config.model_copy(update={"model": config.model.model_copy(update=sources)})


@dataclass(frozen=True, slots=True)
class Remade:
    """An artifact that was made again. If `difference` is empty, it has the bytes of the stored one.

    For a configuration, the same settings suffice, since an older version may have written them in another form.
    """

    stage: str
    name: str
    difference: str


def remake(job: Job, run_with_model: RunWithModel, stored: Path, out: Path, kept: Collection[str]) -> Iterator[Remade]:
    """Make each stage again that is not in `kept`, from the stored artifacts before it; yields its artifacts."""
    values = Values(stored, job, out=out)
    for stage, before in list_wanted(job.config):
        if stage.name in kept:
            continue
        names = [artifact.name for artifact in stage.makes(before)]
        try:
            stage.work(Work(values, run_with_model, before))
        except (UserError, LookupError, TypeError, ValueError) as error:  # stored artifacts may contradict each other
            reason = f"cannot be made: {_describe_failure(error)}"
            yield from (Remade(stage.name, name, reason) for name in names)
            continue
        for name in names:
            difference = find_difference(out / name, stored / name)
            if name == CONFIG and difference and read_config(out / name) == read_config(stored / name):
                difference = ""
            yield Remade(stage.name, name, difference)


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
    if line is None:
        return "no such line"
    text = line[start : start + SHOWN_CHARACTERS].decode(errors="replace")
    return f"{'...' * (start > 0)}{text!r}"


MOST_GB = 8.0
"""The most gigabytes that a bundle unpacks to, unless the caller allows more. It holds documents and vectors."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The artifacts that were made again, and the stages that the bundle only stores, each with the reason.

    `versions` maps each package whose version has changed to its version then and now.
    """

    remade: Sequence[Remade]
    stored: Mapping[str, str]
    versions: Mapping[str, tuple[str, str]]


def reproduce(bundle: Path, out: Path | None, effort: Effort, most_gb: float = MOST_GB) -> Reproduction:
    """Make the artifacts of a bundle again, and compare each with the stored one. They are kept in `out`, if given.

    `UserError` for a file that is no bundle, for one that was changed or unpacks to more than `most_gb` gigabytes, and
    if `out` holds files already.
    """
    if out is not None and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists, expected the name of a new folder")
    with TemporaryDirectory() as name:
        folder, scratch = Path(name, "bundle"), Path(name, "scratch")
        scratch.mkdir()
        unpack(bundle, folder, int(most_gb * 1e9))
        facts = _read_facts(bundle, folder)
        if out is not None:
            make_folder(out)
        try:
            stored = find_searching_stages(read_run_config(folder / RUN)) | facts["stored"]
            remade = _remake_all(folder, {**facts, "stored": stored}, scratch, out or scratch, effort)
            versions = _compare_versions(parse_json((folder / RUN / MANIFEST).read_bytes())["versions"])
        except (LookupError, AttributeError, TypeError, ValueError, FileNotFoundError) as error:
            raise UserError(f"{bundle}: its files contradict each other: {error!r}") from error
    if not remade:
        raise UserError(f"{bundle}: only stores every stage, so nothing was made again")
    return Reproduction(remade, stored, versions)


def _read_facts(bundle: Path, folder: Path) -> dict[str, Any]:
    """Read the facts about a bundle. `UserError` for one of another format."""
    try:
        facts: dict[str, Any] = parse_json((folder / FACTS).read_bytes())
        found = facts["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{bundle}: {FACTS}: not the facts about a bundle: {error}") from error
    if found != FORMAT:
        raise UserError(f"{bundle}: {FACTS}: found format {found}, expected {FORMAT}: bundle the run again")
    return facts


def _remake_all(folder: Path, facts: Mapping[str, Any], scratch: Path, out: Path, effort: Effort) -> list[Remade]:
    """Make all artifacts again that the bundle does not only store."""
    config = read_run_config(folder / RUN)
    documents = {record["id"]: from_record(record) for _, record in read_json_lines(folder / DOCUMENTS)}

    def read(ids: Sequence[str]) -> list[Document]:
        if missing := [name for name in ids if name not in documents]:
            raise UserError(f"the bundle lacks the document {missing[0]!r}")
        return [documents[name] for name in ids]

    def find_vectors(texts: Sequence[str]) -> list[Vectors]:
        raise UserError(f"the bundle lacks the vector of the text {texts[0][:80]!r}")

    index = open_sealed_index(facts["index"], scratch)
    standing: AbstractContextManager[None] = nullcontext()
    if index.embedding:
        known = load_vectors(folder / VECTORS)
        dimension = len(next(iter(known.values()), ()))
        standing = stand_in(index.embedding, KnownVectors(dimension, find_vectors, known))
    job = open_sealed_job(folder, index, PartStore(list_ranked_ids(folder / RUN, config), read), effort)
    with standing, open_model_runner(replay(config, folder / REPLIES, scratch / REPLIES), None) as run_with_model:
        return list(remake(job, run_with_model, folder / RUN, out, facts["stored"]))


def _compare_versions(made_by: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    found = {}
    for name, then in made_by.items():
        try:
            now = version(name)
        except PackageNotFoundError:
            continue
        if now != then:
            found[name] = then, now
    return found
