"""Answer-level fusion, step 1 (Keystone-Docs RAG, section 3.3.1): a cited sub-answer for each query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from keystone.generation.answers.answer import request_answers
from keystone.generation.answers.cite import assign_citations
from keystone.generation.answers.sentences import (
    Passage,
    WordRange,
    allow_tokens,
    make_answer_reader,
    make_messages,
    show_notes,
    show_passages,
)
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import answer as answer_prompt
from keystone.generation.prompts.answers import sub_answer as prompt
from keystone.generation.types import Answer, Fallback, Request

PromptWith = Literal["query", "narrative"]
"""The question of a sub-answer: its query (equation 3), or the whole narrative (equation 4; the paper's runs)."""

SUB_ANSWER_WORDS: WordRange = (350, 400)
"""The fewest and the most words that the prompt asks for."""


@dataclass(frozen=True, slots=True)
class SubTask:
    """One query of a topic, with the first documents of the query's own ranking, best first.

    The paper's run `base` takes 10 documents, its run `fewdoc` 5.
    """

    topic_id: str
    narrative: str
    query: str
    passages: tuple[Passage, ...]
    notes: str = ""
    """The notes that the reader of the documents took. They guide the answer, and are no source."""


def request_sub_answer(task: SubTask, prompt_with: PromptWith) -> Request:
    """Make a request for a sub-answer. The passages are numbered from 0."""
    question = task.query if prompt_with == "query" else task.narrative
    low, high = SUB_ANSWER_WORDS
    user = prompt.USER.format(
        asked=question, documents=show_passages(task.passages) + show_notes(task.notes), low=low, high=high
    )
    return Request("sub_answer", make_messages(prompt.SYSTEM, user), allow_tokens(high), answer_prompt.SCHEMA)


async def write_sub_answers(
    model: Model, tasks: Sequence[SubTask], prompt_with: PromptWith = "query"
) -> tuple[list[Answer | None], list[Fallback]]:
    """Write the sub-answers to the tasks, in their order; None if the model gave no answer.

    Every sentence cites at least one document. If reference assignment finds none for a sentence, the sentence is left
    out, and a `Fallback` records that. The word limit holds for the final answer, not for a sub-answer.
    """
    requests = [
        (
            task.topic_id,
            request_sub_answer(task, prompt_with) if task.passages else None,
            make_answer_reader(task.passages),
        )
        for task in tasks
    ]
    answers, fallbacks = await request_answers(model, "sub_answer", requests)
    answers, uncited = await assign_citations(model, answers, [task.passages for task in tasks])
    return [_keep_cited(answer) for answer in answers], fallbacks + uncited


def _keep_cited(answer: Answer | None) -> Answer | None:
    kept = tuple(sentence for sentence in answer.sentences if sentence.citations) if answer else ()
    return replace(answer, sentences=kept) if answer and kept else None
