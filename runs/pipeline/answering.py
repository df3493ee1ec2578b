"""Answers to any number of narratives over an index, and their file. Each is written as soon as it is made.

Each narrative goes through the stages of a run that it needs, with values in memory, while others do the same.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Semaphore, Thread
from typing import IO, Any, TypeVar

import orjson

from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Fallback
from keystone.indexing.errors import NotWritten, UserError, Waits
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import COMPRESSIONS
from keystone.indexing.io.system import lock_file
from keystone.indexing.io.writing import append, reason_of
from keystone.indexing.types import Progress, Store, silent
from keystone.retrieval.backends import renew_store
from keystone.retrieval.types import Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job, open_job
from keystone.runs.pipeline.model_runner import RunWithModel, describe_model, open_model_runner
from keystone.runs.pipeline.ranking.rank import Hits, list_hits, rank_for_track
from keystone.runs.pipeline.searches import Searches, open_job_reranker, share_means, work_in_thread
from keystone.runs.pipeline.stage import Step, Watch, tell_nobody
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.grades import QRELS_FILE
from keystone.runs.pipeline.stages.hybrid import HYBRID_FILE
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import get_queries
from keystone.runs.pipeline.stages.rerank import list_digests
from keystone.runs.pipeline.stages.segments import choose_depths
from keystone.runs.pipeline.table import list_rankings, list_records, needs, perform
from keystone.runs.pipeline.values import Artifact, MemoryValues, Values
from keystone.runs.track_rules import set_topic_limits
from keystone.runs.tracks.answer_files import cite_by_track_ids, get_metadata, make_answer_record
from keystone.runs.trec.topics import read_topics, stream_topics

T = TypeVar("T")
WATCHED_HITS = 100
"""The most documents of a ranking that a watcher is told of."""


async def answer_topic(
    job: Job, model: Model | None, searches: Searches, topic: Topic, watch: Watch | None = None
) -> Answer:
    """Answer one topic. The answer holds the fallbacks of all steps.

    `watch` is told of each step as it is made, in a thread. If it is given, the ranking is finished even where the
    answer does not need it.
    """

    def answer(one: Job, run_with_model: RunWithModel) -> Answer:
        values = _ToldValues(one, watch) if watch else MemoryValues(one)
        is_needed = partial(needs, one, ranking=watch is not None)
        means = share_means(searches, run_with_model)
        perform(values, run_with_model, is_needed, means, watch or tell_nobody)
        (found,) = values.get(ANSWERS_FILE)
        if watch:
            for sentence in found.sentences:
                watch("sentence", sentence)
            ranking = values.get(list_rankings(one.config).narrative_ranking)
            chosen = [depth.rows for depth in choose_depths(values, ranking)] if one.config.fusion.choice else None
            watch("run", rank_for_track(one, get_queries(values), ranking, chosen)[topic.id])
        records = list_records(values, is_needed)
        return replace(found, fallbacks=tuple(fallback for record in records for fallback in record.fallbacks))

    return await work_on_topic(job, model, topic, answer)


def make_record(job: Job, topic: Topic, answer: Answer) -> dict[str, Any]:
    """Make the line of the track's answer file that holds the answer to a topic."""
    track = set_topic_limits(job.track, [topic])
    return make_answer_record(topic, cite_by_track_ids(answer, track), track, job.author)


async def work_on_topic(job: Job, model: Model | None, topic: Topic, work: Callable[[Job, RunWithModel], T]) -> T:
    """Work on one topic of a job in a thread, beside other topics."""

    def start(run_with_model: RunWithModel) -> T:
        one = replace(job, topics=[topic], track=set_topic_limits(job.track, [topic]), progress=silent)
        return work(replace(one, store=renew_store(job.index, job.store)), run_with_model)

    return await work_in_thread(model, start)


def _list_best(store: Store, rankings: Rankings) -> dict[str, Hits]:
    """List the best documents of each query: ids with scores, best first."""
    best = rankings.top(WATCHED_HITS)
    return {name: list_hits(store, best, place) for place, name in enumerate(best.query_ids)}


