"""Grades with further rounds of search: for what they leave open, the model writes new texts to search by."""

from collections.abc import Iterator, Sequence
from typing import Any

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.prompts.queries import MOST_TEXTS, SEARCH_AGAIN
from keystone.generation.queries.enrich import SNIPPET_CHARACTERS, OpenQuery, request_search_texts
from keystone.retrieval.types import Query, Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen, foresee
from keystone.runs.pipeline.grading.rounds import SHOWN_DOCUMENTS, Round, search_again
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages import grades
from keystone.runs.pipeline.stages.grades import GRADES_FILE, QRELS_FILE, choose_ranking_file
from keystone.runs.pipeline.stages.queries import rank_queries_in
from keystone.runs.pipeline.stages.search import choose_texts
from keystone.runs.pipeline.values import make_records_artifact

TITLE_CHARACTERS = 500
"""The longest title of a document that is foreseen. Titles are the only texts of a prompt without a limit."""

ROUNDS_FILE = make_records_artifact(file_names.ROUNDS, Round)
JOINED_FILE = rank_queries_in(file_names.JOINED)
"""The hybrid ranking of each query after the further rounds."""


def grade_in_rounds(work: Work) -> None:
    """Grade the candidates of each narrative, search again for queries without a relevant document, and grade again."""
    job = work.job

    def search(queries: Sequence[Query]) -> dict[str, Rankings]:
        return work.means.search(job, queries, choose_texts(job, work.run_with_model))

    found = grades.find_first_candidates(work)
    graded = grades.grade_all(work, found)
    for _ in range(job.config.grading.rounds):
        again = search_again(job, work.run_with_model, search, found, graded)
        if again is None:
            break
        found = again
        graded = grades.grade_all(work, found)
    grades.put_grades(work, graded)
    work.values.put(ROUNDS_FILE, list(found.rounds))
    work.values.put(JOINED_FILE, found.hybrid)


def _list_asks(config: RunConfig, one: AskedTopic, documents: int) -> Iterator[Ask]:
    yield from grades.list_grade_asks(config, one, documents)
    settings = config.grading
    whole = len(one.topic.narrative) if settings.narrative else 0
    queries, characters = one.queries + bool(whole), one.characters + whole
    query = Query(one.topic.id, one.topic.id, "", "", "")
    earlier = [""] * (1 + MOST_TEXTS * (settings.rounds - 1))
    written = CHARACTERS_PER_TOKEN * 2 * SEARCH_AGAIN.max_tokens * (settings.rounds - 1)
    found = SHOWN_DOCUMENTS * (SNIPPET_CHARACTERS + TITLE_CHARACTERS)
    number = settings.rounds * queries
    request = request_search_texts(OpenQuery(query, one.topic.narrative, tuple(earlier), ()))
    yield Ask("grades", number, request, settings.rounds * 2 * characters + number * (written + found))


def _foresee(asked: Asked) -> Iterator[Foreseen]:
    for one in asked.topics:
        for ask in _list_asks(asked.job.config, one, asked.documents):
            yield foresee(ask, asked.model)


def _describe(before: Before) -> Iterator[dict[str, Any]]:
    grading, name = before.config.grading, JOINED_FILE.name.removesuffix(".trec")
    settings = {"rounds": grading.rounds, "documents": grading.round_documents}
    yield {"name": name, "method": "further rounds of search", **settings, "interpolates": ["hybrid"]}
    for step in grades.describe_grades(before):
        yield {**step, "interpolates": [name]}


STAGE = StageKind(
    name="grades",
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
