"""What the report shows of a run, and how a run directory is read for it: settings, costs and narratives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from keystone.generation.types import Step
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import open_index
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.types import Document, Store, document_id, find_document_ids
from keystone.retrieval.backends import open_store
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.use import UseRecord
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import (
    ANSWERS,
    CONFIG,
    GRADES,
    HYBRID,
    NARRATIVE,
    QUERIES,
    TRACE,
    USAGE_FILE,
    name_system_file,
)
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.table import find_last_ranking, list_files
from keystone.runs.report.trace import PURPOSES, read_trace, tell_path
from keystone.runs.track_rules import Track
from keystone.runs.tracks.answer_files import SubmittedAnswer, get_metadata, read_answer_file
from keystone.runs.tracks.validate import detect_track, holds_answers
from keystone.runs.tracks.violations import read_lines
from keystone.runs.trec.run_files import find_ranks, list_first
from keystone.runs.trec.topics import read_topic_narratives


@dataclass(frozen=True, slots=True)
class Place:
    """The grade of a document for a query, and its rank in each system and in their fusion, from 1.

    A grade is None if nobody gave one. A rank is 0 if the list lacks the document.
    """

    grade: float | None
    systems: tuple[int, ...]
    hybrid: int


@dataclass(frozen=True, slots=True)
class PlacedDocument:
    """A document with its ranks in the fusion over queries, in the last ranking and among the chosen ones.

    A rank of 0 says that the document is not among them. `places` has one for each query.
    """

    id: str
    title: str
    fused: int
    last: int
    chosen: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class CitedText:
    """A segment or document that an answer cites. The text is empty if the index has none."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """The sentences of an answer with their citations, as places in `cited`."""

    sentences: tuple[tuple[str, tuple[int, ...]], ...]
    cited: tuple[CitedText, ...]


@dataclass(frozen=True, slots=True)
class QueryView:
    """A query and its question."""

    id: str
    question: str


@dataclass(frozen=True, slots=True)
class TopicView:
    """A narrative in a run, from its queries to its answer. `theme` is the topic that the decomposition found."""

    id: str
    narrative: str
    theme: str
    queries: tuple[QueryView, ...]
    documents: tuple[PlacedDocument, ...]
    answer: AnswerView | None
    steps: tuple[Step, ...]
    """The steps of a reader, with what the report shows of their texts."""
    use: UseRecord | None = None
    """The judgment of what use the answer is, if there is one."""
    path: tuple[str, ...] = ()
    """The path of a research agent, a line for each walk."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: its settings, its manifest, its usage by purpose, remarks on it, and its narratives by id.

    An answer file has no settings, an empty manifest and no usage. `made_from` has the versions of packages, and
    digests of the index and the topics.
    """

    label: str
    config: RunConfig | None
    manifest: Mapping[str, Any]
    made_from: Mapping[str, str]
    usage: Mapping[str, Mapping[str, float]]
    remarks: tuple[str, ...]
    topics: Mapping[str, TopicView]


MOST_DOCUMENTS = 100
"""How many documents of each ranking the report shows, besides those that are chosen or cited."""

Records = dict[str, list[dict[str, Any]]]


def read_view(folder: Path, label: str) -> RunView:
    """Read a run, finished or not. `UserError` for a folder without a run, and for a damaged file of a run."""
    for name in (MANIFEST, CONFIG):
        if not (folder / name).is_file():
            raise UserError(f"{folder}: holds no {name}, expected the directory of a run, as keystone run prints it")
    config = read_run_config(folder)
    missing = [name for name in list_files(config, notes=False) if not (folder / name).exists()]
    remarks = [f"unfinished: the run has no {', '.join(missing)} yet"] if missing else []
    narratives, store = _read_narratives(config, remarks), _open_store(config, remarks)
    try:
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
        digests = {"index": manifest["index"]["key"], "topics": manifest["topics"]["sha256"]}
        made_from = {**manifest["versions"], **digests}
        usage = orjson.loads((folder / USAGE_FILE).read_bytes()) if (folder / USAGE_FILE).exists() else {"purposes": {}}
        topics = _read_topic_views(folder, config, narratives, store)
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"{folder}: one of its files is not of a run: {error!r}", "no file of a run") from error
    return RunView(label, config, manifest, made_from, usage["purposes"], tuple(remarks), topics)


def _open_store(config: RunConfig, remarks: list[str]) -> Store | None:
    try:
        return open_store(open_index(config.index))
    except UserError as error:
        remarks.append(_explain("titles and cited texts", config.index, error))
        return None


def _read_narratives(config: RunConfig, remarks: list[str]) -> dict[str, str]:
    try:
        return read_topic_narratives(config.topics)
    except UserError as error:
        remarks.append(_explain("narratives", config.topics, error))
        return {}


def _explain(texts: str, path: Path, error: UserError) -> str:
    place = "" if path.is_absolute() else f", looked for in {Path.cwd()}"
    return f"{texts} are missing: {error}{place}"


def _read_records(path: Path) -> Records:
    """Read the records of each topic from a file of JSON lines. A missing file has none."""
    found: Records = {}
    for _, record in read_json_lines(path) if path.exists() else ():
        found.setdefault(record["topic_id"], []).append(record)
    return found


def _read_topic_views(
    folder: Path, config: RunConfig, narratives: Mapping[str, str], store: Store | None
) -> dict[str, TopicView]:
    files = {name: _read_records(folder / name) for name in (QUERIES, GRADES, ANSWERS)}
    steps: dict[str, list[Step]] = {}
    for one in read_trace(folder) if (folder / TRACE).exists() else ():
        steps.setdefault(one.topic_id, []).append(one.step)
    first = list_first(find_last_ranking(folder), MOST_DOCUMENTS)
    topics = {
        topic_id: Found(
            topic_id,
            narratives.get(topic_id, ""),
            understood,
            next(iter(files[GRADES].get(topic_id, ())), None),
            next(iter(files[ANSWERS].get(topic_id, ())), None),
            steps.get(topic_id, ()),
        )
        for topic_id, (understood,) in files[QUERIES].items()
    }
    cited = list(dict.fromkeys(citation for found in topics.values() for citation in found.list_citations()))
    doc_ids = map(document_id, cited) if store is None else find_document_ids(cited, store)
    parents = dict(zip(cited, doc_ids, strict=True))
    shown = {topic_id: found.list_documents(first.get(topic_id, ()), parents) for topic_id, found in topics.items()}
    queries = {query["id"]: shown[name] for name, found in topics.items() for query in found.understood["queries"]}
    lists = [*map(name_system_file, config.list_systems()), HYBRID]
    by_query = [find_ranks(folder / name, queries) for name in lists]
    by_topic = [find_ranks(path, shown) for path in (folder / NARRATIVE, find_last_ranking(folder))]
    return {
        topic_id: make_topic_view(found, _get_documents(store, shown[topic_id]), parents, by_query, by_topic)
        for topic_id, found in topics.items()
    }


def _get_documents(store: Store | None, ids: list[str]) -> dict[str, Document]:
    """Get documents by their ids. If there is no store, or it lacks one, the document has no text."""
    rows = [-1] * len(ids) if store is None else store.rows(ids).tolist()
    known = {} if store is None else {one.id: one for one in store.get([row for row in rows if row >= 0])}
    return {doc_id: known.get(doc_id, Document(doc_id, "")) for doc_id in ids}


def read_answer_view(path: Path, label: str) -> RunView:
    """Read an answer file of any track, plain or compressed. The references of an answer serve as its ranking.

    `UserError` for a file that is no answer file.
    """
    if not holds_answers(path, read_lines(path)):
        raise UserError(
            f"{path}: holds no answers, expected a run directory or an answer file. Run files are for keystone evaluate"
        )
    track = detect_track(path)
    submitted = read_answer_file(path, track)
    narratives = _read_submitted_narratives(path, track)
    topics = {one.answer.topic_id: _make_view(one, narratives.get(one.answer.topic_id, "")) for one in submitted}
    runs = ", ".join(dict.fromkeys(one.run_id for one in submitted))
    remark = f"an answer file of {track.name}, run {runs}: it has no queries, rankings, grades and cited texts"
    return RunView(label, None, {}, {}, {}, (remark,), topics)


def _read_submitted_narratives(path: Path, track: Track) -> dict[str, str]:
    key_of = {key.holds: key.name for key in track.keys}
    found = [get_metadata(record, track) for _, record in read_json_lines(path)]
    return {str(one[key_of["topic"]]): str(one.get(key_of.get("narrative", ""), "")) for one in found}


def _make_view(submitted: SubmittedAnswer, narrative: str) -> TopicView:
    answer = submitted.answer
    cited = answer.list_citations()
    ids = list(dict.fromkeys([*submitted.references, *cited]))
    sentences = tuple((one.text, tuple(map(cited.index, one.citations))) for one in answer.sentences)
    return TopicView(
        answer.topic_id,
        narrative,
        "",
        (),
        tuple(PlacedDocument(name, "", rank, rank, 0, ()) for rank, name in enumerate(ids, 1)),
        AnswerView(sentences, tuple(CitedText(name, "", "") for name in cited)),
        (),
    )


STEP_CHARACTERS = 300
"""The longest action or result of a reader's step that is shown whole."""
CITED_CHARACTERS = 1500
"""The longest cited text that is shown whole; a window of ten sentences has about as many characters."""

