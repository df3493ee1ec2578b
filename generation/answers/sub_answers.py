"""Answer-level fusion, step 1 (Keystone-Docs RAG, section 3.3.1): a cited sub-answer for each query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from generation.answers.cite import assign_citations
from generation.answers.request_answers import request_answers
from generation.answers.sentences import (
    Passage,
    WordRange,
    allow_tokens,
    make_answer_reader,
    make_messages,
    show_passages,
)
from generation.llm.model import Model
from generation.prompts import answer as answer_prompt
from generation.prompts import sub_answer as prompt
from generation.types import Answer, Fallback, Request

PromptWith = Literal["query", "narrative"]
"""The question of a sub-answer: its query (equation 3), or the whole narrative (equation 4, which the paper ran)."""

SUB_ANSWER_WORDS: WordRange = (350, 400)


@dataclass(frozen=True, slots=True)
class SubTask:
    """One query of a topic, with the best documents of the query's own ranking, best first (10 `base`, 5 `fewdoc`)."""

    topic_id: str
    narrative: str
    query: str
    passages: tuple[Passage, ...]


def request_sub_answer(task: SubTask, prompt_with: PromptWith) -> Request:
    """A request for a sub-answer; the passages are numbered from 0."""
    asked = task.query if prompt_with == "query" else task.narrative
    low, high = SUB_ANSWER_WORDS
    user = prompt.USER.format(asked=asked, documents=show_passages(task.passages), low=low, high=high)
    return Request("sub_answer", make_messages(prompt.SYSTEM, user), allow_tokens(high), answer_prompt.SCHEMA)


async def write_sub_answers(
    model: Model, tasks: Sequence[SubTask], prompt_with: PromptWith = "query"
) -> tuple[list[Answer | None], list[Fallback]]:
    """The sub-answers to the tasks, in their order, all asked for together; None if the model gave no answer.

    Every sentence cites at least one document. If reference assignment finds none for a sentence, the sentence is left
    out, and a fallback says so. A sub-answer has no word limit of its own; the joined answer has.
    """
    asked = [
        (
            task.topic_id,
            request_sub_answer(task, prompt_with) if task.passages else None,
            make_answer_reader(task.passages),
        )
        for task in tasks
    ]
    answers, fallbacks = await request_answers(model, "sub_answer", asked)
    answers, uncited = await assign_citations(model, answers, [task.passages for task in tasks])
    return [_keep_cited(answer) for answer in answers], fallbacks + uncited


def _keep_cited(answer: Answer | None) -> Answer | None:
    kept = tuple(sentence for sentence in answer.sentences if sentence.citations) if answer else ()
    return replace(answer, sentences=kept) if answer and kept else None
