"""Writing the bundle of a run: its later stages are made once more, and the parts of index and model are noted.

The metadata follow the schema `ir_metadata`, version 0.1 (Breuer et al., SIGIR 2022; ir-metadata.org). They hold known
facts only: a field that nobody recorded, such as the machine's processor, is absent.
"""

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import orjson
import yaml

from keystone.generation.llm.cache import encode_reply
from keystone.generation.llm.chat import PaidReply
from keystone.generation.llm.model import Model, make_request_key
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.embedder import Effort, Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file, read_bytes
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.store import to_record
from keystone.indexing.types import Document
from keystone.indexing.vectors.embed import load_embedder, stand_in
from keystone.indexing.vectors.of_segments import segment_vectors, sentence_vectors
from keystone.runs.config.run_config import RunConfig
from keystone.runs.exchange.bundle import reproduce
from keystone.runs.exchange.bundle.parts import (
    KnownVectors,
    PartStore,
    describe_index,
    open_sealed_index,
    pack,
    save_vectors,
)
from keystone.runs.pipeline.directory import MANIFEST, read_entries, write_manifest
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.pipeline.job import (
    ABSOLUTE_PATH,
    Job,
    describe_settings,
    open_job,
    place_calibration,
    shorten_paths,
)
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.model_runner import allow_thoughts, open_model_runner
from keystone.runs.pipeline.stages.config import write_config
from keystone.runs.pipeline.table import list_files, list_steps
from keystone.runs.trec.topics import hash_topics, names_collection

