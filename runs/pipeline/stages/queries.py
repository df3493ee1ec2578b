"""The understanding of each narrative, and its queries (paper, section 2.1).

They are made by rules, by the model, or with the whole narrative alone.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter

from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.llm.model import Model
from keystone.generation.prompts.queries import CONTRACT, DECOMPOSE, TOPIC, TRANSLATE
from keystone.generation.queries import enrich, understand
from keystone.generation.queries.compose import compose_queries, make_narrative_query
from keystone.generation.rules.queries import UnderstandingRules, understand_by_rules
from keystone.generation.types import Fallback, Understanding
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.error_text import show_value
from keystone.indexing.io.fields import is_missing
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.languages import DEFAULT_LANGUAGE, LANGUAGES, find_code
from keystone.retrieval.backends import counts_words, open_sparse
from keystone.retrieval.types import Query, Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.searches import NO_LOCK, SearchLock
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.values import Artifact, Values, leave_out_empty, make_rankings_artifact

ASKS = ("queries.method", "queries.translate", "queries.passages", "retrieval.systems")


@dataclass(frozen=True, slots=True)
class UnderstoodTopic:
    """A topic's understanding, its queries, and each step in which the model gave no usable reply."""

    understanding: Understanding
    queries: tuple[Query, ...]
    fallbacks: tuple[Fallback, ...] = ()


def list_queries(topics: Iterable[UnderstoodTopic]) -> list[Query]:
    """List the queries of all topics, in order."""
    return [query for one in topics for query in one.queries]


async def understand_topics(job: Job, model: Model | None, search_lock: SearchLock = NO_LOCK) -> list[UnderstoodTopic]:
    """Find the understanding and the queries of each topic, by the configuration's method.

    If passages are searched, each query has one. `search_lock` is held while a method searches.
    """
    found = await QUERY_METHODS[job.config.queries.method].understand(job, model, search_lock)
    found = await _translate(job, model, found)
    if not job.config.list_passage_systems():
        return found
    assert model is not None  # the configuration has been checked
    queries, missed = await enrich.write_passages(
        model, list_queries(found), {topic.id: topic.narrative for topic in job.topics}
    )
    return _share_out(found, queries, missed)


def _share_out(
    found: Sequence[UnderstoodTopic], queries: Sequence[Query], missed: Sequence[Fallback]
) -> list[UnderstoodTopic]:
    """Share out rewritten queries, and the steps without a usable reply, to their topics."""
    return [
        replace(
            one,
            queries=tuple(query for query in queries if query.topic_id == topic_id),
            fallbacks=(*one.fallbacks, *(fallback for fallback in missed if fallback.topic_id == topic_id)),
        )
        for one in found
        for topic_id in [one.understanding.topic_id]
    ]


async def _translate(job: Job, model: Model | None, found: list[UnderstoodTopic]) -> list[UnderstoodTopic]:
    """Give the queries their translations: those of the topics to the narratives, and those of the model to all."""
    given = {topic.id: list_translations(topic) for topic in job.topics}
    found = [
        replace(one, queries=tuple(replace(q, translations=given.get(q.id, ())) for q in one.queries)) for one in found
    ]
    if not job.config.queries.translate:
        return found
    assert model is not None  # the configuration has been checked
    queries, missed = await enrich.translate_queries(model, list_queries(found), list_query_languages(job.index))
    return _share_out(found, queries, missed)


def list_translations(topic: Topic) -> tuple[tuple[str, str], ...]:
    """List the translations that a topic comes with, by language code, except blank ones. `UserError` for bad ones."""
    found: Any = topic.record.get("translations")
    given = found.items() if isinstance(found, Mapping) else [("", found)]
    filled = [(name, text) for name, text in given if not is_missing(text)]
    for name, text in filled:
        if find_code(name) is None or not isinstance(text, str):
            wrong = show_value({name: text} if name else text, 200)
            raise UserError(f"{topic.place}: translations: expected texts by codes of languages, found {wrong}")
    return tuple((find_code(name) or "", text) for name, text in filled)


def list_query_languages(index: Index) -> list[str]:
    """List the languages into which queries are translated: those of the index, except English."""
    return [one.language for one in index.list_languages() if one.language in LANGUAGES.keys() - {DEFAULT_LANGUAGE}]


async def _take_narratives(job: Job, _model: Model | None, _lock: SearchLock) -> list[UnderstoodTopic]:
    return [UnderstoodTopic(Understanding(topic.id, ()), (make_narrative_query(topic),)) for topic in job.topics]


async def _understand_by_rules(job: Job, _model: Model | None, lock: SearchLock) -> list[UnderstoodTopic]:
    settings = job.config.queries
    rules = UnderstandingRules(settings.facets, settings.topic, settings.variants, settings.questions)
    async with lock:
        return _compose_topics(job, understand_by_rules(job.topics, job.sources, rules), [])


async def _understand_by_contract(job: Job, model: Model | None, lock: SearchLock) -> list[UnderstoodTopic]:
    assert model is not None  # the configuration has been checked
    found, fallbacks = await understand.understand_by_contract(model, job.topics, job.config.queries.questions)
    async with lock:
        return _compose_topics(job, understand.keep_held_terms(found, partial(_find_held, job)), fallbacks)


