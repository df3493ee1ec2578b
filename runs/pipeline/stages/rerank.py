"""The ranking of each narrative after the reranker, which follows the fusion or the grades."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from keystone.fusion.blocks import list_windows, make_blocks
from keystone.generation.context.texts import CHARACTERS_PER_TOKEN, share_window
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.rerank.endpoint import BATCH_PASSAGES
from keystone.generation.rerank.open import request_ranking
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Fallback, Usage
from keystone.retrieval.types import Rankings, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.foresight import Ask, Asked, AskedTopic, Foreseen
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job
from keystone.runs.pipeline.model_runner import describe_model
from keystone.runs.pipeline.ranking.search import rank_by_place
from keystone.runs.pipeline.searches import rerank_rows
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.values import Artifact, leave_out_empty, make_records_artifact, rank_topics_in

ASKS = ("rerank.method",)


@dataclass(frozen=True, slots=True)
class RerankRecord:
    """How many documents of a topic were ranked again, and each step in which the model gave no usable reply."""

    topic_id: str
    documents: int
    fallbacks: tuple[Fallback, ...] = ()
    warning: str = ""
    """What makes the scores of the reranker doubtful; empty for nothing, and then left out of the file."""
    device: str = ""
    """Where vLLM's engine made the scores; empty for another backend, and then left out of the file."""


RERANKED_FILE = rank_topics_in(file_names.RERANKED)
KEYSTONE_FILE = rank_topics_in(file_names.KEYSTONE)
"""The ranking that grades, or a reranker after them, make of each narrative: the keystone documents first."""
RERANKS_FILE = make_records_artifact(
    file_names.RERANKS, RerankRecord, lambda one: leave_out_empty(asdict(one), "warning", "device")
)


def rerank_narratives(work: Work, into: Artifact[Rankings]) -> None:
    """Rank the first documents of each narrative again. The configuration must name a reranker."""
    job, narrative = work.job, work.values.get(work.before.narrative_ranking)

    async def rerank_all(model: Model | None) -> list[tuple[list[int], RerankRecord]]:
        with job.progress("Reranking", len(job.topics)) as tick:
            async with work.means.open_rerank(job, model) as rerank:
                assert rerank is not None

                async def rerank_one(topic: Topic, rows: list[int]) -> tuple[list[int], RerankRecord]:
                    ranked, found = await rerank_rows(job, rerank, topic, rows)
                    tick(1)
                    return ranked, RerankRecord(
                        topic.id, len(found.order), found.fallbacks, found.warning, found.device
                    )

                topics = [partial(rerank_one, topic, narrative.of(i).tolist()) for i, topic in enumerate(job.topics)]
                return await run_together(topics, TOPICS_AT_ONCE)

    found = work.run_with_model(rerank_all)
    work.values.put(into, rank_by_place(narrative.query_ids, [rows for rows, _ in found]))
    work.values.put(RERANKS_FILE, [record for _, record in found])


def _make_key(job: Job, _: Before) -> Any:
    """The settings of the reranker, without the place and the key of its server, and the digests of its checkpoints."""
    rerank = job.config.rerank
    return [job.identity, job.plain_topics, rerank.describe(), describe_model(job.config, ASKS), *list_digests(rerank)]


def list_digests(settings: RerankSettings) -> list[str]:
    """List the digests of the checkpoints in folders. Those of the hub are known by name, and may not be here yet."""
    from keystone.indexing.encoders.checkpoint import read_checkpoint

    models = [one.model for one in settings.list_steps() if one.method == "model" and one.model]
    return [read_checkpoint(model).compute_digest() for model in models if Path(model).is_dir()]


def _bound_depth(asked: Asked, one: AskedTopic) -> int:
    """Bound the documents of a topic that are ranked again: those that grades select may stand before all others."""
    config = asked.job.config
    selected = config.grading.documents if config.reranks_after("grades") else 0
    return min(config.rerank.depth, config.fusion.get_depth(one.topic.id) + selected, asked.documents)


def _foresee(asked: Asked, one: AskedTopic) -> Iterator[Ask]:
    config, deepest = asked.job.config, _bound_depth(asked, one)
    for settings in config.rerank.list_steps():
        depth = min(settings.depth, deepest)
        tokens = min(settings.tokens, share_window(asked.model.window, settings.block))
        if settings.method == "listwise":
            number = len(make_blocks(depth, settings.block))
        elif settings.method == "sliding":
            number = len(list_windows(depth, settings.block, settings.stride))
        else:
            continue
        block = min(settings.block, depth)
        request = request_ranking(one.topic.narrative, [""] * block)
        yield Ask("rerank", number, request, number * block * CHARACTERS_PER_TOKEN * tokens)


def _name_work(config: RunConfig) -> str:
    methods = [one.method for one in config.rerank.list_steps()]
    if "endpoint" in methods:
        return "asks the server of the reranker"
    return "runs the model of the reranker" if "model" in methods else ""


def foresee_endpoints(asked: Asked) -> Foreseen | None:
    """Foresee the requests to the servers of rerankers. A segment's tokens are bounded as those of a prompt."""
    steps = [one for one in asked.job.config.rerank.list_steps() if one.method == "endpoint" and one.endpoint]
    requests, characters = 0, 0
    for settings in steps:
        for one in asked.topics:
            passages = min(settings.depth, _bound_depth(asked, one)) * settings.segments
            requests += -(-passages // BATCH_PASSAGES)
            characters += passages * (len(one.topic.narrative) + CHARACTERS_PER_TOKEN * settings.tokens)
    if not steps:
        return None
    names = ", ".join(dict.fromkeys(one.endpoint.name for one in steps if one.endpoint))
    return Foreseen("rerank", names, Usage(requests, characters), Usage(requests, characters // CHARACTERS_PER_TOKEN))


def _make_stage(into: Artifact[Rankings]) -> StageKind:
    return StageKind(
        name="rerank",
        makes=lambda _: (into, RERANKS_FILE),
        reads=lambda before: (before.narrative_ranking,),
        key=_make_key,
        work=partial(rerank_narratives, into=into),
        ranks_narratives=lambda _: into,
        losses={"placed": "ranked too low before the reranker", "reranked": "put too low by the reranker"},
        asks=ASKS,
        foresee=_foresee,
        notes=lambda _: (RERANKS_FILE,),
        records=lambda _: (RERANKS_FILE,),
        why_kept=_name_work,
        describe=lambda before: [
            {"name": into.stem, "method": before.config.rerank.method, "reranks": before.narrative_ranking.stem}
        ],
    )


AFTER_FUSION = replace(_make_stage(RERANKED_FILE), wanted=lambda config: config.reranks_after("fusion"))
AFTER_GRADES = replace(
    _make_stage(KEYSTONE_FILE),
    wanted=lambda config: config.reranks_after("grades"),
    answers_need=lambda job: job.answer_settings.reads_ranking,
)
