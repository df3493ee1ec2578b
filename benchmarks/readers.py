"""The readers on squality without a model: the context of each beside that of `plain`, at equal tokens.

Each question is about one story of about 5,000 words, and has four references of about 225 words. A reader gathers
evidence of at most `BUDGET_TOKENS` from that story. ROUGE-L compares the evidence with the best reference (DiscoRAG's
measure of the context). The p-value belongs to the paired t-test over stories, since the questions of one story are not
independent.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from scipy.stats import ttest_rel

from benchmarks.table import Row
from keystone.generation.context.topic import Sources, read_context
from keystone.generation.readers.reader import AnswerSettings, Task, Tools, open_reader
from keystone.generation.readers.settings import READERS, AnswerMethod
from keystone.generation.types import EvidenceSet
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.index import open_index
from keystone.indexing.io.reading import read_json_lines
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic
from keystone.runs.evaluation.answers.families import Overlap, measure_rouge_l

SQUALITY = Path(__file__).parents[2] / "shared" / "data" / "squality"
INDEX = Path(__file__).parent / "out" / "squality"
BUDGET_TOKENS = 1000
"""The tokens of evidence that each reader may gather for a question."""
MEASURED = ("plain", "rdr2", "discorag", "disco_rag", "graphreader", "fused", "escalate")
THREADS = 2


@dataclass(frozen=True, slots=True)
class AskedStory:
    """A question about one story, with its references."""

    id: str
    doc_id: str
    question: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contexts:
    """The overlaps of a reader's contexts with the references, by question, and the seconds for a question."""

    overlaps: list[Overlap]
    tokens: float
    seconds: float


def read_questions(limit: int | None = None) -> list[AskedStory]:
    """Read the questions of squality, or the first ones."""
    records = [record for _, record in read_json_lines(SQUALITY / "questions.jsonl")][:limit]
    return [
        AskedStory(record["id"], record["docids"][0], record["question"], tuple(record["references"]))
        for record in records
    ]


def open_sources() -> Sources:
    """Open the index of the stories, which the first call builds."""
    if not INDEX.exists():
        build_index(SQUALITY / "documents.jsonl", INDEX, BuildSettings(threads=THREADS))
    index = open_index(INDEX)
    return Sources(index, open_store(index), THREADS)


def gather(sources: Sources, name: str, asked: AskedStory) -> EvidenceSet:
    """Gather a reader's evidence for a question from its story, without a model."""
    (row,) = sources.store.rows([asked.doc_id]).tolist()
    query = Query(asked.id, asked.id, asked.question, asked.question, asked.question)
    task = Task(Topic(asked.id, asked.question), read_context(sources, [row], [query]), 400, list)
    reader = READERS[name].settings.model_validate({"name": name, "evidence_tokens": BUDGET_TOKENS})
    method: AnswerMethod = "rules" if name == "escalate" else "retrieval"  # its draft needs a writer
    tools = Tools(sources, None, AnswerSettings(method, window=2 * BUDGET_TOKENS), reader)  # type: ignore[arg-type]
    return asyncio.run(open_reader(tools).gather(task, ((row,),)))


def measure(sources: Sources, name: str, questions: Sequence[AskedStory]) -> Contexts:
    """Measure the contexts of a reader over all questions."""
    overlaps, words, start = list[Overlap](), 0, time.perf_counter()
    for asked in questions:
        text = "\n".join(item.text for item in gather(sources, name, asked).items)
        words += len(text)
        overlaps.append(measure_rouge_l(text, asked.references))
    return Contexts(overlaps, words / 4 / len(questions), (time.perf_counter() - start) / len(questions))


def average_by_story(questions: Sequence[AskedStory], overlaps: Sequence[Overlap]) -> list[float]:
    """Average F1 over the questions of each story."""
    by_story = defaultdict[str, list[float]](list)
    for asked, overlap in zip(questions, overlaps, strict=True):
        by_story[asked.doc_id].append(overlap.f1)
    return [float(np.mean(own)) for own in by_story.values()]


def rows() -> list[Row]:
    """A row for each reader; there are none without the collection."""
    if not SQUALITY.exists():
        return []
    sources, questions = open_sources(), read_questions()
    measure(sources, "plain", questions[:20])
    found = {name: measure(sources, name, questions) for name in MEASURED}
    (INDEX.parent / "readers.json").write_bytes(
        orjson.dumps({name: [list(one) for one in own.overlaps] for name, own in found.items()})
    )
    plain = average_by_story(questions, found["plain"].overlaps)
    table = []
    for name, own in found.items():
        by_story = average_by_story(questions, own.overlaps)
        precision, recall, f1 = np.array(own.overlaps).mean(axis=0).tolist()
        p = float(ttest_rel(by_story, plain).pvalue) if name != "plain" else 1.0
        bound = f"P {precision:.3f} R {recall:.3f}, {own.tokens:.0f} tokens, {own.seconds:.2f} s a question, p {p:.3f}"
        base = float(np.array(found["plain"].overlaps)[:, 2].mean())
        table.append(Row(f"squality context, {name} against plain", f1, base, "ROUGE-L F1", f1 / base, None, bound))
    return table