def _find_held(job: Job, terms: Sequence[str]) -> list[bool]:
    """Find out for each term whether some document contains each of its words; true if the index counts no words."""
    if not counts_words(job.index):
        return [True] * len(terms)
    searcher = open_sparse(job.index, job.store)
    stems = [searcher.stems(term) for term in terms]
    distinct = sorted({stem for own in stems for stem in own})
    counts = dict(zip(distinct, searcher.stem_frequencies(distinct), strict=True))
    return [bool(own) and all(counts[stem] for stem in own) for own in stems]


async def _understand_by_model(job: Job, model: Model | None, _lock: SearchLock) -> list[UnderstoodTopic]:
    assert model is not None  # the configuration has been checked
    settings = job.config.queries
    in_context = settings.expand == "narrative"
    found = await understand.understand_by_model(model, job.topics, settings.variants, in_context, settings.questions)
    return _compose_topics(job, *found)


def _compose_topics(job: Job, found: Sequence[Understanding], fallbacks: Sequence[Fallback]) -> list[UnderstoodTopic]:
    """Compose the queries of each topic. If the narrative has a weight, it is the first query."""
    settings = job.config.queries
    return [
        UnderstoodTopic(
            understanding,
            (
                *([make_narrative_query(topic)] if settings.narrative_weight > 0 else []),
                *compose_queries(understanding, settings.question_weight, settings.dense_topic),
            ),
            tuple(fallback for fallback in fallbacks if fallback.topic_id == topic.id),
        )
        for topic, understanding in zip(job.topics, found, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class QueryMethod:
    """A way from narratives to queries."""

    understand: Callable[[Job, Model | None, SearchLock], Awaitable[list[UnderstoodTopic]]]
    """The lock is held while the method searches the index, since only one thread at a time may do that."""
    searches: bool = False
    """Whether the method searches the index."""
    tuned: tuple[str, ...] | None = ()
    """The method's settings that `tune` tries, each `key=[value, ...]`. None: there is nothing to tune."""


QUERY_METHODS: Mapping[Literal["rules", "model", "contract", "narrative"], QueryMethod] = {
    "rules": QueryMethod(
        _understand_by_rules, searches=True, tuned=("queries.facets=[sentences, clauses]", "queries.topic=[lead, none]")
    ),
    "model": QueryMethod(_understand_by_model),
    "contract": QueryMethod(_understand_by_contract, searches=True),
    "narrative": QueryMethod(_take_narratives, tuned=None),
}
"""The ways from narratives to queries by their names in a configuration."""


_read_queries = TypeAdapter(tuple[Query, ...]).validate_python
_read_fallbacks = TypeAdapter(tuple[Fallback, ...]).validate_python


def _encode(one: UnderstoodTopic, method: str) -> dict[str, Any]:
    """Encode the understanding of a topic. Each query holds what its question wants."""
    understanding = {key: value for key, value in asdict(one.understanding).items() if key != "asks"}
    queries = [leave_out_empty(asdict(query), "passage", "ask", "translations") for query in one.queries]
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
    rules = UnderstandingRules(config.queries.facets)
    whole = [one.id for one in job.topics if config.queries.method == "rules" and rules.keep_whole(one.narrative)]
    return [topics, job.index.key, weightless, describe_model(config, ASKS), *words, *([whole] if whole else [])]


def bound_queries(config: RunConfig, one: Topic, thinking: int) -> tuple[int, int]:
    """Bound the number of queries that the model makes of a narrative, and the characters of their questions.

    If the model gives none, the narrative is the only question.
    """
    prompt = CONTRACT if config.queries.method == "contract" else DECOMPOSE
    reply = 2 * (prompt.max_tokens + thinking)
    return config.queries.questions, max(CHARACTERS_PER_TOKEN * reply, len(one.narrative))


def _foresee(asked: Asked, one: AskedTopic) -> Iterator[Ask]:
    config, narrative, thinking = asked.job.config, one.topic.narrative, asked.model.thinking
    settings = config.queries
    if settings.method == "contract":
        yield Ask("queries", 1, CONTRACT.request(narrative=narrative))
    if settings.method == "model":
        yield Ask("queries", 1, DECOMPOSE.request(narrative=narrative))
        yield Ask("queries", 1, TOPIC.request(narrative=narrative))
    if settings.method == "model" and settings.variants:
        names = understand.find_names_to_avoid(narrative, "")
        in_context = narrative if settings.expand == "narrative" else ""
        phrase = 2 * CHARACTERS_PER_TOKEN * (TOPIC.max_tokens + thinking)
        yield Ask("queries", 1, understand.request_variants("", names, settings.variants, in_context), phrase)
    if settings.translate:
        for code in list_query_languages(asked.job.index):
            yield Ask("queries", one.queries + 1, enrich.request_translation("", code), one.characters + len(narrative))
    if config.list_passage_systems():
        query = Query(one.topic.id, f"{one.topic.id}#1", "", "", "")
        yield Ask("queries", one.queries + 1, enrich.request_passage(query, narrative), one.characters)


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
