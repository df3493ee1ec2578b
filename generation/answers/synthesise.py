"""Answer-level fusion, step 2 (Keystone-Docs RAG, section 3.3.2): one answer a topic from its sub-answers.

`edit` is the method of the paper's runs: all sentences stay, in order, and their texts are rewritten to the limit. It
cannot meet that limit. Seven sub-answers of 350 to 400 words have some 126 sentences, and 400 words leave 3.2 words for
each. A sentence that states a fact takes at least six words, which is 756 in all. If the edited text is longer than the
limit, it is cut, and only the first queries are answered. If it is within the limit, its sentences are scraps.

`select_edit` chooses sentences before they are edited. `resynthesise` is the paper's ideal (equation 5).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from keystone.fusion.parasol import choose_covering
from keystone.generation.answers.answer import write_within
from keystone.generation.answers.sentences import (
    Draft,
    Passage,
    WordRange,
    allow_tokens,
    count_words,
    cut_to_words,
    group_by_first,
    list_sentences,
    make_sentences,
    read_rewritten,
)
from keystone.generation.context.texts import delimit
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import read_list
from keystone.generation.rules.sentences import SAME_COSINE, compute_utilities
from keystone.generation.rules.words import find_numbers, find_terms
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable

REPEAT_COSINE = 0.8
"""The least cosine of two sentences that say the same in words that they share."""
REPEAT_SHARE = 0.5
"""The least share of the shorter sentence's terms in common. In answers without repeats, hardly a pair reached it."""
LEAST_OWN_UTILITY = 1.0
"""The least utility (0 to 3, as grades) of a sub-answer's first sentence for its query."""


@dataclass(frozen=True, slots=True)
class SynthesisTask:
    """A topic's narrative, its queries, their sub-answers (None: missing), and the range of the answer's words."""

    topic_id: str
    narrative: str
    queries: tuple[str, ...]
    sub_answers: tuple[Answer | None, ...]
    words: WordRange


def join_sub_answers(task: SynthesisTask) -> tuple[Sentence, ...]:
    """Join the sentences of all sub-answers, in the order of the queries."""
    return tuple(sentence for answer in task.sub_answers if answer for sentence in answer.sentences)


def request_edit(narrative: str, sentences: Sequence[Sentence], words: WordRange) -> Request:
    """Make a request for shorter texts that say no more than these sentences. It shows ids, not citations."""
    low, high = min(words[0], count_words(sentences)), words[1]
    tokens, listed = allow_tokens(count_words(sentences)), list_sentences(sentences)
    return prompts.EDIT.request(tokens, narrative=narrative, sentences=listed, low=low, high=high)


async def edit(model: Model, task: SynthesisTask) -> Draft:
    """Rewrite all sentences to the word limit, with their citations, and cut after the last one that fits.

    If the model fails to edit them, the sentences stay as they are. Fallbacks record failures and cuts, with numbers.
    None without sub-answers.
    """
    sentences = join_sub_answers(task)
    return await _edit_and_cut(model, task, sentences, "edit", partial(read_rewritten, sentences=sentences))


def select_sentences(task: SynthesisTask, query_vectors: Vectors, sentence_vectors: Vectors) -> tuple[Sentence, ...]:
    """Select the sentences that cover the queries best within the word limit, in the order of their sub-answers.

    `query_vectors` is float32[queries, d], and `sentence_vectors` float32[joined sentences, d]. If several sentences
    say the same (see `group_repeats`), the first stands for all of them, with all their citations.

    A sentence serves the query of its own sub-answer. A model tells the main point first, so the utility of the n-th
    sentence is max(u, `LEAST_OWN_UTILITY`) / sqrt(n), with u from
    `keystone.generation.rules.sentences.compute_utilities`.
    """
    sentences = join_sub_answers(task)
    served = [(q, n) for q, answer in enumerate(task.sub_answers) if answer for n, _ in enumerate(answer.sentences, 1)]
    groups = group_repeats([sentence.text for sentence in sentences], sentence_vectors)
    near = compute_utilities(query_vectors, sentence_vectors[[group[0] for group in groups]])
    utility = np.zeros_like(near)
    for place, group in enumerate(groups):
        for query, number in (served[member] for member in group):
            own = max(near[query, place], LEAST_OWN_UTILITY) / math.sqrt(number)
            utility[query, place] = max(utility[query, place], own)
    merged = [
        replace(sentences[group[0]], citations=tuple(dict.fromkeys(c for n in group for c in sentences[n].citations)))
        for group in groups
    ]
    chosen = choose_covering(utility, [count_words([sentence]) for sentence in merged], task.words[1])
    return tuple(merged[place] for place in sorted(chosen))


