"""Answers to squality questions by a language model, for each reader at equal tokens of evidence.

`python -m benchmarks.reader_answers READER OUT` writes the requests of the model as batch files below `OUT/READER`. It
ends with exit code 3 as long as replies are missing. Once it has all replies, it writes `OUT/READER.jsonl`: for each
question the answer, its evidence and the tokens. `python -m benchmarks.reader_answers OUT` prints the table: ROUGE-L of
answers and contexts against the best reference, with 95 % bootstrap intervals of the difference from `plain`.
"""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.readers import AskedStory, open_sources, read_questions
from keystone.generation.context.texts import count_tokens
from keystone.generation.context.topic import Sources, read_context
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.client import open_model
from keystone.generation.llm.model import Model
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import READERS
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.retrieval.types import Query, Topic
from keystone.runs.evaluation.answers.families import measure_rouge_l

MODEL = "reader-1"
WINDOW_TOKENS = 8192
EVIDENCE_TOKENS = 1000
WORDS = 250
"""The most words of an answer; references have about 225."""
QUESTIONS_PER_STORY = 5
STORIES = 20
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rdr2": {"documents": 1},
    "discorag": {"entries": 2, "entries_per_document": 2, "steps": 4},
    "disco_rag": {"chunks": 4},
    "graphreader": {"nodes": 2, "functions": 4},
}
"""The settings of each reader. They are small, because somebody reads each prompt to write its reply."""


def choose_questions() -> list[AskedStory]:
    """Choose one question of each of the first stories: the second one, since the first asks for the whole plot."""
    return read_questions()[1 : 1 + QUESTIONS_PER_STORY * STORIES : QUESTIONS_PER_STORY]


async def answer_question(sources: Sources, name: str, model: Model, asked: AskedStory) -> dict[str, Any]:
    """Answer a question from its story."""
    (row,) = sources.store.rows([asked.doc_id]).tolist()
    query = Query(asked.id, asked.id, asked.question, asked.question, asked.question)
    task = Task(Topic(asked.id, asked.question), read_context(sources, [row], [query]), WORDS, list)
    reader = READERS[name].settings.model_validate({"name": name, "evidence_tokens": EVIDENCE_TOKENS, **SETTINGS[name]})
    tools = Tools(sources, model, AnswerSettings("retrieval", 20, WINDOW_TOKENS), reader)  # type: ignore[arg-type]
    opened = open_reader(tools)
    evidence = await opened.gather(task, ((row,),))
    answer = await opened.answer(task, evidence)
    return {
        "id": asked.id,
        "answer": " ".join(sentence.text for sentence in answer.sentences),
        "context": "\n".join(item.text for item in evidence.items),
        "stop": evidence.stop,
        "calls": sum(bool(step.reply) for step in evidence.steps),
        "reading_tokens": sum(step.prompt_tokens + step.reply_tokens for step in evidence.steps),
        "fallbacks": [fallback.reason for fallback in answer.fallbacks],
    }


async def answer_all(name: str, out: Path) -> list[dict[str, Any]]:
    """Answer all chosen questions by one reader. `Waits` if replies are missing."""
    sources = open_sources()
    settings = ModelSettings(backend="batch", name=MODEL, window=WINDOW_TOKENS)
    async with open_model(settings, out / name) as model:
        return await run_together([partial(answer_question, sources, name, model, one) for one in choose_questions()])


def show_table(out: Path) -> None:
    """Print a line for each reader whose answers are there."""
    questions = choose_questions()
    scores: dict[str, Any] = {}
    for name in SETTINGS:
        if (out / f"{name}.jsonl").exists():
            records = {record["id"]: record for _, record in read_json_lines(out / f"{name}.jsonl")}
            scores[name] = _measure([records[one.id] for one in questions], questions)
    for name, (answers, contexts, tokens, calls) in scores.items():
        low, high = _bootstrap(np.array(answers) - np.array(scores["plain"][0]))
        print(
            f"{name:12} answer F1 {np.mean(answers):.3f} (difference {low:+.3f} to {high:+.3f})"
            f"  context F1 {np.mean(contexts):.3f}  {calls:.1f} calls and {tokens:,.0f} tokens of reading a question"
        )


def _measure(
    records: Sequence[dict[str, Any]], questions: Sequence[AskedStory]
) -> tuple[list[float], list[float], float, float]:
    pairs = list(zip(records, questions, strict=True))
    return (
        [measure_rouge_l(record["answer"], asked.references).f1 for record, asked in pairs],
        [measure_rouge_l(record["context"], asked.references).f1 for record, asked in pairs],
        float(np.mean([record["reading_tokens"] + count_tokens(record["context"]) for record in records])),
        float(np.mean([record["calls"] + 1 for record in records])),
    )


def _bootstrap(differences: Any) -> tuple[float, float]:
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    return float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))


def main(arguments: list[str]) -> None:
    """Answer by a reader, or print the table."""
    *names, folder = arguments
    out = Path(folder)
    for name in names:
        try:
            records = asyncio.run(answer_all(name, out))
        except UserError as error:
            print(error, file=sys.stderr)
            sys.exit(3 if error.waits else 1)
        (out / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    show_table(out)


if __name__ == "__main__":
    main(sys.argv[1:])
