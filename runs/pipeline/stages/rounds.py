"""Grades with further rounds of search: for what they leave open, the model writes new texts to search by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keystone.fusion.fuse import fuse_groups
from keystone.fusion.lists import Groups, group_queries_by_topic
from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.grading.grade import GradedTopic
from keystone.generation.prompts.queries import MOST_TEXTS, SEARCH_AGAIN
from keystone.generation.queries.enrich import SNIPPET_CHARACTERS, OpenQuery, request_search_texts, write_search_texts
from keystone.generation.types import Fallback
from keystone.retrieval.backends import BACKENDS, renew_rows
from keystone.retrieval.types import Query, Rankings, ranked
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import ask_model
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_query, round_scores
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages import grades
from keystone.runs.pipeline.stages.grades import GRADES_FILE, QRELS_FILE, RELEVANT_GRADE, Found, choose_ranking_file
from keystone.runs.pipeline.stages.queries import rank_queries_in
from keystone.runs.pipeline.stages.search import choose_texts
from keystone.runs.pipeline.values import make_records_artifact

TITLE_CHARACTERS = 500
"""The characters of the longest title that is foreseen. Titles are the only texts of a prompt without a limit."""

SHOWN_DOCUMENTS = 5
"""How many documents of a query's ranking the model sees before it writes new search texts."""


@dataclass(frozen=True, slots=True)
class Round:
    """A further round of one topic: the new search texts of each open query, and the documents that they add."""

    topic_id: str
    number: int
    texts: dict[str, list[str]]
    """The new search texts by the query's id."""
    documents: list[str]
    """The ids of the documents that are graded next, best first."""
    fallbacks: tuple[Fallback, ...] = ()


ROUNDS_FILE = make_records_artifact(file_names.ROUNDS, Round)
JOINED_FILE = rank_queries_in(file_names.JOINED)
"""The hybrid ranking of each query after the further rounds."""


def grade_in_rounds(work: Work) -> None:
    """Grade the candidates of each narrative, search again for queries without a relevant document, and grade again."""
    found, rounds = grades.find_first_candidates(work), list[Round]()
    graded = grades.grade_all(work, found)
    for _ in range(work.job.config.grading.rounds):
        if (again := _search_again(work, found, rounds, graded)) is None:
            break
        found, rounds = again
        graded = grades.grade_all(work, found)
    grades.put_grades(work, graded)
    work.values.put(ROUNDS_FILE, rounds)
    work.values.put(JOINED_FILE, found.hybrid)


def find_open_queries(graded: Sequence[GradedTopic]) -> list[Query]:
    """Find the queries without a document of grade 2 or above. A pair that was not graded counts as below."""
    return [
        query
        for topic in graded
        for query, own in zip(topic.queries, topic.grades, strict=True)
        if not (own >= RELEVANT_GRADE).any()
    ]


def _search_again(
    work: Work, found: Found, rounds: list[Round], graded: Sequence[GradedTopic]
) -> tuple[Found, list[Round]] | None:
    """Search for open queries with new texts of the model, and note the round after `rounds`. None if no query is open.

    A query's new rankings are fused with the one it had. They add at most `grading.round_documents` candidates to a
    topic's pool, the best by their fusion.
    """
    job = work.job
    if not (asked := _open_queries(job, found, rounds, graded)):
        return None
    written, fallbacks = ask_model(work.run_with_model, lambda model: write_search_texts(model, asked))
    number = len({one.number for one in rounds}) + 1
    texts = {one.query.id: own for one, own in zip(asked, written, strict=True)}
    new = [
        one.query.search_by(text, f"{one.query.id}+{number}.{place}")
        for one in asked
        for place, text in enumerate(texts[one.query.id], start=1)
    ]
    searched = ranked([], [], [], 0)
    if new:
        texts_of = choose_texts(job, work.run_with_model)
        searched = fuse_each_query(job.config, work.means.search(job, new, texts_of))
    found, noted = _renew_rows(job, found), list(rounds)
    pools = dict(found.pools)
    added = _find_new_candidates(job, found, new, searched)
    for topic_id in dict.fromkeys(one.query.topic_id for one in asked):
        pools[topic_id] = [*pools[topic_id], *added[topic_id]]
        own = {one.query.id: list(texts[one.query.id]) for one in asked if one.query.topic_id == topic_id}
        missed = tuple(fallback for fallback in fallbacks if fallback.topic_id == topic_id)
        noted.append(Round(topic_id, number, own, job.store.ids(added[topic_id]), missed))
    return Found(found.queries, _join_rankings(job, found.hybrid, searched), pools), noted


