"""A run directory opened for a diagnosis: its settings, its documents, and what it kept about each topic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from keystone.generation.queries.compose import find_places
from keystone.generation.readers.reader import AnswerSettings
from keystone.generation.types import Answer, EvidenceSet
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.indexing.types import Document, Store, document_id
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.evidence_files import EVIDENCE_FILE
from keystone.runs.pipeline.file_names import CONFIG, NARRATIVE
from keystone.runs.pipeline.grade_files import GradeRecord, find_grades
from keystone.runs.pipeline.job import DEFAULT_TRACK, Job
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.pipeline.stages import gather
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.stages.chosen_documents import rank_by_grade
from keystone.runs.pipeline.stages.grades import GRADES_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE
from keystone.runs.pipeline.stages.search import list_system_files
from keystone.runs.pipeline.table import find_last_ranking, list_rankings, list_wanted
from keystone.runs.pipeline.values import Artifact, Values
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import find_ranks, list_first


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run. `grades` is empty for a run without grades, `evidence` and `answers` for one without answers."""

    directory: Path
    config: RunConfig
    store: Store
    queries: Mapping[str, Sequence[Query]]
    """The queries of each topic."""
    grades: Mapping[str, GradeRecord] = field(default_factory=dict)
    evidence: Mapping[str, EvidenceSet] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)

    @property
    def has_answers(self) -> bool:
        """Whether the run answers its topics."""
        return bool(self.answers)

    @property
    def answers_queries(self) -> bool:
        """Whether an answer is made from the documents of each query, and not from those of the topic."""
        method = self.config.answer.method
        return self.has_answers and method is not None and AnswerSettings(method).is_by_query

    @property
    def reads_ranking(self) -> bool:
        """Whether an answer is made from the first documents of the last ranking, although there are grades."""
        method = self.config.answer.method
        return self.has_answers and method is not None and AnswerSettings(method).reads_ranking

    def list_ranked_again(self) -> dict[str, str]:
        """List the rankings that end with the one whose first documents are read, each by the name of its loss.

        It is empty if no stage of the last rankings names its losses, or if grades select what is read.
        """
        found: dict[str, str] = {}
        if self.answers_queries or (self.grades and not self.reads_ranking):
            return found
        for kind, before in takewhile(lambda own: own[0] is not gather.STAGE, list_wanted(self.config)):
            if kind.losses and kind.ranks_narratives:
                files = before.narrative_ranking, kind.ranks_narratives(self.config)
                found |= zip(kind.losses, (file.name for file in files), strict=True)
            elif kind.ranks_narratives:
                found = {}
        return found

    @property
    def query_ranking(self) -> str:
        """The file with the last ranking of each query."""
        return list_rankings(self.config).query_ranking.name

    def find_query_ranks(self, names: Sequence[str], wanted: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
        """Find the best rank of each wanted document, for each query of its topic, in these run files.

        A document that no list of the query has is left out.
        """
        asked = {query.id: docs for topic, docs in wanted.items() for query in self.queries[topic]}
        return self._find_best(names, asked)

    def find_narrative_ranks(self, wanted: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], int]:
        """Find the rank of each wanted document of a topic in the ranking of its narrative, if it has one."""
        found = self._find_best([NARRATIVE], wanted)
        return {(topic, doc_id): rank for topic, own in found.items() for doc_id, rank in own.items()}

    def _find_best(self, names: Sequence[str], asked: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
        best: dict[str, dict[str, int]] = {name: {} for name in asked}
        for name in names:
            for asked_id, ranks in find_ranks(self.directory / name, asked).items():
                own = best[asked_id]
                for doc_id, rank in zip(asked[asked_id], ranks, strict=True):
                    if rank and rank <= own.get(doc_id, rank):
                        own[doc_id] = rank
        return best

    def list_selected(self) -> dict[str, set[str]]:
        """List the documents of each topic that its answer is made from, or that its grades select."""
        most = self.config.answer.documents
        if self.answers_queries:
            return dict(self._list_selected_by_query(most))
        if self.grades and not self.reads_ranking:
            first = most if self.has_answers else None
            return {topic: set(record.selected[:first]) for topic, record in self.grades.items()}
        ranking = find_last_ranking(self.directory, self.config)
        return {topic: set(docs) for topic, docs in list_first(ranking, most).items()}

    def _list_selected_by_query(self, most: int) -> Iterator[tuple[str, set[str]]]:
        lists = list_first(self.directory / self.query_ranking, self.config.retrieval.depth)
        grades = find_grades(list(self.grades.values()), self.store)
        for topic, queries in self.queries.items():
            rows: list[int] = []
            for place in find_places(topic, queries):
                found = self.store.rows(lists.get(queries[place].id, [])).tolist()
                own = grades.get(topic, {}).get(queries[place].id, {})
                rows += (rank_by_grade(own, found) or found)[:most]
            yield topic, set(self.store.ids(rows))

    def get_documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Get documents by their ids. Those that the store lacks are left out."""
        rows = self.store.rows(ids)
        return {document.id: document for document in self.store.get(rows[rows >= 0])}

    def get_cited(self, topic_id: str) -> dict[str, Document]:
        """Get the documents that the answer to a topic cites, by id. A citation names a document or its segment."""
        cited = {citation for sentence in self.answers[topic_id].sentences for citation in sentence.citations}
        return self.get_documents(sorted(cited | set(map(document_id, cited))))


def open_stored_run(directory: Path) -> StoredRun:
    """Open a run directory. `UserError` for a folder without a run, for an unfinished run, and without its index."""
    if not (directory / CONFIG).is_file():
        raise UserError(f"{directory}: holds no {CONFIG}, expected the directory of a run, as keystone run prints it")
    config = read_run_config(directory)
    index = open_index(config.index)
    job = Job(config, index, open_store(index), [], TRACKS[config.track or DEFAULT_TRACK])
    values, rankings = Values(directory, job), list_rankings(config)
    files: list[Artifact[Any]] = [QUERIES_FILE, *list_system_files(config), *rankings.query_rankings]
    files += rankings.narrative_rankings[: None if any(kind.losses for kind, _ in list_wanted(config)) else 1]
    files += [] if config.grading.method is None else [GRADES_FILE]
    files += [EVIDENCE_FILE, ANSWERS_FILE] if config.has_answers else []
    for file in files:
        if not (directory / file.name).exists():
            raise UserError(f"{directory}: has no {file.name} yet: finish the run by keystone run")
    queries = {one.understanding.topic_id: one.queries for one in values.get(QUERIES_FILE)}
    grades = {} if config.grading.method is None else {one.topic_id: one for one in values.get(GRADES_FILE)}
    if not config.has_answers:
        return StoredRun(directory, config, job.store, queries, grades)
    gathered = values.get(EVIDENCE_FILE)
    evidence = dict(zip(queries, gathered, strict=True))
    answers = {answer.topic_id: answer for answer in values.get(ANSWERS_FILE)}
    return StoredRun(directory, config, job.store, queries, grades, evidence, answers)
