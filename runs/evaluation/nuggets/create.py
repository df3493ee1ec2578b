"""Creation of nuggets by a model from the documents that judgments call relevant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from keystone.generation.grading.nuggets import create_nuggets, rate_importance
from keystone.generation.llm.model import Model, run_together
from keystone.generation.rules.support import find_terms, make_weigher, rate_support
from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.indexing.types import Store, document_id
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.nuggets.files import Nugget, NuggetBank, Source, read_texts
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model
from keystone.runs.pipeline.table import find_ranking
from keystone.runs.trec.run_files import read_qrels, read_run
from keystone.runs.trec.topics import read_topics
from keystone.runs.trec.types import Qrels
from keystone.runs.wording import plural


@dataclass(frozen=True, slots=True)
class Judgments:
    """Judgments by the name of their file, and the grade from which a document or segment gives nuggets."""

    name: str
    qrels: Qrels
    relevant_from: int = 2


def create_banks(
    config: RunConfig, qrels_path: Path, relevant_from: int, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of the topics of a run; also cautions about parts that are missing.

    The passages of a topic are the documents or segments with at least the grade `relevant_from`, best first.
    `UserError` without a model, and if the index has no relevant document of a topic.
    """
    topics, store = read_topics(config.topics), open_store(open_index(config.index))
    judged = Judgments(str(qrels_path), read_qrels(qrels_path), relevant_from)
    return create_banks_for(topics, store, judged, config, run_with_model)


def create_banks_from_run(
    config: RunConfig, run: Path, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create nuggets as `create_banks` does, without judgments: from the first documents of each topic in a run.

    `run` is a run file, or a run directory, whose last ranking counts. `answer.documents` is the number of documents.
    The banks carry the names of the team and the run, and its description. `UserError` as from `create_banks`.
    """
    window = _require_window(config)
    topics, store = read_topics(config.topics), open_store(open_index(config.index))
    ranked, name = read_run(find_ranking(run)).list_hits(), str(run)
    ids = {one.id: [doc for doc, _ in ranked.get(one.id, ())][: config.answer.documents] for one in topics}
    texts = read_texts(store, [doc for own in ids.values() for doc in own])
    passages = {topic: {doc: texts[doc] for doc in own if doc in texts} for topic, own in ids.items()}
    missing = sorted({doc for own in ids.values() for doc in own} - texts.keys())
    lost = [f"{name}: {plural(len(missing), 'document')} not in the index, such as {missing[0]}"] if missing else []
    banks, cautions = _create_all(topics, (passages, lost), f"{name}: ranks no document", window, run_with_model)
    run_id, team_id, description = config.run_id, config.team_id, config.run_desc or ""
    return [replace(one, run_id=run_id, team_id=team_id, description=description) for one in banks], cautions


def create_banks_for(
    topics: Sequence[Topic], store: Store, judged: Judgments, config: RunConfig, run_with_model: RunWithModel
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of these topics, as `create_banks` does. The configuration names the model."""
    window = _require_window(config)
    nothing = f"{judged.name}: names no document of grade {judged.relevant_from} or more"
    return _create_all(topics, read_passages(store, topics, judged), nothing, window, run_with_model)


def _require_window(config: RunConfig) -> int:
    """Return the window of the model in tokens. `UserError` without a model, before any document is read."""
    return config.require_model("nuggets: needs a language model; expected one under the key model").window


def _create_all(
    topics: Sequence[Topic],
    read: tuple[Mapping[str, dict[str, str]], list[str]],
    nothing: str,
    window: int,
    run_with_model: RunWithModel,
) -> tuple[list[NuggetBank], list[str]]:
    """Create the nuggets of topics from their passages by id, read with cautions. `nothing` says that none is there."""
    passages, cautions = read
    asked = [topic for topic in topics if passages.get(topic.id)]
    if not asked:
        raise UserError(f"{nothing} that the index has, for any of {plural(len(topics), 'topic')}")
    found = ask_model(
        run_with_model,
        lambda model: run_together(partial(_create_bank, model, one, passages[one.id], window) for one in asked),
    )
    if left := len(topics) - len(asked):
        cautions.append(f"{plural(left, 'topic')} without a relevant document, which get no nuggets")
    return [bank for bank, _ in found], [*cautions, *(caution for _, own in found for caution in own)]


def read_passages(
    store: Store, topics: Sequence[Topic], judged: Judgments
) -> tuple[Mapping[str, dict[str, str]], list[str]]:
    """Read the texts of the relevant documents of each topic by id, best first, and caution about missing ones."""
    qrels = judged.qrels.select([topic.id for topic in topics])
    relevant = np.flatnonzero(qrels.grades >= judged.relevant_from)
    ids = qrels.docs[relevant].decode_ids()
    texts = read_texts(store, ids)
    found: dict[str, dict[str, str]] = {}
    for place, name in zip(np.searchsorted(qrels.offsets, relevant, side="right") - 1, ids, strict=True):
        if name in texts:
            found.setdefault(qrels.query_ids[place], {})[name] = texts[name]
    missing = sorted(set(ids) - set(texts))
    if not missing:
        return found, []
    return found, [f"{judged.name}: {plural(len(missing), 'relevant document')} not in the index, such as {missing[0]}"]


async def _create_bank(
    model: Model, topic: Topic, passages: Mapping[str, str], window: int
) -> tuple[NuggetBank, list[str]]:
    texts, failures = await create_nuggets(model, topic.narrative, list(passages.values()), window)
    labels = await rate_importance(model, topic.narrative, texts)
    sources = find_sources(texts, passages)
    nuggets = tuple(Nugget(text, label, sources=own) for text, label, own in zip(texts, labels, sources, strict=True))
    cautions = [f"{topic.id}: the model gave no nuggets of some passages: {one.reason}" for one in failures]
    if failed := labels.count("failed"):
        cautions.append(f"{topic.id}: the model gave no importance of {plural(failed, 'nugget')}")
    return NuggetBank(topic.id, nuggets, topic.narrative), cautions


def find_sources(texts: Sequence[str], passages: Mapping[str, str]) -> list[tuple[Source, ...]]:
    """Find for each nugget the documents that say it, by the words of these passages: see `rate_support`.

    `passages` has texts by the ids of documents or segments. If no passage supports a nugget in full, its documents are
    those that support it in part.
    """
    weigh = make_weigher([find_terms(text) for text in passages.values()])
    found = []
    for nugget in texts:
        levels = {name: rate_support(nugget, text, weigh) for name, text in passages.items()}
        best = "full" if "full" in levels.values() else "partial"
        ids = dict.fromkeys(document_id(name) for name, level in levels.items() if level == best)
        found.append(tuple(map(Source, ids)))
    return found
