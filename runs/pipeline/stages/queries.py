"""The understanding of each narrative, and its queries (paper, section 2.1). `pipeline/queries.py` has the methods."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.prompts.queries import CONTRACT, DECOMPOSE, TOPIC, TRANSLATE
from keystone.generation.queries.enrich import request_passage, request_translation
from keystone.generation.queries.understand import (
    find_names_to_avoid,
    request_variants,
)
from keystone.generation.types import Fallback, Understanding
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen, foresee
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.queries import (
    QUERY_METHODS,
    UnderstoodTopic,
    list_queries,
    list_query_languages,
    list_translations,
    understand_topics,
)
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.values import Artifact, Values, make_rankings_artifact

ASKS = ("queries.method", "queries.translate", "queries.passages", "retrieval.systems")

_read_queries = TypeAdapter(tuple[Query, ...]).validate_python
_read_fallbacks = TypeAdapter(tuple[Fallback, ...]).validate_python


def _encode(one: UnderstoodTopic, method: str) -> dict[str, Any]:
    """Encode the understanding of a topic. Each query holds what its question wants."""
    understanding = {key: value for key, value in asdict(one.understanding).items() if key != "asks"}
    queries = [
        {key: value for key, value in asdict(query).items() if value or key not in ("passage", "ask", "translations")}
        for query in one.queries
    ]
    return {"method": method, **understanding, "queries": queries, "fallbacks": list(map(asdict, one.fallbacks))}


def _decode(record: Mapping[str, Any]) -> UnderstoodTopic:
    queries = _read_queries(record["queries"])
    understanding = Understanding(
        record["topic_id"],
        tuple(record["questions"]),
        record["topic"],
        tuple(record["variants"]),
        tuple(query.ask for query in queries if query.ask),
    )
    return UnderstoodTopic(understanding, queries, _read_fallbacks(record["fallbacks"]))


QUERIES_FILE: Artifact[list[UnderstoodTopic]] = Artifact(
    file_names.QUERIES,
    lambda path, _: [_decode(record) for _, record in read_json_lines(path)],
    lambda path, found, values: write_json_lines(
        path, (_encode(one, values.job.config.queries.method) for one in found)
    ),
)


def get_queries(values: Values) -> list[Query]:
    """Get the queries of all topics, in order."""
    understood = values.get(QUERIES_FILE)
    return list_queries(understood)


def rank_queries_in(name: str) -> Artifact[Rankings]:
    """Make the artifact of a file with the ranking of each query."""
    return make_rankings_artifact(name, lambda values: [query.id for query in get_queries(values)])


def make_queries(work: Work) -> None:
    """Make the understanding and the queries of each narrative. `UserError` if two queries have the same id."""
    job = work.job
    made = work.run_with_model(lambda model: understand_topics(job, model, work.means.search_lock))
    ids = Counter(query.id for query in list_queries(made))
    repeated, times = ids.most_common(1)[0]
    if times > 1:
        raise UserError(f"{job.config.topics}: topic ids give the query id {repeated!r} twice: rename a topic")
    work.values.put(QUERIES_FILE, made)


def _make_key(job: Job, _: Before) -> Any:
    config = job.config
    settings = config.queries.model_dump(mode="json")
    weightless = {**settings, "narrative_weight": config.queries.narrative_weight > 0, "passage_weight": None}
    if isinstance(config.retrieval.systems, dict) and config.list_passage_systems():
        weightless["passages"] = "systems"
    topics = [[one.id, one.narrative, *map(list, list_translations(one))] for one in job.topics]
    words = [digest([TRANSLATE.system, TRANSLATE.user])] if config.queries.translate else []
    return [topics, job.index.key, weightless, describe_model(config, ASKS), *words]


def bound_queries(config: RunConfig, one: Topic, thinking: int) -> tuple[int, int]:
    """Bound the number of queries that the model makes of a narrative, and the characters of their questions.

    If the model gives none, the narrative is the only question.
    """
    prompt = CONTRACT if config.queries.method == "contract" else DECOMPOSE
    reply = 2 * prompt.max_tokens + thinking
    return config.queries.questions, max(CHARACTERS_PER_TOKEN * reply, len(one.narrative))


def _list_asks(job: Job, one: AskedTopic, thinking: int) -> Iterator[Ask]:
    config, narrative = job.config, one.topic.narrative
    settings = config.queries
    if settings.method == "contract":
        yield Ask("queries", 1, CONTRACT.request(narrative=narrative))
    if settings.method == "model":
        yield Ask("queries", 1, DECOMPOSE.request(narrative=narrative))
        yield Ask("queries", 1, TOPIC.request(narrative=narrative))
    if settings.method == "model" and settings.variants:
        names = find_names_to_avoid(narrative, "")
        in_context = narrative if settings.expand == "narrative" else ""
        phrase = CHARACTERS_PER_TOKEN * (2 * TOPIC.max_tokens + thinking)
        yield Ask("queries", 1, request_variants("", names, settings.variants, in_context), phrase)
    if settings.translate:
        for code in list_query_languages(job.index):
            yield Ask("queries", one.queries + 1, request_translation("", code), one.characters + len(narrative))
    if config.list_passage_systems():
        query = Query(one.topic.id, f"{one.topic.id}#1", "", "", "")
        yield Ask("queries", one.queries + 1, request_passage(query, narrative), one.characters)


def _foresee(asked: Asked) -> Sequence[Foreseen]:
    job, model = asked.job, asked.model
    return [foresee(ask, model) for one in asked.topics for ask in _list_asks(job, one, model.thinking)]


STAGE = StageKind(
    name="queries",
    makes=lambda _: (QUERIES_FILE,),
    key=_make_key,
    work=make_queries,
    asks=ASKS,
    foresee=_foresee,
    records=lambda _: (QUERIES_FILE,),
    why_kept=lambda config: "looks up words in the index" if QUERY_METHODS[config.queries.method].searches else "",
)