METADATA = "ir_metadata.yaml"
SECRET_KEYS = re.compile(r"(token|secret|password|api_?key)$", re.IGNORECASE)
"""The ends of keys whose values are secrets."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contents:
    """The parts of a bundle, and its stages that are only stored, each with the reason."""

    documents: int
    vectors: int
    replies: int
    stored: Mapping[str, str]


def write_bundle(directory: Path, out: Path, effort: Effort) -> Contents:
    """Write the bundle of a finished run. The same run gives the same bytes.

    `UserError` if the run is not finished, its files were changed, or its index or topics have changed.
    """
    job = open_job(read_run_config(directory), effort.threads, effort.progress)
    manifest = _check_run(job, directory)
    with TemporaryDirectory() as name:
        folder = Path(name)
        _copy_run(job, directory, folder, manifest)
        contents = _write_parts(job, folder, effort)
        config = read_run_config(folder / reproduce.RUN)
        metadata = yaml.safe_dump(describe_run(config, manifest), sort_keys=False, allow_unicode=True)
        (folder / METADATA).write_text(metadata, encoding="utf-8")
        pack(folder, out)
    return contents


def _check_run(job: Job, directory: Path) -> dict[str, Any]:
    """Check that a run is finished and belongs to its inputs; returns its manifest, without the folders of models."""
    entries = read_entries(directory)
    for name in list_files(job.config):
        path = directory / name
        if name not in entries or not path.is_file() or hash_file(path) != entries[name]["sha256"]:
            raise UserError(f"{path}: missing, or changed since it was made: run the same `keystone run` again")
    manifest: dict[str, Any] = orjson.loads((directory / MANIFEST).read_bytes())
    inputs = {
        job.index.folder: (job.index.key, manifest["index"]["key"]),
        job.config.topics: (hash_topics(job.config.topics, job.topics), manifest["topics"]["sha256"]),
    }
    for path, (found, expected) in inputs.items():
        if found != expected:
            raise UserError(f"{path}: was changed since the run: found {found}, expected {expected}")
    return {**manifest, "index": shorten_paths(manifest["index"])}


def _copy_run(job: Job, directory: Path, folder: Path, manifest: dict[str, Any]) -> None:
    """Copy the artifacts, topics, calibration and manifest, and the configuration without the folders of its paths."""
    run = folder / reproduce.RUN
    run.mkdir(parents=True)
    for name in manifest["artifacts"]:
        if Path(name).name != name:
            raise UserError(f"{directory / MANIFEST}: found the artifact {name!r}, expected a file of the run")
        shutil.copyfile(directory / name, run / name)
    config = _hide_folders(job.config)
    for key, found in _find_private({**config.model_dump(mode="json"), MANIFEST: manifest}, ""):
        raise UserError(f"{key}: found {found}, which a bundle would show; expected a name or a relative path")
    write_manifest(run, manifest, manifest["artifacts"])
    if names_collection(job.config.topics):
        records = ({"id": topic.id, "narrative": topic.narrative} for topic in job.topics)
        (folder / config.topics).write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))
    else:
        shutil.copyfile(job.config.topics, folder / config.topics)
    if (choice := job.config.fusion.choice) and choice.calibration:
        (folder / reproduce.CALIBRATION).mkdir()
        content = read_bytes(choice.calibration).tobytes()
        (folder / reproduce.CALIBRATION / choice.calibration.name).write_bytes(content)
    write_config(run / CONFIG, config)


def _hide_folders(config: RunConfig) -> RunConfig:
    """Replace each path of a configuration by the name of its file."""
    suffixes = [".jsonl"] if names_collection(config.topics) else config.topics.suffixes
    places = {"index": Path("index"), "topics": Path("topics" + "".join(suffixes)), "out": Path("out")}
    runs = [Path(path.name) for path in config.retrieval.runs]
    config = config.model_copy(update={**places, "retrieval": config.retrieval.model_copy(update={"runs": runs})})
    config = place_calibration(config, Path(reproduce.CALIBRATION))
    if config.model is None:
        return config
    paths = {key: path and Path(path.name) for key, path in config.model if key in ("key_file", "cache", "replies")}
    model = config.model.model_copy(update={**paths, "engine": shorten_paths(config.model.engine)})
    return config.model_copy(update={"model": model})


def _find_private(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Find the paths and the secrets in a value of JSON, each with its dotted key and a description."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _find_private(one, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for one in value:
            yield from _find_private(one, key)
    elif isinstance(value, str) and ABSOLUTE_PATH.match(value):
        yield key, f"the path {value}"
    elif value and SECRET_KEYS.search(key):
        yield key, "a secret"


def _write_parts(job: Job, folder: Path, effort: Effort) -> Contents:
    """Make the later stages again, and write the parts of the index and of the model that they use.

    If a stage does not give its stored bytes, it is only stored, and the parts are noted once more without it.
    """
    stored, failed = reproduce.find_searching_stages(job.config), dict[str, str]()
    while True:
        stored |= failed
        parts, failed = _note_parts(job, folder, stored, effort)
        if not failed:
            break
    save_vectors(folder / reproduce.VECTORS, parts.vectors)
    write_json_lines(folder / reproduce.DOCUMENTS, (to_record(one) for _, one in sorted(parts.documents.items())))
    replies = ((key, encode_reply(PaidReply(reply, Usage()))) for key, reply in sorted(parts.replies.items()))
    write_json_lines(folder / reproduce.REPLIES, ({"key": key, **orjson.loads(reply)} for key, reply in replies))
    contents = Contents(len(parts.documents), len(parts.vectors), len(parts.replies), stored)
    facts = {"format": reproduce.FORMAT, "index": describe_index(job.index), **asdict(contents)}
    (folder / reproduce.FACTS).write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return contents


@dataclass(frozen=True, slots=True)
class Parts:
    """The documents by id, the vectors by the hash of their text, and the replies by the key of their request."""

    documents: dict[str, Document]
    vectors: dict[bytes, Vectors]
    replies: dict[str, Reply]


def _note_parts(job: Job, folder: Path, stored: Mapping[str, str], effort: Effort) -> tuple[Parts, dict[str, str]]:
    """Make the stages again that are not `stored`; returns their parts, and the reason for each that fails."""
    reader, model, failed = PartReader(job), job.config.model, dict[str, str]()
    parts = Parts(reader.documents, {}, {})
    standing: AbstractContextManager[None] = nullcontext()
    with TemporaryDirectory() as name:
        index = open_sealed_index(describe_index(job.index), Path(name))
        if job.index.embedding and index.embedding:
            dimension = load_embedder(job.index.embedding).dimension
            standing = stand_in(index.embedding, KnownVectors(dimension, reader.find_vectors, parts.vectors))
        store = PartStore(reproduce.list_ranked_ids(folder / reproduce.RUN, job.config), reader.read)
        sealed = reproduce.open_sealed_job(folder, index, store, effort)
        recorded = (
            reproduce.replay(job.config, model.replies, model.replies_in(job.config.out)) if model else job.config
        )
        with standing, open_model_runner(recorded, None) as run_with_model:

            def noting(work: Callable[[Model | None], Awaitable[T]]) -> T:
                thinking = model.thinking if model else 0
                return run_with_model(lambda one: work(one and NotingModel(one.name, one, thinking, parts.replies)))

            for made in reproduce.remake(sealed, noting, folder / reproduce.RUN, Path(name), stored):
                if made.difference:
                    failed.setdefault(made.stage, f"{made.name}: {made.difference}")
    return parts, failed


TOOLKITS = ("keystone-rag", "anserini", "faiss")
"""The packages that the schema calls retrieval toolkits."""


def describe_run(config: RunConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run by its configuration and its manifest, in the components of the PRIMAD model."""
    versions = manifest["versions"]
    packages = {
        kind: [f"{name}=={version}" for name, version in versions.items() if (name in TOOLKITS) == is_toolkit]
        for kind, is_toolkit in (("libraries", False), ("retrieval toolkit", True))
    }
    embedding, further = manifest["index"]["embedding"], manifest["index"].get("vectors", {})
    models = {name: one["model"] for name, one in {"": embedding, **further}.items() if one}
    return {
        "tag": config.run_id,
        "platform": {"software": {**packages, "libraries": {"python": packages["libraries"]}}},
        "research goal": {
            **({} if config.track is None else {"venue": {"name": config.track}}),
            "description": config.run_desc or describe_settings(config),
        },
        "implementation": {
            "executable": {"cmd": "keystone run config.yaml"},
            "source": {"lang": ["python", "java"]},
        },
        "method": {
            "automatic": True,
            "score ties": "the document id that is first in the order of bytes",
            "retrieval": [{"method": models.get(step.get("vectors", "")), **step} for step in list_steps(config)],
        },
        "actor": {"team": config.team_id, "role": "experimenter"},
        "data": {
            "test collection": {"topics": str(config.topics), "topics sha256": manifest["topics"]["sha256"]},
            "other": {"index": manifest["index"]["key"], "documents": manifest["index"]["documents"]},
        },
    }