def group_repeats(texts: Sequence[str], vectors: Vectors) -> list[list[int]]:
    """Group sentences that say the same as the group's first; returns their places, in order.

    `vectors` is float32[sentences, d]. Two sentences say the same if their cosine is at least `SAME_COSINE`. They also
    do if it is at least `REPEAT_COSINE`, their numbers are equal, and they share `REPEAT_SHARE` of the shorter one's
    terms.
    """
    terms, numbers = list(map(find_terms, texts)), list(map(find_numbers, texts))

    def repeats(place: int, head: int) -> bool:
        cosine = float(vectors[place] @ vectors[head])
        common, least = len(terms[place] & terms[head]), min(len(terms[place]), len(terms[head]))
        alike = numbers[place] == numbers[head] and common >= max(1.0, REPEAT_SHARE * least)
        return cosine >= SAME_COSINE or (cosine >= REPEAT_COSINE and alike)

    return group_by_first(len(texts), repeats)


async def select_edit(model: Model, task: SynthesisTask, query_vectors: Vectors, sentence_vectors: Vectors) -> Draft:
    """Edit the sentences that `select_sentences` chooses by these vectors.

    If the edit fails, or has more or fewer words than the task's range, the chosen sentences stay as they are. A
    `Fallback` records that. None if no sentence fits.
    """
    sentences = select_sentences(task, query_vectors, sentence_vectors) if len(sentence_vectors) else ()
    read = partial(_read_edit, sentences=sentences, words=task.words)
    return await _edit_and_cut(model, task, sentences, "select_edit", read)


async def _edit_and_cut(
    model: Model,
    task: SynthesisTask,
    sentences: tuple[Sentence, ...],
    step: str,
    read: Callable[[Reply], tuple[Sentence, ...]],
) -> Draft:
    if not sentences:
        return None, [Fallback(task.topic_id, step, "no sub-answer has a sentence that fits")]
    (found,) = await ask_all(model, [(request_edit(task.narrative, sentences, task.words), read)])
    fallbacks: list[Fallback] = []
    if isinstance(found, Failure):
        fallbacks.append(Fallback(task.topic_id, "edit", f"sentences left unedited: {found.reason}"))
        found = sentences
    answer, lost = cut_to_words(Answer(task.topic_id, found), task.words[1], step)
    return answer, fallbacks + lost


def _read_edit(reply: Reply, sentences: Sequence[Sentence], words: WordRange) -> tuple[Sentence, ...]:
    found = read_rewritten(reply, sentences)
    low, high = min(words[0], count_words(sentences)), words[1]
    if not low <= count_words(found) <= high:
        raise Unusable(f"it has {count_words(found)} words, wanted are {low} to {high}")
    return found


def request_resynthesis(task: SynthesisTask) -> Request:
    """Make a request for a new text from the sub-answers. The narrative stands before and after them."""
    blocks = [
        delimit(place, " ".join(sentence.text for sentence in answer.sentences), query)
        for place, (query, answer) in enumerate(zip(task.queries, task.sub_answers, strict=True))
        if answer
    ]
    low, high = task.words
    tokens, answers = allow_tokens(high), "\n\n".join(blocks)
    return prompts.RESYNTHESISE.request(tokens, narrative=task.narrative, sub_answers=answers, low=low, high=high)


def read_texts(reply: Reply) -> tuple[tuple[Sentence, ...], str]:
    """Read the sentences of a reply, all without citations. `Unusable` if there is none. Nothing is missing."""
    return make_sentences(((text, ()) for text in read_list(reply, "sentences")), reply), ""


async def resynthesise(model: Model, task: SynthesisTask, passages: Sequence[Passage]) -> Draft:
    """Write an answer anew from the sub-answers (equation 5), shorten it if it is too long, and assign citations.

    Of the `passages`, only those of documents that the sub-answers cite are assigned. None without sub-answers, or if
    the model gave no answer.
    """
    joined = join_sub_answers(task)
    asked = task.topic_id, request_resynthesis(task) if joined else None, read_texts
    cited = {citation for sentence in joined for citation in sentence.citations}
    own = [passage for passage in passages if passage.doc_id in cited]
    return await write_within(model, "resynthesise", asked, task.words, own)
