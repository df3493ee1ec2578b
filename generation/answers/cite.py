"""Reference assignment (Keystone-Docs RAG, section 3.2.2), and a check of citations by similarity."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from keystone.fusion.closest import find_closest_segments
from keystone.generation.answers.sentences import (
    Passage,
    list_sentences,
    make_messages,
    read_citations,
    read_place,
    show_passages,
)
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import cite as prompt
from keystone.generation.reply_types import read_parts
from keystone.generation.rules.support import tells_gap
from keystone.generation.types import Answer, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.corpora.languages import differ_in_language
from keystone.indexing.vectors.types import Vectors

LEAST_CITED_COSINE = 0.1
"""The least cosine of a sentence and the closest segment of a document that it cites.

Measured with the local embedding: with their own documents, sentences had at least 0.12 (0.5th percentile; median
0.60). With documents on quite other subjects, they had up to 0.1.
"""


def request_citations(sentences: Sequence[Sentence], passages: Sequence[Passage]) -> Request:
    """Make a request for the passages that support each sentence."""
    user = prompt.USER.format(documents=show_passages(passages), sentences=list_sentences(sentences))
    return Request("cite", make_messages(prompt.SYSTEM, user), 1024 + 64 * len(sentences), prompt.SCHEMA)


def read_supports(reply: Reply, sentences: Sequence[Sentence], passages: Sequence[Passage]) -> list[tuple[str, ...]]:
    """Read the ids of the documents that support each sentence. Numbers without a sentence or passage are dropped."""
    found = defaultdict[int, list[str]](list)
    for item in read_parts(reply, "sentences", prompt.Citations):
        place = read_place(item.id, len(sentences))
        if place is not None:
            found[place] += read_citations(item.citations, passages)
    return [tuple(dict.fromkeys(found[place])) for place in range(len(sentences))]


async def assign_citations(
    model: Model, answers: Sequence[Answer | None], passages: Sequence[Sequence[Passage]]
) -> tuple[list[Answer | None], list[Fallback]]:
    """Assign citations to the sentences that have none, unless they tell a gap. All others stay unchanged.

    If the model names no support for a sentence, the sentence stays without citation, and a `Fallback` records that.
    """
    now, fallbacks = list(answers), list[Fallback]()
    bare = [
        (place, answer, uncited)
        for place, answer in enumerate(answers)
        if answer and (uncited := [one for one in answer.sentences if _needs_citation(one)])
    ]
    requests = [
        (
            request_citations(uncited_ones, passages[place]),
            partial(read_supports, sentences=uncited_ones, passages=passages[place]),
        )
        for place, _, uncited_ones in bare
    ]
    for (place, answer, uncited_ones), found in zip(bare, await ask_all(model, requests), strict=True):
        if isinstance(found, Failure):
            fallbacks.append(Fallback(answer.topic_id, "cite", found.reason))
            found = [()] * len(uncited_ones)
        if left := found.count(()):
            reason = f"{left} of {len(answer.sentences)} sentences are left without citation"
            fallbacks.append(Fallback(answer.topic_id, "cite", reason))
        given = iter(found)
        now[place] = replace(
            answer,
            sentences=tuple(replace(s, citations=next(given)) if _needs_citation(s) else s for s in answer.sentences),
        )
    return now, fallbacks


def _needs_citation(sentence: Sentence) -> bool:
    return not sentence.citations and not tells_gap(sentence.text)


def drop_far_citations(
    sentences: Sequence[Sentence],
    vectors: Vectors,
    segments: Mapping[str, Vectors],
    near: float = LEAST_CITED_COSINE,
    texts: Mapping[str, str] = MappingProxyType({}),
    languages: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Sentence], list[tuple[int, str, float]]]:
    """Drop citations of documents whose subject is another than the sentence's.

    `vectors` is float32[sentences, d], and `segments` has float32[s, d] by document id. A citation is dropped if the
    document's closest segment has a cosine below `near`. A document without segments is not checked. Neither is
    one whose text, in `texts`, is in another language than the sentence: the threshold was measured within a language.
    `languages` has the names of those that the index knows.

    Returns the sentences, and the dropped citations as (place of the sentence, document id, cosine). The check cannot
    find out whether a document supports a sentence.
    """
    checked, dropped = list[Sentence](), list[tuple[int, str, float]]()
    for place, sentence in enumerate(sentences):
        far = []
        for doc_id in sentence.citations:
            own = segments.get(doc_id)
            if own is not None and len(own):
                cosine = float(find_closest_segments(vectors[place : place + 1], own)[1][0])
                text, language = texts.get(doc_id, ""), languages.get(doc_id, "")
                if cosine < near and not differ_in_language(sentence.text, text, language):
                    far.append((place, doc_id, cosine))
        dropped_ids = {doc_id for _, doc_id, _ in far}
        checked.append(replace(sentence, citations=tuple(c for c in sentence.citations if c not in dropped_ids)))
        dropped += far
    return checked, dropped
