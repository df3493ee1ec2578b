"""The requests that a run may send for the answer to one topic, by the method of the answer."""

from collections.abc import Iterator
from dataclasses import replace

from keystone.generation.answers.answer import (
    MOST_ROUNDS,
    QUESTION_TOKENS,
    SUB_ANSWER_WORDS,
    AnswerTask,
    request_answer,
    request_check,
    request_shorter,
    request_sub_answer,
    request_whole,
)
from keystone.generation.answers.cite import request_citations
from keystone.generation.answers.claims import (
    MOST_CLAIMS,
    REPLY_WORDS,
    ProseTask,
    request_claims,
    request_prose,
)
from keystone.generation.answers.mend import request_mending
from keystone.generation.answers.sentences import MOST_SENTENCES, QueryTask, allow_tokens
from keystone.generation.answers.support import GROUP_SENTENCES
from keystone.generation.answers.synthesise import SynthesisTask, request_edit, request_resynthesis
from keystone.generation.context.texts import CHARACTERS_PER_TOKEN
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.prompts.answers import CHECK_SUPPORT
from keystone.generation.readers.write import make_word_range
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.foresight import Ask, AskedTopic

SENTENCE_CHARACTERS = 40
"""An upper bound on the characters of a listed sentence or claim in JSON besides its text."""

SENTENCE_WORDS = 15
"""How many words a usual sentence has. Since no limit applies to sentences, the bounds assume one word in each."""


def list_answer_asks(config: RunConfig, one: AskedTopic, model: ModelSettings, stage: str) -> Iterator[Ask]:
    """List the requests for one answer to a topic, by the method of the configuration."""
    method = config.answer.method
    evidence = CHARACTERS_PER_TOKEN * (config.reader.evidence_tokens or model.window // 2)
    if config.reader.name != "plain":
        evidence = CHARACTERS_PER_TOKEN * model.window  # the reader's notes come with it
    if method == "answers":
        yield from _list_synthesis_asks(config, one, model, stage, evidence)
    if method == "claims":
        yield from _list_claim_asks(one, model, stage, evidence)
    if method in ("retrieval", "whole", "claims"):  # without any claim, the answer is written from all documents
        words = make_word_range(one.words)
        written = _count_written(one.words, model)
        if method == "whole":
            whole = AnswerTask(one.topic.id, one.topic.narrative, (), words)
            request = request_whole(whole)
            if config.answer.rounds:
                questions = one.characters + one.queries * SENTENCE_CHARACTERS
                number, check = config.answer.rounds, request_check(whole)
                replied = number * QUESTION_TOKENS * one.queries
                yield Ask("gather", number, check, number * (evidence + questions), replied)
        else:
            request = request_answer(AnswerTask(one.topic.id, one.topic.narrative, (), words))
        yield Ask(stage, 1, request, evidence)
        yield from _list_corrections(one, stage, written, evidence)
    if method != "rules" and config.answer.mend:
        mending = request_mending(one.topic.narrative, (), {})
        yield Ask(stage, 1, mending, 2 * _list_characters(_count_written(one.words, model)), 4 * one.words)
    if method != "rules" and config.answer.support == "model":
        likely = _request_checks(stage, one, model, _count_likely(one.words))
        yield replace(_request_checks(stage, one, model, min(MOST_SENTENCES, one.words)), likely=likely)


def _request_checks(stage: str, one: AskedTopic, model: ModelSettings, sentences: int) -> Ask:
    groups = -(-sentences // GROUP_SENTENCES)
    request = CHECK_SUPPORT.request(allow_tokens(0), documents="", sentences="", most=0)
    return Ask(stage, groups, request, groups * CHARACTERS_PER_TOKEN * model.window, 4 * one.words + 64 * sentences)


def _list_synthesis_asks(
    config: RunConfig, one: AskedTopic, model: ModelSettings, stage: str, evidence: int
) -> Iterator[Ask]:
    settings, narrative, words = config.answer, one.topic.narrative, make_word_range(one.words)
    written = _count_written(SUB_ANSWER_WORDS[1], model)
    sub_answer = request_sub_answer(QueryTask(one.topic.id, narrative, "", ()), settings.prompt_with)
    yield Ask(stage, one.queries, sub_answer, one.queries * evidence + one.characters)
    sentences = min(MOST_SENTENCES, written), _count_likely(SUB_ANSWER_WORDS[1])
    yield _request_citations(stage, one.queries, written, evidence, sentences)
    joined = one.queries * _list_characters(written)
    if settings.synthesis == "resynthesise":
        task = SynthesisTask(one.topic.id, narrative, (), (), words)
        yield Ask(stage, 1, request_resynthesis(task), joined + one.characters)
        yield from _list_corrections(one, stage, _count_written(one.words, model), evidence)
    else:
        edited = one.words if settings.synthesis == "select_edit" else one.queries * written
        yield Ask(stage, 1, request_edit(narrative, (), words), joined, 4 * edited)


def _list_claim_asks(one: AskedTopic, model: ModelSettings, stage: str, evidence: int) -> Iterator[Ask]:
    narrative = one.topic.narrative
    task = QueryTask(one.topic.id, narrative, "", ())
    yield Ask(stage, one.queries, request_claims(task), one.queries * evidence + one.characters)
    written = one.queries * CHARACTERS_PER_TOKEN * _count_written(REPLY_WORDS, model)
    listed = MOST_CLAIMS * (one.characters + one.queries * SENTENCE_CHARACTERS)
    yield Ask(stage, 1, request_prose(ProseTask(one.topic.id, narrative, (), (), one.words)), written + listed)


def _list_corrections(one: AskedTopic, stage: str, written: int, evidence: int) -> Iterator[Ask]:
    """List the requests that shorten an answer of `written` tokens, and find its missing citations."""
    shorter = request_shorter((), make_word_range(one.words))
    shown = MOST_ROUNDS * _list_characters(written)
    yield Ask(stage, MOST_ROUNDS, shorter, shown, MOST_ROUNDS * 4 * written)
    sentences = min(MOST_SENTENCES, one.words), _count_likely(one.words)
    yield _request_citations(stage, 1, written, evidence, sentences)


def _request_citations(stage: str, number: int, written: int, evidence: int, sentences: tuple[int, int]) -> Ask:
    """The requests for citations of answers of `written` tokens. `sentences` has the most and the likely number."""
    request = request_citations((), ())
    most, likely = (
        Ask(stage, number, request, number * (evidence + _list_characters(written, each)), number * 64 * each)
        for each in sentences
    )
    return replace(most, likely=likely)


def _list_characters(written: int, sentences: int = MOST_SENTENCES) -> int:
    return CHARACTERS_PER_TOKEN * written + sentences * SENTENCE_CHARACTERS


def _count_likely(words: int) -> int:
    return min(MOST_SENTENCES, -(-words // SENTENCE_WORDS))


def _count_written(words: int, model: ModelSettings) -> int:
    """The most tokens, after a repair, of a reply that may have so many words."""
    return min(2 * (allow_tokens(words) + model.thinking), model.window)