def _tell_rankings(values: Values) -> tuple[Step, Any]:
    store, (topic,) = values.job.store, values.job.topics
    ranking = _list_best(store, values.get(NARRATIVE_FILE))[topic.id]
    return "rankings", (_list_best(store, values.get(HYBRID_FILE)), ranking)


TOLD: Mapping[str, Callable[[Values], tuple[Step, Any]]] = {
    file_names.QUERIES: lambda values: ("queries", tuple(get_queries(values))),
    file_names.NARRATIVE: _tell_rankings,
    file_names.QRELS: lambda values: ("grades", values.get(QRELS_FILE)),
}
"""What a watcher is told of each file."""


class _ToldValues(MemoryValues):
    """The artifacts of a topic. A watcher is told of those in `TOLD` as soon as they are made."""

    def __init__(self, job: Job, watch: Watch) -> None:
        super().__init__(job)
        self._watch = watch

    def put(self, artifact: Artifact[T], value: T) -> None:
        """Keep the value of an artifact, and tell of it."""
        super().put(artifact, value)
        if tell := TOLD.get(artifact.name):
            self._watch(*tell(self))


FIRST_LINE_STARTS = (b'{"metadata"', b'{"run_id"')
"""The first line of an answer file begins with one of these."""
REMEDY = "name another file with --out, or remove this one to make all its answers anew"
"""The end of messages about a file that holds other answers."""


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """A file to which answers are appended, or standard output. Each answer is on disk before the next one.

    Beside a file `NAME` there is the note `.NAME.made`. Its first line holds the settings. Each further line holds a
    topic and the digest of its narrative, and is written before the topic's answer. Under a budget, `.NAME.costs` has
    the cost of each call.
    """

    name: Path | None
    content: IO[bytes]
    note: IO[bytes] | None = None
    done: dict[str, int] = field(default_factory=dict)
    """The number of the line of each topic that was answered before."""
    narratives: dict[str, str] = field(default_factory=dict)
    """The digests of these topics' narratives, as far as they are known."""

    def has_answer(self, topic: Topic) -> bool:
        """Return whether the file answers the topic. `UserError` if it answers another narrative of the same id."""
        if topic.id not in self.done:
            return False
        if self.narratives.get(topic.id, digest(topic.narrative)) != digest(topic.narrative):
            raise UserError(
                f"{self.name}:{self.done[topic.id]}: answers topic {topic.id!r} with another narrative than "
                f"{topic.place} has: {REMEDY}"
            )
        return True

    def append(self, topic: Topic, record: dict[str, Any]) -> None:
        """Add the answer to a topic."""
        try:
            if self.note is not None:
                _append(self.note, [topic.id, digest(topic.narrative)])
            _append(self.content, record)
        except OSError as error:
            raise NotWritten(self.name, reason_of(error)) if self.name else error from error


@contextmanager
def open_answer_file(out: Path | None, job: Job) -> Iterator[AnswerFile]:
    """Open the file of a job's answers, or standard output if `out` is None.

    The file is locked first, so that no other process appends to it. If it holds answers of another run, other settings
    or another index, `UserError` names the file and the line. Only then is a cut-off last line removed.
    If the file is new, the costs of an earlier one are removed.
    """
    if out is None:
        yield AnswerFile(None, sys.stdout.buffer)
        return
    if out.suffix.lower() in COMPRESSIONS:
        raise UserError(f"{out}: answers are written as they come: expected a name without {out.suffix}")
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is no file, expected the name of a file to write or to continue")
    is_new = not out.exists()
    with _open(out) as content:
        try:
            lock_file(content.fileno())
        except OSError:
            raise UserError(f"{out}: another process is writing to it") from None
        content.seek(0)
        whole, cut = _split_lines(content.read())
        answered = [_read_answered_topic(out, number, line, job) for number, line in enumerate(whole, start=1)]
        if cut and (not cut.startswith(b"{") or (not whole and not cut.startswith(FIRST_LINE_STARTS))):
            raise UserError(
                f"{out}:{len(whole) + 1}: found no answer that Keystone wrote, expected a new file or one of this run"
            )
        beside = out.with_name(f".{out.name}.made")
        digests = {topic: narrative for topic, narrative in answered if narrative is not None}
        with _open(beside) as note:
            note.seek(0)
            noted, half = _split_lines(note.read())
            if whole and noted:
                digests |= _compare_note(out, beside, noted, describe_origin(job))
                note.truncate(note.tell() - len(half))
            else:
                note.truncate(0)
                try:
                    if is_new and not whole:
                        name_costs(out).unlink(missing_ok=True)
                    _append(note, describe_origin(job))
                except OSError as error:
                    raise NotWritten(out, reason_of(error)) from error
            content.truncate(content.tell() - len(cut))
            done = {topic: number for number, (topic, _) in enumerate(answered, start=1)}
            yield AnswerFile(out, content, note, done, digests)


