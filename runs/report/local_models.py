"""The models that a run would use on this machine: encoders of its index, and rerankers."""

from collections.abc import Iterator, Sequence

from keystone.indexing.encoders.footprint import Footprint, measure_footprint
from keystone.retrieval.dense import DenseSystem
from keystone.retrieval.impact import ImpactSystem
from keystone.retrieval.late import LateSystem
from keystone.runs.pipeline.job import Job


def foresee_local_models(job: Job) -> tuple[Footprint, ...]:
    """Measure the models that a run would use on this machine. It loads and fetches none.

    `UserError` for damaged weights.
    """
    return tuple(measure_footprint(use, model) for use, model in dict.fromkeys(_list_models(job)))


def _list_models(job: Job) -> Iterator[tuple[str, str]]:
    index = job.index
    embeddings = [("embeddings", index.embedding)] if index.embedding else []
    for name, system in job.config.make_systems().items():
        if isinstance(system, LateSystem):
            yield f"late interaction {name}", system.model
        if isinstance(system, DenseSystem) and system.vectors in index.vectors:
            embeddings.append((f"embeddings {system.vectors}", index.vectors[system.vectors].embedding))
        if isinstance(system, ImpactSystem) and system.impacts in index.impacts:
            yield f"impacts {system.impacts}", index.impacts[system.impacts].model
    yield from ((use, one.model) for use, one in embeddings if not one.url)
    yield from (
        ("reranker", one.model) for one in job.config.rerank.list_steps() if one.method == "model" and one.model
    )


def format_footprints(found: Sequence[Footprint]) -> Iterator[str]:
    """Format what each model takes, one a line."""
    for one in found:
        place = "here" if one.folder else "would be fetched"
        memory = "" if one.memory is None else f", {one.memory / 1e6:,.0f} MB of weights in memory"
        disk = "size not known" if one.disk is None else f"{one.disk / 1e6:,.0f} MB on disk"
        yield f"model on this machine, {one.use}: {one.model}: {place}, {disk}{memory}"
