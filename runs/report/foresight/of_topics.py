"""The requests about queries, rankings and grades that a run may send for one topic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from keystone.fusion.blocks import list_windows, make_blocks
from keystone.generation.context.fit_window import share_window
from keystone.generation.context.tokens import CHARACTERS_PER_TOKEN
from keystone.generation.grading.umbrela import request_grades
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.prompts.queries import contract, decompose, search_again, topic
from keystone.generation.queries.contract import request_contract
from keystone.generation.queries.passages import request_passage
from keystone.generation.queries.search_again import SNIPPET_CHARACTERS, OpenQuery, request_search_texts
from keystone.generation.queries.understand import (
    find_names_to_avoid,
    request_questions,
    request_topic,
    request_variants,
)
from keystone.generation.rerank.listwise import request_ranking
from keystone.generation.summarise import LONG_DOCUMENT_TOKENS, request_summary
from keystone.retrieval.types import Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.grading import rounds
from keystone.runs.report.foresight.asks import Ask

TITLE_CHARACTERS = 500
"""The longest title of a document that is foreseen. Titles are the only texts of a prompt without a limit."""


@dataclass(frozen=True, slots=True)
class AskedTopic:
    """A topic with the number of its decomposed queries, and the characters of their questions, both at most."""

    topic: Topic
    queries: int
    characters: int
    words: int
    """The most words of the answer."""


def bound_queries(config: RunConfig, topic: Topic, model: ModelSettings) -> tuple[int, int]:
    """Bound the number of queries that the model makes of a narrative, and the characters of their questions.

    If the model gives none, the narrative is the only question.
    """
    prompt = contract if config.queries.method == "contract" else decompose
    reply = 2 * prompt.MAX_TOKENS + model.thinking
    return config.queries.questions, max(CHARACTERS_PER_TOKEN * reply, len(topic.narrative))


def list_query_asks(config: RunConfig, one: AskedTopic, model: ModelSettings) -> Iterator[Ask]:
    """List the requests of the stage `queries`."""
    narrative, settings = one.topic.narrative, config.queries
    if settings.method == "contract":
        yield Ask("queries", 1, request_contract(narrative))
    if settings.method == "model":
        yield Ask("queries", 1, request_questions(narrative))
        yield Ask("queries", 1, request_topic(narrative))
    if settings.method == "model" and settings.variants:
        names = find_names_to_avoid(narrative, "")
        in_context = narrative if settings.expand == "narrative" else ""
        phrase = CHARACTERS_PER_TOKEN * (2 * topic.MAX_TOKENS + model.thinking)
        yield Ask("queries", 1, request_variants("", names, settings.variants, in_context), phrase)
    if config.list_passage_systems():
        query = Query(one.topic.id, f"{one.topic.id}#1", "", "", "")
        yield Ask("queries", one.queries + 1, request_passage(query, narrative), one.characters)


def list_summary_asks(
    config: RunConfig, topics: Sequence[AskedTopic], documents: int, model: ModelSettings
) -> Iterator[Ask]:
    """List the requests of the stage `search`: a summary of each candidate of any topic, of half the window at most."""
    if config.retrieval.summarise:
        texts = 1 + config.grading.rounds * search_again.MOST_TEXTS
        number = min(documents, sum(1 + one.queries * texts for one in topics) * config.retrieval.depth)
        limit = min(model.window // 4, LONG_DOCUMENT_TOKENS - 1)
        yield Ask("search", number, request_summary("", "", limit), number * CHARACTERS_PER_TOKEN * (model.window // 2))


def list_rerank_asks(config: RunConfig, one: AskedTopic, documents: int, model: ModelSettings) -> Iterator[Ask]:
    """List the requests of the stage `rerank` to the language model."""
    settings, depth = config.rerank, min(config.rerank.depth, config.fusion.get_depth(one.topic.id), documents)
    tokens = min(settings.tokens, share_window(model.window, settings.block))
    if settings.method == "listwise":
        number = len(make_blocks(depth, settings.block))
    elif settings.method == "sliding":
        number = len(list_windows(depth, settings.block, settings.stride))
    else:
        return
    block = min(settings.block, depth)
    request = request_ranking(one.topic.narrative, [""] * block)
    yield Ask("rerank", number, request, number * block * CHARACTERS_PER_TOKEN * tokens)


def list_grade_asks(config: RunConfig, one: AskedTopic, documents: int) -> Iterator[Ask]:
    """List the requests of the stage `grades`: for the pool, for documents beyond it, and for further rounds."""
    settings = config.grading
    if settings.method is None:
        return
    whole = len(one.topic.narrative) if settings.narrative else 0
    queries, characters = one.queries + bool(whole), one.characters + whole
    lists = one.queries + 1 if settings.narrative or config.retrieval.runs else one.queries
    pool = lists * settings.pool + settings.rounds * settings.round_documents
    graded = min(pool + (settings.rounds + 1) * settings.deeper, documents)
    in_one = queries if settings.method == "grid" else 1
    request = request_grades([""] * in_one, "", settings.method, settings.expected)
    number = graded * queries // in_one
    shown = number * CHARACTERS_PER_TOKEN * settings.tokens + graded * characters
    yield Ask("grades", number, request, shown)
    if settings.rounds:
        query = Query(one.topic.id, one.topic.id, "", "", "")
        earlier = [""] * (1 + search_again.MOST_TEXTS * (settings.rounds - 1))
        written = CHARACTERS_PER_TOKEN * 2 * search_again.MAX_TOKENS * (settings.rounds - 1)
        found = rounds.SHOWN_DOCUMENTS * (SNIPPET_CHARACTERS + TITLE_CHARACTERS)
        number = settings.rounds * queries
        request = request_search_texts(OpenQuery(query, one.topic.narrative, tuple(earlier), ()))
        yield Ask("grades", number, request, settings.rounds * 2 * characters + number * (written + found))