def name_costs(out: Path) -> Path:
    """Name the file beside the answers `out` that holds the costs of their calls under a budget."""
    return out.with_name(f".{out.name}.costs")


OWN_KEYS = {"track", "team_id", "run_id", "run_desc", "ranking", "segments_per_document"}


def describe_origin(job: Job) -> dict[str, Any]:
    """Describe everything that answers depend on besides their narratives, by name, as values of JSON."""
    config = job.config
    sections = config.model_dump(mode="json", include={"queries", "retrieval", "fusion", "grading", "reader", "answer"})
    sections["retrieval"].pop("max_rate", None)  # it changes no answer
    settings = {f"{section}.{key}": value for section, own in sections.items() for key, value in own.items()}
    made = {
        "index": job.index.key,
        "model": describe_model(_leave_out_budget(config), config.list_model_steps()),
        **config.model_dump(mode="json", include=OWN_KEYS),
        **settings,
        "queries.translate": config.queries.translate,
        "rerank": None if config.rerank.method is None else [config.rerank.describe(), *list_digests(config.rerank)],
    }
    return dict(orjson.loads(orjson.dumps(made)))


def _leave_out_budget(config: RunConfig) -> RunConfig:
    """Leave the model's budget out of a configuration: it may be raised for the topics that have no answer yet."""
    model = config.model and config.model.model_copy(update={"budget": None})
    return config.model_copy(update={"model": model})


def _compare_note(out: Path, note: Path, noted: list[bytes], made: dict[str, Any]) -> dict[str, str]:
    """Read the digests of narratives from a note. `UserError` if the note has other settings."""
    try:
        before: dict[str, Any] = orjson.loads(noted[0])
        if before.get("model"):
            before["model"][1].pop("budget", None)  # a note may name it all the same
        other = sorted(name for name in before.keys() & made if before[name] != made[name])
        narratives = dict(map(orjson.loads, noted[1:]))
    except (ValueError, TypeError, AttributeError, LookupError):
        raise UserError(f"{note}: damaged: remove it to continue {out} as it is") from None
    if other:
        changes = "; ".join(_describe_change(name, before[name], made[name]) for name in other)
        raise UserError(f"{out}: its answers were made with {changes}: {REMEDY}")
    return narratives


def _describe_change(name: str, before: Any, now: Any) -> str:
    return f"another {name}" if name in ("index", "model") else f"{name} {before!r}, found {now!r} now"


def _read_answered_topic(path: Path, number: int, line: bytes, job: Job) -> tuple[str, str | None]:
    """Read the topic of a line of an answer file, and the digest of its narrative if the line holds that.

    `UserError` if the line is no answer of this run.
    """
    track, author = job.track, job.author
    try:
        metadata = get_metadata(orjson.loads(line), track)
        values = {key.holds: metadata[key.name] for key in track.keys}
        if (values["run"], values.get("team", author.team_id)) != (author.run_id, author.team_id):
            raise ValueError
        return str(values["topic"]), digest(values["narrative"]) if "narrative" in values else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path}:{number}: found no answer of run {author.run_id!r} for {track.name}, "
            "expected a new file or one of this run"
        ) from None


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error