Ranks = Mapping[str, Sequence[int]]
"""For a query or topic, the rank of each document that the report shows; 0: the list lacks it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The records of a topic in the files of a run. Without grades or an answer, their record is None."""

    id: str
    narrative: str
    understood: Mapping[str, Any]
    graded: Mapping[str, Any] | None
    answered: Mapping[str, Any] | None
    steps: Sequence[Step]

    def list_documents(self, first: Sequence[str], parents: Mapping[str, str]) -> list[str]:
        """List the ids of the documents to show: the first ones of the ranking, those chosen, and those cited.

        `parents` has the document of each citation.
        """
        chosen = self.graded["selected"] if self.graded else ()
        return list(dict.fromkeys([*first, *chosen, *map(parents.__getitem__, self.list_citations())]))

    def list_citations(self) -> list[str]:
        """List the ids that the answer cites, each once, in the order of its sentences."""
        sentences = self.answered["sentences"] if self.answered else ()
        return list(dict.fromkeys(citation for sentence in sentences for citation in sentence["citations"]))


def make_topic_view(
    found: Found,
    documents: Mapping[str, Document],
    parents: Mapping[str, str],
    by_query: Sequence[Ranks],
    by_topic: Sequence[Ranks],
) -> TopicView:
    """Make the view of a topic with these documents.

    `parents` has the document of each citation. `by_query` has the ranks of each system and of their fusion. `by_topic`
    has those in the fusion over queries and in the last ranking.
    """
    queries = [QueryView(query["id"], query["question"]) for query in found.understood["queries"]]
    graded = found.graded or {"queries": [], "documents": [], "grades": [], "selected": []}
    grade_of = {
        (query_id, doc_id): grade
        for query_id, row in zip(graded["queries"], graded["grades"], strict=True)
        for doc_id, grade in zip(graded["documents"], row, strict=True)
    }
    chosen = {doc_id: place for place, doc_id in enumerate(graded["selected"], 1)}
    placed = []
    for n, document in enumerate(documents.values()):
        places = []
        for query in queries:
            *systems, hybrid = (ranks[query.id][n] for ranks in by_query)
            places.append(Place(grade_of.get((query.id, document.id)), tuple(systems), hybrid))
        fused, last = (ranks[found.id][n] for ranks in by_topic)
        placed.append(
            PlacedDocument(document.id, document.title, fused, last, chosen.get(document.id, 0), tuple(places))
        )
    whole = next((query.question for query in queries if query.id == found.id), "")
    return TopicView(
        found.id,
        found.narrative or whole,
        found.understood["topic"],
        tuple(queries),
        tuple(placed),
        _make_answer(found, documents, parents),
        tuple(map(_shorten_step, found.steps)),
        path=tuple(tell_path(found.steps)) if all(step.purpose in PURPOSES for step in found.steps) else (),
    )


def _shorten_step(step: Step) -> Step:
    action, result = (shorten(text, STEP_CHARACTERS) for text in (step.action, step.observation))
    return replace(step, shown="", reply="", action=action, observation=result, added=())


def _make_answer(found: Found, documents: Mapping[str, Document], parents: Mapping[str, str]) -> AnswerView | None:
    if found.answered is None:
        return None
    ids = found.list_citations()
    sentences = [
        (one["text"], tuple(dict.fromkeys(map(ids.index, one["citations"])))) for one in found.answered["sentences"]
    ]
    return AnswerView(tuple(sentences), tuple(_cite(citation, documents[parents[citation]]) for citation in ids))


def _cite(citation: str, document: Document) -> CitedText:
    segment = next((segment for segment in document.segments if segment.id == citation), None)
    text = document.segment_text(segment) if segment else document.text
    return CitedText(citation, document.title, shorten(text, CITED_CHARACTERS))


def shorten(text: str, most: int) -> str:
    """Shorten a text to `most` characters and a mark."""
    return text if len(text) <= most else f"{text[:most].rstrip()} …"