def _renew_rows(job: Job, found: Found) -> Found:
    """Give what was found before a search the rows that its documents have after it, if the engine's stores grow."""
    if not BACKENDS[job.index.backend].grows:
        return found
    pools = {topic: job.store.rows(job.store.ids(rows)).tolist() for topic, rows in found.pools.items()}
    return Found(found.queries, renew_rows(job.index, job.store, found.hybrid), pools)


def _open_queries(job: Job, found: Found, rounds: Sequence[Round], graded: Sequence[GradedTopic]) -> list[OpenQuery]:
    narratives = {topic.id: topic.narrative for topic in job.topics}
    place_of = {query.id: place for place, query in enumerate(found.queries)}
    return [
        OpenQuery(
            query,
            narratives[query.topic_id],
            (query.question, *(text for one in rounds for text in one.texts.get(query.id, ()))),
            job.store.get(found.hybrid.of(place_of[query.id])[:SHOWN_DOCUMENTS]),
        )
        for query in find_open_queries(graded)
    ]


def _find_new_candidates(job: Job, found: Found, new: Sequence[Query], searched: Rankings) -> dict[str, list[int]]:
    """Find the best documents of each topic's new rankings that are not in its pool yet."""
    topics = [topic.id for topic in job.topics]
    groups = group_queries_by_topic([query.topic_id for query in new], topics)
    first = searched.top(job.config.grading.pool)
    fused = fuse_groups([first], groups, job.config.fusion.k_narrative, len(first.docs))
    fresh = [fused.of(i)[~np.isin(fused.of(i), found.pools[topic])] for i, topic in enumerate(topics)]
    most = job.config.grading.round_documents
    return {topic: rows[:most].tolist() for topic, rows in zip(topics, fresh, strict=True)}


def _join_rankings(job: Job, hybrid: Rankings, searched: Rankings) -> Rankings:
    """Fuse each query's ranking with the rankings of its new texts, by RRF."""
    members = [[(0, place)] for place in range(len(hybrid))]
    place_of = {query_id: place for place, query_id in enumerate(hybrid.query_ids)}
    for place, query_id in enumerate(searched.query_ids):
        members[place_of[query_id.rpartition("+")[0]]].append((1, place))
    groups = Groups(hybrid.query_ids, members)
    return round_scores(fuse_groups([hybrid, searched], groups, job.config.fusion.k, job.config.retrieval.depth))


def _foresee(asked: Asked, one: AskedTopic) -> Iterator[Ask]:
    yield from grades.foresee_grades(asked, one)
    settings = asked.job.config.grading
    whole = len(one.topic.narrative) if settings.narrative else 0
    queries, characters = one.queries + bool(whole), one.characters + whole
    query = Query(one.topic.id, one.topic.id, "", "", "")
    earlier = [""] * (1 + MOST_TEXTS * (settings.rounds - 1))
    written = CHARACTERS_PER_TOKEN * 2 * SEARCH_AGAIN.max_tokens * (settings.rounds - 1)
    found = SHOWN_DOCUMENTS * (SNIPPET_CHARACTERS + TITLE_CHARACTERS)
    number = settings.rounds * queries
    request = request_search_texts(OpenQuery(query, one.topic.narrative, tuple(earlier), ()))
    yield Ask("grades", number, request, settings.rounds * 2 * characters + number * (written + found))


def _describe(before: Before) -> Iterator[dict[str, Any]]:
    grading, name = before.config.grading, JOINED_FILE.stem
    settings = {"rounds": grading.rounds, "documents": grading.round_documents}
    yield {"name": name, "method": "further rounds of search", **settings, "interpolates": ["hybrid"]}
    for step in grades.describe_grades(before):
        yield {**step, "interpolates": [name]}


STAGE = StageKind(
    name="grades",  # the keys of stored runs hold this name
    wanted=lambda config: config.grading.method is not None and config.grading.rounds > 0,
    makes=lambda before: (*grades.list_grade_files(before), ROUNDS_FILE, JOINED_FILE),
    reads=grades.list_inputs,
    key=grades.make_key,
    work=grade_in_rounds,
    ranks_queries=lambda _: JOINED_FILE,
    ranks_narratives=choose_ranking_file,
    asks=grades.ASKS,
    foresee=_foresee,
    notes=lambda _: (QRELS_FILE, ROUNDS_FILE, JOINED_FILE),
    records=lambda _: (GRADES_FILE, ROUNDS_FILE),
    why_kept=lambda _: "searches the index",
    describe=_describe,
)