def _append(file: IO[bytes], record: Any) -> None:
    append(file, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    file.flush()


def _split_lines(content: bytes) -> tuple[list[bytes], bytes]:
    end = content.rfind(b"\n") + 1
    return content[:end].splitlines(), content[end:]


def answer_to_file(
    config: RunConfig,
    out: Path | None,
    threads: int = 1,
    progress: Progress = silent,
    note: Callable[[str], None] = lambda _: None,
) -> list[Fallback]:
    """Answer the configuration's topics to a file or to standard output. Answers that the file has already are kept.

    Topics of a pipe are answered as they come; topics of a file are all read first. `note` is told if a budget has no
    topic left to pay for. Returns the fallbacks. `UserError` if the configuration asks for no answers.
    """
    if not config.has_answers:
        raise UserError("found track: none or answer.method: none, expected a track and a method of answers")
    piped = config.topics.exists() and not (config.topics.is_file() or config.topics.is_dir())
    topics = None if piped else read_topics(config.topics)
    job = open_job(config, threads, progress, topics or [])
    missed: list[Fallback] = []
    costs = None if out is None else name_costs(out)
    with open_answer_file(out, job) as file, open_model_runner(config, config.out, costs=costs) as run_with_model:

        def write(topic: Topic, record: dict[str, Any], fallbacks: list[Fallback]) -> None:
            file.append(topic, record)
            missed.extend(fallbacks)

        if topics is None:
            coming = stream_topics(config.topics, live=True)
            answer_topics(job, _skip_answered(coming, file), None, run_with_model, write)
        else:
            left = list(_skip_answered(topics, file))
            if not left and config.model and config.model.budget:
                note(f"{out}: answers all topics, and model.budget pays only for those without an answer: {REMEDY}")
            answer_topics(job, left, len(left), run_with_model, write)
    return missed


def _skip_answered(topics: Iterable[Topic], file: AnswerFile) -> Iterator[Topic]:
    return (topic for topic in topics if not file.has_answer(topic))


def answer_topics(
    job: Job,
    topics: Iterable[Topic],
    number: int | None,
    run_with_model: RunWithModel,
    write: Callable[[Topic, dict[str, Any], list[Fallback]], None],
) -> None:
    """Answer topics as they come, in any order. `number` is their number, or None if it is unknown.

    `write` receives each topic, its record for the track's answer file, and its fallbacks. If reading `topics` fails,
    the topics before the error are answered first.
    """
    at_once = TOPICS_AT_ONCE if job.config.model else job.threads

    async def work(model: Model | None) -> None:
        arrived = ArrivingTopics(topics, at_once)
        with job.progress("Answering", number) as tick:
            async with open_job_reranker(job, model) as rerank:
                searches = Searches(job, rerank)

                async def answer_some() -> None:
                    waits = None
                    while topic := await arrived.take():
                        try:
                            answer = await answer_topic(job, model, searches, topic)
                        except Waits as error:  # the requests of the other topics belong in the same file
                            waits = error
                        else:
                            write(topic, make_record(job, topic, answer), list(answer.fallbacks))
                            tick(1)
                    if waits:
                        raise waits

                await run_together([answer_some] * at_once, at_once)
                arrived.raise_error()

    run_with_model(work)


class ArrivingTopics:
    """Topics that a thread reads, at most `ahead` of them in advance. The process can end while the thread reads."""

    def __init__(self, topics: Iterable[Topic], ahead: int) -> None:
        self._topics: asyncio.Queue[Topic | None] = asyncio.Queue()
        self._room = Semaphore(ahead)
        self._error: Exception | None = None
        loop = asyncio.get_running_loop()

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended, and no caller waits for topics
                try:
                    for topic in topics:
                        self._room.acquire()
                        loop.call_soon_threadsafe(self._topics.put_nowait, topic)
                except Exception as error:
                    self._error = error
                loop.call_soon_threadsafe(self._topics.put_nowait, None)

        Thread(target=read, daemon=True).start()

    async def take(self) -> Topic | None:
        """Take the next topic; None if no topic is left."""
        topic = await self._topics.get()
        self._room.release()
        if topic is None:
            self._topics.put_nowait(None)
        return topic

    def raise_error(self) -> None:
        """Raise the error that ended the reading, if there was one."""
        if self._error:
            raise self._error