@dataclass(slots=True)
class PartReader:
    """Reads documents and vectors of a run's index, and notes which it has read."""

    job: Job
    documents: dict[str, Document] = field(default_factory=dict)
    _segments: dict[str, Vectors] = field(default_factory=dict)
    _learned: set[str] = field(default_factory=set)

    def read(self, ids: Sequence[str]) -> list[Document]:
        """Read documents by id."""
        store = self.job.store
        missing = [name for name in dict.fromkeys(ids) if name not in self.documents]
        self.documents |= zip(missing, store.get(store.rows(missing)), strict=True)
        return [self.documents[name] for name in ids]

    def find_vectors(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """Find the vectors of texts among those that the index keeps, or embed them."""
        self._learn_segments()
        embedding, job = self.job.sources.embedding, self.job
        others = [text for text in texts if text not in self._segments]
        passages = [text for text in others if text.startswith(embedding.passage_prefix)]
        queries = [text for text in others if not text.startswith(embedding.passage_prefix)]
        plain = [text.removeprefix(embedding.passage_prefix) for text in passages]
        found = dict(zip(passages, sentence_vectors(job.index, plain, job.threads), strict=True))
        found |= zip(queries, load_embedder(embedding).embed(queries, job.threads), strict=True)
        return (self._segments[text] if text in self._segments else found[text] for text in texts)

    def _learn_segments(self) -> None:
        """Read the vectors of the segments of all documents that were read since the last call."""
        job, new = self.job, [name for name in list(self.documents) if name not in self._learned]
        self._learned.update(new)
        rows = job.store.rows(new)
        vectors = segment_vectors(job.index, job.store, rows.tolist(), job.threads)
        for name, row in zip(new, rows.tolist(), strict=True):
            document = self.documents[name]
            texts = [job.sources.embedding.passage_prefix + document.segment_text(one) for one in document.segments]
            self._segments |= zip(texts, vectors[row], strict=True)


@dataclass(slots=True)
class NotingModel:
    """A model of a run that notes each reply by the key of its request. Each request allows `thinking` tokens more."""

    name: str
    model: Model
    thinking: int
    replies: dict[str, Reply]

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `keystone.generation.llm.model.Model`."""
        asked: list[Request] = []

        def note() -> Iterator[Request]:
            for request in requests:
                asked.append(request)
                yield request

        async for number, outcome in self.model.complete(note()):
            if isinstance(outcome, Reply):
                sent = allow_thoughts(asked[number], self.thinking)
                self.replies[make_request_key(self.name, sent)] = outcome
            yield number, outcome
