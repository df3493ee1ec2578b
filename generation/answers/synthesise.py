"""Answer-level fusion, step 2 (Keystone-Docs RAG, section 3.3.2): one answer a topic from its sub-answers.

`edit` is what the paper ran: all sentences stay, in order, and their texts are rewritten to the limit. It cannot meet
that limit: seven sub-answers of 350 to 400 words are some 126 sentences, and 400 words leave 3.2 for each, where
one that states a fact takes at least six (756 in all). What comes back is longer, and is cut, so that only the first
queries are answered; or it is within the limit, in scraps. `select_edit` chooses sentences before they are edited.
`resynthesise` is the paper's ideal (equation 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fusion.coverage import choose
from generation.answers.cite import assign_citations
from generation.answers.request_answers import request_answers
from generation.answers.sentences import (
    Passage,
    WordRange,
    allow_tokens,
    count_words,
    cut_to_words,
    list_sentences,
    make_messages,
    make_sentences,
    read_rewritten,
)
from generation.answers.shorten import shorten_answers
from generation.ask import ask_all
from generation.context.delimit import delimit
from generation.llm.model import Model
from generation.prompts import edit as edit_prompt
from generation.prompts import resynthesise as resynthesise_prompt
from generation.prompts import shorten as shorten_prompt
from generation.rules.sentences import compute_utilities, group_same_sentences
from generation.structured import read_list
from generation.types import Answer, Failure, Fallback, Reply, Request, Sentence
from indexing.errors import Unusable
from indexing.vectors.types import Vectors

LEAST_OWN_UTILITY = 1.0
"""What a sentence gives at least to the query that its sub-answer was asked for, as a grade of 0 to 3."""


@dataclass(frozen=True, slots=True)
class SynthesisTask:
    """A topic's narrative, its queries, their sub-answers (None: there is none), and the words that are wanted."""

    topic_id: str
    narrative: str
    queries: tuple[str, ...]
    sub_answers: tuple[Answer | None, ...]
    words: WordRange


def join_sub_answers(task: SynthesisTask) -> tuple[Sentence, ...]:
    """The sentences of all sub-answers, one sub-answer after the other."""
    return tuple(sentence for answer in task.sub_answers if answer for sentence in answer.sentences)


def request_edit(narrative: str, sentences: Sequence[Sentence], words: WordRange) -> Request:
    """A request for other texts that say no more than these sentences; ids are shown, citations are not."""
    low, high = min(words[0], count_words(sentences)), words[1]
    user = edit_prompt.USER.format(narrative=narrative, sentences=list_sentences(sentences), low=low, high=high)
    return Request(
        "edit", make_messages(edit_prompt.SYSTEM, user), allow_tokens(count_words(sentences)), shorten_prompt.SCHEMA
    )


async def edit(model: Model, tasks: Sequence[SynthesisTask]) -> tuple[list[Answer | None], list[Fallback]]:
    """All sentences with their citations, rewritten to the limit, and cut after the last one that fits.

    That the words wanted were not met is recorded with the numbers. Sentences that the model failed to edit stay as
    they are. None for a topic without sub-answers.
    """
    drafts = [Answer(task.topic_id, join_sub_answers(task)) for task in tasks]
    edited, fallbacks = await _edit_drafts(model, tasks, drafts, within=False)
    return _cut_answers(edited, tasks, "edit", fallbacks)


def select_sentences(task: SynthesisTask, query_vectors: Vectors, sentence_vectors: Vectors) -> tuple[Sentence, ...]:
    """The sentences that cover the queries best under the word limit, in the order of the queries that they serve.

    `query_vectors` float32[queries, d] and `sentence_vectors` float32[joined sentences, d]. Sentences that say the
    same are one, the first of them, with the citations of all. A sentence is worth its cosine to a query, as in the
    extractive answer, and something in any case to the query that it was written for.
    """
    sentences = join_sub_answers(task)
    asked_for = [q for q, answer in enumerate(task.sub_answers) if answer for _ in answer.sentences]
    groups = group_same_sentences(sentence_vectors)
    utility = compute_utilities(query_vectors, sentence_vectors[[group[0] for group in groups]])
    for place, group in enumerate(groups):
        own = [asked_for[number] for number in group]
        utility[own, place] = np.maximum(utility[own, place], LEAST_OWN_UTILITY)
    merged = [
        replace(sentences[group[0]], citations=tuple(dict.fromkeys(c for n in group for c in sentences[n].citations)))
        for group in groups
    ]
    chosen = choose(utility, [count_words([sentence]) for sentence in merged], task.words[1])
    return tuple(merged[place] for place in sorted(chosen, key=lambda place: (int(utility[:, place].argmax()), place)))


async def select_edit(
    model: Model, tasks: Sequence[SynthesisTask], query_vectors: Sequence[Vectors], sentence_vectors: Sequence[Vectors]
) -> tuple[list[Answer | None], list[Fallback]]:
    """The sentences that `select_sentences` chooses, edited; vectors are handed in for each task.

    An edit that fails, or has more or fewer words than wanted, leaves the sentences as they were chosen, which is
    recorded. None for a topic where no sentence fits.
    """
    drafts = [
        Answer(task.topic_id, select_sentences(task, queries, sentences) if len(sentences) else ())
        for task, queries, sentences in zip(tasks, query_vectors, sentence_vectors, strict=True)
    ]
    edited, fallbacks = await _edit_drafts(model, tasks, drafts, within=True)
    return _cut_answers(edited, tasks, "select_edit", fallbacks)


async def _edit_drafts(
    model: Model, tasks: Sequence[SynthesisTask], drafts: Sequence[Answer], within: bool
) -> tuple[list[Answer], list[Fallback]]:
    now, fallbacks = list(drafts), list[Fallback]()
    able = [place for place, draft in enumerate(drafts) if draft.sentences]
    asked = [
        (
            request_edit(tasks[place].narrative, drafts[place].sentences, tasks[place].words),
            partial(_read_edit, sentences=drafts[place].sentences, words=tasks[place].words)
            if within
            else partial(read_rewritten, sentences=drafts[place].sentences),
        )
        for place in able
    ]
    for place, found in zip(able, await ask_all(model, asked), strict=True):
        if isinstance(found, Failure):
            fallbacks.append(Fallback(tasks[place].topic_id, "edit", f"sentences left unedited: {found.reason}"))
        else:
            now[place] = replace(now[place], sentences=found)
    return now, fallbacks


def _read_edit(reply: Reply, sentences: Sequence[Sentence], words: WordRange) -> tuple[Sentence, ...]:
    found = read_rewritten(reply, sentences)
    low, high = min(words[0], count_words(sentences)), words[1]
    if not low <= count_words(found) <= high:
        raise Unusable(f"it has {count_words(found)} words, wanted are {low} to {high}")
    return found


def _cut_answers(
    answers: Sequence[Answer], tasks: Sequence[SynthesisTask], step: str, fallbacks: list[Fallback]
) -> tuple[list[Answer | None], list[Fallback]]:
    now: list[Answer | None] = []
    for answer, task in zip(answers, tasks, strict=True):
        kept, lost = cut_to_words(answer, task.words[1], step)
        if not answer.sentences:
            kept, lost = None, [Fallback(task.topic_id, step, "no sub-answer has a sentence that fits")]
        now.append(kept)
        fallbacks = fallbacks + lost
    return now, fallbacks


def request_resynthesis(task: SynthesisTask) -> Request:
    """A request for a new text from the sub-answers; the narrative stands before and after them."""
    blocks = [
        delimit(place, " ".join(sentence.text for sentence in answer.sentences), query)
        for place, (query, answer) in enumerate(zip(task.queries, task.sub_answers, strict=True))
        if answer
    ]
    low, high = task.words
    user = resynthesise_prompt.USER.format(
        narrative=task.narrative, sub_answers="\n\n".join(blocks), low=low, high=high
    )
    system = resynthesise_prompt.SYSTEM
    return Request("resynthesise", make_messages(system, user), allow_tokens(high), resynthesise_prompt.SCHEMA)


def read_texts(reply: Reply) -> tuple[Sentence, ...]:
    """The sentences of a reply, all without citation; at least one."""
    return make_sentences((text, ()) for text in read_list(reply, "sentences"))


async def resynthesise(
    model: Model, tasks: Sequence[SynthesisTask], passages: Sequence[Sequence[Passage]]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Answers written anew from the sub-answers (equation 5), shortened if too long, then with references assigned.

    `passages` has for each task its documents, of which those that the sub-answers cite may be assigned. None where
    there are no sub-answers or the model gave nothing.
    """
    asked = [
        (task.topic_id, request_resynthesis(task) if join_sub_answers(task) else None, read_texts) for task in tasks
    ]
    now, fallbacks = await request_answers(model, "resynthesise", asked)
    now, too_long = await shorten_answers(model, now, [task.words for task in tasks])
    sources = [{c for sentence in join_sub_answers(task) for c in sentence.citations} for task in tasks]
    own = [[p for p in given if p.doc_id in cited] for given, cited in zip(passages, sources, strict=True)]
    now, uncited = await assign_citations(model, now, own)
    return now, fallbacks + too_long + uncited
